"""Conversions between floats and integers in the four directions, and by bits.

A float becomes an integer as in the rest of the language: saturated, with 0 for NaN. Unsigned
results have the signed type of their width, as in Triton: they are the bits.
"""

from __future__ import annotations

from typing import Any

from tilewright.language.extra.declare import Function, of_types
from tilewright.language.extra.float_bits import rounded_down, rounded_up
from tilewright.language.extra.rounding import DIRECTIONS, exact_sum, narrowed, sum_of, to_odd
from tilewright.passes.expression import Expression

__all__ = [
    "double2float_rd", "double2float_rn", "double2float_ru", "double2float_rz", "double2hiint",
    "double2int_rd", "double2int_rn", "double2int_ru", "double2int_rz", "double2ll_rd",
    "double2ll_rn", "double2ll_ru", "double2ll_rz", "double2loint", "double2uint_rd",
    "double2uint_rn", "double2uint_ru", "double2uint_rz", "double2ull_rd", "double2ull_rn",
    "double2ull_ru", "double2ull_rz", "double_as_longlong", "float2int_rd", "float2int_rn",
    "float2int_ru", "float2int_rz", "float2ll_rd", "float2ll_rn", "float2ll_ru", "float2ll_rz",
    "float2uint_rd", "float2uint_rn", "float2uint_ru", "float2uint_rz", "float2ull_rd",
    "float2ull_rn", "float2ull_ru", "float2ull_rz", "float_as_int", "float_as_uint",
    "hiloint2double", "int2double_rn", "int2float_rd", "int2float_rn", "int2float_ru",
    "int2float_rz", "int_as_float", "ll2double_rd", "ll2double_rn", "ll2double_ru", "ll2double_rz",
    "ll2float_rd", "ll2float_rn", "ll2float_ru", "ll2float_rz", "longlong_as_double", "rcp64h",
    "uint2double_rn", "uint2float_rd", "uint2float_rn", "uint2float_ru", "uint2float_rz",
    "uint_as_float", "ull2double_rd", "ull2double_rn", "ull2double_ru", "ull2double_rz",
    "ull2float_rd", "ull2float_rn", "ull2float_ru", "ull2float_rz",
]  # fmt: skip

INTEGERS = {"int": "i32", "uint": "u32", "ll": "i64", "ull": "u64"}
FLOATS = {"float": "fp32", "double": "fp64"}


def _whole(x: Expression, direction: str) -> Expression:
    if direction == "rn":
        return x.rounded()
    if direction == "rz":
        return x.truncated()
    return rounded_down(x) if direction == "rd" else rounded_up(x)


def _to_integer(source: str, target: str, direction: str) -> Function:
    element = INTEGERS[target]

    def formula(x: Expression) -> Expression:
        whole = _whole(x, direction).cast(element)
        return whole.bitcast(element.replace("u", "i")) if element.startswith("u") else whole

    text = f"Return {FLOATS[source]} `x` as {element}, rounded {DIRECTIONS[direction]}, saturated."
    if element.startswith("u"):
        text = f"{text[:-1]}; its bits as {element.replace('u', 'i')}."
    return _named(formula, f"{source}2{target}_{direction}", text, FLOATS[source])


def _to_float(source: str, target: str, direction: str) -> Function:
    def formula(x: Expression) -> Expression:
        if x.dtype.primitive_bitwidth == 32:
            return narrowed(x.cast("fp64"), direction)
        # Both halves are exact in fp64.
        upper = (x >> 32).cast("fp64") * 2.0**32
        lower = (x & 0xFFFFFFFF).cast("fp64")
        if target == "double":
            return sum_of(upper, lower, direction)
        return narrowed(to_odd(*exact_sum(upper, lower)), direction)

    text = f"Return {INTEGERS[source]} `x` as {FLOATS[target]}, rounded {DIRECTIONS[direction]}."
    return _named(formula, f"{source}2{target}_{direction}", text, INTEGERS[source])


def _to_single(direction: str) -> Function:
    def formula(x: Expression) -> Expression:
        return narrowed(x, direction)

    text = f"Return fp64 `x` as fp32, rounded {DIRECTIONS[direction]}."
    return _named(formula, f"double2float_{direction}", text, "fp64")


def _named(formula: Any, name: str, doc: str, operand: str) -> Function:
    formula.__name__ = formula.__qualname__ = name
    formula.__doc__ = doc
    return of_types(operand)(formula)


@of_types("i32")
def int2double_rn(x: Expression) -> Expression:
    """Return int32 `x` as fp64, which is exact."""
    return x.cast("fp64")


@of_types("u32")
def uint2double_rn(x: Expression) -> Expression:
    """Return uint32 `x` as fp64, which is exact."""
    return x.cast("fp64")


@of_types("fp64")
def double2hiint(x: Expression) -> Expression:
    """Return the upper 32 bits of an fp64 number, as int32."""
    return (x.bitcast("i64") >> 32).cast("i32")


@of_types("fp64")
def double2loint(x: Expression) -> Expression:
    """Return the lower 32 bits of an fp64 number, as int32."""
    return x.bitcast("i64").cast("i32")


