"""Bad input of every kind: what is said, where, and that the next launch is a good one.

Each mistake is made in both executors, the kernel's body as Python and machine code.
"""

# The kernels show mistakes, and are written as their authors would.
# ruff: noqa: F722

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError, LaunchError, TilewrightError, jit

ROOT = Path(__file__).resolve().parent.parent.parent


@jit
def add(x_ptr, n, STEP: tl.constexpr = 1):
    i = tl.program_id(0)
    if i < n:
        tl.store(x_ptr + i, tl.load(x_ptr + i) + STEP)


@pytest.fixture(autouse=True)
def the_next_launch_is_good(launch):
    yield
    x = np.zeros(4, np.float32)
    launch(add, (4,), x, 4)
    assert x.tolist() == [1] * 4


# What is said, word for word.


@jit
def shapes_differ(x_ptr, n):
    x = tl.load(x_ptr + tl.arange(0, 4))
    return x + tl.arange(0, 3)


@jit
def calls_shapes_differ(x_ptr, n):
    y = shapes_differ(x_ptr, n)
    tl.store(x_ptr, tl.sum(y, 0))


@jit
def size_at_run_time(x_ptr, n):
    tl.store(x_ptr + tl.arange(0, n + 2), 0)


@jit
def inner_sizes(x_ptr, n):
    a = tl.zeros((16, 8), tl.float32)
    tl.store(x_ptr, tl.sum(tl.dot(a, a)))


@jit
def mask_of_another_shape(x_ptr, n):
    offsets = tl.arange(0, 8)
    tl.store(x_ptr + offsets, 1, mask=tl.arange(0, 4) < n)


@jit
def mask_of_numbers(x_ptr, n):
    tl.load(x_ptr + tl.arange(0, 4), mask=tl.arange(0, 4))


@jit
def tile_through_a_scalar(x_ptr, n):
    tl.store(x_ptr, tl.arange(0, 4))


@jit
def other_without_mask(x_ptr, n):
    tl.load(x_ptr, other=0.0)


@jit
def condition_is_a_tile(x_ptr, n):
    if tl.load(x_ptr + tl.arange(0, 4)) > 0:
        tl.store(x_ptr, 1)


@jit
def huge_tile(x_ptr, n):
    tl.store(x_ptr + tl.arange(0, 2**21), 1)


@jit
def launches_another(x_ptr, n):
    add[(1,)](x_ptr, n)


@jit
def constant_pointer(x_ptr: tl.const, n):
    tl.store(x_ptr, n)


@jit
def bits_of_floats(x_ptr, n):
    tl.store(x_ptr, tl.load(x_ptr) << 1)


@jit
def no_such_axis(x_ptr, n):
    tl.store(x_ptr, tl.sum(tl.arange(0, 4), axis=1))


@jit
def no_such_type(x_ptr, n):
    tl.store(x_ptr, tl.load(x_ptr).to(float))


@jit
def runaway(x_ptr, n):
    runaway(x_ptr, n)


