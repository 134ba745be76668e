"""How planes of images are shared out to programs, for norms of channels."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import (
    empty,
    empty_in_layout_of,
    empty_like,
    itemsize,
    on_cpu,
    strides,
)
from tilewright.kernels.rows import MULTIPROCESSORS, accumulator_bytes, accumulator_name

__all__ = ["Planes", "empty_planes", "shared_out"]

_ELEMENTS = 4096  # of a tile
_MOST_NUMBERS = 2048  # of a tile of what is joined
_MOST_PLACES = 4096  # of a tile of one channel
_MOST_CHANNELS = 64  # of a tile of neighbouring channels
_GPU_ELEMENTS = 2048  # of such a tile: more of them are under way at a time
_MOST_HELD_BYTES = 128 << 10  # of a group that a GPU's program holds, as numbers to compute with
_MOST_GROUP_BYTES = 256 << 10  # that are in a cache for a second time
_CPU_PROGRAMS = 16


@dataclass(frozen=True)
class Planes:
    """Arrays folded to (samples, channels, inside), what belongs together, and the tiles.

    `groups` is 0 where all samples of a channel belong together. `by_group`: a program has a group,
    `is_whole`: which is one tile, and read once.
    `is_swapped`: what is called a sample is a channel, and the other way round.
    """

    arrays: tuple[Any, ...]
    groups: int
    rows: int
    block: int
    parts: int
    span: int
    by_group: bool
    is_whole: bool
    is_swapped: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of samples, of channels and of places inside."""
        samples, channels, inside = self.arrays[0].shape
        return samples, channels, inside

    @property
    def in_group(self) -> int:
        """How many channels belong together."""
        return self.shape[1] // self.groups if self.groups else 1

    @property
    def tile(self) -> dict[str, int]:
        """The parameters of a kernel that say how large its tiles are."""
        return {"ROWS": self.rows, "BLOCK": self.block}

    @property
    def lanes(self) -> dict[str, int]:
        """The parameter that says how many sums of a row are kept from tile to tile."""
        if self.is_whole:
            return {}
        return {"LANES": 1 if on_cpu(self.arrays[0]) else self.block}

    def numbers(self, copies: int) -> list[Any]:
        """Return room for so many numbers of each part of a plane."""
        samples, channels, _ = self.shape
        x = self.arrays[0]
        shape = (channels, samples) if self.is_swapped else (samples * self.parts, channels)
        return [empty(shape, x, accumulator_name(x)) for _ in range(copies)]

    @property
    def apart(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """How far apart samples, and channels, are among parameters and among `numbers`."""
        samples, channels, _ = self.shape
        return ((1, 0), (1, samples)) if self.is_swapped else ((0, 1), (channels, 1))

    def launch(self, kernel: Any, *others: Any, blocks: bool = False) -> None:
        """Launch a kernel for tiles of all planes, or for `blocks` of one tile of each.

        `others` are what follows the first arrays, up to the sizes.
        """
        samples, channels, inside = self.shape
        parts = tw.cdiv(inside, self.block) if blocks else self.parts
        grid = (samples * parts, tw.cdiv(channels, self.rows))
        sizes = (channels, inside, parts, *(() if blocks else (self.span,)))
        kernel[grid](*others, *sizes, **self.tile, **({} if blocks else self.lanes))

    def join(self) -> tuple[tuple[int, int], int, dict[str, int]]:
        """Return the grid of groups, how many rows of numbers each has, and a program's tile."""
        samples, channels, _ = self.shape
        grid = (samples, self.groups) if self.groups else (1, channels)
        rows = samples * self.parts // grid[0]
        width = tw.next_power_of_2(self.in_group)
        height = min(tw.next_power_of_2(rows), max(_MOST_NUMBERS // width, 1))
        return grid, rows, {"ROWS": height, "BLOCK": width}


def shared_out(groups: int, *arrays: Any, has_statistics: bool = False) -> Planes:
    """Return how arrays of one shape, outputs among them, are shared out to programs.

    `has_statistics`: planes need not know of each other.
    """
    x = arrays[0]
    folded = tuple(y.reshape((*y.shape[:2], math.prod(y.shape[2:]))) for y in arrays)
    if not groups and all(map(_is_one_row, folded)):
        folded = tuple(y.swapaxes(0, 1).reshape((1, y.shape[1], -1)) for y in folded)
    is_swapped = not (groups or has_statistics) and _are_rows_cached(folded[0])
    if is_swapped:
        folded, groups = tuple(y.swapaxes(0, 1) for y in folded), 1
    samples, channels, inside = folded[0].shape
    _, across, along = strides(folded[0])
    is_last = across < along or inside == 1
    in_group = channels // (groups or channels)
    by_group = (
        groups > 0
        and not (is_last and inside > 1)
        and in_group * inside * itemsize(x) <= _MOST_GROUP_BYTES
        and samples * groups >= (_CPU_PROGRAMS if on_cpu(x) else MULTIPROCESSORS)
    )
    elements = _GPU_ELEMENTS if is_last and not on_cpu(x) else _ELEMENTS
    rows, block = _tile(in_group if by_group else channels, inside, is_last, elements)
    is_whole = by_group and not on_cpu(x) and _is_held(x, in_group, inside)
    if is_whole:
        rows, block = tw.next_power_of_2(in_group), tw.next_power_of_2(inside)
    blocks = tw.cdiv(inside, block)
    wanted = _CPU_PROGRAMS if on_cpu(x) else 16 * MULTIPROCESSORS
    most_parts = max(wanted // (samples * tw.cdiv(channels, rows)), 1)
    span = tw.cdiv(blocks, 1 if by_group else min(most_parts, blocks))
    parts = tw.cdiv(blocks, span)
    return Planes(folded, groups, rows, block, parts, span * block, by_group, is_whole, is_swapped)


def _is_held(x: Any, in_group: int, inside: int) -> bool:
    """Whether the registers of a GPU's program hold a group."""
    elements = tw.next_power_of_2(in_group) * tw.next_power_of_2(inside)
    return elements * accumulator_bytes(x) <= _MOST_HELD_BYTES


def _are_rows_cached(x: Any) -> bool:
    """Whether a program of the CPU reads all samples of a channel best, twice from a cache."""
    samples, channels, inside = x.shape
    is_small = samples * inside * itemsize(x) <= _MOST_GROUP_BYTES
    is_dense = samples > 1 and inside > 1 and strides(x)[2] <= min(strides(x)[:2])
    return on_cpu(x) and is_small and is_dense and channels >= _CPU_PROGRAMS


def _is_one_row(x: Any) -> bool:
    """Whether the elements of a channel are equally far apart, from sample to sample, too."""
    samples, _, inside = x.shape
    step, _, along = strides(x)
    return bool(samples == 1 or inside == 1 or step == inside * along)


def empty_planes(x: Any) -> Any:
    """Return a new array of the shape of `x`, and in its order unless that parts its planes."""
    y = empty_in_layout_of(x)
    inner = list(zip(y.shape, strides(y), strict=True))[2:]
    pairs = itertools.pairwise(inner)
    is_folded = all(step == size * next_step for (_, step), (size, next_step) in pairs)
    return y if is_folded else empty_like(x)


def _tile(channels: int, inside: int, is_last: bool, elements: int) -> tuple[int, int]:
    """Return how many channels and places a tile has: many of those that are neighbours."""
    rows, block = tw.next_power_of_2(channels), tw.next_power_of_2(inside)
    if is_last:
        rows = min(rows, _MOST_CHANNELS)
        return rows, min(block, elements // rows)
    block = min(block, _MOST_PLACES)
    return min(rows, max(elements // block, 1)), block
