"""Functions of the language: parameters, calls, constants, globals, identity, source."""

# The kernels show every construct, good style or not.
# ruff: noqa: B009, F722, F821, PLR0133, SIM201, UP031

import ast
import collections
import contextvars
import linecache
import math
import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import FP32, INT32, ir_of, kernel, returned, run_traced, stored
from tilewright.errors import CompileError, LaunchError
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.function import KernelFunction, device_function
from tilewright.frontend.trace import Constant, Runtime, trace
from tilewright.interpreter import interpret
from tilewright.ir.printer import to_text
from tilewright.ir.types import DTYPES, PointerType, TileType
from tilewright.ops import Call

SIZE = constexpr(8)
Pair = collections.namedtuple("Pair", ["first", "second"])  # noqa: PYI024 - without types


@kernel
def scaled(x, factor=2, *, offset=0):
    return x * factor + offset


@kernel
def total(*values):
    result = 0
    for value in values:
        result += value
    return result


@kernel
def both(x):
    """Return a pair."""
    return x + 1, (x * 2, 5)


# Arguments.


def test_parameters_of_the_traced_function():
    @kernel
    def f(p, n, t, x: tl.constexpr, scale=2.0):
        return tl.load(p + n) * scale + t[0] + t[1][0] * x

    fp32_pointer = TileType(PointerType(DTYPES["fp32"]))
    traced = trace(
        f,
        {
            "p": Runtime(fp32_pointer, divisible_by=16),
            "n": Runtime(INT32, divisible_by=4),
            "t": (Runtime(FP32), (Runtime(INT32), Constant(3))),
            "x": Constant(constexpr(7)),
        },
    )
    described = [(p.name, str(p.type), p.divisible_by) for p in traced.params]
    assert described == [
        ("p", "*fp32", 16),
        ("n", "i32", 4),
        ("t.0", "fp32", 1),
        ("t.1.0", "i32", 1),
    ]
    assert traced.name == "f"
    assert traced.location.line == f.first_line
    memory = np.arange(4, dtype=np.float32)
    (value,) = interpret(traced, [memory.ctypes.data, 3, 0.5, 10])
    assert value == 3 * 2.0 + 0.5 + 70


def test_values_are_named_after_variables():
    @kernel
    def f(n):
        doubled = n * 2
        pair = (doubled + 1, n)
        return doubled, pair[0]

    text = to_text(ir_of(f, 3))
    assert "%doubled = mul" in text
    assert "%pair_0 = add" in text


def test_named_tuples():
    @kernel
    def f(t):
        u = Pair(t.second, t.first)
        return u, u.second

    arguments = {"t": Pair(Runtime(INT32), Runtime(FP32))}
    assert [p.name for p in trace(f, arguments).params] == ["t.0", "t.1"]
    assert interpret(trace(f, arguments), [3, 0.5]) == (0.5, 3, 3)


@pytest.mark.parametrize(
    ("n", "expected"), [(1, 3), (16, 3), (5, 3)], ids=["one", "divisible", "other"]
)
def test_a_kernel_may_reassign_its_argument(n, expected):
    @kernel
    def f(n, x):
        n = 3
        if x is None:
            return n
        return n + tl.load(x)

    assert returned(f, n, x=None) == [expected]
    if n == 1:
        assert returned(f, n=1, x=None) == [expected]


def test_reassigning_the_same_value_changes_nothing():
    """A kernel that says `xnumel = 1024` inside, as generated code does."""

    @kernel
    def f(out, xnumel, BLOCK: tl.constexpr):
        xnumel = 1024
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, i * 2, mask=i < xnumel)

    out = np.zeros(1024, np.int32)
    assert stored(f, out, 1024, BLOCK=256, grid=(5, 1, 1)).tolist() == list(range(0, 2048, 2))


# Calls.


def test_calls():
    @kernel
    def f(x):
        a = scaled(x)
        b = scaled(x, 3, offset=x)
        c = scaled(offset=1, x=x, factor=a)
        return a, b, c, total(a, *(b, c), 1), total()

    assert returned(f, 5) == [10, 20, 51, 82, 0]


def test_results_keep_their_structure():
    @kernel
    def f(x):
        a, (b, c) = both(x)
        z = tl.zeros([c - 3], tl.int32)
        none = returns_nothing(x)
        return z + a + b, none is None

    @kernel
    def returns_nothing(x):
        if x > 3:
            return
        tl.static_assert(SIZE == 8)

    assert returned(f, 4) == [[13, 13]]


