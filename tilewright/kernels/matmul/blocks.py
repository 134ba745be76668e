"""How large the blocks of matrix products are, and into how many parts their inner axis goes."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tilewright as tw
from tilewright.kernels.arrays import on_cpu
from tilewright.kernels.rows import MULTIPROCESSORS

__all__ = ["chunk_for", "steps_for", "tuned"]

_SHARED = 226 << 10  # bytes of shared memory, less what barriers take


class Blocks(NamedTuple):
    """How a tile of products is computed."""

    rows: int
    columns: int
    inner: int  # bytes along the inner axis
    warps: int
    stages: int  # at most: as many as shared memory has room for
    halves: bool  # whether a tile is stored in two parts
    step: float = 0.0  # microseconds for a block of the inner axis, as measured on an H200


# Elements of one and two bytes; their steps take as long.
NARROW = (
    Blocks(128, 256, 128, 8, 4, True, 0.71),
    Blocks(128, 128, 128, 8, 5, False, 0.38),
    Blocks(64, 256, 128, 4, 4, True, 0.45),
    Blocks(64, 128, 128, 4, 6, False, 0.27),
    Blocks(128, 64, 128, 4, 6, False, 0.28),
    Blocks(64, 64, 128, 4, 6, False, 0.18),
)
FOUR_BYTES = (
    Blocks(128, 128, 128, 8, 4, False, 0.8),
    Blocks(64, 64, 128, 4, 4, False, 0.25),
)
EIGHT_BYTES = (Blocks(64, 64, 128, 4, 2, False, 1.0),)
CPU = (
    Blocks(128, 256, 1024, 4, 1, False),
    Blocks(64, 64, 1024, 4, 1, False),
    Blocks(256, 256, 1024, 4, 1, False),
    Blocks(128, 128, 512, 4, 1, False),
)
# Microseconds of a launch, and of what adds up parts; for each tile of a program; for a byte of
# the parts, which is written and read.
_LAUNCH, _SECOND_LAUNCH, _TILE, _PART_BYTE = 5.0, 3.0, 0.5, 2 / 6e6
_LEAST_STEPS, _MOST_PARTS = 8, 64
_LEAST_CHUNK = 512  # of the inner axis, that a program is worth on the CPU
_WORTH_PARTS = 0.9  # of the time without
_TRIALS = 3


def _blocks(itemsize: int) -> tuple[Blocks, ...]:
    return {4: FOUR_BYTES, 8: EIGHT_BYTES}.get(itemsize, NARROW)


def _time(blocks: Blocks, steps: int, rows: int, columns: int, results: int) -> float:
    """Estimate the microseconds of products: programs compute as many tiles as the busiest."""
    tiles = tw.cdiv(rows, blocks.rows) * tw.cdiv(columns, blocks.columns) * results
    turns: int = tw.cdiv(tiles, MULTIPROCESSORS)
    return _LAUNCH + turns * (steps * blocks.step + _TILE)


@functools.lru_cache(4096)
def _parts(itemsize: int, batch: int, rows: int, columns: int, inner: int) -> int:
    """Return into how many parts the inner axis goes so that the estimate is the lowest."""
    steps = tw.cdiv(inner * itemsize, 128)

    def time(parts: int) -> float:
        share = tw.cdiv(steps, parts)
        time = min(_time(x, share, rows, columns, batch * parts) for x in _blocks(itemsize))
        if parts == 1:
            return _WORTH_PARTS * time
        return time + _SECOND_LAUNCH + 4 * batch * parts * rows * columns * _PART_BYTE

    return min(range(1, max(min(steps // _LEAST_STEPS, _MOST_PARTS), 1) + 1), key=time)


def chunk_for(x: Any, itemsize: int, batch: int, rows: int, columns: int, inner: int) -> int:
    """Return how much of the inner axis a program takes, in elements.

    Where there are too few tiles for all multiprocessors, or a few too many for their number,
    several programs share one, and their sums are added up in a launch of its own.
    """
    if on_cpu(x):
        tiles = tw.cdiv(rows, 64) * tw.cdiv(columns, 128) * batch
        parts, block = min(tw.get_num_threads() // tiles, inner // _LEAST_CHUNK, _MOST_PARTS), 256
    else:
        parts, block = _parts(itemsize, batch, rows, columns, inner), 128 // itemsize
    blocks: int = tw.cdiv(tw.cdiv(inner, max(parts, 1)), block)
    return blocks * block


def steps_for(x: Any, tiles: int, steps: int, staged: int, together: int = 4) -> int:
    """Return how many steps of the inner axis a program takes, so that all run at the same time.

    `staged`: the bytes of shared memory that a program needs; `together`: for how many programs a
    multiprocessor has registers.
    """
    together = max(min(_SHARED // staged, together), 1)
    programs = tw.get_num_threads() if on_cpu(x) else together * MULTIPROCESSORS
    share: int = tw.cdiv(steps, max(min(programs // tiles, steps // 4, 16), 1))
    return share


def _config(blocks: Blocks, itemsize: int, out_itemsize: int) -> tw.Config:
    loaded = (blocks.rows + blocks.columns) * blocks.inner
    stored = blocks.rows * blocks.columns * out_itemsize // (2 if blocks.halves else 1)
    values = {
        "BLOCK_M": blocks.rows,
        "BLOCK_N": blocks.columns,
        "BLOCK_K": blocks.inner // itemsize,
        "HALVES": blocks.halves,
    }
    stages = max(min(blocks.stages, (_SHARED - stored) // loaded), 1)
    return tw.Config(values, num_warps=blocks.warps, num_stages=stages)


def _worth_a_trial(arguments: dict[str, Any]) -> list[tw.Config]:
    """Return the blocks to choose from, the likeliest first."""
    a, sizes = arguments["a_ptr"], arguments["sizes"]
    itemsize, out_itemsize = a.dtype.itemsize, arguments["out_ptr"].dtype.itemsize
    chosen: Sequence[Blocks]
    if on_cpu(a):
        chosen, itemsize = (
            CPU[1:] if min(sizes.rows, sizes.columns) <= 64 else CPU,
            max(itemsize, 4),
        )
    else:
        steps = tw.cdiv(sizes.chunk * itemsize, 128)
        chosen = sorted(
            _blocks(itemsize),
            key=lambda x: _time(x, steps, sizes.rows, sizes.columns, sizes.results),
        )[:_TRIALS]
    return [_config(blocks, itemsize, out_itemsize) for blocks in chosen]


tuned = tw.autotune(
    [_config(blocks, 4, 4) for blocks in CPU],
    key=["sizes", "A_TRANSPOSED", "B_TRANSPOSED"],
    prune_configs_by={"early_config_prune": lambda _, arguments, **__: _worth_a_trial(arguments)},
    default=lambda arguments: _worth_a_trial(arguments)[0],
)
