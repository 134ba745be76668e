"""Every pass keeps the meaning of every function, and a pass that does not is found out."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.passes.random_functions import BUFFER_ELEMENTS, functions
from tilewright.errors import InternalError
from tilewright.ir.builder import rewrite
from tilewright.ir.parser import parse
from tilewright.ir.verifier import verify
from tilewright.ops import Full, Mul
from tilewright.passes.interpret_between import interpret_between
from tilewright.passes.pipeline import Pass, optimize, run_passes

SETTINGS = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

INPUTS = st.tuples(
    st.sampled_from([0, 1, -1, 5, -128, 2**31 - 1]),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.5, -3.0, np.inf, np.nan, 1e30]),
)


def inputs(scalars):
    def make():
        memory = np.arange(BUFFER_ELEMENTS, dtype=np.int32)
        return (memory.ctypes.data, *scalars), (memory,)

    return make


def verified(step):
    verify(step.after)


@SETTINGS
@given(functions(), INPUTS)
def test_passes_keep_the_meaning(function, scalars):
    observers = [verified, interpret_between(inputs(scalars))]
    optimize(function, observers=observers)


@SETTINGS
@given(functions())
def test_passes_leave_their_input_alone(function):
    before = [*function.body.walk()]
    optimize(function)
    assert [*function.body.walk()] == before


@SETTINGS
@given(functions())
def test_optimizing_twice_changes_little(function):
    once = optimize(function)
    twice = optimize(once)
    verify(twice)
    assert len([*twice.body.walk()]) <= len([*once.body.walk()])


def double(function):
    def rule(op, emit):
        match op:
            case Mul(x, Full(2)):  # x * 2 → x, which is wrong
                return x
        return None

    return rewrite(function, rule)


def test_a_wrong_rule_is_caught():
    function = parse("""
        func @f(%memory: *i32, %n: i32, %flag: i1, %a: fp32) {
          %two = full {value=2, of=i32} : i32
          %twice = mul %n, %two : i32
          yield %twice
        }
    """)
    observe = interpret_between(inputs((5, True, 1.0)))
    with pytest.raises(InternalError, match="pass double changed result 0 of f: 10 became 5"):
        run_passes(function, [Pass("double", double)], "test", [observe])