def test_functions_are_traced_once_for_each_kind_of_argument():
    @kernel
    def f(x, y):
        return scaled(x) + scaled(x + 1) + scaled(x, 3) + scaled(x, 3) + scaled(y).to(tl.int32)

    traced = ir_of(f, 3, 1.5)
    called = [op.callee for op in traced.body.walk() if isinstance(op, Call)]
    assert [c.name for c in called] == ["scaled", "scaled", "scaled.1", "scaled.1", "scaled.2"]
    assert len(set(called)) == 3
    assert returned(f, 3, 1.5) == [6 + 8 + 9 + 9 + 3]


def test_functions_as_arguments():
    @kernel
    def apply(function: tl.constexpr, x):
        return function(x)

    @kernel
    def f(x):
        return apply(scaled, x) + apply(negative, x)

    assert returned(f, 3) == [3]


@kernel
def negative(x):
    return -x


def test_early_returns_of_constants():
    @kernel
    def kind(x: tl.constexpr):
        if x is None:
            return 1
        return 2

    @kernel
    def f(n):
        a = tl.zeros([kind(None)], tl.int32)
        b = tl.zeros([kind(3)], tl.int32)
        return a + b + n

    assert returned(f, 3) == [[3, 3]]


def test_equal_constants_on_all_paths_stay_constants():
    @kernel
    def width(n):
        if n > 3:
            return 4
        return 4

    @kernel
    def f(n):
        return tl.zeros([width(n)], tl.int32) + n

    assert returned(f, 3) == [[3] * 4]


def test_noinline_reaches_the_ir():
    apart = KernelFunction(negative.fn, noinline=True)

    @kernel
    def f(x):
        return apart(x)

    (call,) = (op for op in ir_of(f, 3).body.walk() if isinstance(op, Call))
    assert call.callee.noinline


def test_reductions_with_functions():
    @kernel
    def maximum_of(a, b):
        return tl.maximum(a, b)

    @kernel
    def first_of_largest(a, i, b, j):
        take = (a > b) | ((a == b) & (i < j))
        return tl.where(take, a, b), tl.where(take, i, j)

    @kernel
    def affine(a1, b1, a2, b2):
        return a1 * a2, a2 * b1 + b2

    @kernel
    def f(p):
        x = tl.load(p + tl.arange(0, 8))
        value, index = tl.reduce((x, tl.arange(0, 8)), 0, first_of_largest)
        products, sums = tl.associative_scan((x, x + 1), 0, affine)
        return tl.reduce(x, 0, maximum_of), value, index, products, sums

    x = np.array([3, 1, 4, 1, 5, 2, 5, 3], np.int32)
    products, sums = [3], [4]
    for v in x[1:].tolist():
        products.append(products[-1] * v)
        sums.append(v * sums[-1] + v + 1)
    assert returned(f, x) == [5, 5, 4, products, sums]


def test_element_block():
    block = scaled.element_block([INT32, INT32], 1)
    assert [p.type for p in block.params] == [INT32, INT32]
    assert [v.type for v in block.yields] == [INT32]
    with pytest.raises(CompileError, match="takes 1 values, it is given 4 elements"):
        both.element_block([INT32, FP32, INT32, FP32], 2)
    with pytest.raises(CompileError, match=r"must return 1 scalar\(s\), it returns None"):
        nothing.element_block([INT32, INT32], 1)


@kernel
def nothing(a, b):
    pass


# Values known at compile time.


def test_compile_time_python():
    @kernel
    def f(n, t: tl.constexpr):
        size: tl.constexpr = len(t) + max(*t) - min(t) + sum(t)
        bits: tl.constexpr = int(math.log2(size)) + abs(-3) + round(1.4)
        q, r = divmod(17, 5)
        text: tl.constexpr = f"{size:04d}|{'a' + 'b'!r}|{q}" + "%d" % bits
        tl.static_assert(isinstance(size, int) and hasattr(n, "dtype"))
        tl.static_assert(text == "0006|'ab'|36", text)
        squares = [i * i for i in range(4) if i != 2]
        flags: tl.constexpr = getattr(tl, "float32") == tl.float32 and 0 < size <= 8 != 9
        tl.static_assert(flags and not (size == 3 or t is None) and 2 in t)
        dtype: tl.constexpr = tl.int64 if size > 4 else tl.int8
        items = [*squares, bool(size)]
        return tl.zeros([size], dtype) + items[-2] + squares[1] + r + n + len(items[1:])

    assert returned(f, 1, t=(1, 2)) == [[9 + 1 + 2 + 1 + 3] * 6]


