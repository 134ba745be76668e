"""What a launch has to know to build the tensor maps that a kernel copies tiles with."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.types import DType

__all__ = [
    "MAP_ALIGNMENT",
    "MAP_BYTES",
    "MOST_FACTORS",
    "Extent",
    "Parameter",
    "Product",
    "TensorMap",
]

MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a tensor map, as the driver writes it
MOST_FACTORS = 3  # parameters in a product


@dataclass(frozen=True)
class Parameter:
    """The value of a parameter of the kernel, by its number among the flattened ones."""

    number: int


@dataclass(frozen=True)
class Product:
    """A factor times the values of 1 to 3 parameters, as a signed number of so many bits."""

    numbers: tuple[int, ...]
    factor: int
    bits: int


Extent = int | Parameter | Product


@dataclass(frozen=True)
class TensorMap:
    """How a kernel's tensor copies see an array, and the box that one copy moves.

    Sizes and strides count elements, outermost axis first, with no stride for the last axis, whose
    elements are adjacent. `base` is the number of the parameter that points to the first element.
    `swizzle` is 0, 32, 64 or 128 bytes. Elements outside of the array read as zero, or as NaN with
    `fills_nan`.
    """

    base: int
    sizes: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    box: tuple[int, ...]
    element: DType
    swizzle: int
    fills_nan: bool = False
