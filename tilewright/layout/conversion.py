"""From one register layout of a tile to another, by the cheapest means.

Whether registers are enough, or shuffles, or shared memory is needed, is a question of where the
elements are: `pull` solves for each bit of the target's places where in the source its element is,
if the place in the source has to be in the same lane, or the same warp. A place that holds copies
is used wherever it is closer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.layout.access import Access
from tilewright.layout.exchange import Places, arrange
from tilewright.layout.f2 import Echelon, log2, span
from tilewright.layout.linear import LinearLayout
from tilewright.layout.shuffles import Pull, Shuffles, plan_shuffles
from tilewright.layout.vectors import register_copies

__all__ = ["Exchange", "Plan", "Rename", "memory_between", "plan_conversion"]

_PLACES = ("register", "lane", "warp", "block")
_WARP_SYNC_COST = 16
_BLOCK_SYNC_COST = 32


@dataclass(frozen=True)
class Rename:
    """Register i of the target is register `registers[i]` of the source, in every lane."""

    registers: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        """Whether there is nothing to do."""
        return self.registers == tuple(range(len(self.registers)))


@dataclass(frozen=True)
class Exchange:
    """Store, synchronize, load, once for each repetition (and synchronize between them).

    `memory` maps offset to coordinates, relative to the element of register 0, lane 0 (and warp 0,
    unless `is_warp_private`). If `is_warp_private`, each warp has a memory of its own of
    `area_bytes`, one behind the other, and need only synchronize with itself; otherwise the block
    has one. Stores are made by those lanes and warps in which the bits of `copying` are 0: the
    others hold copies. Only registers that are no copies are loaded: register i of the target is
    then loaded register `copies[i]`. Memory is aligned to 16 bytes at least.
    """

    memory: LinearLayout
    is_warp_private: bool
    repetitions: int
    stores: Access
    loads: Access
    copying: tuple[int, int]
    copies: tuple[int, ...]

    @property
    def area_bytes(self) -> int:
        """The size of one memory."""
        return self.memory.input_size("offset") * self.stores.element_bits // 8

    @property
    def cost(self) -> int:
        """Instructions and cycles of a warp, with a guess at what synchronizing takes."""
        sync = _WARP_SYNC_COST if self.is_warp_private else _BLOCK_SYNC_COST
        return self.stores.cost + self.loads.cost + sync * (2 * self.repetitions - 1)


Plan = Rename | Shuffles | Exchange


@lru_cache(maxsize=1024)
def plan_conversion(
    source: LinearLayout,
    target: LinearLayout,
    element_bits: int,
    *,
    scratch_bytes: int | None = None,
    stmatrix: bool = True,
    ldmatrix: bool = True,
) -> Plan:
    """Return how a tile in the layout `source` gets into the layout `target`.

    Elements have 8, 16, 32 or 64 bits. With `scratch_bytes` the tile goes through shared memory in
    parts of at most that size, as far as both layouts have registers in common to cut it by. The
    last two say what the target machine has.

    >>> from tilewright.layout.blocked import blocked
    >>> rows = blocked((16, 16), (1, 8), (16, 2), (1, 1), (1, 0))
    >>> plan_conversion(rows, rows, 16).is_identity
    True
    >>> columns = blocked((16, 16), (8, 1), (2, 16), (1, 1), (0, 1))
    >>> plan = plan_conversion(rows, columns, 16)
    >>> plan.loads.form.name, plan.stores.lane_bytes, plan.stores.conflicts, plan.loads.conflicts
    ('TRANSPOSED', 8, 0, 0)
    """
    if element_bits not in {8, 16, 32, 64}:
        raise ValueError(f"elements of {element_bits} bits are widened first")
    have, want = _places(source, source), _places(target, source)
    copies = register_copies(target)
    in_lane = _pull(have, want, levels=1)
    if in_lane is not None and in_lane.is_renaming:
        return Rename(tuple(span(register for register, _ in in_lane.registers)))
    in_warp = in_lane or _pull(have, want, levels=2)
    shuffles = plan_shuffles(in_warp, copies, element_bits) if in_warp else None
    if shuffles is not None and not shuffles.shuffle_count:
        return shuffles
    exchange = _plan_exchange(
        source,
        (have, want),
        copies,
        element_bits,
        scratch_bytes,
        (stmatrix, ldmatrix),
        is_warp_private=in_warp is not None,
    )
    return shuffles if shuffles and shuffles.cost <= exchange.cost else exchange


@lru_cache(maxsize=1024)
def memory_between(source: LinearLayout, target: LinearLayout, element_bits: int) -> LinearLayout:
    """Return how a tile is laid out in memory: offset, counted in elements -> coordinates.

    It is written from the layout `source`, and read, by vectors, in the layout `target`, which may
    have only a part of the tile.

    >>> from tilewright.layout.access import plan_access
    >>> from tilewright.layout.blocked import blocked
    >>> rows = blocked((16, 16), (1, 8), (16, 2), (1, 1), (1, 0))
    >>> columns = blocked((16, 16), (8, 1), (2, 16), (1, 1), (0, 1))
    >>> memory = memory_between(rows, columns, 32)
    >>> [plan_access(layout, memory, 32).conflicts for layout in (rows, columns)]
    [0, 0]
    """
    have, want = _places(source, source), _places(target, source)
    return _plan_exchange(
        source,
        (have, want),
        register_copies(target),
        element_bits,
        None,
        (True, False),
        is_warp_private=False,
    ).memory


def _places(layout: LinearLayout, source: LinearLayout) -> Places:
    ordered = layout.transpose_outputs(source.output_names)
    if ordered.outputs != source.outputs:
        raise ValueError(f"tiles of different sizes: {source.outputs} and {ordered.outputs}")
    for name in _PLACES[1:]:
        if layout.input_size(name) != source.input_size(name):
            raise ValueError(f"the layouts have different numbers of indices of {name}")
    return Places(*(ordered.columns_of(name) for name in _PLACES))


def _pull(source: Places, target: Places, *, levels: int) -> Pull | None:
    """Find where the target's elements are, if only registers (and, at level 2, lanes) may differ.

    A lane bit prefers its own lane.
    """
    registers = len(source.registers)
    at_home = Echelon(source.registers)
    reachable = Echelon(column for group in source[:levels] for column in group)

    def split(mask: int) -> tuple[int, int]:
        return mask & ((1 << registers) - 1), mask >> registers

    groups: list[tuple[tuple[int, int], ...]] = []
    for kind, (mine, theirs) in enumerate(zip(source, target, strict=True)):
        found: list[tuple[int, int]] = []
        for bit, column in enumerate(theirs):
            own = None if kind == 0 else at_home.solve(column ^ mine[bit])
            if own is not None:
                found.append((own, 1 << bit if kind == 1 else 0))
                continue
            sought = column if kind < levels else column ^ mine[bit]
            mask = reachable.solve(sought)
            if mask is None:
                return None
            found.append(split(mask))
        groups.append(tuple(found))
    return Pull(*groups)


def _plan_exchange(
    source: LinearLayout,
    places: tuple[Places, Places],
    copies: Sequence[int],
    element_bits: int,
    scratch_bytes: int | None,
    matrices: tuple[bool, bool],
    *,
    is_warp_private: bool,
) -> Exchange:
    have, want = (_within(side, places[0], is_warp_private=is_warp_private) for side in places)
    held = Echelon([*have.registers, *have.sites])
    if any(column not in held for column in (*want.registers, *want.sites)):
        raise ValueError("elements would have to move between the blocks of a cluster")
    areas = source.input_size("warp") if is_warp_private else 1
    size = areas * element_bits << held.rank >> 3
    arrangement = arrange(
        have,
        want,
        element_bits,
        repetition_bits=_halvings(size, scratch_bytes),
        matrix_stores=matrices[0],
        matrix_loads=matrices[1],
    )
    flat = LinearLayout.identity(1 << len(arrangement.basis), "offset", "offset")
    free = source.sublayout(_PLACES, source.output_names).free_masks()
    return Exchange(
        LinearLayout(flat.inputs, source.outputs, arrangement.basis),
        is_warp_private,
        arrangement.repetitions,
        arrangement.stores,
        arrangement.loads,
        (free["lane"], 0 if is_warp_private else free["warp"]),
        tuple(copies),
    )


def _within(places: Places, source: Places, *, is_warp_private: bool) -> Places:
    """The places relative to those of the source in the same block, or in the same warp."""

    def relative(kind: int) -> tuple[int, ...]:
        return tuple(x ^ y for x, y in zip(places[kind], source[kind], strict=True))

    warps = relative(2) if is_warp_private else places.warps
    return Places(places.registers, places.lanes, warps, relative(3))


def _halvings(size: int, limit: int | None) -> int:
    if limit is None or size <= limit:
        return 0
    return log2(size) - (limit.bit_length() - 1)
