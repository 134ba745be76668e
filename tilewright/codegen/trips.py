"""How often a counted loop runs."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Code, llvm_type

__all__ = ["trip_count"]


def trip_count(code: Code, op: ops.For, start: str, stop: str, step: str) -> str:
    """Count the iterations in 64 bits, so that a bound near the end of the type is no trap."""
    kind = llvm_type(op.start.type.element)
    signed = op.start.type.element.is_int_signed()
    wide = "i128" if kind == "i64" else "i64"
    extend = "sext" if signed else "zext"
    a, b, s = (code.assign(f"{extend} {kind} {text} to {wide}") for text in (start, stop, step))
    forward = code.assign(f"icmp sgt {wide} {s}, 0")
    distance = code.assign(
        f"select i1 {forward}, {wide} {code.assign(f'sub {wide} {b}, {a}')}, "
        f"{wide} {code.assign(f'sub {wide} {a}, {b}')}"
    )
    size = code.assign(
        f"select i1 {forward}, {wide} {s}, {wide} {code.assign(f'sub {wide} 0, {s}')}"
    )
    runs = code.assign(f"icmp sgt {wide} {distance}, 0")
    moves = code.assign(f"icmp ne {wide} {s}, 0")
    safe = code.assign(f"select i1 {moves}, {wide} {size}, {wide} 1")
    last = code.assign(f"sub {wide} {distance}, 1")
    trips = code.assign(f"add {wide} {code.assign(f'udiv {wide} {last}, {safe}')}, 1")
    any_ = code.assign(f"and i1 {runs}, {moves}")
    chosen = code.assign(f"select i1 {any_}, {wide} {trips}, {wide} 0")
    return chosen if wide == "i64" else code.assign(f"trunc {wide} {chosen} to i64")
