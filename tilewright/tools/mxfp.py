"""Numbers of the microscaling formats on the host, as PyTorch tensors of their codes.

The formats are those of the OCP specification: e2m1 has 4 bits, e8m0 is a power of two in 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.errors import LaunchError

__all__ = ["MXFP4Tensor", "MXScaleTensor"]

# The numbers of the codes 0 to 7; bit 3 is the sign.
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_SIGN = 3

_BIAS = 127
_NAN = 255


class _Codes:
    """Codes in `data`, made of numbers or, by `random`, for a shape in `size`."""

    def __init__(self, data: Any = None, size: Any = None, device: Any = None) -> None:
        import torch

        if data is None and size is None:
            raise LaunchError(
                f"{type(self).__name__} takes `data` or `size`",
                hint="pass a tensor of numbers, or the shape of what `random()` makes",
            )
        if data is not None and not isinstance(data, torch.Tensor):
            raise LaunchError(
                f"`data` is a PyTorch tensor, not a {type(data).__name__}",
                hint="torch.as_tensor makes one",
            )
        shape = size if data is None else data.shape
        self.size = (shape,) if isinstance(shape, int) else tuple(shape)
        self.device = device if data is None else data.device
        self.data: Any = None if data is None else self._codes_of(data)

    def _codes_of(self, values: Any) -> Any:
        raise NotImplementedError

    def _fill(self, first: int, end: int) -> None:
        import torch

        self.data = torch.randint(first, end, self.size, dtype=torch.uint8, device=self.device)

    @staticmethod
    def _require_fp32(dtype: Any) -> None:
        import torch

        if dtype != torch.float32:
            raise LaunchError(
                f"the numbers are there as torch.float32, not {dtype}",
                hint=f".to(torch.float32).to({dtype})",
            )


class MXFP4Tensor(_Codes):
    """Numbers in the format e2m1, one in each byte of `data`.

    Args:
        data: An fp32 tensor: the nearest numbers, of two the one with an even code. What is too
            large, infinity and NaN become 6 with their sign.
        size: Or the shape of what `random` makes, on `device`.
    """

    def random(self) -> MXFP4Tensor:
        """Fill with random codes, all equally likely; return itself."""
        self._fill(0, 16)
        return self

    def to(self, dtype: Any) -> Any:
        """Return the numbers as fp32, the only `dtype` there is."""
        import torch

        self._require_fp32(dtype)
        numbers = torch.tensor(_MAGNITUDES, device=self.data.device)
        return torch.cat([numbers, -numbers])[self.data.long()]

    def _codes_of(self, values: Any) -> Any:
        import torch

        numbers = torch.tensor(_MAGNITUDES, device=values.device)
        halfway = (numbers[1:] + numbers[:-1]) / 2
        sizes = torch.nan_to_num(values.float().abs(), nan=_MAGNITUDES[-1])
        below = torch.bucketize(sizes, halfway)
        above = torch.bucketize(sizes, halfway, right=True)
        codes = torch.where(below % 2 == 0, below, above)
        return (codes | torch.signbit(values) << _SIGN).to(torch.uint8)

    def to_packed_tensor(self, dim: int) -> Any:
        """Return the codes with two neighbours along `dim` in a byte, the first in its low half.

        Where the size is odd, the last byte has a zero in its high half.
        """
        import torch

        size = self.data.shape[dim]
        low = self.data.index_select(dim, torch.arange(0, size, 2, device=self.data.device))
        high = torch.zeros_like(low)
        odd = self.data.index_select(dim, torch.arange(1, size, 2, device=self.data.device))
        high.narrow(dim, 0, size // 2).copy_(odd)
        return low | high << 4

    def unpack_packed_tensor(
        self, packed_tensor: Any, dim: int, original_shape: Sequence[int]
    ) -> Any:
        """Return what `to_packed_tensor` was called on: codes in the shape `original_shape`."""
        import torch

        pairs = torch.stack((packed_tensor & 15, packed_tensor >> 4), dim + 1)
        return pairs.flatten(dim, dim + 1).narrow(dim, 0, original_shape[dim])


class MXScaleTensor(_Codes):
    """Powers of two in the format e8m0: the code e is 2^(e - 127), and 255 is NaN.

    Args:
        data: An fp32 tensor of positive numbers, rounded down to powers of two; others become NaN.
        size: Or the shape of what `random` makes, on `device`.
    """

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fill with random powers of two from `low` to `high`, never NaN; return itself."""
        first = 0 if low is None else max(0, int(math.log2(low)) + _BIAS)
        last = _NAN - 1 if high is None else min(_NAN - 1, max(0, int(math.log2(high)) + _BIAS))
        if first > last:
            raise LaunchError(
                f"there is no power of two from {low} to {high}", hint="widen the range"
            )
        self._fill(first, last + 1)
        return self

    def to(self, dtype: Any) -> Any:
        """Return the numbers as fp32, the only `dtype` there is."""
        import torch

        self._require_fp32(dtype)
        codes = self.data.to(torch.int32)
        # The code is the exponent of fp32; 2^-127, which has none, is half of the least with one.
        bits = torch.where(codes == 0, 1 << 22, codes << 23)
        return torch.where(codes == _NAN, math.nan, bits.view(torch.float32))

    def _codes_of(self, values: Any) -> Any:
        import torch

        exponents = torch.frexp(values).exponent - 1 + _BIAS
        is_positive = torch.isfinite(values) & (values > 0)
        return torch.where(is_positive, exponents.clamp(0, _NAN - 1), _NAN).to(torch.uint8)
