"""What a mistake in a kernel says: golden messages, with the source line and the caret."""

# The kernels show every construct, good style or not.
# ruff: noqa: B007, F821, F841, PLC2401, RET503

import re
import textwrap

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import ir_of, kernel, run_eager
from tilewright.errors import (
    CompileError,
    CompileTimeAssertionFailure,
    InternalError,
    LaunchError,
    TilewrightError,
)
from tilewright.frontend import pythonic
from tilewright.frontend.constexpr import constexpr
from tilewright.ops import elementwise

LIMIT = 5
ALLOWED: tl.constexpr = 5
WORD = "text"
SIZE = constexpr(8)


def relative(function, text):
    """The message with lines counted from the `def` of the kernel."""
    start = function.first_line

    def counted(match):
        return f"{match[1]}{int(match[2]) - start:+}"

    text = text.replace(f"{function.file}:", "<here>")
    return re.sub(r"(<here>|\bline )(\d+)", counted, text).replace("<here>", "")


def message(function, *args):
    with pytest.raises(TilewrightError) as raised:
        ir_of(function, *args)
    return relative(function, str(raised.value))


def golden(text):
    return textwrap.dedent(text).strip("\n")


@kernel
def type_change(n):
    acc = 0
    for i in range(n):
        acc += 1.5 * i
    return acc


@kernel
def shape_change(n):
    acc = 0.0
    while n > 0:
        acc = acc + tl.zeros([4], tl.float32)
        n -= 1
    return acc


@kernel
def one_arm(n):
    if n > 2:
        y = 3
    return y


@kernel
def only_in_loop(n):
    for i in range(n):
        z = i
    return z


@kernel
def index_after_loop(n):
    for i in range(n):
        pass
    return i


@kernel
def no_return(n):
    if n > 2:
        return 1


@kernel
def two_types(n):
    if n > 1:
        return 1
    return 2.5


@kernel
def tile_condition(n):
    if tl.arange(0, 8) > n:
        return 1
    return 2


@kernel
def attribute_of(x, y):
    return x.shap + y


@kernel
def calls(n):
    é = 1
    return attribute_of(n, y=é)


@kernel
def missing_argument(n):
    return attribute_of(n)


@kernel
def unknown_argument(n):
    return attribute_of(n, 1, z=2)


@kernel
def global_number(n):
    return n + LIMIT


@kernel
def undefined(n):
    return n * nothing


@kernel
def used_before_assigned(n):
    x = n + y
    y = 1
    return x


def plain(x):
    return x + 1


@kernel
def plain_function(n):
    return plain(n)


@kernel
def endless(n):
    while True:
        n += 1


@kernel
def ping(n):
    return pong(n)


@kernel
def pong(n):
    return ping(n)


@kernel
def runtime_constexpr(n):
    x: tl.constexpr = n
    return x


@kernel
def takes_anything(x: tl.constexpr):
    return x + 1


@kernel
def several_lines(p):
    return tl.load(
        p + 1.5,
    )


