"""Moving a tile between registers and shared memory: by which instructions, and from where.

There are three forms. A *vector* access moves up to 16 bytes of neighbours per lane. The *matrix*
forms are `ldmatrix` and `stmatrix` (PTX ISA), which move one, two or four matrices of 8 rows of 16
bytes: the lanes 8 i to 8 i + 7 point to the rows of matrix i, wherever they are, and then lane l
holds 4 bytes of row l / 4 from byte 4 (l mod 4) on, in register i. Transposed, for elements of 16
bits, lane l holds column l / 4 of the rows 2 (l mod 4) and 2 (l mod 4) + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from tilewright.layout.banks import bank_conflicts
from tilewright.layout.f2 import Echelon, combination, dependencies, independent, log2, span
from tilewright.layout.linear import Dimension, LinearLayout
from tilewright.layout.vectors import unit_registers

__all__ = ["Access", "Form", "Move", "Offsets", "best_access", "plan_access"]

_VECTOR_BITS = 128
_WARP_BITS = 5
_PLACES = ("register", "lane", "warp", "block")


class Form(Enum):
    """How an access is made; see the text above."""

    VECTOR = "vector"
    MATRIX = "matrix"
    TRANSPOSED = "transposed"


class Move(NamedTuple):
    """One instruction: the registers it moves, and what its constant adds to the address.

    Registers are in the order of memory; for matrices, those of the first matrix come first, and of
    a transposed one they are the two rows. `repetition` counts passes through the same memory.
    """

    registers: tuple[int, ...]
    offset: int
    repetition: int = 0


@dataclass(frozen=True)
class Access:
    """The moves of one tile. Lane l points to offset `address(lane=l, …)["offset"] ^ move.offset`.

    Offsets count elements. `conflicts` is how often each phase of each move is repeated (0: never).
    Registers that hold a copy of a lower register's element do not occur.
    """

    form: Form
    moves: tuple[Move, ...]
    address: LinearLayout
    element_bits: int
    conflicts: int

    @property
    def lane_bytes(self) -> int:
        """How many bytes each lane moves with one instruction."""
        return len(self.moves[0].registers) * self.element_bits // 8

    @property
    def matrices(self) -> int:
        """How many matrices one instruction moves: 1, 2 or 4, and 0 for vectors."""
        return 0 if self.form is Form.VECTOR else self.lane_bytes // 4

    @property
    def cost(self) -> int:
        """Instructions, and cycles in which shared memory is busy for a warp."""
        cycles = max(1, self.lane_bytes // 4) * (1 + self.conflicts)
        return len(self.moves) * (1 + cycles)

    def split(self, move: Move, touched: int = 0) -> tuple[int, int]:
        """Return the parts of a move's offset to xor to the lane's offset and then to add to it.

        Bits that no lane, warp or block touches can be added, which is what an instruction's
        immediate offset does; those of `touched` have other uses, and can not.
        """
        for column in self.address.columns:
            touched |= column
        return move.offset & touched, move.offset & ~touched


class Offsets(NamedTuple):
    """The offsets of the bits of registers, lanes, warps and blocks in a memory.

    `turns` says for each register bit which bits of the number of the repetition it flips.
    """

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()


@lru_cache(maxsize=1024)
def plan_access(
    registers: LinearLayout,
    memory: LinearLayout,
    element_bits: int,
    *,
    is_store: bool = False,
    matrix: bool = True,
) -> Access:
    """Return the cheapest access between a register layout and a tile in shared memory.

    Elements have 8, 16, 32 or 64 bits. `memory` maps offset, and block if the tile is spread over a
    cluster, to coordinates. `matrix` says whether the target has `ldmatrix` (for a load) or
    `stmatrix` (for a store). A store lets only those lanes and warps take part that are 0 in the
    bits of `registers.free_masks()`; all lanes take part in `stmatrix`, so it needs lanes without
    copies.

    >>> from tilewright.layout.nvidia import mma_operand
    >>> from tilewright.layout.shared import nvmma_shared
    >>> operand = mma_operand((64, 64), 0, (4, 1), 16)
    >>> load = plan_access(operand, nvmma_shared((64, 64), 16, 128), 16)
    >>> load.form.name, load.matrices, len(load.moves), load.conflicts
    ('MATRIX', 4, 4, 0)
    """
    found = registers.relative_to(memory)
    if "block" in memory.input_names:
        remote = found.sublayout(_PLACES[:3], ("block",))
        if any(remote.columns):
            raise ValueError("a block needs elements that lie in another block's memory")
    local = found.sublayout(found.input_names, ("offset",))
    columns = (local.columns_of(name) for name in _PLACES)
    if is_store and registers.sublayout(_PLACES, registers.output_names).free_masks()["lane"]:
        matrix = False
    return best_access(Offsets(*columns), element_bits, matrix=matrix)


def best_access(offsets: Offsets, element_bits: int, *, matrix: bool) -> Access:
    """Return the cheapest access to these offsets, a vector one where others are no cheaper."""
    planner = _Planner(offsets, element_bits)
    plans = [planner.vector()]
    if matrix and len(offsets.lanes) == _WARP_BITS:
        plans += planner.matrix()
        plans += planner.transposed()
    return min(plans, key=lambda plan: plan.cost)


class _Planner:
    def __init__(self, offsets: Offsets, element_bits: int) -> None:
        self.offsets, self.element_bits = offsets, element_bits
        turns = offsets.turns or (0,) * len(offsets.registers)
        self.beyond = 1 + max(offsets.registers, default=0).bit_length()
        pairs = zip(offsets.registers, turns, strict=True)
        self.columns = [offset | turn << self.beyond for offset, turn in pairs]
        self.solver = Echelon(self.columns)
        self.sites = (*offsets.lanes, *offsets.warps, *offsets.blocks)
        self.basis = self._basis()

    def _basis(self) -> list[int]:
        """Masks of registers that are no copies; those of one repetition come first."""
        first = [
            1 << bit
            for bit, column in enumerate(self.columns)
            if self.solver.solve(column) == 1 << bit
        ]
        turns = [combination(self.columns, mask) >> self.beyond for mask in first]
        together = [combination(first, mask) for mask in dependencies(turns)]
        return together + independent(first, together)

    def _is_still(self, mask: int) -> bool:
        return not combination(self.columns, mask) >> self.beyond

    def vector(self) -> Access:
        limit = log2(_VECTOR_BITS // self.element_bits)
        units = unit_registers(self.columns, self.sites, limit)
        moves = self._moves(units, [], (1 << len(units)) - 1)
        vector_bytes = max(1, self.element_bits << len(units) >> 3)
        return self._access(Form.VECTOR, moves, self.offsets.lanes, vector_bytes)

    def matrix(self) -> list[Access]:
        """Rows of 16 bytes: the registers of a word, then lane bits 0 and 1."""
        if self.element_bits > 32:
            return []
        word_bits = log2(32 // self.element_bits)
        word, row = (1 << word_bits) - 1, (4 << word_bits) - 1
        lanes = self.offsets.lanes
        others = (*lanes[2:], *self.offsets.warps, *self.offsets.blocks)
        units = unit_registers(self.columns, self.sites, word_bits)
        if (
            len(units) < word_bits
            or lanes[:2] != (word + 1, 2 * (word + 1))
            or any(other & row for other in others)
            or any(offset & row & ~word for offset in self.offsets.registers)
        ):
            return []
        return [self._matrices(Form.MATRIX, units, lanes[2:], word)]

    def transposed(self) -> list[Access]:
        """Rows of 16 bytes: lane bits 2, 3 and 4. A register and lane bits 0 and 1 tell the row."""
        lanes = self.offsets.lanes
        others = (*lanes[:2], *self.offsets.warps, *self.offsets.blocks, *self.offsets.registers)
        if self.element_bits != 16 or lanes[2:] != (1, 2, 4) or any(x & 7 for x in others):
            return []
        pairs = list(filter(self._is_still, self.basis))
        rows = [(combination(self.offsets.registers, pair), *lanes[:2]) for pair in pairs]
        if not pairs:
            return []
        conflicts = [self._conflicts(self._address(row), _VECTOR_BITS // 8) for row in rows]
        best = conflicts.index(min(conflicts))
        return [self._matrices(Form.TRANSPOSED, [pairs[best]], rows[best], 0)]

    def _matrices(self, form: Form, units: list[int], rows: Sequence[int], word: int) -> Access:
        spare = filter(self._is_still, independent(self.basis, units))
        groups = [self._aligned(mask, units, word) for mask in spare][:2]
        steps = [combination(self.offsets.registers, mask) for mask in groups]
        lanes = (*rows, *steps, 0, 0)[:_WARP_BITS]
        return self._access(form, self._moves(units, groups, word), lanes, _VECTOR_BITS // 8)

    def _aligned(self, mask: int, units: list[int], word: int) -> int:
        """The register of the same word that comes first in it."""
        return mask ^ combination(units, combination(self.columns, mask) & word)

    def _moves(self, units: list[int], groups: list[int], word: int) -> tuple[Move, ...]:
        inside = span([*units, *groups])
        starts = independent(self.basis, [*units, *groups])
        moves = []
        for start in span(self._aligned(mask, units, word) for mask in starts):
            place = combination(self.columns, start)
            offset, turn = place & ((1 << self.beyond) - 1), place >> self.beyond
            moves.append(Move(tuple(start ^ mask for mask in inside), offset, turn))
        return tuple(sorted(moves, key=lambda move: (move.repetition, move.registers)))

    def _access(
        self, form: Form, moves: tuple[Move, ...], lanes: Sequence[int], vector_bytes: int
    ) -> Access:
        address = self._address(lanes)
        conflicts = self._conflicts(address, vector_bytes)
        return Access(form, moves, address, self.element_bits, conflicts)

    def _conflicts(self, address: LinearLayout, vector_bytes: int) -> int:
        return bank_conflicts(address, self.element_bits, vector_bytes)

    def _address(self, lanes: Sequence[int]) -> LinearLayout:
        groups = {"lane": lanes, "warp": self.offsets.warps, "block": self.offsets.blocks}
        columns = tuple(column for group in groups.values() for column in group)
        inputs = tuple(Dimension(name, len(group)) for name, group in groups.items())
        bits = max(x.bit_length() for x in (1, *columns, *self.offsets.registers))
        return LinearLayout(inputs, (Dimension("offset", bits),), columns)
