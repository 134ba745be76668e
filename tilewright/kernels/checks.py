"""Arguments that cannot be right are refused before anything is launched, with the names of all."""

import math
from typing import Any

import numpy as np

from tilewright.kernels.arrays import (
    converted,
    dtype_name,
    is_array,
    is_at_hand,
    is_tensor,
    torch,
)

__all__ = [
    "FLOATING",
    "PLAIN",
    "array",
    "broadcastable",
    "dimension",
    "even_sized",
    "floating",
    "integral",
    "numbers",
    "of_bytes",
    "one_of",
    "plain",
    "ranked",
    "rising",
    "same_dtype",
    "same_kind",
    "seed_array",
    "shaped",
    "share",
    "within",
]

FLOATING = ("float16", "bfloat16", "float32", "float64")


def _symbolic(name: str) -> tuple[type, ...]:
    """Return the type of what PyTorch has for a size or number that it does not know yet."""
    return () if torch is None else (getattr(torch, name),)


_INTEGERS = (int, np.integer, *_symbolic("SymInt"))
PLAIN: dict[str, tuple[type, ...]] = {
    "an integer": _INTEGERS,
    "a number": (float, np.floating, *_symbolic("SymFloat"), *_INTEGERS),
    "a text": (str,),
    "True or False": (bool, np.bool_, *_symbolic("SymBool")),
}


def array(**given: Any) -> None:
    """Raise `TypeError` unless each is an array."""
    for name, x in given.items():
        if not is_array(x):
            kind = type(x).__name__
            raise TypeError(
                f"`{name}` is of {kind}; a tensor of PyTorch or an array of NumPy is needed"
            )


def plain(kind: str, /, **given: Any) -> None:
    """Raise `TypeError` unless each is "an integer", "a number", "a text" or "True or False"."""
    for name, value in given.items():
        if not isinstance(value, PLAIN[kind]):
            raise TypeError(f"`{name}` is {value!r}; {kind} is needed")