def test_binding_decays():
    @kernel
    def f(p):
        x = tl.load(p)
        three = 3
        kept: tl.constexpr = 3
        declared: tl.constexpr
        declared = 3
        a = b = 3
        (c, d), e = (3, 3), 3
        return x + 3, x + three, x + kept, x + declared, x + a, x + b, x + c, x + d, x + e

    types = [str(v.type) for v in ir_of(f, np.zeros(1, np.int8)).body.yields]
    assert types == ["i8", "i32", "i8", "i8", "i32", "i32", "i32", "i32", "i32"]
    assert returned(f, np.array([1], np.int8)) == [4] * 9


def test_logic_and_comparisons():
    @kernel
    def f(n, x, none: tl.constexpr):
        tile = tl.arange(0, 4)
        short = none is not None and none.missing
        return (
            0 < n < 10 and not n == 3,
            n > 3 or x > 2.0,
            (0 < tile < 3) | (tile == 0),
            1 if short else 2,
            none or 5,
        )

    assert returned(f, 4, 1.0, none=None) == [True, True, [True, True, True, False], 2]


def test_python_functions_on_tensors():
    @kernel
    def f(n, x):
        t = (n, n + 1, n + 2)
        return min(n, 3), max(n, 7, n + 1), abs(-n), sum(t), len(tl.arange(0, 4)), max(x, 0.5)

    assert returned(f, 5, 0.25) == [3, 7, 5, 18, 0.5]


def test_print_becomes_device_print(capsys):
    @kernel
    def f(n):
        print("n is", n)
        tl.static_print("compiling", n)

    ir_of(f, 4)
    assert capsys.readouterr().out == "compiling <tensor i32>\n"
    run_traced(f, 4)
    assert "pid (0, 0, 0) idx () n is: 4" in capsys.readouterr().out


def test_bare_return():
    @kernel
    def f(out, n):
        if tl.program_id(0) >= n:
            return
        tl.store(out + tl.program_id(0), 1)

    assert stored(f, np.zeros(4, np.int32), 2, grid=(4, 1, 1)).tolist() == [1, 1, 0, 0]


def test_return_inside_branches_on_runtime_values():
    @kernel
    def f(a, x, pair, scratch, out, N: tl.constexpr):
        row = tl.program_id(0)
        lanes = tl.arange(0, N)
        lo = tl.load(pair)
        hi = tl.load(pair + 1)
        if lo < hi:
            tl.store(scratch + lanes, lo, mask=(lanes < 2) & (row == 0))
        if lo > hi:
            tl.store(scratch + lanes, hi)
            return
        values = tl.load(a + row * N + lanes) * tl.load(x + lanes)
        tl.store(out + row, tl.sum(values, axis=0))

    ones = np.ones((4, 4), np.float32)
    scratch = np.zeros(4, np.int32)
    out = np.zeros(4, np.float32)
    for pair, expected in (([1, 2], [4.0] * 4), ([2, 1], [0.0] * 4), ([1, 1], [4.0] * 4)):
        numbers = np.array(pair, np.int32)
        out[:] = 0
        run_traced(f, ones, ones[0].copy(), numbers, scratch, out, N=4, grid=(4, 1, 1))
        assert out.tolist() == expected


# Globals and identity.


def test_closures_and_rebound_globals():
    block = constexpr(4)

    @kernel
    def f(n):
        return tl.zeros([block], tl.int32) + n + SIZE

    assert returned(f, 1) == [[9] * 4]
    _ = f.cache_key
    f.check_globals()
    block = constexpr(4)  # an equal value is no change
    f.check_globals()
    block = constexpr(2)
    with pytest.raises(CompileError, match=r"`block` of `f` has changed since it was compiled"):
        f.check_globals()


def key_of(source, **names):
    namespace = {"tl": tl, "constexpr": constexpr, "kernel": kernel, **names}
    text = textwrap.dedent(source)
    exec(text, namespace)
    return KernelFunction(namespace["f"], source=text).cache_key


