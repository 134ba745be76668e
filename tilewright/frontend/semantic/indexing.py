"""Reading parts of tiles: `x[i]`, `x[2:6]`, `x[..., 0]`, `x[:, None]`."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.frontend.context import is_eager
from tilewright.frontend.emit import emit
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.arithmetic import add
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.comparison import where
from tilewright.frontend.semantic.diagnostics import device_assert
from tilewright.frontend.semantic.shapes import reshape, take
from tilewright.frontend.semantic.values import describe, fail, to_constant
from tilewright.frontend.tensor import Tensor, constant_array, tensor_operator
from tilewright.ir.types import DTYPES, PointerType
from tilewright.ops import Arange, ExpandDims

__all__ = ["index"]

_WHOLE = slice(None)


@tensor_operator("index")
def index(x: Tensor, key: Any) -> Tensor:
    """Return the part of a tile that a key selects: integers, slices, `...` and `None`."""
    # Where the axis is now, and where it was in the tile that is indexed, as messages say.
    axis = named = 0
    for item in _keys(x, key):
        if item is not None and not _is_whole(item):
            extension("a part of a tile", "load the part itself, or tl.gather(x, places, axis)")
        if item is None:
            x = emit(ExpandDims, x, axis)
        elif isinstance(item, slice):
            x = _slice(x, item, axis, named)
        else:
            x = _element(x, item, axis, named)
        axis += item is None or isinstance(item, slice)
        named += item is not None
    return x


def _keys(x: Tensor, key: Any) -> list[Any]:
    """Return one key for each axis of `x` up to the last that is named, and the `None` between."""
    keys = list(key) if isinstance(key, tuple) else [key]
    named = sum(item is not None and item is not Ellipsis for item in keys)
    places = [i for i, item in enumerate(keys) if item is Ellipsis]
    if len(places) > 1:
        fail("an index has more than one `...`", hint="write `:` for the other axes")
    if named and not x.shape and isinstance(x.dtype, PointerType):
        name = x.value.name
        fail(
            f"{f'`{name}` is' if name else 'this is'} a pointer ({describe(x)}), and a pointer is "
            "not indexed",
            hint=f"read with tl.load({name or 'x'} + i), write with "
            f"tl.store({name or 'x'} + i, value)",
        )
    if named > len(x.shape):
        fail(
            f"too many indices for a tile of shape {list(x.shape)}: {named}",
            hint="give at most one for each axis, and None for new ones",
        )
    if places:
        extension("`...` in an index", "a `:` for each axis")
    for place in places:
        keys[place : place + 1] = [_WHOLE] * (len(x.shape) - named)
    return keys


def _is_whole(item: Any) -> bool:
    return isinstance(item, slice) and all(
        bound is None for bound in (item.start, item.stop, item.step)
    )


def _slice(x: Tensor, key: slice, axis: int, named: int) -> Tensor:
    size = x.shape[axis]
    bounds = [
        None if bound is None else _bound(bound, name, named)
        for name, bound in (("start", key.start), ("stop", key.stop), ("step", key.step))
    ]
    if bounds[2] == 0:
        fail("slice: the step must not be 0", hint="leave it out for 1")
    chosen = range(size)[slice(*bounds)]
    if not chosen:
        fail(
            f"slice: nothing of an axis of size {size} is left",
            hint="tiles have at least one element along each axis",
        )
    if chosen == range(size):
        return x
    places = emit(Arange, 0, len(chosen))
    if chosen.step == 1:
        places = emit(Arange, chosen.start, chosen.stop)
    else:
        places = places * chosen.step + chosen.start
    return take(x, places, axis)


def _bound(bound: Any, name: str, axis: int) -> int:
    if isinstance(bound, Tensor) and constant_array(bound.value) is None:
        fail(
            f"slice: the {name} must be a compile-time constant, got a value of type "
            f"{bound.value.type}",
            f"pick computed places: tl.gather(x, start + tl.arange(0, SIZE), axis={axis})",
        )
    return to_constant(bound, f"slice: the {name}")


def _element(x: Tensor, key: Any, axis: int, named: int) -> Tensor:
    """Return `x` without an axis, at one place of it; a negative one counts from the end."""
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    is_computed = isinstance(key, Tensor) and (is_eager() or constant_array(key.value) is None)
    if is_computed:
        place = _computed_place(key, x.shape[axis], named)
    else:
        number = _known_place(key, x.shape[axis], named)
        place = emit(Arange, number, number + 1)
    return reshape(take(x, place, axis), rest)


def _known_place(key: Any, size: int, axis: int) -> int:
    if isinstance(key, bool) or not isinstance(key, Tensor | int):
        _refuse(key, axis)
    number = to_constant(key, "a tile's index")
    if not -size <= number < size:
        fail(
            f"the index {number} is outside of axis {axis}, which has size {size}",
            hint=f"count from 0 to {size - 1}, or backwards from -1",
        )
    return number % size


def _computed_place(key: Tensor, size: int, axis: int) -> Tensor:
    """Return a tile of one place; where it is outside, a gather gives 0."""
    dtype = key.dtype
    if key.shape or not dtype.is_int() or dtype is DTYPES["i1"]:
        _refuse(key, axis)
    if dtype.primitive_bitwidth < 32:
        key = convert(key, DTYPES["i32"])
    if dtype.is_int_signed():
        key = where(key < 0, add(key, size), key)
    inside = (key >= 0) & (key < size)
    device_assert(inside, f"an index is outside of axis {axis}, which has size {size}")
    return reshape(key, (1,))


def _refuse(key: Any, axis: int) -> NoReturn:
    fail(
        f"a tile is indexed by integers, slices, None and ..., got {describe(key)}",
        f"pick places with tl.gather(x, places, axis={axis}), or elements with tl.where",
    )
