"""Only accesses that every program makes count: a null pointer behind a condition is allowed."""

import pytest

from tilewright.ir.parser import parse
from tilewright.passes.accessed_parameters import accessed_parameters

CASES = {
    "a load": ("%v = load %a, _, _ : fp32", {0}),
    "a store at an offset": ("%p = pointer_add %b, %n : *fp32\n store %p, %x, _", {1}),
    "an atomic": ('%v = atomic_rmw %c, %x, _ {kind="add"} : fp32', {2}),
    "a tile": (
        """
        %ps = broadcast %a {shape=[8]} : *fp32[8]
        %xs = broadcast %x {shape=[8]} : fp32[8]
        store %ps, %xs, _
        """,
        {0},
    ),
    "a mask": ("%v = load %a, %flag, _ : fp32", set()),
    "a choice": ("%p = select %flag, %a, %c : *fp32\n store %p, %x, _", set()),
    "a branch": (
        """
        %y = if %flag then () {
          %v = load %a, _, _ : fp32
          yield %v
        } orelse () {
          yield %x
        } : fp32
        store %b, %y, _
        """,
        {1},
    ),
    "a loop, which may have no iterations": (
        """
        for %n, %n, %n, [] (%i: i32) {
          store %a, %x, _
        }
        """,
        set(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_accessed(case):
    body, expected = CASES[case]
    header = "func @f(%a: *fp32, %b: *fp32, %c: *fp32, %x: fp32, %n: i32, %flag: i1)"
    assert set(accessed_parameters(parse(f"{header} {{\n{body}\n}}"))) == expected
