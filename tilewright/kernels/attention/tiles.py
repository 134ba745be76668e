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
    128: (Tile(128, 128, 8, 2), Tile(128, 64, 8, 3), Tile(64, 64, 4, 3)),
    256: (Tile(128, 64, 8, 2), Tile(64, 64, 4, 2)),
}
# Many keys: what a program does before its first scores and after its last ones is little.
LONG_FORWARD: Tiles = FORWARD | {128: (Tile(128, 128, 8, 2, ahead=True), *FORWARD[128])}
# Where what is seen ends within blocks of keys, narrow blocks leave less of them to waste, and more
# registers to what is done to the logits.
BOUNDED_FORWARD: Tiles = FORWARD | {64: FORWARD[64][1:]}
# A causal mask alone leaves registers for scores ahead of their softmax.
CAUSAL_FORWARD: Tiles = BOUNDED_FORWARD | {
    64: (Tile(64, 64, 4, 2, ahead=True), *BOUNDED_FORWARD[64]),
    128: (Tile(64, 64, 4, 2, ahead=True), *FORWARD[128]),
}
LONG_CAUSAL_FORWARD: Tiles = LONG_FORWARD | {64: BOUNDED_FORWARD[64]}
QUERY_GRADIENTS: Tiles = {
    64: (Tile(128, 64, 8, 3), Tile(128, 64, 8, 2), Tile(128, 128, 8, 2), Tile(64, 64, 4, 3)),
    128: (Tile(128, 64, 8, 2), Tile(64, 64, 4, 2)),
    256: (Tile(64, 64, 8, 2), Tile(64, 32, 4, 2)),
}
KEY_GRADIENTS: Tiles = {
    64: (Tile(64, 64, 4, 2), Tile(64, 128, 8, 2), Tile(128, 128, 8, 2), Tile(64, 64, 4, 2)),
    128: (Tile(64, 128, 8, 2), Tile(64, 128, 8, 3), Tile(64, 64, 4, 2)),
    256: (Tile(32, 64, 8, 2), Tile(32, 64, 4, 2)),
}
WIDER_ELEMENTS: Tiles = {
    64: (Tile(64, 32, 4, 2),),
    128: (Tile(32, 32, 8, 2),),
    256: (Tile(16, 16, 4, 1),),
}
CPU = (Tile(128, 128, 4, 1), Tile(64, 128, 4, 1), Tile(64, 64, 4, 1))
_MANY_KEYS = 2048


def _config(tile: Tile) -> tw.Config:
    values: dict[str, Any] = {"BLOCK_M": tile.queries, "BLOCK_N": tile.keys}
    if tile.ahead:
        values["AHEAD"] = True
    return tw.Config(
        values, num_warps=tile.warps, num_stages=tile.stages, maxnreg=tile.most_registers
    )


def _forward_tiles(arguments: dict[str, Any]) -> Tiles:
    is_long = arguments["sizes"].keys >= _MANY_KEYS
    if arguments["terms"].lists is not None:  # a list may be empty: then there are no scores ahead
        return FORWARD if arguments["IS_PLAIN"] else BOUNDED_FORWARD
    if arguments["IS_PLAIN"]:
        return LONG_FORWARD if is_long else FORWARD
    if arguments["IS_CAUSAL"]:
        return LONG_CAUSAL_FORWARD if is_long else CAUSAL_FORWARD
    return BOUNDED_FORWARD


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
