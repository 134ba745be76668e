"""How large the blocks of the kernels of attention are: configurations, the likeliest first."""

from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import dtype_name, on_cpu

__all__ = ["FORWARD", "KEY_GRADIENTS", "QUERY_GRADIENTS", "tuned"]

# Blocks of queries and of keys, warps and stages, by the width of a head; and registers, if two
# blocks of threads run on a multiprocessor with those that there are for each, without spilling.
Tile = tuple[int, ...]
Tiles = dict[int, tuple[Tile, ...]]

# Elements of 16 bits. The last one is for launches of few programs.
FORWARD: Tiles = {
    64: ((128, 128, 8, 3, 128), (128, 64, 8, 3), (128, 64, 4, 4), (64, 64, 4, 3)),
    128: ((128, 128, 8, 2), (128, 64, 8, 3), (64, 64, 4, 3)),
    256: ((128, 64, 8, 2), (64, 64, 4, 2)),
}
# Where what is seen ends within blocks of keys, narrow blocks leave less of them to waste, and more
# registers to what is done to the logits.
BOUNDED_FORWARD: Tiles = FORWARD | {64: ((128, 64, 8, 3), *FORWARD[64][2:])}
QUERY_GRADIENTS: Tiles = {
    64: ((128, 64, 8, 3), (128, 64, 8, 2), (128, 128, 8, 2), (64, 64, 4, 3)),
    128: ((128, 64, 8, 2), (64, 64, 4, 2)),
    256: ((64, 64, 8, 2), (64, 32, 4, 2)),
}
KEY_GRADIENTS: Tiles = {
    64: ((64, 64, 4, 2), (64, 128, 8, 2), (128, 128, 8, 2), (64, 64, 4, 2)),
    128: ((64, 128, 8, 2), (64, 128, 8, 3), (64, 64, 4, 2)),
    256: ((32, 64, 8, 2), (32, 64, 4, 2)),
}
WIDER_ELEMENTS: Tiles = {64: ((64, 32, 4, 2),), 128: ((32, 32, 8, 2),), 256: ((16, 16, 4, 1),)}
CPU: tuple[Tile, ...] = ((128, 128, 4, 1), (64, 128, 4, 1), (64, 64, 4, 1))
MULTIPROCESSORS = 132


def _config(tile: Tile) -> tw.Config:
    rows, keys, warps, stages, *most = tile
    return tw.Config(
        {"BLOCK_M": rows, "BLOCK_N": keys},
        num_warps=warps,
        num_stages=stages,
        maxnreg=most[0] if most else None,
    )


def _candidates(tiles: Tiles, arguments: dict[str, Any]) -> tuple[Tile, ...]:
    q = arguments["q_ptr"]
    if tiles is FORWARD and not arguments["IS_PLAIN"]:
        tiles = BOUNDED_FORWARD
    if on_cpu(q):
        return CPU
    is_wide = dtype_name(q) in {"float32", "float64"}
    width = max(64, arguments["WIDTH"], arguments["VALUE_WIDTH"])
    return (WIDER_ELEMENTS if is_wide else tiles)[width]


def _default(tiles: Tiles, arguments: dict[str, Any]) -> tw.Config:
    candidates, sizes = _candidates(tiles, arguments), arguments["sizes"]
    if on_cpu(arguments["q_ptr"]):
        return _config(candidates[0])
    programs = tw.cdiv(sizes.queries, candidates[0][0]) * sizes.batch * sizes.heads
    return _config(candidates[-1 if programs < MULTIPROCESSORS else 0])


def tuned(tiles: Tiles, *key: str) -> Any:
    """Return a decorator of kernels that choose from `tiles`; `key` are more that it depends on."""
    return tw.autotune(
        [_config(tile) for tile in dict.fromkeys([*CPU, *sum(tiles.values(), ())])],
        key=["sizes", "WIDTH", "VALUE_WIDTH", *key],
        prune_configs_by={
            "early_config_prune": lambda _, arguments, **__: [
                _config(tile) for tile in _candidates(tiles, arguments)
            ]
        },
        default=lambda arguments: _default(tiles, arguments),
    )
