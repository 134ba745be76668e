"""Text of one LLVM function, written instruction by instruction.

Tile sizes are compile-time constants, so most index arithmetic folds here, in Python, and a loop
that runs once is not a loop. What is left is ordinary LLVM assembly with fresh names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Carried", "Index", "Writer", "mangled", "vector_type"]

Index: TypeAlias = int | str
"""A constant, or the name of an `i64` value."""

Carried: TypeAlias = list[str]

MANGLED_LANES = {"float": "f32", "double": "f64", "half": "f16"}


def vector_type(lanes: int, lane: str) -> str:
    """Return the LLVM type of this vector."""
    return f"<{lanes} x {lane}>"


def lane_mask(active: int, lanes: int) -> str:
    """Return the constant mask whose first `active` of `lanes` lanes are on."""
    bits = ", ".join(f"i1 {'true' if lane < active else 'false'}" for lane in range(lanes))
    return f"<{bits}>"


@dataclass
class Writer:
    """Collects the body of a function. `block` is the label that is being written."""

    lines: list[str] = field(default_factory=list)
    block: str = "entry"
    names: int = 0

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def value(self, instruction: str) -> str:
        """Writes an instruction and returns the name of its result."""
        name = self.fresh("%v")
        self.lines.append(f"  {name} = {instruction}")
        return name

    def effect(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def add(self, left: Index, right: Index) -> Index:
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if left == 0:
            return right
        return left if right == 0 else self.value(f"add nsw i64 {left}, {right}")

    def multiply(self, left: Index, right: Index) -> Index:
        if isinstance(left, int) and isinstance(right, int):
            return left * right
        if left == 0 or right == 0:
            return 0
        if left == 1:
            return right
        return left if right == 1 else self.value(f"mul nsw i64 {left}, {right}")

    def divide(self, left: Index, right: int) -> Index:
        if isinstance(left, int):
            return left // right
        return left if right == 1 else self.value(f"udiv i64 {left}, {right}")

    def element(self, pointer: str, element_type: str, index: Index) -> str:
        """The address of `pointer[index]`."""
        if index == 0:
            return pointer
        return self.value(f"getelementptr inbounds {element_type}, ptr {pointer}, i64 {index}")

    def loop(
        self,
        count: int,
        body: Callable[[Index, Carried], Carried],
        types: Sequence[str] = (),
        initial: Sequence[str] = (),
    ) -> Carried:
        """Runs `body(index, carried)` `count` times; returns the last carried values."""
        if count == 0:
            return list(initial)
        if count == 1:
            return body(0, list(initial))
        label, before = self.fresh("loop"), self.block
        index = f"%{label}.index"
        carried = [self.fresh("%c") for _ in types]
        self.effect(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.block = label
        phis_at = len(self.lines)
        after = body(index, carried)
        following = self.value(f"add nuw nsw i64 {index}, 1")
        # The phis name the block that ends the body, known only now that it has been written.
        phis = [f"  {index} = phi i64 [0, %{before}], [{following}, %{self.block}]"]
        phis += [
            f"  {name} = phi {kind} [{start}, %{before}], [{end}, %{self.block}]"
            for name, kind, start, end in zip(carried, types, initial, after, strict=True)
        ]
        self.lines[phis_at:phis_at] = phis
        done = self.value(f"icmp eq i64 {following}, {count}")
        self.effect(f"br i1 {done}, label %{label}.end, label %{label}")
        self.lines.append(f"{label}.end:")
        self.block = f"{label}.end"
        return after

    def pieces(self, total: int, size: int, body: Callable[[Index, int], None]) -> None:
        """Runs `body(piece, length)` for `total` cut into pieces of `size` and a rest."""

        def whole_piece(piece: Index, _: Carried) -> Carried:
            body(piece, size)
            return []

        whole, rest = divmod(total, size)
        self.loop(whole, whole_piece)
        if rest:
            body(whole, rest)

    def load(self, kind: str, pointer: str, align: int) -> str:
        return self.value(f"load {kind}, ptr {pointer}, align {align}")

    def store(self, kind: str, stored: str, pointer: str, align: int) -> None:
        self.effect(f"store {kind} {stored}, ptr {pointer}, align {align}")

    def load_vector(self, lane: str, lanes: int, active: int, pointer: str, align: int) -> str:
        """The first `active` of `lanes` lanes from memory, zero in the others."""
        kind = vector_type(lanes, lane)
        if active == lanes:
            return self.load(kind, pointer, align)
        if active == 0:
            return "zeroinitializer"
        mask = f"<{lanes} x i1> {lane_mask(active, lanes)}"
        suffix = mangled(lane, lanes)
        return self.value(
            f"call {kind} @llvm.masked.load.{suffix}.p0"
            f"(ptr align {align} {pointer}, {mask}, {kind} zeroinitializer)"
        )

    def store_vector(
        self, lane: str, lanes: int, active: int, stored: str, pointer: str, align: int
    ) -> None:
        kind = vector_type(lanes, lane)
        if active == lanes:
            self.store(kind, stored, pointer, align)
            return
        mask = f"<{lanes} x i1> {lane_mask(active, lanes)}"
        suffix = mangled(lane, lanes)
        self.effect(
            f"call void @llvm.masked.store.{suffix}.p0"
            f"({kind} {stored}, ptr align {align} {pointer}, {mask})"
        )

    def shuffle(self, kind: str, left: str, right: str, lanes: Sequence[int]) -> str:
        chosen = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.value(
            f"shufflevector {kind} {left}, {kind} {right}, <{len(lanes)} x i32> <{chosen}>"
        )

    def splat(self, lane: str, lanes: int, scalar: str) -> str:
        kind = vector_type(lanes, lane)
        first = self.value(f"insertelement {kind} poison, {lane} {scalar}, i64 0")
        return self.shuffle(kind, first, "poison", [0] * lanes)


def mangled(lane: str, lanes: int) -> str:
    """Return the suffix LLVM gives an intrinsic on this vector: `v16f32`."""
    return f"v{lanes}{MANGLED_LANES.get(lane, lane)}"
