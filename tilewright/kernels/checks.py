"""Arguments that cannot be right are refused before anything is launched, with the names of all."""

from typing import Any

from tilewright.kernels.arrays import dtype_name, is_tensor

__all__ = [
    "dimension",
    "even_sized",
    "floating",
    "integral",
    "numbers",
    "one_of",
    "same_dtype",
    "same_kind",
    "shaped",
]

_FLOATING = ("float16", "bfloat16", "float32", "float64")


def floating(**arrays: Any) -> None:
    """Raise `TypeError` unless each array is of fp16, bf16, fp32 or fp64; None is left out."""
    for name, x in arrays.items():
        if x is not None and dtype_name(x) not in _FLOATING:
            raise TypeError(
                f"`{name}` is of {dtype_name(x)}; one of {', '.join(_FLOATING)} is needed"
            )


def integral(**arrays: Any) -> None:
    """Raise `TypeError` unless each array is of int32 or int64; None is left out."""
    for name, x in arrays.items():
        if x is not None and dtype_name(x) not in {"int32", "int64"}:
            raise TypeError(f"`{name}` is of {dtype_name(x)}; int32 or int64 is needed")


def dimension(x: Any, dim: int, name: str = "dim") -> int:
    """Return the number of a dimension, counted from the first; `IndexError` if there is none."""
    count: int = x.ndim
    if not -count <= dim < count:
        raise IndexError(f"`{name}` is {dim}, and the array has {count} dimensions")
    return dim % count


def shaped(shape: tuple[int, ...], **arrays: Any) -> None:
    """Raise `ValueError` unless each array has that shape; None is left out."""
    for name, x in arrays.items():
        if x is not None and tuple(x.shape) != tuple(shape):
            raise ValueError(f"`{name}` has the shape {tuple(x.shape)}; {tuple(shape)} is needed")


def same_kind(**arrays: Any) -> None:
    """Raise unless all arrays are of one package, on one device; None is left out."""
    (first, x), *others = ((name, x) for name, x in arrays.items() if x is not None)
    for name, y in others:
        if is_tensor(x) != is_tensor(y):
            raise TypeError(f"`{first}` is a {type(x).__name__}, and `{name}` a {type(y).__name__}")
        if is_tensor(x) and x.device != y.device:
            raise ValueError(f"`{first}` is on {x.device}, and `{name}` on {y.device}")


def same_dtype(**arrays: Any) -> None:
    """Raise `TypeError` unless all arrays have the same dtype; None is left out."""
    (first, x), *others = ((name, x) for name, x in arrays.items() if x is not None)
    for name, y in others:
        if dtype_name(x) != dtype_name(y):
            raise TypeError(f"`{first}` is of {dtype_name(x)}, and `{name}` of {dtype_name(y)}")


def even_sized(**arrays: Any) -> None:
    """Raise `ValueError` unless the last dimension of each array has an even size."""
    for name, x in arrays.items():
        if not x.ndim or x.shape[-1] % 2:
            raise ValueError(
                f"`{name}` has the shape {tuple(x.shape)}; the last size has to be even"
            )


def one_of(choices: tuple[str, ...], **values: str) -> None:
    """Raise `ValueError` unless each value is one of the choices."""
    for name, value in values.items():
        if value not in choices:
            known = ", ".join(map(repr, choices))
            raise ValueError(f"`{name}` is {value!r}; one of {known} is needed")


def numbers(dims: int, least: int, **given: Any) -> list[int]:
    """Return an integer, or one for each of `dims` dimensions, as two: the first is neutral in one.

    Raise `ValueError` unless each is at least `least`, which is what is neutral.
    """
    ((name, value),) = given.items()
    values = [value] * dims if isinstance(value, int) else list(value)
    if len(values) != dims or any(number < least for number in values):
        raise ValueError(f"`{name}` is {value}; {dims} of at least {least} needed")
    return [least] * (2 - dims) + values
