"""The thread that runs the code, and where its registers lie in a tile.

A coordinate is the part of the thread xor that of the register. The part of the thread is a linear
function of the bits of its number (lane, then warp), written once, before everything else; that of
the register is a constant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from tilewright.codegen.code import Code, Element
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.layout.linear import LinearLayout

__all__ = ["Threads", "constant_runs", "linear_function", "register_offset", "thread_columns"]


@lru_cache(maxsize=4096)
def thread_columns(layout: LinearLayout, axis: int) -> tuple[int, ...]:
    """Return what each bit of the thread's number adds to a coordinate."""
    name = f"dim{axis}"
    return tuple(basis[name] for place in ("lane", "warp") for basis in layout.bases(place))


@lru_cache(maxsize=65536)
def register_offset(layout: LinearLayout, axis: int, register: int) -> int:
    """Return what a register adds to a coordinate."""
    return layout(register=register)[f"dim{axis}"] if register else 0


@lru_cache(maxsize=4096)
def constant_runs(layout: LinearLayout, runs: tuple[int, ...]) -> tuple[int, ...]:
    """Return for each register the first one that holds the same of a tile constant over `runs`.

    `runs` are powers of two, one for each axis: elements are equal whose coordinates differ only
    within an aligned run.
    """
    registers = range(layout.input_size("register"))
    first: dict[tuple[int, ...], int] = {}
    return tuple(
        first.setdefault(
            tuple(register_offset(layout, axis, register) & -run for axis, run in enumerate(runs)),
            register,
        )
        for register in registers
    )


def linear_function(
    code: Code, number: str, columns: Sequence[int], level: int | None = None
) -> str:
    """Write the exclusive or of the columns of the bits that are set in an i32.

    Bits that move by the same distance are taken together.
    """
    masks: dict[int, int] = defaultdict(int)
    for bit, column in enumerate(columns):
        for target in range(column.bit_length()):
            if column >> target & 1:
                masks[target - bit] |= 1 << bit
    total, filled = "0", 0
    for distance, mask in sorted(masks.items()):
        term = code.assign(f"and i32 {number}, {mask}", level)
        if distance > 0:
            term = code.assign(f"shl nuw nsw i32 {term}, {distance}", level)
        elif distance:
            term = code.assign(f"lshr exact i32 {term}, {-distance}", level)
        place = mask << distance if distance >= 0 else mask >> -distance
        if total == "0":
            total = term
        else:
            instruction = "xor" if filled & place else "or disjoint"
            total = code.assign(f"{instruction} i32 {total}, {term}", level)
        filled |= place
    return total


class Threads:
    """Linear functions of the number of the thread."""

    def __init__(self, code: Code, machine: GpuMachine) -> None:
        self.code = code
        self.number = machine.thread_number()
        self.lane_bits = machine.warp_size.bit_length() - 1

    def linear(self, columns: Sequence[int]) -> Element:
        """Return the exclusive or of the columns of the bits that are set in the number."""
        key = ("linear", tuple(columns))
        known = self.code.lookup(key)
        if known is None:
            text = linear_function(self.code, self.number, columns, 0)
            known = self.code.remember(key, Element(text, 1, 0))
        return known

    def offset(self, columns: Sequence[int], constant: int) -> Element:
        """Return a linear function of the thread, xor a constant."""
        part = self.linear(columns)
        if not constant or part.text == "0":
            return part if part.text != "0" else Element(str(constant), 1, 0)
        touched = 0
        for column in columns:
            touched |= column
        instruction = "xor" if touched & constant else "or disjoint"
        key = ("offset", part.text, constant)
        known = self.code.lookup(key)
        if known is None:
            text = self.code.assign(f"{instruction} i32 {part.text}, {constant}", 0)
            known = self.code.remember(key, Element(text, 1, 0))
        return known

    def coordinate(self, layout: LinearLayout, axis: int, register: int) -> Element:
        """Return where a register of this thread lies along an axis, an i32."""
        columns = thread_columns(layout, axis)
        return self.offset(columns, register_offset(layout, axis, register))

    def is_first_holder(self, layout: LinearLayout) -> Element | None:
        """Return whether no thread before this one holds the same elements; None for all do."""
        free = layout.free_masks()
        return self.has_none_of(free["lane"], free["warp"])

    def is_first(self, warps: int) -> Element | None:
        """Return whether this is the first thread of a program; None where it has one."""
        return self.has_none_of((1 << self.lane_bits) - 1, warps - 1)

    def has_none_of(self, lanes: int, warps: int) -> Element | None:
        """Return whether none of these bits of the lane and the warp are set; None for no bits."""
        mask = lanes | warps << self.lane_bits
        if not mask:
            return None
        key = ("first", mask)
        known = self.code.lookup(key)
        if known is None:
            bits = self.code.assign(f"and i32 {self.number}, {mask}", 0)
            text = self.code.assign(f"icmp eq i32 {bits}, 0", 0)
            known = self.code.remember(key, Element(text, 1, 0))
        return known
