"""Pointers are followed to the parameters they come from."""

import pytest

from tilewright.ir.parser import parse
from tilewright.passes.written_parameters import written_parameters

CASES = {
    "nothing is written": ("%v = load %a, _, _ : fp32", set()),
    "a store": ("store %b, %x, _", {1}),
    "an atomic": ('%v = atomic_rmw %c, %x, _ {kind="add"} : fp32', {2}),
    "an offset": ("%p = pointer_add %b, %n : *fp32\n store %p, %x, _", {1}),
    "a tile": (
        """
        %ps = broadcast %a {shape=[8]} : *fp32[8]
        %xs = broadcast %x {shape=[8]} : fp32[8]
        store %ps, %xs, _
        """,
        {0},
    ),
    "a choice": ("%p = select %flag, %a, %c : *fp32\n store %p, %x, _", {0, 2}),
    "a branch": (
        """
        %p = if %flag then () {
          yield %a
        } orelse () {
          yield %b
        } : *fp32
        store %p, %x, _
        """,
        {0, 1},
    ),
    "pointers that a loop exchanges": (
        """
        %p, %q = for %n, %n, %n, [%a, %b] (%i: i32, %r: *fp32, %s: *fp32) {
          store %r, %x, _
          yield %s, %r
        } : *fp32, *fp32
        """,
        {0, 1},
    ),
    "a pointer that a loop advances": (
        """
        %p = while [%b] condition (%r: *fp32) {
          yield %flag
        } body (%s: *fp32) {
          %t = pointer_add %s, %n : *fp32
          yield %t
        } : *fp32
        store %p, %x, _
        """,
        {1},
    ),
    "another type": (
        """
        %p = bitcast %a {to=i64} : i64
        %q = bitcast %p {to=*i32} : *i32
        store %q, %n, _
        """,
        {0},
    ),
    "an address read from memory": (
        """
        %p = bitcast %a {to=*i64} : *i64
        %q = load %p, _, _ : i64
        %r = bitcast %q {to=*fp32} : *fp32
        store %r, %x, _
        """,
        {0, 1, 2},
    ),
    "an index read from memory": (
        """
        %p = bitcast %a {to=*i64} : *i64
        %i = load %p, _, _ : i64
        %q = pointer_add %b, %i : *fp32
        store %q, %x, _
        """,
        {1},
    ),
    "an address that is a number": (
        "%p = bitcast %big {to=*fp32} : *fp32\n store %p, %x, _",
        {0, 1, 2},
    ),
    "blocks of a descriptor": (
        """
        %v = descriptor_load %a, [%n], [], [%n] {block=[8]} : fp32[8]
        descriptor_store %b, [%n], [], [%n], %v
        descriptor_reduce %c, [%n], [], [%n], %v {kind="add"}
        """,
        {1, 2},
    ),
    "an address read through a descriptor": (
        """
        %p = bitcast %a {to=*i64} : *i64
        %q = descriptor_load %p, [%n], [], [%n] {block=[8]} : i64[8]
        %r = bitcast %q {to=*fp32} : *fp32[8]
        %xs = broadcast %x {shape=[8]} : fp32[8]
        store %r, %xs, _
        """,
        {0, 1, 2},
    ),
    "a call": ("call [%x, %c] {callee=@write}", {2}),
}


@pytest.mark.parametrize("case", CASES)
def test_written_parameters(case):
    body, expected = CASES[case]
    function = parse(f"""
        func @write(%x: fp32, %p: *fp32) {{
          store %p, %x, _
        }}
        func @f(%a: *fp32, %b: *fp32, %c: *fp32, %n: i32, %flag: i1, %x: fp32, %big: i64) {{
          {body}
        }}
    """)
    assert written_parameters(function) == expected