GOLDEN = [
    (
        shapes_differ,
        """
        +2: +: the shapes [4] and [3] do not fit together
            return x + tl.arange(0, 3)
                   ^^^^^^^^^^^^^^^^^^^
          try: sizes must be equal or 1; add axes with x[:, None] or x[None, :]
        """,
    ),
    (
        calls_shapes_differ,
        """
        -4: +: the shapes [4] and [3] do not fit together
            return x + tl.arange(0, 3)
                   ^^^^^^^^^^^^^^^^^^^
          called from +1:
            y = shapes_differ(x_ptr, n)
                ^^^^^^^^^^^^^^^^^^^^^^^
          try: sizes must be equal or 1; add axes with x[:, None] or x[None, :]
        """,
    ),
    (
        inner_sizes,
        """
        +2: dot: inner sizes differ: a is [16, 8], b is [16, 8]
            tl.store(x_ptr, tl.sum(tl.dot(a, a)))
                                   ^^^^^^^^^^^^
          try: transpose one, b.trans(), or load as many columns of a as rows of b
        """,
    ),
    (
        mask_of_another_shape,
        """
        +2: store: the mask: a tile of shape [4] does not broadcast to [8]
            tl.store(x_ptr + offsets, 1, mask=tl.arange(0, 4) < n)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          try: only axes of size 1 are repeated: add some by x[:, None], or x.expand_dims(axis)
        """,
    ),
    (
        mask_of_numbers,
        """
        +1: load: the mask must be a bool, got i32[4]
            tl.load(x_ptr + tl.arange(0, 4), mask=tl.arange(0, 4))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          try: compare it with 0: mask=m != 0
        """,
    ),
    (
        tile_through_a_scalar,
        """
        +1: store: the pointer is a scalar and the value a tile of shape [4]
            tl.store(x_ptr, tl.arange(0, 4))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          try: add a tile of offsets to the pointer: ptr + tl.arange(0, BLOCK)
        """,
    ),
    (
        other_without_mask,
        """
        +1: load: `other` needs a mask
            tl.load(x_ptr, other=0.0)
            ^^^^^^^^^^^^^^^^^^^^^^^^^
          try: leave it out: without a mask every lane is loaded
        """,
    ),
    (
        huge_tile,
        """
        +1: arange: a tile of shape [2097152] has 2097152 elements, the limit is 1048576
            tl.store(x_ptr + tl.arange(0, 2**21), 1)
                             ^^^^^^^^^^^^^^^^^^^
          try: use a smaller block and loop over it
        """,
    ),
    (
        constant_pointer,
        """
        +1: store: the pointer is declared const
            tl.store(x_ptr, n)
            ^^^^^^^^^^^^^^^^^^
          try: take `const` from the parameter's type
        """,
    ),
    (
        no_such_type,
        """
        +1: cast: expected a dtype such as tl.float32, got <class 'float'>
            tl.store(x_ptr, tl.load(x_ptr).to(float))
                            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ),
]


def shown(error, kernel):
    """The message, with lines counted from the `def` of the kernel and without columns."""
    text = str(error).replace(f"{kernel.file}:", "<here>")

    def counted(match):
        return f"{int(match[1]) - kernel.first_line:+}:"

    text = re.sub(r"<here>(\d+):\d+:", counted, text)
    return re.sub(r"^    ", "", text, flags=re.MULTILINE)


def said(launch, kernel, *args, grid=(1,), **named):
    """The error of a launch."""
    with pytest.raises(TilewrightError) as raised:
        launch(kernel, grid, *args, **named)
    return raised.value


@pytest.mark.parametrize(("kernel", "text"), GOLDEN, ids=lambda x: getattr(x, "name", ""))
def test_messages(launch, kernel, text):
    error = said(launch, kernel, np.zeros(16, np.float32), 2)
    assert isinstance(error, CompileError)
    assert shown(error, kernel) == textwrap.dedent(text).strip("\n")


MISTAKES = [
    (size_at_run_time, "must be a compile-time constant", "tl.constexpr"),
    (bits_of_floats, "<<: defined for integers and bools", "convert"),
    (no_such_axis, "axis", ""),
    (condition_is_a_tile, "the truth value of a tile of shape [4] is ambiguous", "tl.where"),
    (launches_another, "launch", "call it like a function"),
]


@pytest.mark.parametrize(("kernel", "message", "hint"), MISTAKES)
def test_mistakes_that_each_executor_words(launch, kernel, message, hint):
    if launch.is_eager and kernel is size_at_run_time:
        pytest.skip("there every value is known")
    error = said(launch, kernel, np.zeros(16, np.float32), 2)
    assert message in error.message
    assert hint in error.hint
    assert kernel.first_line < error.location.line <= kernel.first_line + 3
    assert "^" in error.location.excerpt()


def test_recursion(launch):
    error = said(launch, runaway, np.zeros(4, np.float32), 2)
    assert isinstance(error, CompileError)
    assert "recursion" in str(error)
    assert error.location.line == runaway.first_line + 1
    assert len(str(error).splitlines()) < 20


# Arguments.


class OnGpu:
    """What a tensor of a GPU looks like."""

    dtype, device, shape = "float32", "xpu:0", (4,)

    def data_ptr(self):
        return 0x7F0000000000


class WithGpuInterface:
    __cuda_array_interface__ = {  # noqa: RUF012 - this is how arrays have it
        "shape": (4,), "typestr": "<f4", "data": (0x7F0000000000, False), "version": 3,
    }  # fmt: skip


def no_kernel():
    """A Python function."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([None]), "'object'.*\n.*astype"),
        (np.array(["a"]), "'<U1'"),
        (np.zeros(4, np.complex64), "complex64.*\n.*view"),
        (np.zeros(4, ">f4"), "'>f4'.*\n.*byte order"),
        (np.zeros(4, [("a", "i4")]), "field"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64.*\n.*int64"),
        (np.zeros(4, np.longdouble), r"float\d+|longdouble"),
        (OnGpu(), r"on xpu:0; kernels run on the CPU.*\n.*\.cpu\(\)"),
        (WithGpuInterface(), "driver"),  # that there is none, or that it knows no such address
        ([1, 2], r"a list .*\n.*np\.array"),
        ({1, 2}, r"a set .*\n.*np\.array"),
        ({1: 2}, "a dict .*\n.*one by one"),
        ("text", r"a str .*\n.*an array or a number.*tl\.constexpr"),
        (1j, "complex.*\n.*real"),
        (Decimal(1), "Decimal"),
        (object(), "object.*\n.*arrays"),
        (no_kernel, "function.*\n.*@jit"),
        (np, "module"),
        (np.datetime64("2020"), "datetime64"),
        (2**64, "does not fit in 64 bits"),
        (2**30000, "<30001 bits> does not fit in 64 bits"),
        (-(2**63) - 1, "does not fit in 64 bits"),
        ((np.zeros(1), [1]), r"`x_ptr\[1\]`.*list"),
        (tw.MockTensor(tl.float32), "no memory"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_no_kernel_takes(launch, value, message):
    error = said(launch, add, value, 4)
    assert isinstance(error, LaunchError)
    assert str(error).startswith("`x_ptr")
    assert re.search(message, str(error))


@pytest.mark.parametrize("value", [None, 5, 5.0, True, (), (np.zeros(1),)])
def test_what_is_no_pointer(launch, value):
    error = said(launch, add, value, 4)
    assert isinstance(error, CompileError)
    assert error.location.line == add.first_line + 3
    assert "load" in error.location.excerpt()
    if value is None:
        assert "is None" in error.hint
    elif not isinstance(value, tuple):
        assert "annotate" in error.hint


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((), {}, "missing the arguments `x_ptr`, `n`"),
        ((1,), {}, "missing the argument `n`"),
        ((1, 2, 3, 4), {}, "takes 3 arguments, but 4 were given"),
        ((1,), {"m": 3}, "`m` is neither (.|\n)*the parameters are `x_ptr`, `n`, `STEP`"),
        ((1, 2), {"STP": 3}, "`STP` is neither (.|\n)*did you mean `STEP`"),
        ((1, 2), {"num_wraps": 3}, "did you mean `num_warps`"),
        ((1, 2), {"num_warps": "four"}, "`num_warps` is an int of at least 1"),
        ((1, 2, [3]), {}, "`STEP` is a constant .* must be hashable.*\n.*tuple"),
        ((1, 2), {"STEP": np.zeros(1)}, "must be hashable"),
    ],
)
def test_calls_that_do_not_match(launch, args, named, message):
    error = said(launch, add, *args, **named)
    assert isinstance(error, LaunchError)
    assert re.search(message, str(error))


def test_an_argument_given_twice(launch):
    error = said(launch, add, 1, 2, n=3)
    assert isinstance(error, LaunchError)
    assert "add: `n` is given twice, by position and by name" in str(error)
    with pytest.raises(LaunchError, match="`n` is given twice"):
        add.warmup(1, 2, n=3)


@pytest.mark.parametrize("step", ["a", object(), tl.float32])
def test_constants_of_a_senseless_type(launch, step):
    error = said(launch, add, np.zeros(4, np.float32), 4, STEP=step)
    assert isinstance(error, CompileError)
    assert error.location.line == add.first_line + 3


# Grids.


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((), "1 to 3 sizes, not 0.*\n.*at least one"),
        ((1, 1, 1, 2), "1 to 3 sizes, not 4"),
        ((-1,), r"out of range: sizes are 0 to 2\*\*31 - 1\n.*negative"),
        ((2**31,), "out of range.*\n.*larger blocks"),
        ((1, 2**31), "out of range"),
        ((1.5,), "1.5, which is no int\n.*cdiv"),
        (None, "no int"),
        ("1", "no int"),
        ({}, "no int"),
        ((1, (2,)), "no int"),
        (slice(1, 2), "no int"),
        (lambda meta: None, "no int"),
        (lambda meta: {}, "no int"),
        (lambda meta: (meta["n"], "x"), "no int"),
        (lambda meta: (-meta["n"],), "out of range"),
    ],
)
def test_grids(launch, grid, message):
    error = said(launch, add, np.zeros(4, np.float32), 4, grid=grid)
    assert isinstance(error, LaunchError)
    assert re.search(message, str(error))