GOLDEN = [
    (
        type_change,
        """
        +3: `acc` changes its type in the loop: it is i32 before it (line +1) and fp32 after one \
iteration (line +3)
                acc += 1.5 * i
                ^^^^^^^^^^^^^^
          try: start with acc = tl.zeros((), dtype=tl.float32), or convert in the loop with \
.to(tl.int32)
        """,
    ),
    (
        shape_change,
        """
        +3: `acc` changes its type in the loop: it is fp32 before it (line +1) and fp32[4] after \
one iteration (line +3)
                acc = acc + tl.zeros([4], tl.float32)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          try: start with the shape that the loop computes: acc = tl.zeros([4], dtype=tl.float32)
        """,
    ),
    (
        one_arm,
        """
        +3: `y` is only assigned in one branch of an `if` (line +2), but used after it
            return y
                   ^
          try: assign `y` before the `if`, or in both branches
        """,
    ),
    (
        only_in_loop,
        """
        +3: `z` is only assigned in the loop at line +1, which may run no iteration, but used \
after it
            return z
                   ^
          try: assign `z` before the loop
        """,
    ),
    (
        index_after_loop,
        """
        +3: `i` is the index of the loop at line +1, which may run no iteration, but used after it
            return i
                   ^
          try: assign `i` before the loop, with the type of the index
        """,
    ),
    (
        no_return,
        """
        +2: `no_return` returns a value on some paths and nothing on others
                return 1
                ^^^^^^^^
          try: return a value of the same type on every path
        """,
    ),
    (
        two_types,
        """
        +1: the function returns i32 on one path and fp32 on another
            if n > 1:
            ^^^^^^^^^
          try: convert one of them with .to(...)
        """,
    ),
    (
        tile_condition,
        """
        +1: the truth value of a tile of shape [8] is ambiguous
            if tl.arange(0, 8) > n:
               ^^^^^^^^^^^^^^^^^^^
          try: reduce it first, for instance tl.max(x, axis=0), or choose element by element with \
tl.where
        """,
    ),
    (
        calls,
        """
        -4: a value of type i32 has no attribute `shap`
            return x.shap + y
                   ^^^^^^
          called from +2:
            return attribute_of(n, y=é)
                   ^^^^^^^^^^^^^^^^^^^^
          try: did you mean shape?
        """,
    ),
    (
        missing_argument,
        """
        +1: `attribute_of` needs a value for `y`
            return attribute_of(n)
                   ^^^^^^^^^^^^^^^
          try: pass it, or give it a default: `def attribute_of(..., y=...)`
        """,
    ),
    (
        unknown_argument,
        """
        +1: `attribute_of` has no parameter `z`
            return attribute_of(n, 1, z=2)
                   ^^^^^^^^^^^^^^^^^^^^^^^
          try: its parameters are x, y
        """,
    ),
    (
        global_number,
        """
        +1: `LIMIT` is an ordinary global variable (of type int), which could change after the \
kernel has been compiled
            return n + LIMIT
                       ^^^^^
          try: write LIMIT = tl.constexpr(5) there
        """,
    ),
    (
        undefined,
        """
        +1: `nothing` is not defined
            return n * nothing
                       ^^^^^^^
          try: define or import it above the kernel
        """,
    ),
    (
        used_before_assigned,
        """
        +1: `y` is used before it is assigned
            x = n + y
                    ^
          try: assign it first: y = ..., for instance above the loop or the `if`
        """,
    ),
    (
        plain_function,
        """
        +1: `plain` is not a kernel function, and it is given a value that is known only when the \
kernel runs
            return plain(n)
                   ^^^^^^^^
          try: decorate `plain` with @tilewright.jit
        """,
    ),
    (
        endless,
        """
        +1: this loop never ends: its condition is a compile-time constant
            while True:
            ^^^^^^^^^^^
          try: leave it with `break` or `return`, or compare a variable
        """,
    ),
    (
        ping,
        """
        +1: endless recursion: pong -> ping -> pong
            return pong(n)
                   ^^^^^^^
          called from +6:
            return ping(n)
                   ^^^^^^^
          called from +1:
            return pong(n)
                   ^^^^^^^
          try: a function may call itself only with other compile-time arguments, and must stop at \
an `if` on them
        """,
    ),
    (
        runtime_constexpr,
        """
        +1: `x` is declared as tl.constexpr, but its value is known only when the kernel runs
            x: tl.constexpr = n
                              ^
          try: leave the annotation out, or compute it from tl.constexpr parameters alone
        """,
    ),
]


def without_columns(text):
    return re.sub(r"(?m)^( called from |  called from )?([+-]\d+):\d+:", r"\1\2:", text)


@pytest.mark.parametrize(("function", "text"), GOLDEN, ids=lambda x: getattr(x, "name", ""))
def test_message(function, text):
    shown = re.sub(r"^    ", "", without_columns(message(function, 3)), flags=re.MULTILINE)
    assert shown == golden(text)


def test_columns_count_characters():
    with pytest.raises(CompileError) as raised:
        ir_of(calls, 3)
    caller = raised.value.location.caller
    assert (caller.column, caller.end_column, caller.function) == (11, 31, "calls")
    assert raised.value.location.function == "attribute_of"


def test_a_node_of_several_lines_is_underlined_to_the_end_of_the_first():
    with pytest.raises(CompileError) as raised:
        ir_of(several_lines, np.zeros(2, np.float32))
    location = raised.value.location
    assert location.line == several_lines.first_line + 2
    assert location.excerpt().splitlines()[1].strip() == "^^^^^^^"


EAGER_TOO = [
    tile_condition,
    missing_argument,
    unknown_argument,
    global_number,
    undefined,
    runtime_constexpr,
]


@pytest.mark.parametrize("function", EAGER_TOO, ids=lambda f: f.name)
def test_eager_mode_says_the_same(function):
    with pytest.raises(TilewrightError) as traced:
        ir_of(function, 3)
    with pytest.raises(TilewrightError) as eager:
        run_eager(function, 3)
    assert eager.value.message == traced.value.message
    assert eager.value.location.line == traced.value.location.line


# One statement for each construct that the language does not have.