def test_cache_key_depends_on_all_that_is_read():
    helper = kernel(scaled.fn)
    source = "def f(x):\n    return helper(x) + SIZE\n"
    key = key_of(source, helper=helper, SIZE=constexpr(1))
    assert key == key_of(source, helper=helper, SIZE=constexpr(1))
    assert key != key_of(source, helper=helper, SIZE=constexpr(2))
    assert key != key_of(source, helper=helper, SIZE=constexpr(True))
    assert key != key_of(source, helper=negative, SIZE=constexpr(1))
    assert key != key_of(source + "# more\n    return 1\n", helper=helper, SIZE=constexpr(1))
    assert key != key_of("\n" + source, helper=helper, SIZE=constexpr(1))


def test_cache_key_depends_on_callees_of_callees():
    def keys(number):
        @kernel
        def inner(x):
            return x + number

        @kernel
        def outer(x):
            return inner(x)

        @kernel
        def f(x):
            return outer(x)

        return f.cache_key

    assert keys(constexpr(1)) == keys(constexpr(1))
    assert keys(constexpr(1)) != keys(constexpr(2))


@kernel
def even(n: tl.constexpr):
    if n == 0:
        return True
    return odd(n - 1)


@kernel
def odd(n: tl.constexpr):
    if n == 0:
        return False
    return even(n - 1)


def test_cache_key_of_functions_that_call_each_other():
    first, second = KernelFunction(even.fn), KernelFunction(odd.fn)
    assert first.cache_key == even.cache_key
    assert second.cache_key == odd.cache_key
    assert first.cache_key != second.cache_key


SCRIPT = """
import sys
import tilewright.language as tl
from tilewright.frontend.function import KernelFunction

@KernelFunction
def f(x, BLOCK: tl.constexpr = 3):
    return tl.softmax(x) + tl.rand(3, x) + BLOCK

order = sys.argv[1]
if order == "library first":
    _ = tl.softmax.cache_key
print(f.cache_key)
"""


