"""Changing layouts within warps, by shuffles.

Each place (k, l) of the target, register k of lane l, finds its element at the place of the source

    register A k + B l,  lane E k + F l,

where A, B, E, F are matrices over F2 (warps and blocks act like further lanes on the right side).
In one round of shuffles every lane sends one register and receives one. If lane l receives its
register k + T l in round k, it reads from lane

    E (k + T l) + F l  =  E k + V l     with V = E T + F,

and what it wants there is register A k + (A T + B) l. The sender does not know who reads from it,
only its own number, so that register must depend on k and the sender's lane alone: there must be S
with S V = A T + B. It then is (A + S E) k + S (E k + V l). So three steps do it:

1. lane l renames its registers by i -> i ^ S l, with selects;
2. in round k, lane l reads the renamed register (A + S E) k of lane V l ^ E k;
3. lane l renames what it received by k -> k ^ T l.

T is ours to choose. Where it makes V the identity, the shuffles are butterflies (`shfl.bfly`), and
rounds with E k = 0 need none at all. If a V of full rank is wanted, T must make up for what F
lacks, with columns from the image of E.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.layout.f2 import Echelon, combination, dependencies, independent, log2, span
from tilewright.layout.linear import Dimension, LinearLayout

__all__ = ["Pull", "Shuffles", "Swap", "Transfer", "plan_shuffles"]

_WORD_BITS = 32


class Swap(NamedTuple):
    """Registers i and i ^ `register` change places in certain lanes: a select for each register.

    They are those where (lane & `lane`), (warp & `warp`) and (block & `block`) together have an odd
    number of bits.
    """

    register: int
    lane: int
    warp: int = 0
    block: int = 0


class Transfer(NamedTuple):
    """One round: lanes read registers `sources` of another lane, and call them `targets`.

    Several registers are packed into one word of 32 bits. The other lane is that of
    `Shuffles.lane`, xored with `lane`.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    lane: int


