"""How large the blocks of the kernels of attention are: configurations, the likeliest first."""

from typing import Any, NamedTuple

import tilewright as tw
from tilewright.kernels.arrays import dtype_name, on_cpu
from tilewright.kernels.rows import MULTIPROCESSORS

__all__ = ["FORWARD", "KEY_GRADIENTS", "QUERY_GRADIENTS", "tuned"]


class Tile(NamedTuple):
    """Blocks of queries and of keys, and what else a kernel is compiled with.

    `most_registers` lets two blocks of threads share a multiprocessor, each with what there is for
    it without spilling; `ahead`: scores are computed one block of keys before their softmax.
    """

    queries: int
    keys: int
    warps: int
    stages: int
    most_registers: int | None = None
    ahead: bool = False


Tiles = dict[int, tuple[Tile, ...]]  # by the width of a head

# Elements of 16 bits. The last one is for launches of few programs.
FORWARD: Tiles = {
    64: (
        Tile(128, 128, 8, 3, most_registers=128),
        Tile(128, 64, 8, 3),
        Tile(128, 64, 4, 4),
        Tile(64, 64, 4, 3),
    ),
    128: (
        Tile(128, 64, 8, 2, most_registers=128),
        Tile(128, 128, 8, 2, ahead=True),
        Tile(128, 128, 8, 2),
        Tile(64, 64, 4, 3),
    ),
    256: (Tile(128, 64, 8, 2), Tile(64, 64, 4, 2)),
}
# Many keys: what a program does before its first scores and after its last ones is little.
LONG_FORWARD: Tiles = FORWARD | {128: (FORWARD[128][1], FORWARD[128][0], *FORWARD[128][2:])}
# Where more than a causal mask is done to the logits: narrow blocks leave registers to that, and
# less to waste where what is seen ends within a block.
BOUNDED_FORWARD: Tiles = FORWARD | {
    64: FORWARD[64][1:],
    128: (Tile(128, 128, 8, 2), Tile(128, 64, 8, 3), Tile(64, 64, 4, 3)),
}
QUERY_GRADIENTS: Tiles = {
    64: (Tile(128, 64, 8, 3), Tile(128, 64, 8, 2), Tile(128, 128, 8, 2), Tile(64, 64, 4, 3)),
    128: (Tile(128, 64, 8, 3), Tile(128, 64, 8, 2), Tile(64, 64, 4, 2)),
    256: (Tile(64, 64, 8, 2), Tile(64, 32, 4, 2)),
}
KEY_GRADIENTS: Tiles = {
    64: (Tile(64, 64, 4, 2), Tile(64, 128, 8, 2), Tile(128, 128, 8, 2), Tile(64, 64, 4, 2)),
    128: (Tile(64, 128, 8, 3), Tile(64, 128, 8, 2), Tile(64, 64, 4, 2)),
    256: (Tile(32, 64, 8, 2), Tile(32, 64, 4, 2)),
}
WIDER_ELEMENTS: Tiles = {
    64: (Tile(64, 32, 4, 2),),
    128: (Tile(32, 32, 8, 2),),
    256: (Tile(16, 16, 4, 1),),
}
CPU = (Tile(128, 128, 4, 1), Tile(64, 128, 4, 1), Tile(64, 64, 4, 1))
_MANY_KEYS = 8192


def _config(tile: Tile) -> tw.Config:
    values: dict[str, Any] = {"BLOCK_M": tile.queries, "BLOCK_N": tile.keys}
    if tile.ahead:
        values["AHEAD"] = True
    return tw.Config(
        values, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.most_registers
    )


def _forward_tiles(arguments: dict[str, Any]) -> Tiles:
    is_causal_alone = arguments["IS_PLAIN"] or arguments["IS_CAUSAL"]
    # A list of blocks may be empty, so there are no scores ahead, and it takes registers.
    if not is_causal_alone or arguments["terms"].lists is not None:
        return BOUNDED_FORWARD
    return LONG_FORWARD if arguments["sizes"].keys >= _MANY_KEYS else FORWARD


def _within(tile: Tile, block: int) -> Tile:
    """Return a tile, or one within a block, with as many fewer warps as it is narrower."""
    if max(tile.queries, tile.keys) <= block:
        return tile
    queries, keys = min(tile.queries, block), min(tile.keys, block)
    share = min(queries / tile.queries, keys / tile.keys)
    return Tile(queries, keys, max(1, int(tile.warps * share)), tile.stages)


def _candidates(tiles: Tiles, arguments: dict[str, Any]) -> tuple[Tile, ...]:
    found, block = _in_any_block(tiles, arguments), arguments["sizes"].block
    if block is None:
        return found
    return tuple(dict.fromkeys(_within(tile, block.value) for tile in found))


def _in_any_block(tiles: Tiles, arguments: dict[str, Any]) -> tuple[Tile, ...]:
    q = arguments["q_ptr"]
    if on_cpu(q):
        return CPU
    if tiles is FORWARD:
        tiles = _forward_tiles(arguments)
    is_wide = dtype_name(q) in {"float32", "float64"}
    width = max(64, arguments["WIDTH"], arguments["VALUE_WIDTH"])
    return (WIDER_ELEMENTS if is_wide else tiles)[width]


def _default(tiles: Tiles, arguments: dict[str, Any]) -> tw.Config:
    candidates, sizes = _candidates(tiles, arguments), arguments["sizes"]
    if on_cpu(arguments["q_ptr"]):
        return _config(candidates[0])
    programs = tw.cdiv(sizes.queries, candidates[0].queries) * sizes.batch * sizes.heads
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
