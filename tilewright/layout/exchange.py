"""Changing layouts through shared memory, arranged so that no bank is asked twice.

The elements of a tile are vectors over F2, and so are all places. An arrangement of memory is a
basis m_0, m_1, … of them: bit i of the offset stands for m_i. It is made of three parts:

- The *low* vectors span what one access moves: 16 bytes, or what there is of it. For a vector
  access they lie in the span of the registers; for matrices they are the lanes and registers of a
  row. Where the two sides allow different widths, the wider side's further vectors are ones that
  the lanes of the other side step through.
- *Bank* vectors fill up the 128 bytes of a row of banks.
- *Segment* vectors lead to other rows, that is, to the same bank again. Two lanes of one phase
  conflict exactly if their difference is a sum of segments (and low vectors), so segments have to
  avoid what the lanes of a phase span, on both sides. Two spaces of equal dimension always have a
  common complement: unit vectors outside of both, and sums of a vector from each.

The last step is what swizzles memory, and only where it must. The idea is that of "Linear Layouts"
(Zhou et al., 2025).

Several arrangements are tried, with and without matrices; the cheapest pair of accesses wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.layout.access import Access, Offsets, best_access
from tilewright.layout.banks import BANK_ROW_BYTES, phase_lane_bits
from tilewright.layout.f2 import (
    Echelon,
    combination,
    common_complement,
    independent,
    intersection,
    log2,
)

__all__ = ["Arrangement", "Places", "arrange"]

_VECTOR_BITS = 128


class Places(NamedTuple):
    """The packed coordinates of the bits of a register layout, by kind of bit."""

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def sites(self) -> tuple[int, ...]:
        """All but the registers: what tells one lane of the tile from another."""
        return (*self.lanes, *self.warps, *self.blocks)


@dataclass(frozen=True)
class Arrangement:
    """A memory, and how it is written and read; `basis` holds the element of each offset bit."""

    basis: tuple[int, ...]
    repetitions: int
    stores: Access
    loads: Access

    @property
    def cost(self) -> int:
        """The sum of the costs of both accesses."""
        return self.stores.cost + self.loads.cost


class _Sketch(NamedTuple):
    """What is asked of an arrangement: the low vectors, and what must not depend on them.

    `steady` lists vectors, the more important ones first, that should have no low part. The phases
    are what the lanes of a phase span, with the vector that each moves.
    """

    low: list[int]
    steady: list[int]
    store_phase: list[int]
    load_phase: list[int]


def arrange(
    source: Places,
    target: Places,
    element_bits: int,
    *,
    repetition_bits: int = 0,
    matrix_stores: bool = True,
    matrix_loads: bool = True,
) -> Arrangement:
    """Return the cheapest arrangement for storing from `source` and loading to `target`.

    With `repetition_bits` r the tile passes through the memory in up to 2^r parts, each held by
    some of the registers on both sides.
    """
    arranger = _Arranger(source, target, element_bits, repetition_bits)
    if len(independent(source.lanes, source.registers)) < len(source.lanes):
        matrix_stores = False  # lanes with copies sit out, and all lanes take part in `stmatrix`
    plans = []
    for sketch in arranger.sketches(matrix_stores=matrix_stores, matrix_loads=matrix_loads):
        plan = arranger.arrangement(sketch, matrix_stores, matrix_loads)
        if plan is not None:
            plans.append(plan)
    return min(plans, key=lambda plan: plan.cost)


class _Arranger:
    def __init__(
        self, source: Places, target: Places, element_bits: int, repetition_bits: int
    ) -> None:
        self.source, self.target, self.element_bits = source, target, element_bits
        self.vector_limit = log2(_VECTOR_BITS // element_bits)
        self.sites = [*source.lanes, *source.warps, *target.lanes, *target.warps, *target.blocks]
        shared = independent(intersection(source.registers, target.registers), self.sites)
        once = max(0, len(shared) - repetition_bits)
        self.shared, self.repeated = shared[:once], shared[once:]
        held = Echelon([*source.registers, *source.sites])
        top = max([*source.registers, *source.sites], default=0).bit_length()
        units = [1 << bit for bit in range(top) if 1 << bit in held]
        self.elements = independent([*units, *source.registers, *source.sites])

    # -- what to try ------------------------------------------------------------------------------

    def sketches(self, *, matrix_stores: bool, matrix_loads: bool) -> Iterator[_Sketch]:
        yield from self._vector_sketches()
        if matrix_loads:
            for low, rows, others in self._rows(self.target):
                steady = [*rows, *others, *self.source.sites]
                yield _Sketch(low, steady, self._phase(self.source, low), [*low, *rows])
        if matrix_stores:
            for low, rows, others in self._rows(self.source):
                steady = [*rows, *others, *self.target.sites]
                yield _Sketch(low, steady, [*low, *rows], self._phase(self.target, low))

    def _vector_sketches(self) -> Iterator[_Sketch]:
        low = self.shared[: self.vector_limit]
        source, target = self.source, self.target
        store_phase, load_phase = self._phase(source, low), self._phase(target, low)
        yield _Sketch(low, self.sites, store_phase, load_phase)
        if more := self._further(target, source, low):
            phase = self._phase(target, [*low, *more])
            steady = [*target.sites, *source.sites]
            yield _Sketch([*low, *more], steady, store_phase, phase)
        if more := self._further(source, target, low):
            phase = self._phase(source, [*low, *more])
            steady = [*source.sites, *target.sites]
            yield _Sketch([*low, *more], steady, phase, load_phase)

    def _further(self, wide: Places, narrow: Places, low: Sequence[int]) -> list[int]:
        """Registers of one side that the lanes of a phase of the other step through."""
        lanes = narrow.lanes[: self._phase_bits(len(low))]
        given = [*low, *wide.sites, *self.repeated]
        found = independent(intersection(wide.registers, lanes), given)
        return found[: self.vector_limit - len(low)]

    def _rows(self, places: Places) -> Iterator[tuple[list[int], list[int], list[int]]]:
        """Matrices, plain and transposed: what a row spans, what tells the rows, and the rest."""
        lanes, registers = list(places.lanes), places.registers
        if len(lanes) != 5 or self.element_bits > 32:
            return
        outside = (*places.warps, *places.blocks)
        word_bits = log2(32 // self.element_bits)
        given = [*places.sites, *self.repeated]
        words = independent([*self.shared, *registers], given)[:word_bits]
        low = [*words, *lanes[:2]]
        if len(words) == word_bits and len(independent(low)) == len(low):
            yield low, lanes[2:], [*outside, *independent(registers, words)]
        if self.element_bits == 16 and len(independent(lanes[2:])) == 3:
            yield lanes[2:], [*lanes[:2], *registers[:1]], [*outside, *registers[1:]]

    def _phase_bits(self, vector_bits: int) -> int:
        return phase_lane_bits(max(1, self.element_bits << vector_bits >> 3))

    def _phase(self, places: Places, low: Sequence[int]) -> list[int]:
        """What a phase of vector accesses spans: as much of `low` as registers hold, and lanes."""
        held = Echelon(places.registers)
        vector = 0
        while vector < min(len(low), self.vector_limit) and low[vector] in held:
            vector += 1
        return [*low[:vector], *places.lanes[: self._phase_bits(vector)]]

    # -- trying it --------------------------------------------------------------------------------

    def arrangement(
        self, sketch: _Sketch, matrix_stores: bool, matrix_loads: bool
    ) -> Arrangement | None:
        basis = self._basis(sketch)
        solver = Echelon([*basis, *self.repeated])
        stores = self._offsets(solver, self.source, len(basis))
        loads = self._offsets(solver, self.target, len(basis))
        if stores is None or loads is None:
            return None
        return Arrangement(
            tuple(basis),
            1 << len(self.repeated),
            best_access(stores, self.element_bits, matrix=matrix_stores),
            best_access(loads, self.element_bits, matrix=matrix_loads),
        )

    def _basis(self, sketch: _Sketch) -> list[int]:
        low, repeated = sketch.low, self.repeated
        sites = self.sites if repeated else []
        rest = independent([*sketch.steady, *sites, *self.elements], [*repeated, *low])
        inside = Echelon(rest)
        rest = independent([*(e for e in self.elements if e in inside), *rest])
        projection = Echelon([*low, *repeated, *rest])

        def projected(vectors: Iterable[int]) -> list[int]:
            masks = (projection.solve(vector) or 0 for vector in vectors)
            shift = len(low) + len(repeated)
            return independent(combination(rest, mask >> shift) for mask in masks)

        row_bits = log2(BANK_ROW_BYTES * 8 // self.element_bits)
        segments = common_complement(
            projected(sketch.store_phase),
            projected(sketch.load_phase),
            max(0, len(low) + len(rest) - row_bits),
            rest[::-1],
        )
        return [*low, *independent(rest, segments), *segments[::-1]]

    def _offsets(self, solver: Echelon, places: Places, memory_bits: int) -> Offsets | None:
        """The offsets of all bits, or None where a lane would take part in some turns only."""
        masks = [[solver.solve(column) or 0 for column in group] for group in places]
        offsets = [tuple(mask & ((1 << memory_bits) - 1) for mask in group) for group in masks]
        turns = [tuple(mask >> memory_bits for mask in group) for group in masks]
        if any(turn for group in turns[1:] for turn in group):
            return None
        registers, lanes, warps, blocks = offsets
        return Offsets(registers, lanes, warps, blocks, turns[0])