def test_cache_key_is_the_same_in_every_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).resolve().parents[2])
    keys = {
        subprocess.run(
            [sys.executable, str(script), order],
            env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for order, seed in (("library first", "1"), ("kernel first", "2"))
    }
    assert len(keys) == 1


# Source.


def test_source_and_place():
    assert both.src.startswith("def both(x):")
    assert both.file == str(Path(__file__).resolve())
    assert linecache.getline(both.file, both.first_line).startswith("def both")
    assert both.doc == both.__doc__ == "Return a pair."
    assert both.__name__ == both.name == "both"
    assert both.arg_names == ["x"]


EXECUTED = """
def f(x):
    return x + missing
"""


def test_kernel_without_source():
    namespace = {}
    exec(EXECUTED.replace("return", "return 0 +"), namespace)  # a text that no variable has
    function = KernelFunction(namespace["f"])  # no error yet
    with pytest.raises(CompileError, match="the source of `f` is not available") as raised:
        ir_of(function, 3)
    assert "pass its text" in raised.value.hint
    given = KernelFunction(namespace["f"], source=EXECUTED)
    with pytest.raises(CompileError, match="`missing` is not defined") as raised:
        ir_of(given, 3)
    assert raised.value.location.excerpt().splitlines() == [
        "        return x + missing",
        "                   ^^^^^^^",
    ]


def test_source_that_is_given_later():
    namespace = {}
    exec(EXECUTED, namespace)
    function = KernelFunction(namespace["f"])
    function._unsafe_update_src(EXECUTED.replace("missing", "x"))
    assert "return x + x" in function.src
    assert ir_of(function, 3) is not None  # where `missing` would be an error


def test_source_of_another_function_is_refused():
    namespace = {}
    exec(EXECUTED, namespace)
    with pytest.raises(CompileError, match="is not available"):
        _ = KernelFunction(namespace["f"], source="def g(x):\n    pass\n").src
    with pytest.raises(CompileError, match="is not available"):
        _ = KernelFunction(namespace["f"], source="def f(y):\n    pass\n").src
    with pytest.raises(CompileError, match="a lambda cannot be a kernel"):
        _ = KernelFunction(lambda x: x).src


def test_source_that_the_prompt_keeps():
    text = "@decorate\ndef f(x):\n    return x + 1\n"
    name = "<prompt 7>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = {"decorate": kernel}
    exec(compile(text, name, "exec"), namespace)
    assert returned(namespace["f"], 3) == [4]
    assert namespace["f"].file == name


def test_the_file_may_change_later(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text("def f(x):\n    return x + 1\n")
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    function = KernelFunction(namespace["f"])
    path.write_text("# edited\n\ndef g(x):\n    return x + 2\n")
    assert returned(function, 3) == [4]


def test_source_from_standard_input():
    script = textwrap.dedent("""
        import tilewright.language as tl
        from tilewright.frontend.function import KernelFunction
        @KernelFunction
        def f(x):
            return x + 1
        try:
            print(f.src)
        except Exception as error:
            print(error)
    """)
    root = str(Path(__file__).resolve().parents[2])
    shown = subprocess.run(
        [sys.executable, "-"],
        input=script,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "the source of `f` is not available" in shown or shown.startswith("def f(x):")


def test_docstrings_with_less_indentation():
    @kernel
    def f(x):
        """Say
        something."""
        return x + 1

    assert returned(f, 3) == [4]


# Parameters.


@kernel
def annotated(
    a: tl.int64,
    b: "i8",
    c: int,
    d: float,
    e: bool,
    f: "*fp32",
    g: tl.pointer_type(tl.float16),
    h: tl.const,
    i: "const *bf16",
    j: "tl.constexpr",
    k: tl.constexpr = 3,
    m: "something else" = None,
    *n,
    o=5,
):
    pass


def test_annotations():
    types = {p.name: str(p.annotation_type) for p in annotated.params if p.annotation_type}
    assert types == {
        "a": "i64",
        "b": "i8",
        "c": "i32",
        "d": "fp32",
        "e": "i1",
        "f": "*fp32",
        "g": "*fp16",
        "i": "*kbf16",
    }
    assert [p.name for p in annotated.params if p.is_constexpr] == ["j", "k"]
    assert [p.name for p in annotated.params if p.is_const] == ["h", "i"]
    assert [(p.name, p.default) for p in annotated.params if p.has_default] == [
        ("k", 3),
        ("m", None),
        ("o", 5),
    ]
    assert [p.name for p in annotated.params if p.is_variadic] == ["n"]
    assert [p.name for p in annotated.params if p.is_keyword_only] == ["o"]


def test_do_not_specialize():
    def f(a, b, c: tl.constexpr):
        pass

    function = KernelFunction(f, do_not_specialize=["a"], do_not_specialize_on_alignment=[1])
    assert [p.do_not_specialize for p in function.params] == [True, False, False]
    assert [p.do_not_specialize_on_alignment for p in function.params] == [False, True, False]
    with pytest.raises(CompileError, match=r"both tl\.constexpr and do_not_specialize"):
        _ = KernelFunction(f, do_not_specialize=[2]).params


def test_calling_a_kernel_outside():
    outside = contextvars.Context()
    with pytest.raises(LaunchError, match="`both` is a kernel") as raised:
        outside.run(both, 3)
    assert "both[grid]" in raised.value.hint


def test_device_function():
    @device_function
    def twice(x):
        return x + x

    assert isinstance(twice, KernelFunction)

    @kernel
    def f(x):
        return twice(x)

    assert returned(f, 4) == [8]


def test_syntax_trees_are_kept_only_while_they_are_in_use():
    source = "def f(x):\n    y = x + 1\n    return y\n"
    functions = []
    for _ in range(100):
        namespace = {}
        exec(source, namespace)
        functions.append(KernelFunction(namespace["f"], source=source))
    trees = [weakref.ref(function.syntax) for function in functions]
    assert trees[0]() is None
    assert trees[-1]() is functions[-1].syntax
    again = functions[0].syntax
    assert again is functions[0].syntax
    assert set(again.liveness.after) == set(again.tree.body)


def test_a_tree_that_is_parsed_again_has_the_same_places():
    def dumped(syntax):
        return ast.dump(syntax.tree, include_attributes=True)

    before = dumped(scaled.syntax)
    first = scaled.syntax
    scaled._syntax = None
    assert scaled.syntax is not first
    assert dumped(scaled.syntax) == before
    assert scaled.syntax.tree.lineno == scaled.first_line
