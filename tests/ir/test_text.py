"""Printing and parsing are inverse, and a mistake in the text is shown at its place."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.random_functions import functions
from tilewright import ops
from tilewright.errors import CompileError, Location
from tilewright.ir.core import OPS, Block, Function, Param
from tilewright.ir.parser import parse
from tilewright.ir.printer import to_text
from tilewright.ir.types import DTYPES, TileType
from tilewright.ir.verifier import verify

EVERYTHING = """\
noinline func @max_of(%a: fp32, %b: fp32) {
  %0 = maximum %a, %b {propagate_nan=true} : fp32
  yield %0
}

func @kernel(%x: *fp32 {divisible_by=16}, %k: *kfp16, %n: i32, %flag: i1) {
  %0 = full {value=-0.0, of=fp32[64]} : fp32[64]
  %r = arange {start=0, end=64} : i32[64]
  %ns = broadcast %n {shape=[64]} : i32[64]
  %m = compare %r, %ns {predicate="lt"} : i1[64]
  %xs = broadcast %x {shape=[64]} : *fp32[64]
  %p = pointer_add %xs, %r : *fp32[64]
  %v = load %p, %m, %0 {cache_modifier=".ca \\"x\\"", volatile=true} : fp32[64]
  %w = load %p, _, _ : fp32[64]
  %s = reduce [%v] {axis=0} (%a: fp32, %b: fp32) {
    %c = call [%a, %b] {callee=@max_of} : fp32
    yield %c
  } : fp32
  %zero = full {value=0, of=i32} : i32
  %one = full {value=1, of=i32} : i32
  %t, %u = for %zero, %n, %one, [%s, %v] {num_stages=3} (%i: i32, %acc: fp32, %y: fp32[64]) {
    %h = if %flag then () {
      yield %acc
    } orelse () {
      yield %s
    } : fp32
    yield %h, %y
  } : fp32, fp32[64]
  %d = cast %u {to=fp8e4b15, rounding="rtz"} : fp8e4b15[64]
  %e = bitcast %p {to=*ki32} : *ki32[64]
  store %p, %u, %m
  print [%t] {prefix="t: "}
  barrier
  %z = while [%zero] condition (%q: i32) {
    %go = full {value=false, of=i1} : i1
    yield %go
  } body (%q_1: i32) {
    yield %q_1
  } : i32
  yield %t
}
"""


def test_the_text_form():
    function = parse(EVERYTHING)
    verify(function)
    assert to_text(function) == EVERYTHING


@settings(deadline=None)
@given(functions(8))
def test_random_functions_survive(function):
    text = to_text(function)
    again = parse(text)
    verify(again)
    assert to_text(again) == text


def constant(value, name="fp64"):
    body = Block()
    body.ops.append(ops.Full(value, TileType(DTYPES[name])))
    return Function("f", body)


@given(st.binary(min_size=8, max_size=8))
def test_floats_survive_to_the_bit(raw):
    (value,) = struct.unpack("<d", raw)
    (op,) = parse(to_text(constant(value))).body.ops
    assert struct.pack("<d", op.value) == raw


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 1e-310])
def test_special_floats_survive(value):
    (op,) = parse(to_text(constant(value))).body.ops
    assert struct.pack("<d", op.value) == struct.pack("<d", value)


@pytest.mark.parametrize(("value", "name"), [(True, "i1"), (1, "i32"), (-(2**63), "i64")])
def test_integers_and_bools_stay_apart(value, name):
    (op,) = parse(to_text(constant(value, name))).body.ops
    assert (type(op.value), op.value) == (type(value), value)


def test_enumerations_and_functions_are_read_as_declared():
    function = parse(EVERYTHING)
    found = {op.op_name: op for op in function.body.walk()}
    assert found["compare"].predicate is ops.Predicate.LT
    assert found["call"].callee.noinline
    assert found["cast"].to is DTYPES["fp8e4b15"]


def test_names_are_made_unique_and_valid():
    params = [Param(TileType(DTYPES["i32"]), name) for name in ("x", "x", "x_1", "7", "a.b", "")]
    function = Function("f<lambda>", Block(tuple(params)))
    text = to_text(function)
    assert text.startswith(
        "func @f_lambda_(%x: i32, %x_1: i32, %x_1_1: i32, %_7: i32, %a_b: i32, %0: i32) {"
    )
    assert to_text(parse(text)) == text


def test_functions_of_one_name_stay_apart():
    callees = [Function("g", Block()), Function("g", Block())]
    body = Block((), [ops.Call(callee, ()) for callee in callees])
    text = to_text(Function("g", body))
    assert [line for line in text.splitlines() if "@" in line] == [
        "func @g() {",
        "func @g_1() {",
        "func @g_2() {",
        "  call [] {callee=@g}",
        "  call [] {callee=@g_1}",
    ]
    assert to_text(parse(text)) == text


def test_locations_survive():
    op = ops.Barrier(location=Location('a "b".py', 3, 7))
    function = Function("f", Block((), [op]), Location("c.py", 1, 0))
    text = to_text(function, locations=True)
    assert text == 'func @f() loc("c.py":1:1) {\n  barrier loc("a \\"b\\".py":3:8)\n}\n'
    again = parse(text)
    assert again.body.ops[0].location == op.location
    assert to_text(again, locations=True) == text


def test_comments_are_skipped():
    assert to_text(parse("// first\nfunc @f() { // then\n}")) == "func @f() {\n}\n"


def test_what_is_broken_can_still_be_printed():
    stray = Param(TileType(DTYPES["i32"]), "stray")
    text = to_text(Function("f", Block((), [ops.Neg(stray)])))
    assert "neg %<undefined stray>" in text


@pytest.mark.parametrize(
    ("line", "problem", "at"),
    [
        ("%b = add %a, %c : i32", "%c is not defined here", "%c"),
        ("%b = add %a, %a : i64", "the result is i32", "i64"),
        ("%a = neg %a : i32", "%a is defined twice", "%a"),
        ("%b = nothing %a : i32", "there is no op 'nothing'", "nothing"),
        ("%b, %c = neg %a : i32", "neg has 1 results, not 2", "neg"),
        ("%b = neg %a", "expected ':', found '}'", "}"),
        ("%b = add %a : i32", "expected ',', found ':'", ": i32"),
        ("%b = add %a, %p : i32", "add: operand types differ: i32 and *fp32", "add"),
        ("%b = cast %a {to=3} : i32", "cast: cannot convert i32 to 3 by value", "cast"),
        ("%b = cast %a {into=i8} : i8", "cast has no attribute 'into'", "into"),
        ("%b = cast %a {to=i9} : i9", "there is no type 'i9'", "i9"),
        ('%b = compare %a, %a {predicate="xx"} : i1', "'xx' is not a valid Predicate", '"xx"'),
        ("%b = full {of=i32} : i32", "full: expected the fields value, of", "full"),
        ("call [] {callee=@g}", "@g is not defined above", "@g"),
        ("?", "unexpected character '?'", "?"),
    ],
)
def test_mistakes_are_shown_at_their_place(line, problem, at):
    text = f"func @f(%a: i32, %p: *fp32) {{\n  {line}\n}}"
    with pytest.raises(CompileError) as caught:
        parse(text)
    heading, source, caret = str(caught.value).split("\n")
    assert heading.startswith("tile IR, line ")
    assert problem in heading
    assert source[caret.index("^") :].startswith(at)


def test_every_op_can_be_read_by_name():
    for name, kind in OPS.items():
        assert name == kind.op_name
        with pytest.raises(CompileError):
            parse(f"func @f() {{ {name} %missing }}")
