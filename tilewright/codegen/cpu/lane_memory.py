"""Reading and writing lanes of vectors: contiguous, anywhere, masked, past the caches."""

from __future__ import annotations

from tilewright.codegen.code import Code, Element, mangled, vector
from tilewright.ir.types import DTYPES, ElementType

__all__ = ["LaneMemory"]


class LaneMemory:
    """Writes loads and stores of `lanes` elements; `predicate` masks the lanes inside the tile."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.lanes = 1
        self.predicate: str | None = None

    def prefetch(self, address: str, distance_bytes: int) -> None:
        """Ask for memory ahead of an address; asking for what is not there does no harm."""
        behind = self.code.assign(f"getelementptr i8, ptr {address}, i64 {distance_bytes}")
        self.code.call("void", "llvm.prefetch.p0", f"ptr {behind}, i32 0, i32 2, i32 1")

    def load_where_consecutive(
        self, kind: str, addresses: str, align: int, mask: str | None, other: str | None
    ) -> str:
        """Look at the addresses, which are often consecutive all the same (`offsets % n`)."""
        code, lanes = self.code, self.lanes
        type_, numbers = vector(kind, lanes), vector("i64", lanes)
        wide = code.assign(f"ptrtoint {vector('ptr', lanes)} {addresses} to {numbers}")
        first = code.assign(f"extractelement {numbers} {wide}, i32 0")
        base = code.splat(Element(first, 1, code.level), "i64", lanes)
        steps = ", ".join(f"i64 {align * lane}" for lane in range(lanes))
        expected = code.assign(f"add {numbers} {base}, <{steps}>")
        differ = code.assign(f"icmp ne {numbers} {wide}, {expected}")
        any_ = code.call(
            "i1", f"llvm.vector.reduce.or.v{lanes}i1", f"{vector('i1', lanes)} {differ}"
        )
        slot = code.alloca(type_)
        apart, together, after = code.label("apart"), code.label("together"), code.label("loaded")
        code.line(f"br i1 {any_}, label %{apart}, label %{together}")
        code.place(apart)
        text = self.gather(kind, addresses, align, mask, other)
        code.line(f"store {type_} {text}, ptr {slot}")
        code.line(f"br label %{after}")
        code.place(together)
        address = code.assign(f"inttoptr i64 {first} to ptr")
        text = self.load_contiguous(kind, address, align, mask, other)
        code.line(f"store {type_} {text}, ptr {slot}")
        code.line(f"br label %{after}")
        code.place(after)
        return code.assign(f"load {type_}, ptr {slot}")

    def load_contiguous(
        self, kind: str, address: str, align: int, mask: str | None, other: str | None
    ) -> str:
        """Load consecutive elements; a masked-out lane gives its lane of `other`, or 0."""
        type_ = vector(kind, self.lanes)
        if mask is None:
            return self.code.assign(f"load {type_}, ptr {address}, align {align}")
        return self.code.call(
            type_,
            f"llvm.masked.load.{mangled(kind, self.lanes)}.p0",
            f"ptr align {align} {address}, {vector('i1', self.lanes)} {mask}, "
            f"{type_} {other or 'zeroinitializer'}",
        )

    def gather(
        self,
        kind: str,
        addresses: str,
        align: int,
        mask: str | None,
        other: str | None,
        level: int | None = None,
    ) -> str:
        """Load lane by lane."""
        type_, flags = vector(kind, self.lanes), vector("i1", self.lanes)
        active = mask or self.predicate or "splat (i1 true)"
        return self.code.call(
            type_,
            f"llvm.masked.gather.{mangled(kind, self.lanes)}.{mangled('ptr', self.lanes)}",
            f"{vector('ptr', self.lanes)} align {align} {addresses}, {flags} {active}, "
            f"{type_} {other or 'zeroinitializer'}",
            level,
        )

    def scatter(self, kind: str, text: str, addresses: str, align: int, mask: str | None) -> None:
        """Store lane by lane, in order."""
        type_, flags = vector(kind, self.lanes), vector("i1", self.lanes)
        active = mask or self.predicate or "splat (i1 true)"
        self.code.call(
            "void",
            f"llvm.masked.scatter.{mangled(kind, self.lanes)}.{mangled('ptr', self.lanes)}",
            f"{type_} {text}, {vector('ptr', self.lanes)} align {align} {addresses}, "
            f"{flags} {active}",
        )

    def store_contiguous(
        self, kind: str, text: str, address: str, align: int, mask: str | None
    ) -> None:
        """Store a vector to consecutive elements."""
        type_ = vector(kind, self.lanes)
        active = mask or self.predicate
        if active is None:
            self.code.line(f"store {type_} {text}, ptr {address}, align {align}")
            return
        lanes = self.lanes
        if self.code.is_x86:
            kind, text, active, lanes = self._kept_from_truncating_stores(kind, text, active)
        self.code.call(
            "void",
            f"llvm.masked.store.{mangled(kind, lanes)}.p0",
            f"{vector(kind, lanes)} {text}, ptr align {align} {address}, "
            f"{vector('i1', lanes)} {active}",
        )

    def _kept_from_truncating_stores(
        self, kind: str, text: str, active: str
    ) -> tuple[str, str, str, int]:
        """Return value, mask and width in a form that LLVM 22 stores correctly on x86.

        Where a mask is known to have a single lane, it stores the lane of a truncated vector as
        wide as before the truncation. Stores of floats and values from elsewhere do not truncate.
        """
        lanes, type_ = self.lanes, vector(kind, self.lanes)
        if kind in {"i16", "i32"}:
            other = {"i16": "half", "i32": "float"}[kind]
            cast = self.code.assign(f"bitcast {type_} {text} to {vector(other, lanes)}")
            return other, cast, active, lanes
        if kind != "i8":
            return kind, text, active, lanes
        if lanes < 16:
            short = ", ".join(f"i32 {i if i < lanes else 0}" for i in range(16))
            text = self.code.assign(
                f"shufflevector {type_} {text}, {type_} poison, <16 x i32> <{short}>"
            )
            beyond = ", ".join(f"i32 {min(i, 2 * lanes - 1)}" for i in range(16))
            flags = vector("i1", lanes)
            active = self.code.assign(
                f"shufflevector {flags} {active}, {flags} zeroinitializer, <16 x i32> <{beyond}>"
            )
        opaque = self.code.assign(f'call <16 x i8> asm "", "=x,0"(<16 x i8> {text})')
        return "i8", opaque, active, 16

    def stream(self, kind: str, text: str, address: str) -> None:
        """Store a vector past the caches."""
        self.code.streams = True
        type_ = vector(kind, self.lanes)
        self.code.line(f"store {type_} {text}, ptr {address}, align 16, !nontemporal !0")

    def from_memory(self, text: str, element: ElementType, lanes: int, level: int) -> Element:
        if element is DTYPES["i1"]:
            zero = "0" if lanes == 1 else "zeroinitializer"
            text = self.code.assign(f"icmp ne {vector('i8', lanes)} {text}, {zero}", level)
        return Element(text, lanes, level)

    def to_memory(
        self, text: str, element: ElementType, lanes: int, level: int | None = None
    ) -> str:
        """Return an element as it is kept in memory."""
        if element is DTYPES["i1"]:
            bools, bytes_ = vector("i1", lanes), vector("i8", lanes)
            return self.code.assign(f"zext {bools} {text} to {bytes_}", level)
        return text
