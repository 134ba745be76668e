"""What a loop of a kernel runs over: compiling reads the arguments, eager mode iterates."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.context import is_eager
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.promotion import common_type
from tilewright.frontend.semantic.values import describe, full_of, to_constant, to_tensor
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType

__all__ = ["condition", "range", "static_range"]


class _Bounds:
    def __init__(self, first: Any, second: Any, step: Any) -> None:
        first, second, step = unwrap(first), unwrap(second), unwrap(step)
        self.start: Any = 0 if second is None else first
        self.stop: Any = first if second is None else second
        self.step: Any = 1 if step is None else step

    def __repr__(self) -> str:
        bounds = ", ".join(describe(x) for x in (self.start, self.stop, self.step))
        return f"tl.{type(self).__name__}({bounds})"


class range(_Bounds):
    """A loop that runs when the kernel runs: `for i in tl.range(start, stop, step)`.

    Bounds are integers, known at compile time or not; the step may be negative. The options advise
    the compiler and never change a result: `num_stages` (how many iterations to overlap),
    `loop_unroll_factor`, `flatten`, `warp_specialize`, `disallow_acc_multi_buffer`, `disable_licm`.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the signature that the language fixes
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = False,
        disable_licm: Any = False,
    ) -> None:
        super().__init__(arg1, arg2, step)
        self.num_stages: int | None = unwrap(num_stages)
        self.loop_unroll_factor: int | None = unwrap(loop_unroll_factor)
        self.disallow_acc_multi_buffer = bool(unwrap(disallow_acc_multi_buffer))
        self.flatten = bool(unwrap(flatten))
        self.warp_specialize = bool(unwrap(warp_specialize))
        self.disable_licm = bool(unwrap(disable_licm))

    def __iter__(self) -> Iterator[Tensor]:
        if not is_eager():
            raise CompileError(
                "tl.range works in the header of a `for` only",
                hint="write `for i in tl.range(...)`",
            )
        start, stop, step = map(int, self.bounds())
        numbers = builtins.range(start, stop, step) if step else builtins.range(0)
        element = self.index_dtype
        return (full_of(number, element) for number in numbers)

    @property
    def index_dtype(self) -> DType:
        """The type of the index: the common type of the bounds."""
        dtypes = [tensor.dtype for tensor in self._scalars()]
        return functools.reduce(common_type, (d for d in dtypes if isinstance(d, DType)))

    def bounds(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return start, stop and step as integers of one type that has a sign: int32 or int64."""
        tensors = self._scalars()
        # An unsigned number needs a bit for the sign.
        widths = [t.dtype.primitive_bitwidth + t.dtype.is_int_unsigned() for t in tensors]
        index = DTYPES["i64" if max(widths) > 32 else "i32"]
        start, stop, step = (convert(tensor, index) for tensor in tensors)
        if not isinstance(self.step, Tensor) and self.step == 0:
            raise CompileError(
                "the step of a range must not be 0",
                hint="count upwards by a positive step, or downwards by a negative one",
            )
        return start, stop, step

    def _scalars(self) -> list[Tensor]:
        tensors = []
        for name, bound in (("start", self.start), ("stop", self.stop), ("step", self.step)):
            tensor = to_tensor(bound)
            if not (isinstance(tensor, Tensor) and not tensor.shape and tensor.dtype.is_int()):
                raise CompileError(
                    f"the {name} of a range must be a scalar integer, got {describe(bound)}",
                    hint="reduce a tile first, or convert a float: x.to(tl.int32)",
                )
            tensors.append(tensor)
        return tensors


class static_range(_Bounds):
    """A loop that is unrolled, over ints: `for i in tl.static_range(start, stop, step)`."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        super().__init__(arg1, arg2, step)
        self.start = to_constant(self.start, "static_range: the start")
        self.stop = to_constant(self.stop, "static_range: the stop")
        self.step = to_constant(self.step, "static_range: the step")
        if self.step == 0:
            raise CompileError(
                "static_range: the step must not be 0",
                hint="count upwards by a positive step, or downwards by a negative one",
            )

    def __iter__(self) -> Iterator[int]:
        return iter(builtins.range(self.start, self.stop, self.step))


class condition:
    """The condition of a `while` with options: `while tl.condition(c, disable_licm=True)`."""

    def __init__(self, arg1: Any, disable_licm: Any = False) -> None:
        self.condition = unwrap(arg1)
        self.disable_licm = bool(unwrap(disable_licm))

    def __bool__(self) -> bool:
        return bool(self.condition)
