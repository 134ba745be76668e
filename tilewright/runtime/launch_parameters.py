"""What a launcher checks: for each parameter of a kernel, which values its code is for.

Plain classes: dataclasses take longer to make than a kernel to load from the disk cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

__all__ = [
    "AddressParameter",
    "ArrayParameter",
    "BoolParameter",
    "ConstantParameter",
    "DescriptorParameter",
    "FloatParameter",
    "IntParameter",
    "LaunchParameter",
    "Launcher",
    "TupleParameter",
]

# `launcher(grid_x, grid_y, grid_z, *arguments)`; it returns NotImplemented where it declines.
Launcher: TypeAlias = Callable[..., object]


class ArrayParameter:
    """A NumPy array or a PyTorch CPU tensor of one element type.

    `divisible_by_16` is what must hold for the address (None: anything); `written` refuses
    read-only arrays. Some arrays without elements have the address 0.
    """

    __match_args__ = ("dtype_name", "divisible_by_16")

    def __init__(
        self,
        dtype_name: str,
        divisible_by_16: bool | None = None,
        *,
        written: bool = True,
        may_be_null: bool = True,
    ) -> None:
        self.dtype_name = dtype_name
        self.divisible_by_16 = divisible_by_16
        self.written = written
        self.may_be_null = may_be_null


class AddressParameter:
    """A raw address, given as an int."""

    __match_args__ = ("divisible_by_16",)

    def __init__(self, divisible_by_16: bool | None = None, *, may_be_null: bool = True) -> None:
        self.divisible_by_16 = divisible_by_16
        self.may_be_null = may_be_null


class IntParameter:
    """An int that fits `bits` bits.

    `excludes_one`: 1 has a kernel of its own. `excludes_narrower`: the width was chosen by the
    value, so what fits a signed integer of half the width (for u64: of the same) does not belong
    here.
    """

    def __init__(
        self,
        bits: int,
        *,
        signed: bool = True,
        divisible_by_16: bool | None = None,
        excludes_one: bool = False,
        excludes_narrower: bool = False,
    ) -> None:
        self.bits = bits
        self.signed = signed
        self.divisible_by_16 = divisible_by_16
        self.excludes_one = excludes_one
        self.excludes_narrower = excludes_narrower


class FloatParameter:
    """A float, passed with 32 or 64 bits."""

    __match_args__ = ("bits",)

    def __init__(self, bits: int = 32) -> None:
        self.bits = bits


class BoolParameter:
    """True or False."""


class ConstantParameter:
    """A value that is compiled into the kernel: only the very same value fits."""

    __match_args__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class DescriptorParameter:
    """A tensor descriptor of an array, with blocks of one shape.

    `whole_rows` is whether the bytes of the last size must be a multiple of 16, else they must not
    be.
    """

    def __init__(
        self,
        base: ArrayParameter,
        block_shape: tuple[int, ...],
        padding: str,
        *,
        whole_rows: bool,
        round_f32_to_tf32: bool,
    ) -> None:
        self.base = base
        self.block_shape = block_shape
        self.padding = padding
        self.whole_rows = whole_rows
        self.round_f32_to_tf32 = round_f32_to_tf32


class TupleParameter:
    """A tuple of just this type, with a parameter for each item."""

    __match_args__ = ("kind", "items")

    def __init__(self, kind: type, items: Sequence[LaunchParameter]) -> None:
        self.kind = kind
        self.items = items


LaunchParameter: TypeAlias = (
    ArrayParameter
    | AddressParameter
    | IntParameter
    | FloatParameter
    | BoolParameter
    | ConstantParameter
    | DescriptorParameter
    | TupleParameter
)
