"""How often a counted loop runs."""

from __future__ import annotations

from tilewright import ops
from tilewright.codegen.code import Code, llvm_type

__all__ = ["trip_count"]


def trip_count(code: Code, op: ops.For, start: str, stop: str, step: str) -> str:
    """Count the iterations in 64 bits, so that a bound near the end of the type is no trap.

    Distances are unsigned: there is one between any two numbers, and no machine divides 128 bits.
    """
    kind = llvm_type(op.start.type.element)
    extend = "sext" if op.start.type.element.is_int_signed() else "zext"
    a, b, s = (start, stop, step)
    if kind != "i64":
        a, b, s = (code.assign(f"{extend} {kind} {text} to i64") for text in (a, b, s))
    greater = "ugt" if kind == "i64" and extend == "zext" else "sgt"
    forward = code.assign(f"icmp {greater} i64 {s}, 0")
    above = code.assign(f"icmp {greater} i64 {b}, {a}")
    below = code.assign(f"icmp {greater} i64 {a}, {b}")
    up, down = code.assign(f"sub i64 {b}, {a}"), code.assign(f"sub i64 {a}, {b}")
    distance = code.assign(f"select i1 {forward}, i64 {up}, i64 {down}")
    runs = code.assign(f"select i1 {forward}, i1 {above}, i1 {below}")
    size = code.assign(
        f"select i1 {forward}, i64 {s}, i64 {code.assign(f'sub i64 0, {s}')}",
    )
    moves = code.assign(f"icmp ne i64 {s}, 0")
    safe = code.assign(f"select i1 {moves}, i64 {size}, i64 1")
    last = code.assign(f"sub i64 {distance}, 1")
    trips = code.assign(f"add i64 {code.assign(f'udiv i64 {last}, {safe}')}, 1")
    any_ = code.assign(f"and i1 {runs}, {moves}")
    return code.assign(f"select i1 {any_}, i64 {trips}, i64 0")
