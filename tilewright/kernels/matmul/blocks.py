"""How large the blocks of matrix products are: configurations, the likeliest first."""

from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import on_cpu

__all__ = ["MULTIPROCESSORS", "blocks_for", "tuned"]

MULTIPROCESSORS = 132

# Rows, columns, bytes along the inner axis, warps, stages, and whether a tile is stored in halves.
Blocks = tuple[int, int, int, int, int, bool]

LARGE: tuple[Blocks, ...] = (
    (128, 256, 128, 8, 3, True),
    (128, 256, 128, 8, 4, True),
    (128, 256, 128, 8, 3, False),
)
SMALL: tuple[Blocks, ...] = (
    (128, 128, 128, 8, 4, False),
    (64, 128, 128, 4, 6, True),
    (128, 64, 128, 4, 4, False),
)
FEW_ROWS: tuple[Blocks, ...] = (
    (64, 128, 128, 4, 6, True),
    (64, 64, 128, 4, 6, False),
    (64, 256, 128, 4, 4, True),
)
WIDE_ELEMENTS: tuple[Blocks, ...] = (
    (128, 128, 128, 8, 4, False),
    (64, 64, 128, 4, 4, False),
    (64, 64, 128, 4, 2, False),
)
CPU: tuple[Blocks, ...] = (
    (128, 256, 1024, 4, 1, False),
    (64, 64, 1024, 4, 1, False),
    (256, 256, 1024, 4, 1, False),
    (128, 128, 512, 4, 1, False),
)


def _config(blocks: Blocks, itemsize: int) -> tw.Config:
    rows, columns, inner, warps, stages, halves = blocks
    values = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": inner // itemsize, "HALVES": halves}
    return tw.Config(values, num_warps=warps, num_stages=stages)


def blocks_for(x: Any, itemsize: int, rows: int, columns: int, batch: int) -> list[tw.Config]:
    """Return the blocks to choose from for products of these sizes, the likeliest first."""
    if on_cpu(x):
        chosen, itemsize = CPU[1:] if min(rows, columns) <= 64 else CPU, max(itemsize, 4)
    elif itemsize >= 4:
        chosen = WIDE_ELEMENTS[2 if itemsize == 8 else 0 :]
    elif rows <= 64:
        chosen = FEW_ROWS
    elif batch * rows * columns >= MULTIPROCESSORS * 128 * 256:
        chosen = LARGE
    else:
        chosen = SMALL[0 if batch * rows * columns >= MULTIPROCESSORS * 64 * 128 else 1 :]
    return [_config(blocks, itemsize) for blocks in chosen]


def _worth_a_trial(arguments: dict[str, Any]) -> list[tw.Config]:
    a, sizes = arguments["a_ptr"], arguments["sizes"]
    return blocks_for(a, a.dtype.itemsize, sizes.rows, sizes.columns, sizes.results)


tuned = tw.autotune(
    [_config(blocks, 4) for blocks in CPU],
    key=["sizes", "A_TRANSPOSED", "B_TRANSPOSED"],
    prune_configs_by={"early_config_prune": lambda _, arguments, **__: _worth_a_trial(arguments)},
    default=lambda arguments: _worth_a_trial(arguments)[0],
)
