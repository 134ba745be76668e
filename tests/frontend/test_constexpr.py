import pickle
from typing import NamedTuple

import pytest

import tilewright.language as tl
from tests.language.eager import scalar
from tilewright.frontend.constexpr import constexpr, unwrap
from tilewright.frontend.tensor import Tensor

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("x + 2", 9),
        ("2 + x", 9),
        ("x - y", 5),
        ("10 - x", 3),
        ("x * y", 14),
        ("x / y", 3.5),
        ("x // y", 3),
        ("-x // y", -4),
        ("-x % 3", 2),
        ("x ** y", 49),
        ("2 ** x", 128),
        ("x << 1", 14),
        ("x >> 1", 3),
        ("x & 3", 3),
        ("x | 8", 15),
        ("x ^ 1", 6),
        ("~x", -8),
        ("+x", 7),
        ("abs(-x)", 7),
        ("x == 7", True),
        ("x != 7", False),
        ("x < y", False),
        ("x >= y", True),
    ],
)
def test_operators_are_pythons_and_give_a_constexpr(expression, value):
    result = eval(expression, {"x": constexpr(7), "y": constexpr(2)})
    assert type(result) is constexpr
    assert result.value == value
    assert type(result.value) is type(value)


def test_it_stands_for_its_value_where_python_wants_one():
    x = constexpr(3)
    assert [10, 11, 12, 13][x] == 13
    assert list(range(x)) == [0, 1, 2]
    assert (int(x), float(x), bool(x), bool(constexpr(0))) == (3, 3.0, True, False)
    assert {x: "a"}[constexpr(3)] == "a"
    assert hash(x) == hash(3)
    assert f"{constexpr(1.5):.2f} {x}" == "1.50 3"
    assert repr(x) == "constexpr[3]"


def test_it_survives_pickling_and_nesting():
    assert pickle.loads(pickle.dumps(constexpr("a"))).value == "a"
    assert constexpr(constexpr(4)).value == 4


class Pair(NamedTuple):
    a: object
    b: object


def test_unwrap_looks_into_tuples_and_keeps_their_kind():
    assert unwrap((constexpr(1), (constexpr(2), "x"))) == (1, (2, "x"))
    assert unwrap(Pair(constexpr(1), 2)) == Pair(1, 2)
    assert type(unwrap(Pair(constexpr(1), 2))) is Pair
    same = (1, 2)
    assert unwrap(same) is same


def test_with_a_tile_it_is_a_literal():
    x = scalar(3, "i8")
    for result in (constexpr(2) + x, x + constexpr(2)):
        assert isinstance(result, Tensor)
        assert result.dtype is tl.int8
        assert int(result) == 5
    assert bool(constexpr(2) < x)