def test_a_grid_function_that_raises(launch):
    with pytest.raises(ZeroDivisionError):
        launch(add, lambda meta: (meta["n"] // 0,), np.zeros(4, np.float32), 4)


def test_a_grid_function_that_misspells_a_parameter(launch):
    error = said(launch, add, np.zeros(4, np.float32), 4, grid=lambda meta: (meta["STEPS"],))
    assert str(error) == (
        "add: the function that computes the grid raises KeyError: 'STEPS'\n  try: did you mean "
        "`STEP`? it is given a dictionary of the parameters: `x_ptr`, `n`, `STEP`"
    )


def test_a_grid_function_that_asks_for_a_missing_argument(launch):
    error = said(launch, add, np.zeros(4, np.float32), grid=lambda meta: (meta["n"] // 2,))
    assert isinstance(error, LaunchError)
    assert "add is missing the argument `n`" in str(error)


@pytest.mark.numpy_only
def test_an_array_of_no_axes_in_place_of_a_number(launch):
    error = said(launch, add, np.zeros(4, np.float32), np.array(4))
    assert isinstance(error, CompileError)
    assert "`n.item()`" in error.hint


def test_a_grid_of_no_programs_touches_nothing(launch):
    x = np.zeros(0, np.float32)
    for grid in ((0,), (5, 0), (0, 5, 2**31 - 1), lambda meta: 0):
        launch(add, grid, x, 4)


def test_calling_without_a_grid(launch):
    with pytest.raises(LaunchError, match=r"is a kernel.*\n.*add\[grid\]"):
        add(np.zeros(4, np.float32), 4)


def test_the_language_outside_a_kernel(launch):
    with pytest.raises(CompileError, match=r"only inside a kernel\n.*kernel\[grid\]"):
        tl.arange(0, 4)
    with pytest.raises(LaunchError, match="cannot be called like a Python function"):
        tl.softmax(np.zeros(4))


# Arrays that are allowed, or not, for their memory.


@jit
def copy(x_ptr, out_ptr, stride, n: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, n), tl.load(x_ptr + tl.arange(0, n) * stride))


def test_strides_are_the_business_of_the_kernel(launch):
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    for x, stride in ((matrix[:, 1], 4), (matrix[::-1, 2], -4), (matrix[0, ::2], 2)):
        out = np.zeros(2, np.float32)
        launch(copy, (1,), x, out, stride, n=2)
        assert out.tolist() == x[:2].tolist()


def test_arrays_without_elements(launch):
    launch(add, (4,), np.zeros(0, np.float32), 0)
    launch(add, (1,), np.zeros((3, 0), np.float32), -1)


@pytest.mark.numpy_only
def test_arrays_that_are_read_only(launch):
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    x.flags.writeable = False
    launch(copy, (1,), x, out, 1, n=4)
    assert out.tolist() == [1] * 4
    error = said(launch, copy, out, x, 1, n=4)
    assert isinstance(error, LaunchError)
    assert "`out_ptr` is read-only, and the kernel writes to it" in str(error)
    assert "copy" in error.hint
    assert x.tolist() == [1] * 4


@jit
def annotated(x_ptr: "*fp32", out_ptr, n, MASKED: tl.constexpr = False):
    offsets = tl.arange(0, 4)
    if MASKED:
        x = tl.load(x_ptr + offsets, mask=offsets < n)
    elif n > 100:
        x = tl.load(x_ptr + offsets)
    else:
        x = tl.zeros((4,), tl.float32)
    tl.store(out_ptr + offsets, x)


@jit
def surely_loads(x_ptr: "*fp32", out_ptr):
    tl.store(out_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4)[:, None]).sum(1))


@jit
def surely_stores(x_ptr, out_ptr: "*fp32"):
    tl.store(out_ptr, tl.load(x_ptr))


@pytest.mark.parametrize("null", [None, 0])
def test_nothing_in_place_of_an_array(launch, null):
    x = np.ones(4, np.float32)
    for masked in (False, True):
        launch(annotated, (1,), null, x, 0, MASKED=masked)  # which need not be there
        assert x.tolist() == [0] * 4
    for _ in range(2):
        for kernel, args in ((surely_loads, (null, x)), (surely_stores, (x, null))):
            error = said(launch, kernel, *args)
            assert isinstance(error, LaunchError)
            assert re.search("is None|null pointer", error.message)
            assert error.location.line == kernel.first_line + 1
            launch(kernel, (1,), x, x)
            launch(kernel, (0,), *args)


@pytest.mark.parametrize("address", [-1, 1, 5, 4095, 2**64])
def test_what_is_no_address(launch, address):
    error = said(launch, annotated, address, np.zeros(4, np.float32), 0)
    assert isinstance(error, LaunchError)
    assert "`x_ptr`" in error.message
    assert "no address" in error.message


def test_an_annotated_pointer_checks_the_type(launch):
    error = said(launch, annotated, np.zeros(4, np.int32), np.zeros(4), 0)
    assert isinstance(error, LaunchError)
    assert "`x_ptr` is annotated as *fp32, but the array has elements of i32" in str(error)


@jit
def without_bounds(x_ptr, at):
    tl.store(x_ptr + at, 1)


@pytest.mark.parametrize("at", [4, -1, 2**40])
def test_accesses_out_of_bounds_are_found_in_eager_mode(at):
    with pytest.raises(LaunchError, match=r"out-of-bounds write of 4 bytes at byte .* of `x_ptr`"):
        without_bounds.debug[(1,)](np.zeros(4, np.float32), at)


# Numbers.


@jit
def product(out_ptr, x, y):
    tl.store(out_ptr, x * y)


def test_floats_are_fp32_parameters(launch):
    out = np.zeros(1, np.float64)
    launch(product, (1,), out, 0.1, 2)
    assert out[0] == np.float32(0.1) * np.float32(2)
    for value, expected in ((1e300, np.inf), (1e-300, 0), (np.inf, np.inf), (-np.inf, -np.inf)):
        launch(product, (1,), out, value, 2)
        assert out[0] == expected
    launch(product, (1,), out, float("nan"), 2)
    assert np.isnan(out[0])


@jit
def in_fp64(out_ptr, x: tl.float64):
    tl.store(out_ptr, x * 3)


def test_floats_keep_their_precision_where_annotated(launch):
    out = np.zeros(1, np.float64)
    launch(in_fp64, (1,), out, 0.1)
    assert out[0] == 0.1 * 3


@pytest.mark.parametrize(
    "number", [np.int8(3), np.uint64(3), np.float16(3), np.float64(3), np.bool_(1), np.int64(1)]
)
def test_numpy_scalars(launch, number):
    out = np.zeros(1, np.float64)
    launch(product, (1,), out, number, 2)
    assert out[0] == 2 * number


@jit
def quotient(out_ptr, x, y):
    tl.store(out_ptr, x // y)
    tl.store(out_ptr + 1, x % y)


def test_division_by_zero_does_not_trap(launch):
    out = np.ones(2, np.int32)
    launch(quotient, (1,), out, 7, 0)
    assert out.tolist() == [0, 0]
    launch(quotient, (1,), out, -(2**31), -1)  # the quotient does not fit
    assert out.tolist() == [-(2**31), 0]


@jit
def unsigned(out_ptr, n: tl.uint8):
    tl.store(out_ptr, n)


@pytest.mark.parametrize("number", [-1, 256, 1.0, "1"])
def test_numbers_that_an_annotation_excludes(launch, number):
    error = said(launch, unsigned, np.zeros(1, np.int32), number)
    assert isinstance(error, LaunchError)
    assert "`n` is annotated as u8" in error.message


# Failures while a kernel runs.


@jit(debug=True)
def checked(x_ptr, n):
    program = tl.program_id(0)
    tl.device_assert(program != n, "not this one")
    tl.store(x_ptr + program, 1)


def test_an_assertion_fails_in_one_of_many_programs(launch):
    x = np.zeros(64, np.int32)
    for _ in range(3):
        error = said(launch, checked, x, 37, grid=(64,))
        assert isinstance(error, LaunchError)
        assert "device-side assert: not this one" in error.message
        assert error.location.line == checked.first_line + 2
        assert error.location.file == __file__
    x[:] = 0
    launch(checked, (64,), x, 64)
    assert x.all()


@jit
def raises(x_ptr):
    y = 1 // 0
    tl.store(x_ptr, y)


def test_python_errors_in_the_body(launch):
    with pytest.raises((CompileError, ZeroDivisionError), match="division") as raised:
        launch(raises, (1,), np.zeros(1, np.int32))
    if launch.is_eager:  # ordinary Python, for an ordinary debugger
        traceback = raised.tb
        while traceback.tb_next:
            traceback = traceback.tb_next
        place = traceback.tb_frame.f_code.co_filename, traceback.tb_lineno
    else:
        place = raised.value.location.file, raised.value.location.line
    assert place == (__file__, raises.first_line + 1)


# Kernels of a senseless length.


def long_kernel(count):
    steps = "\n".join(f"    x = x * 0.5 - {i}.0" for i in range(count))
    source = f"""
def long(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 8))
{steps}
    tl.store(x_ptr + tl.arange(0, 8), x)
"""
    namespace = {"tl": tl}
    exec(source, namespace)
    return jit(source=source)(namespace["long"])


def test_kernels_of_hundreds_of_operations(launch):
    limit = sys.getrecursionlimit()
    x = np.zeros(8, np.float32)
    launch(long_kernel(300), (1,), x)
    expected = np.float32(0)
    for i in range(300):
        expected = expected * np.float32(0.5) - np.float32(i)
    assert (x == expected).all()
    assert sys.getrecursionlimit() == limit


def test_a_kernel_that_is_too_long(launch, monkeypatch):
    if launch.is_eager:
        pytest.skip("there one statement follows the other")
    monkeypatch.setattr("tilewright.runtime.build._DEEPEST", 0)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # Python's own: other packages raise it
    try:
        error = said(launch, long_kernel(600), np.zeros(8, np.float32))
    finally:
        sys.setrecursionlimit(before)
    assert isinstance(error, CompileError)
    assert "`long` is too long" in error.message
    assert "loop" in error.hint


# Kernels that are none.


@pytest.mark.parametrize("value", [5, int, len, "text", OnGpu().data_ptr, add])
def test_what_cannot_be_a_kernel(launch, value):
    with pytest.raises(CompileError, match="a kernel must be a Python function"):
        jit(value)


def test_a_lambda(launch):
    kernel = jit(lambda x_ptr: tl.store(x_ptr, 1))
    with pytest.raises(CompileError, match=r"a lambda cannot be a kernel\n.*def"):
        launch(kernel, (1,), np.zeros(1))


def test_options_of_the_decorator(launch):
    with pytest.raises(TypeError, match=r"jit\(\) got an unexpected keyword argument 'inline'"):
        jit(inline=True)


WITHOUT_SOURCE = """
import numpy as np, tilewright as tw, tilewright.language as tl
@tw.jit
def kernel(x_ptr):
    tl.store(x_ptr, 1)

x = np.zeros(1)
for launcher in (kernel, kernel.debug):
    try:
        launcher[(1,)](x)
    except tw.CompileError as error:
        assert "not available" in str(error) and "source=" in str(error), error
        print("said")

text = "def kernel(x_ptr):" + chr(10) + "    tl.store(x_ptr, 2)"
namespace = {"tl": tl}
exec(text, namespace)
tw.jit(source=text)(namespace["kernel"])[(1,)](x)
print(x[0])
"""


def run_python(*arguments, given=None, cache):
    settings = {k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT_")}
    settings |= {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, *arguments],
        input=given,
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_kernels_without_source(tmp_path):
    done = run_python(given=WITHOUT_SOURCE, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["said", "said", "2.0"], done.stdout + done.stderr


# Interrupts.

INTERRUPTED = """
import sys
import numpy as np, tilewright as tw, tilewright.language as tl

@tw.jit
def kernel(x_ptr, n):
    total = 0.0
    for i in range(n):
        total += tl.load(x_ptr + i % 4, volatile=True)
    tl.store(x_ptr + 4, total)

x = np.ones(5, np.float32)
launcher = kernel.debug if sys.argv[1] == "eager" else kernel
kernel[(1,)](x, 2)
print("started", flush=True)
try:
    launcher[(10_000_000,)](x, 100_000)
except KeyboardInterrupt:
    print("stopped", flush=True)
x[:] = 1
kernel[(1,)](x, 8)
print(x[4])
"""


def test_an_interrupt_ends_a_long_launch(launch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED, encoding="utf-8")
    settings = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), "eager" if launch.is_eager else "cpu"]
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert rest.split() == ["stopped", "8.0"]