@dataclass(frozen=True)
class Shuffles:
    """Swaps of the source's registers, transfers between lanes, swaps of what was received.

    `lane` maps lane, warp and block to the lane to read from, before a transfer's `lane` is xored.
    At the end register i of the target is a copy of register `copies[i]`. Swaps work on all
    registers of the source, or on all that were received.
    """

    before: tuple[Swap, ...]
    transfers: tuple[Transfer, ...]
    after: tuple[Swap, ...]
    lane: LinearLayout
    copies: tuple[int, ...]
    element_bits: int

    @property
    def is_butterfly(self) -> bool:
        """Whether every transfer reads from the own lane xored with a constant."""
        own = tuple(1 << bit for bit in range(self.lane.output_bits))
        return self.lane.columns_of("lane") == own and not any(self.lane.columns[len(own) :])

    def crosses(self, transfer: Transfer) -> bool:
        """Whether a transfer leaves the lane and so needs a shuffle."""
        return bool(transfer.lane) or not self.is_butterfly

    @property
    def shuffle_count(self) -> int:
        """How many shuffle instructions it takes."""
        words = max(1, self.element_bits // _WORD_BITS)
        return words * sum(self.crosses(transfer) for transfer in self.transfers)

    @property
    def cost(self) -> int:
        """Instructions and cycles, on the scale of `Access.cost`; selects are made on words."""
        words = len(self.transfers) * max(1, self.element_bits // _WORD_BITS)
        swaps = len(self.before) + len(self.after)
        packing = sum(len(t.targets) for t in self.transfers if len(t.targets) > 1)
        return 2 * self.shuffle_count + swaps * words + packing


class Pull(NamedTuple):
    """Where the elements of a target's bits are in the source, as masks of registers and of lanes.

    `sites` are the bits of warps, then of blocks: what they add to the place in the same warp.
    """

    registers: tuple[tuple[int, int], ...]
    lanes: tuple[tuple[int, int], ...]
    warps: tuple[tuple[int, int], ...]
    blocks: tuple[tuple[int, int], ...]

    @property
    def is_renaming(self) -> bool:
        """Whether each lane has all it needs, in the same registers as any other lane."""
        sites = (*self.warps, *self.blocks)
        own = all(pair == (0, 1 << bit) for bit, pair in enumerate(self.lanes))
        still = all(pair == (0, 0) for pair in sites)
        return own and still and not any(lane for _, lane in self.registers)


def plan_shuffles(pull: Pull, copies: Sequence[int], element_bits: int) -> Shuffles | None:
    """Return the shuffles for what `pull` asks, or None if rounds as described above cannot do it.

    `copies` tells for each register of the target which one holds its element first.
    """
    kept = [bit for bit in range(len(pull.registers)) if copies[1 << bit] == 1 << bit]
    a = [pull.registers[bit][0] for bit in kept]
    e = [pull.registers[bit][1] for bit in kept]
    for steering in (_steer_home(e, pull), _steer_apart(e, pull)):
        rename = _sender(a, e, pull, steering)
        if rename is not None:
            return _Rounds(pull, kept, a, e, steering, rename).shuffles(copies, element_bits)
    return None


def _steer_home(e: Sequence[int], pull: Pull) -> list[int]:
    """Columns of T that let a lane bit keep its lane, where they can."""
    image = Echelon(e)
    return [image.solve(lane ^ 1 << bit) or 0 for bit, (_, lane) in enumerate(pull.lanes)]


def _steer_apart(e: Sequence[int], pull: Pull) -> list[int]:
    """Columns of T that give V the highest rank.

    Lane bits whose columns in F are independent modulo the image of E stay as they are. The others
    differ from sums of those by a vector of that image, which is replaced by one from a basis.
    """
    image = Echelon(e)
    f = [lane for _, lane in pull.lanes]
    apart = independent(f, e)
    known = Echelon([*e, *apart])
    fresh = independent(e)
    steering = []
    seen = Echelon(e)
    for column in f:
        if seen.add(column):
            steering.append(0)
            continue
        mask = known.solve(column) or 0
        rest = column ^ combination(apart, mask >> len(e))
        steering.append(image.solve(rest ^ (fresh.pop() if fresh else 0)) or 0)
    return steering


def _sender(
    a: Sequence[int], e: Sequence[int], pull: Pull, steering: Sequence[int]
) -> list[int] | None:
    """Columns of S with S V = A T + B, or None if there is no such S."""
    read = [lane ^ combination(e, t) for (_, lane), t in zip(pull.lanes, steering, strict=True)]
    wanted = [
        register ^ combination(a, t) for (register, _), t in zip(pull.lanes, steering, strict=True)
    ]
    if any(combination(wanted, mask) for mask in dependencies(read)):
        return None
    units = [1 << bit for bit in range(len(read))]
    solver = Echelon([*read, *units])
    columns = [*wanted, *(0 for _ in units)]
    return [combination(columns, solver.solve(unit) or 0) for unit in units]


class _Rounds:
    """The three steps, once S and T are known. Masks of k count only registers that are kept."""

    def __init__(
        self,
        pull: Pull,
        kept: Sequence[int],
        a: Sequence[int],
        e: Sequence[int],
        steering: Sequence[int],
        rename: Sequence[int],
    ) -> None:
        self.pull, self.a, self.e, self.steering, self.rename = pull, a, e, steering, rename
        self.kept = [1 << bit for bit in kept]
        image = Echelon(e)
        sites = [*pull.warps, *pull.blocks]
        self.site_steering = [image.solve(lane) or 0 for _, lane in sites]
        self.site_lanes = [
            lane ^ combination(e, t) for (_, lane), t in zip(sites, self.site_steering, strict=True)
        ]
        self.site_rename = [
            register ^ combination(a, t) ^ combination(rename, lane)
            for (register, _), t, lane in zip(
                sites, self.site_steering, self.site_lanes, strict=True
            )
        ]

    def shuffles(self, copies: Sequence[int], element_bits: int) -> Shuffles:
        after = [combination(self.kept, mask) for mask in (*self.steering, *self.site_steering)]
        return Shuffles(
            self._swaps([*self.rename, *self.site_rename]),
            self._transfers(element_bits),
            self._swaps(after),
            self._lane(),
            tuple(copies),
            element_bits,
        )

    def _lane(self) -> LinearLayout:
        read = [
            lane ^ combination(self.e, t)
            for (_, lane), t in zip(self.pull.lanes, self.steering, strict=True)
        ]
        inputs = (
            Dimension("lane", len(self.pull.lanes)),
            Dimension("warp", len(self.pull.warps)),
            Dimension("block", len(self.pull.blocks)),
        )
        outputs = (Dimension("lane", len(self.pull.lanes)),)
        return LinearLayout(inputs, outputs, (*read, *self.site_lanes))

    def _transfers(self, element_bits: int) -> tuple[Transfer, ...]:
        limit = log2(max(1, _WORD_BITS // element_bits))
        together = dependencies(self.e)[:limit]  # masks of k that do not change the lane
        units = [1 << bit for bit in range(len(self.kept))]
        packed = span(together)
        transfers = []
        for k in span(independent(units, together)):
            lane = combination(self.e, k)
            masks = [k ^ mask for mask in packed]
            sources = tuple(self._sent(mask) for mask in masks)
            targets = tuple(combination(self.kept, mask) for mask in masks)
            transfers.append(Transfer(sources, targets, lane))
        return tuple(transfers)

    def _sent(self, k: int) -> int:
        return combination(self.a, k) ^ combination(self.rename, combination(self.e, k))

    def _swaps(self, columns: Sequence[int]) -> tuple[Swap, ...]:
        """Renaming by a linear function of lane, warp and block, as few swaps as its rank."""
        basis = independent(columns)
        solver = Echelon(basis)
        masks = [solver.solve(column) or 0 for column in columns]
        swaps = []
        for number, register in enumerate(basis):
            sites = sum(1 << bit for bit, mask in enumerate(masks) if mask >> number & 1)
            parts = []
            for bits in (len(self.pull.lanes), len(self.pull.warps), len(self.pull.blocks)):
                parts.append(sites & ((1 << bits) - 1))
                sites >>= bits
            swaps.append(Swap(register, *parts))
        return tuple(swaps)
