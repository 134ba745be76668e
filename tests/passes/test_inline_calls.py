"""Inlining: what stays a call on request, and where inlined ops say they come from."""

from tilewright import ops
from tilewright.errors import Location
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.parser import parse
from tilewright.ir.printer import to_text
from tilewright.ir.types import DTYPES, TileType
from tilewright.passes.inline_calls import inline_calls

TEXT = """\
func @inner(%x: i32) {
  %y = neg %x : i32
  yield %y
}

noinline func @outer(%x: i32) {
  %y = call [%x] {callee=@inner} : i32
  yield %y
}

func @f(%x: i32) {
  %y = call [%x] {callee=@outer} : i32
  %z = call [%y] {callee=@outer} : i32
  yield %z
}
"""


def test_functions_that_stay_calls_are_inlined_into():
    text = to_text(inline_calls(parse(TEXT), keep_noinline=True))
    assert "@inner" not in text
    assert text.count("noinline func @outer") == 1
    assert text.count("call [") == 2
    assert "call" not in to_text(inline_calls(parse(TEXT)))


def test_the_functions_called_are_left_alone():
    function = parse(TEXT)
    inline_calls(function)
    assert to_text(function) == TEXT


def called(name, callee, location):
    x = Param(TileType(DTYPES["i32"]), "x")
    call = ops.Call(callee, (x,), location=location)
    return Function(name, Block((x,), [call], call.results))


def test_inlined_ops_name_their_callers():
    x = Param(TileType(DTYPES["i32"]), "x")
    op = ops.Neg(x, location=Location("kernel.py", 1))
    inner = Function("inner", Block((x,), [op], (op,)))
    outer = called("outer", inner, Location("kernel.py", 2))
    (inlined,) = inline_calls(called("f", outer, Location("kernel.py", 3))).body.ops
    assert isinstance(inlined, ops.Neg)
    lines, location = [], inlined.location
    while location is not None:
        lines.append(location.line)
        location = location.caller
    assert lines == [1, 2, 3]
