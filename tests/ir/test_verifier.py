"""Every way for a function to be wrong is found, and the message names the op."""

import pytest

from tilewright import ops
from tilewright.errors import InternalError, Location
from tilewright.ir.core import Block, Function, Op, Param, Result
from tilewright.ir.types import DTYPES, TileType
from tilewright.ir.verifier import verify

INT32 = TileType(DTYPES["i32"])
FLOAT32 = TileType(DTYPES["fp32"])


def function(*body: Op, params=(), yields=()):
    return Function("f", Block(tuple(params), list(body), tuple(yields)))


def loop(param, body):
    bound = ops.Full(1, INT32)
    index = Param(INT32, "i")
    return bound, ops.For(bound, bound, bound, (bound,), Block((index, param), [body], (body,)))


def test_a_function_that_is_right():
    x = Param(INT32, "x")
    verify(function(*loop(x, ops.Neg(x))))


def test_an_operand_defined_later():
    constant = ops.Full(1, INT32)
    negated = ops.Neg(constant, location=Location("kernel.py", 7))
    with pytest.raises(InternalError, match="in f: neg uses full: i32, which is not") as caught:
        verify(function(negated, constant))
    assert caught.value.location == negated.location


def test_an_operand_defined_in_a_region_only():
    x = Param(INT32, "x")
    inner = ops.Neg(x)
    with pytest.raises(InternalError, match="abs uses neg: i32, which is not in scope"):
        verify(function(*loop(x, inner), ops.Abs(inner)))


def test_a_yield_from_nowhere():
    with pytest.raises(InternalError, match="the body yields param 'x': i32, which is not"):
        verify(function(yields=[Param(INT32, "x")]))
    x, other = Param(INT32, "x"), Param(INT32, "y")
    bound, wrong = loop(x, ops.Neg(x))
    wrong.body.yields = (other,)
    with pytest.raises(InternalError, match="for yields param 'y': i32, which is not in scope"):
        verify(function(bound, wrong))


def test_an_op_that_stands_twice():
    constant = ops.Full(1, INT32)
    with pytest.raises(InternalError, match="full stands in the function twice"):
        verify(function(constant, constant))


def test_a_parameter_of_two_regions():
    x = Param(INT32, "x")
    first, second = loop(x, ops.Neg(x)), loop(x, ops.Abs(x))
    with pytest.raises(InternalError, match="for defines parameter 'x' of a region twice"):
        verify(function(*first, *second))


def test_a_type_that_changed_behind_the_op():
    constant = ops.Full(1, INT32)
    negated = ops.Neg(constant)
    negated.name = "y"
    negated.type = FLOAT32
    with pytest.raises(
        InternalError, match=r"neg 'y' has a type that its rule does not give \(i32\)"
    ):
        verify(function(constant, negated))


def test_operands_that_no_longer_fit():
    x, y = Param(INT32, "x"), Param(INT32, "y")
    total = ops.Add(x, y)
    y.type = FLOAT32
    with pytest.raises(InternalError, match="add is ill-typed: add: operand types differ"):
        verify(function(total, params=[x, y]))


def test_a_region_that_no_longer_fits():
    x = Param(INT32, "x")
    bound, wrong = loop(x, ops.Neg(x))
    wrong.body.yields = ()
    with pytest.raises(InternalError, match="for is ill-typed: for: a carried value changes"):
        verify(function(bound, wrong))


def test_results_of_another_op():
    pair = Param(TileType(DTYPES["i32"], (4, 2)), "pair")
    first, second = ops.Split(pair), ops.Split(pair)
    first.results = tuple(Result(second, i, r.type) for i, r in enumerate(first.results))
    with pytest.raises(InternalError, match="split has results that belong to another op"):
        verify(function(first, second, params=[pair]))


def test_functions_that_are_called():
    constant = ops.Full(1, INT32)
    callee = Function("g", Block((), [ops.Neg(constant)]))
    with pytest.raises(InternalError, match="verifier: in g: neg uses full"):
        verify(function(ops.Call(callee, ())))