CONSTRUCTS = {
    "try is": "try:\n    x = 1\nexcept ValueError:\n    pass",
    "raise is": "raise ValueError",
    "with is": "with n:\n    pass",
    "`del` is": "x = 1\ndel x",
    "global is": "global LIMIT",
    "import inside": "import math",
    "a class inside": "class Inner:\n    pass",
    "match is": "match n:\n    case _:\n        pass",
    "a dict is": "x = {1: 2}",
    "a set is": "x = {1, 2}",
    "a set comprehension": "x = {i for i in (1, 2)}",
    "an element cannot be assigned": "x = tl.arange(0, 4)\nx[0] = 1",
    "an attribute cannot be assigned": "n.x = 1",
    "a starred target": "for a, *b in ((1, 2), (3, 4)):\n    pass",
    "yield is not": "yield n",
    "range has no option `step_size`": "for i in range(n, step_size=2):\n    pass",
    "`@` is not": "x = n @ n",
    "`in` needs": "x = n in (1, 2)",
    "**arguments are not": "x = tl.zeros(**n)",
    "cannot unpack 2 values": "a, b, c = (1, 2)",
    "cannot unpack a value": "a, b = n",
    "breakpoint() works only": "breakpoint()",
    "a tile of type i32[4] cannot be iterated": "for x in tl.arange(0, 4):\n    pass",
    "the start of a range": "for i in range(1.5, n):\n    pass",
    "takes compile-time numbers": "x = round(n)",
    "min(x) of one tile": "x = min(tl.arange(0, 4))",
    "needed at compile time": "x = int(n)",
    "static_assert: too big": "tl.static_assert(1 > 2, 'too big')",
    "is no condition": "if tl.float32:\n    pass",
    "TypeError": "x = 'a' + 1",
    "`argmax` needs a value for `axis`": "x = tl.argmax(tl.arange(0, 4))",
    "has no attribute `shap`": "x = n.shap",
    "got two values": "x = attribute_of(n, 1, x=2)",
    "takes 2 arguments, got 3": "x = attribute_of(n, 1, 2)",
    "a range must be a scalar integer": "for i in range(tl.arange(0, 4)):\n    pass",
    "1 to 3 arguments": "for i in range():\n    pass",
}


def written(statements):
    source = "def f(n):\n" + textwrap.indent(statements, "    ") + "\n"
    namespace = dict(globals())
    exec(source, namespace)
    return type(plain_function)(namespace["f"], source=source)


@pytest.mark.parametrize("start", CONSTRUCTS)
def test_construct_is_refused(start):
    with pytest.raises(CompileError) as raised:
        ir_of(written(CONSTRUCTS[start]), 3)
    assert start in raised.value.message
    assert raised.value.location.line >= 2
    assert raised.value.location.excerpt()


# What Python itself runs, or refuses in words of its own.
REFUSED_EVERYWHERE = [
    "`del` is", "an element cannot be assigned", "an attribute cannot be assigned",
    "a starred target", "`@` is not", "TypeError", "yield is not",
    "range has no option `step_size`",
    "cannot unpack 2 values", "cannot unpack a value", "has no attribute `shap`",
    "`argmax` needs a value for `axis`",
]  # fmt: skip


@pytest.mark.parametrize("start", REFUSED_EVERYWHERE)
def test_eager_mode_refuses_the_same(start):
    function = written(CONSTRUCTS[start])
    with pytest.raises(CompileError) as compiled:
        ir_of(function, 3)
    with pytest.raises(CompileError) as eager:
        run_eager(function, 3)
    assert (eager.value.message, eager.value.hint) == (compiled.value.message, compiled.value.hint)
    assert eager.value.location.line == compiled.value.location.line


def test_what_is_refused_but_not_reached_runs():
    function = written("if False:\n    del n\nreturn n + 1")
    assert int(run_eager(function, 3)) == 4


def test_unused_result():
    @kernel
    def f(x_ptr):
        block = tl.make_block_ptr(x_ptr, (8,), (1,), (0,), (4,), (0,))
        tl.advance(block, (4,))

    @kernel
    def g(x_ptr):
        block = tl.make_block_ptr(x_ptr, (8,), (1,), (0,), (4,), (0,))
        block.advance((4,))

    for function, hint in (
        (f, "assign it: block = tl.advance(block, (4,))"),
        (g, "assign it: block = block.advance((4,))"),
    ):
        with pytest.raises(CompileError, match="the result of `advance` is not used") as raised:
            ir_of(function, np.zeros(8, np.float32))
        assert raised.value.hint == hint


def test_recursion_that_does_not_stop():
    @kernel
    def deeper(n, k: tl.constexpr):
        return deeper(n, k + 1)

    with pytest.raises(CompileError, match="calls are nested more than 40 deep") as raised:
        ir_of(deeper, 3, k=0)
    assert str(raised.value).count("called from") == 3