def _given(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that are not None; raise `TypeError` unless they are arrays."""
    given = {name: x for name, x in arrays.items() if x is not None}
    array(**given)
    return given


def floating(**arrays: Any) -> None:
    """Raise `TypeError` unless each array is of fp16, bf16, fp32 or fp64; None is left out.

    A tensor that keeps some of its elements only, as sparse ones do, is a `TypeError`, too.
    """
    for name, x in _given(arrays).items():
        if is_tensor(x) and x.layout is not torch.strided:
            raise TypeError(
                f"`{name}` is of the layout {x.layout}; one with all elements is needed:"
                f" `{name}.to_dense()`"
            )
        if dtype_name(x) not in FLOATING:
            raise TypeError(
                f"`{name}` is of {dtype_name(x)}; one of {', '.join(FLOATING)} is needed"
            )


def integral(**arrays: Any) -> None:
    """Raise `TypeError` unless each array is of int32 or int64; None is left out."""
    for name, x in _given(arrays).items():
        if dtype_name(x) not in {"int32", "int64"}:
            raise TypeError(f"`{name}` is of {dtype_name(x)}; int32 or int64 is needed")


def of_bytes(**arrays: Any) -> None:
    """Raise `TypeError` unless each array is of uint8; None is left out."""
    for name, x in _given(arrays).items():
        if dtype_name(x) != "uint8":
            raise TypeError(f"`{name}` is of {dtype_name(x)}; uint8 is needed")


def ranked(least: int, most: int | None, **arrays: Any) -> None:
    """Raise `ValueError` unless each array has so many dimensions; None is left out.

    `most` None: there is no limit.
    """
    for name, x in _given(arrays).items():
        if x.ndim < least or (most is not None and x.ndim > most):
            wanted = f"at least {least}" if most is None else f"{least} to {most}"
            wanted = f"{least}" if least == most else wanted
            verb = "is" if wanted.endswith("1") else "are"
            raise ValueError(f"`{name}` has {x.ndim} dimensions; {wanted} {verb} needed")


def dimension(x: Any, dim: int, name: str = "dim") -> int:
    """Return the number of a dimension, counted from the first.

    Raise `IndexError` if there is none, and `TypeError` where it is no integer or `x` no array.
    """
    array(input=x)
    plain("an integer", **{name: dim})
    count: int = x.ndim
    if not -count <= dim < count:
        raise IndexError(f"`{name}` is {dim}, and the array has {count} dimensions")
    return int(dim) % count


def shaped(shape: tuple[int, ...], **arrays: Any) -> None:
    """Raise `ValueError` unless each array has that shape; None is left out."""
    for name, x in _given(arrays).items():
        if tuple(x.shape) != tuple(shape):
            raise ValueError(f"`{name}` has the shape {tuple(x.shape)}; {tuple(shape)} is needed")


def broadcastable(shape: tuple[int, ...], **arrays: Any) -> None:
    """Raise `ValueError` unless each array can be repeated to that shape; None is left out."""
    for name, x in _given(arrays).items():
        sizes = zip(reversed(x.shape), reversed(shape), strict=False)
        if x.ndim > len(shape) or any(have not in (1, want) for have, want in sizes):
            raise ValueError(
                f"`{name}` has the shape {tuple(x.shape)}; one that broadcasts to {shape} is needed"
            )


def same_kind(**arrays: Any) -> None:
    """Raise unless all arrays are of one package, on one device; None is left out."""
    (first, x), *others = _given(arrays).items()
    for name, y in others:
        if is_tensor(x) != is_tensor(y):
            kinds = {True: "a tensor of PyTorch", False: "an array of NumPy"}
            raise TypeError(
                f"`{first}` is {kinds[is_tensor(x)]}, and `{name}` {kinds[is_tensor(y)]}; all have"
                " to be of one kind (`torch.from_numpy(x)`, `x.numpy()`)"
            )
        if is_tensor(x) and x.device != y.device:
            raise ValueError(f"`{first}` is on {x.device}, and `{name}` on {y.device}")


def same_dtype(**arrays: Any) -> None:
    """Raise `TypeError` unless all arrays have the same dtype; None is left out."""
    (first, x), *others = _given(arrays).items()
    for name, y in others:
        if dtype_name(x) != dtype_name(y):
            raise TypeError(f"`{first}` is of {dtype_name(x)}, and `{name}` of {dtype_name(y)}")


def even_sized(**arrays: Any) -> None:
    """Raise `ValueError` unless the last dimension of each array has an even size."""
    array(**arrays)
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


def share(owner: str = "", /, **values: Any) -> None:
    """Raise `ValueError` unless each value is from 0 to 1, `TypeError` unless it is a number.

    The message begins with the `owner` of the values, if one is given.
    """
    prefix = f"{owner}: " if owner else ""
    for name, value in values.items():
        if not isinstance(value, int | float | np.number):
            raise TypeError(f"{prefix}`{name}` has to be a number from 0 to 1, got {value!r}")
        if not 0 <= value <= 1:
            raise ValueError(f"{prefix}`{name}` is {value}; it has to be from 0 to 1")


def numbers(dims: int, least: int, **given: Any) -> list[int]:
    """Return an integer, or one for each of `dims` dimensions, as two: the first is neutral in one.

    Raise `ValueError` unless each is at least `least`, which is what is neutral.
    """
    ((name, value),) = given.items()
    values = list(value) if isinstance(value, list | tuple) else [value] * dims
    are_integers = all(hasattr(number, "__index__") for number in values)
    if len(values) != dims or not are_integers or any(number < least for number in values):
        integers = "an integer" if dims == 1 else f"an integer, or {dims} of them,"
        raise ValueError(f"`{name}` is {value!r}; {integers} of at least {least} is needed")
    return [least] * (2 - dims) + values


def within(least: int, most: int, **arrays: Any) -> None:
    """Raise `ValueError` unless the integers of each array are from `least` to `most`.

    None is left out, and so are arrays whose elements are not at hand: looking at those on a GPU
    would make the program wait for it.
    """
    for name, x in _given(arrays).items():
        if not is_at_hand(x) or 0 in x.shape:
            continue
        low, high = int(x.min()), int(x.max())
        if low < least or high > most:
            number = low if low < least else high
            raise ValueError(f"`{name}` has {number}; integers from {least} to {most} are needed")


def rising(most: int, **arrays: Any) -> None:
    """Raise `ValueError` unless integers of each array are from 0 to `most`, and none falls.

    What is left out is as for `within`.
    """
    within(0, most, **arrays)
    for name, x in _given(arrays).items():
        if is_at_hand(x) and bool((x[1:] < x[:-1]).any()):
            raise ValueError(f"`{name}` has an integer that is less than the one before it")


def seed_array(x: Any, seed: Any) -> Any:
    """Return a seed as an array of one int64 where `x` is; a random one for None.

    Raise unless it is an integer of 64 bits, or an array of one integer.
    """
    if seed is None:
        if is_tensor(x):
            return torch.randint(1 << 62, (1,), device=x.device)
        return np.random.default_rng().integers(1 << 62, size=1)
    if is_array(seed):
        integral(seed=seed)
        if math.prod(seed.shape) != 1:
            raise ValueError(f"`seed` has the shape {tuple(seed.shape)}; one integer is needed")
        same_kind(input=x, seed=seed)
        return converted(seed, "int64").reshape((1,))
    plain("an integer", seed=seed)
    if not -(1 << 63) <= seed < 1 << 63:
        raise ValueError(f"`seed` is {seed}; an integer of 64 bits is needed")
    if is_tensor(x):
        return torch.full((1,), seed, dtype=torch.int64, device=x.device)
    return np.array([seed], np.int64)