@of_types("i32", "i32")
def hiloint2double(high: Expression, low: Expression) -> Expression:
    """Return the fp64 number whose upper and lower 32 bits are `high` and `low`."""
    lower = low.bitcast("u32").cast("i64")
    return ((high.cast("i64") << 32) | lower).bitcast("fp64")


@of_types("i32")
def int_as_float(x: Expression) -> Expression:
    """Return the bits of int32 `x` as fp32."""
    return x.bitcast("fp32")


@of_types("u32")
def uint_as_float(x: Expression) -> Expression:
    """Return the bits of uint32 `x` as fp32."""
    return x.bitcast("fp32")


@of_types("fp32")
def float_as_int(x: Expression) -> Expression:
    """Return the bits of fp32 `x` as int32."""
    return x.bitcast("i32")


@of_types("fp32")
def float_as_uint(x: Expression) -> Expression:
    """Return the bits of fp32 `x` as int32, the type that Triton gives them."""
    return x.bitcast("i32")


@of_types("i64")
def longlong_as_double(x: Expression) -> Expression:
    """Return the bits of int64 `x` as fp64."""
    return x.bitcast("fp64")


@of_types("fp64")
def double_as_longlong(x: Expression) -> Expression:
    """Return the bits of fp64 `x` as int64."""
    return x.bitcast("i64")


@of_types("fp64")
def rcp64h(x: Expression) -> Expression:
    """Return 1 / `x` to 20 bits: the quotient with its lower 32 bits cleared."""
    return ((1.0 / x).bitcast("i64") & -(1 << 32)).bitcast("fp64")


double2int_rn = _to_integer("double", "int", "rn")
double2int_rd = _to_integer("double", "int", "rd")
double2int_ru = _to_integer("double", "int", "ru")
double2int_rz = _to_integer("double", "int", "rz")
double2uint_rn = _to_integer("double", "uint", "rn")
double2uint_rd = _to_integer("double", "uint", "rd")
double2uint_ru = _to_integer("double", "uint", "ru")
double2uint_rz = _to_integer("double", "uint", "rz")
double2ll_rn = _to_integer("double", "ll", "rn")
double2ll_rd = _to_integer("double", "ll", "rd")
double2ll_ru = _to_integer("double", "ll", "ru")
double2ll_rz = _to_integer("double", "ll", "rz")
double2ull_rn = _to_integer("double", "ull", "rn")
double2ull_rd = _to_integer("double", "ull", "rd")
double2ull_ru = _to_integer("double", "ull", "ru")
double2ull_rz = _to_integer("double", "ull", "rz")
float2int_rn = _to_integer("float", "int", "rn")
float2int_rd = _to_integer("float", "int", "rd")
float2int_ru = _to_integer("float", "int", "ru")
float2int_rz = _to_integer("float", "int", "rz")
float2uint_rn = _to_integer("float", "uint", "rn")
float2uint_rd = _to_integer("float", "uint", "rd")
float2uint_ru = _to_integer("float", "uint", "ru")
float2uint_rz = _to_integer("float", "uint", "rz")
float2ll_rn = _to_integer("float", "ll", "rn")
float2ll_rd = _to_integer("float", "ll", "rd")
float2ll_ru = _to_integer("float", "ll", "ru")
float2ll_rz = _to_integer("float", "ll", "rz")
float2ull_rn = _to_integer("float", "ull", "rn")
float2ull_rd = _to_integer("float", "ull", "rd")
float2ull_ru = _to_integer("float", "ull", "ru")
float2ull_rz = _to_integer("float", "ull", "rz")

int2float_rn = _to_float("int", "float", "rn")
int2float_rd = _to_float("int", "float", "rd")
int2float_ru = _to_float("int", "float", "ru")
int2float_rz = _to_float("int", "float", "rz")
uint2float_rn = _to_float("uint", "float", "rn")
uint2float_rd = _to_float("uint", "float", "rd")
uint2float_ru = _to_float("uint", "float", "ru")
uint2float_rz = _to_float("uint", "float", "rz")
ll2float_rn = _to_float("ll", "float", "rn")
ll2float_rd = _to_float("ll", "float", "rd")
ll2float_ru = _to_float("ll", "float", "ru")
ll2float_rz = _to_float("ll", "float", "rz")
ll2double_rn = _to_float("ll", "double", "rn")
ll2double_rd = _to_float("ll", "double", "rd")
ll2double_ru = _to_float("ll", "double", "ru")
ll2double_rz = _to_float("ll", "double", "rz")
ull2float_rn = _to_float("ull", "float", "rn")
ull2float_rd = _to_float("ull", "float", "rd")
ull2float_ru = _to_float("ull", "float", "ru")
ull2float_rz = _to_float("ull", "float", "rz")
ull2double_rn = _to_float("ull", "double", "rn")
ull2double_rd = _to_float("ull", "double", "rd")
ull2double_ru = _to_float("ull", "double", "ru")
ull2double_rz = _to_float("ull", "double", "rz")

double2float_rn = _to_single("rn")
double2float_rd = _to_single("rd")
double2float_ru = _to_single("ru")
double2float_rz = _to_single("rz")