@kernel
def unrolled_without_end(n):
    for i in tl.static_range(10**12):
        n += i
    return n


@kernel
def listed_without_end(n):
    listed = [n + i for i in range(10**12)]
    return listed[1]


@pytest.mark.parametrize("function", [unrolled_without_end, listed_without_end])
@pytest.mark.parametrize("run", [ir_of, run_eager])
def test_what_is_unrolled_has_an_end(monkeypatch, function, run):
    assert pythonic.MOST_UNROLLED == 65536
    monkeypatch.setattr(pythonic, "MOST_UNROLLED", 500)
    with pytest.raises(CompileError, match="more than 500 items"):
        run(function, 3)


@kernel
def range_that_stands_still(n):
    for i in range(0, n, 0):
        n += i
    return n


@pytest.mark.parametrize("run", [ir_of, run_eager])
def test_a_constant_step_is_not_0(run):
    with pytest.raises(CompileError, match="the step of a range must not be 0"):
        run(range_that_stands_still, 3)


@kernel
def huge_number(n):
    a = 1 << 30000
    return a % n


@kernel
def huge_arange(n):
    return tl.arange(0, 1 << 30000)


@pytest.mark.parametrize("function", [huge_number, huge_arange])
def test_numbers_that_nobody_would_read_are_not_shown(function):
    with pytest.raises(CompileError, match="<30001 bits>"):
        ir_of(function, 3)


def test_globals_that_may_be_read():
    @kernel
    def f(n):
        return n + ALLOWED + SIZE

    @kernel
    def g(n):
        return WORD

    assert ir_of(f, 1).body.yields
    with pytest.raises(CompileError, match=r"try: write WORD = tl\.constexpr\('text'\) there"):
        ir_of(g, 1)


def test_wrong_arguments_of_a_trace():
    with pytest.raises(CompileError, match="needs a value for `n`"):
        ir_of(type_change)
    with pytest.raises(CompileError, match="has no parameter `m`"):
        ir_of(type_change, 3, m=4)


def test_a_constexpr_parameter_of_a_callee_takes_any_value():
    @kernel
    def outer(n):
        return takes_anything(n)

    assert len(ir_of(outer, 3).body.yields) == 1


def test_what_to_use_instead_of_a_host_function():
    @kernel
    def f(p):
        tl.store(p, np.exp(tl.load(p)))

    with pytest.raises(CompileError) as raised:
        ir_of(f, np.ones(1, np.float32))
    assert "tl.exp" in raised.value.hint


def test_an_assertion_on_constants_is_checked_while_compiling():
    @kernel
    def f(n):
        assert SIZE == 9, "nine"
        return n

    with pytest.raises(CompileTimeAssertionFailure, match="assert: nine"):
        ir_of(f, 3)


def test_print_takes_one_text():
    @kernel
    def f(n):
        print(n, "and", 3)

    with pytest.raises(CompileError, match="one text"):
        ir_of(f, 3)


def test_an_f_string_does_not_show_runtime_values():
    @kernel
    def f(n):
        print(f"n = {n}")

    with pytest.raises(CompileError, match="known only when the kernel runs"):
        ir_of(f, 3)


def test_assertions():
    @kernel
    def f(n):
        assert n > 2, f"too small: {SIZE}"
        return n

    assert len(ir_of(f, 3).body.yields) == 1
    with pytest.raises(LaunchError, match="device-side assert: too small: 8") as raised:
        run_eager(f, 1)
    assert raised.value.location.line == f.first_line + 1


def test_out_of_bounds_names_the_line_in_eager_mode():
    @kernel
    def inner(p, i):
        return tl.load(p + i)

    @kernel
    def f(p):
        return inner(p, 5)

    with pytest.raises(LaunchError, match="out-of-bounds read of 4 bytes") as raised:
        run_eager(f, np.zeros(4, np.float32))
    assert raised.value.location.line == inner.first_line + 1
    assert raised.value.location.caller.line == f.first_line + 1


def test_wrong_parameters():
    with pytest.raises(CompileError, match="must be known by name"):
        _ = kernel(lambda_with_keywords).params
    with pytest.raises(CompileError, match="must be a Python function, got int"):
        kernel(5)


def lambda_with_keywords(**named):
    return named


def test_a_fault_of_ours_is_not_the_users(monkeypatch):
    @kernel
    def f(n):
        return n + n

    # Runs with the globals of the ops, as a method of theirs would.
    broken = type(f.fn)(compile("lost_name", "rule", "eval"), vars(elementwise))
    monkeypatch.setattr(elementwise.Add, "infer", lambda op: broken())
    with pytest.raises(InternalError, match="lost_name"):
        ir_of(f, 3)
