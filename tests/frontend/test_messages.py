"""What a message names: the user's own variables and functions, and what to write with them."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompileError, TilewrightError

BOTH = pytest.mark.parametrize("start", ["compiled", "eager"])


def refused(kernel, start, *args, **named):
    """The error of a launch."""
    launched = kernel if start == "compiled" else kernel.debug
    with pytest.raises(TilewrightError) as raised:
        launched[1,](*args, **named)
    return raised.value


def numbers(size=16):
    return np.ones(size, np.float32)


def storing(k, *, freeze):
    if freeze:
        k = tl.constexpr(k)

    @tw.jit
    def kernel(y_ptr):
        tl.store(y_ptr, k)

    return kernel


@BOTH
def test_a_variable_of_the_enclosing_function_is_no_global_one(start):
    error = refused(storing(3.5, freeze=False), start, numbers())
    assert "`k` is an ordinary variable of the enclosing function (of type float)" in error.message
    assert error.hint == "write k = tl.constexpr(k) there, above the kernel"


def test_the_way_out_keeps_each_value_of_an_enclosing_variable():
    y = numbers()
    for value in (3.5, 4.0):
        storing(value, freeze=True)[1,](y)
        assert y[0] == value


@tw.jit
def indexed(x_ptr, y_ptr, i):
    tl.store(y_ptr, x_ptr[i] * 2)


@tw.jit
def sliced(x_ptr, y_ptr, i):
    tl.store(y_ptr, x_ptr[2:4])


@BOTH
@pytest.mark.parametrize("kernel", [indexed, sliced])
def test_a_pointer_is_not_indexed(kernel, start):
    error = refused(kernel, start, numbers(), numbers(), 3)
    assert error.message == "`x_ptr` is a pointer (*fp32), and a pointer is not indexed"
    assert error.hint == "read with tl.load(x_ptr + i), write with tl.store(x_ptr + i, value)"
    assert error.location.line == kernel.first_line + 1


@tw.jit
def assigned(y_ptr, i):
    y_ptr[i + 1] = 2.0


@BOTH
def test_memory_is_written_by_a_store(start):
    error = refused(assigned, start, numbers(), 3)
    assert "an element cannot be assigned" in error.message
    assert error.hint.startswith("write memory with tl.store(y_ptr + i + 1, value)")


def test_a_helper_that_has_been_defined_again(monkeypatch):
    def defined(name, body):
        text = f"@tw.jit\ndef {name}(y_ptr):\n    {body}\n"
        function = tw.jit(source=text)(_stand_in(name))
        monkeypatch.setitem(globals(), name, function)
        return function

    defined("helper", "tl.store(y_ptr, 1.0)")
    caller = defined("caller", "helper(y_ptr)")
    y = numbers()
    caller[1,](y)
    place = defined("helper", "tl.store(y_ptr, 2.0)").location
    with pytest.raises(CompileError) as raised:
        caller[1,](y)
    assert raised.value.message == (
        "the function `helper` that `caller` calls has been defined again since it was compiled "
        f"({place.file}:{place.line})"
    )
    assert "run the definition of `caller` again" in raised.value.hint


def _stand_in(name):
    namespace = {"tw": tw, "tl": tl}
    exec(f"def {name}(y_ptr): pass", globals(), namespace)
    return namespace[name]


@tw.jit
def doubled(x_ptr, IS_EARLY: tl.constexpr):
    if IS_EARLY:
        return None
    x = tl.load(x_ptr)
    return x * 2


@tw.jit
def calls_doubled(x_ptr, y_ptr):
    tl.store(y_ptr, doubled(x_ptr, False))


@BOTH
def test_a_launched_kernel_returns_nothing(start):
    error = refused(doubled, start, numbers(), IS_EARLY=False)
    assert error.message.startswith("`doubled` returns a value, and nobody takes")
    assert "tl.store(pointer, value)" in error.hint
    assert error.location.line == doubled.first_line + 4
    doubled[1,](numbers(), IS_EARLY=True)
    y = numbers()
    calls_doubled[1,](numbers(), y)
    assert y[0] == 2


@tw.jit
def shows_what_is_known(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 2))
    print("x", x.shape, x.dtype)
    print(x.dtype)
    print("x of", x.dtype, x)
    tl.device_print("none", None)


def test_what_is_known_at_compile_time_is_printed_as_text(capfd):
    shows_what_is_known[1,](numbers())
    assert capfd.readouterr().out.splitlines() == [
        "pid (0, 0, 0) x (2,) fp32",
        "pid (0, 0, 0) fp32",
        "pid (0, 0, 0) idx (0) x of fp32: 1.000000",
        "pid (0, 0, 0) idx (1) x of fp32: 1.000000",
        "pid (0, 0, 0) none None",
    ]


@tw.jit
def shows_text_last(x_ptr):
    x = tl.load(x_ptr)
    print(x, x.dtype)


def test_text_stands_in_front_of_what_is_printed():
    error = refused(shows_text_last, "compiled", numbers())
    assert error.message.startswith("print in a kernel takes one text, in front of the values")


@tw.jit
def adds(y_ptr, b: tl.constexpr):
    tl.store(y_ptr, b + 1.5)


@tw.jit
def adds_in_place(y_ptr, b: tl.constexpr):
    y = tl.load(y_ptr)
    y += b
    tl.store(y_ptr, y)


@tw.jit
def scales(y_ptr, b: tl.constexpr):
    tl.store(y_ptr, tl.load(y_ptr) * b)


@tw.jit
def loads_from(y_ptr, b: tl.constexpr):
    tl.store(y_ptr, tl.load(b))


@tw.jit
def counts(y_ptr, b: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, b), 1.0)


@BOTH
@pytest.mark.parametrize("kernel", [adds, adds_in_place, scales, loads_from])
def test_an_argument_that_is_none_is_named(kernel, start):
    error = refused(kernel, start, numbers(), None)
    assert error.hint == "`b` is None: pass a value, or branch on `b is None`"


@BOTH
@pytest.mark.parametrize("kernel", [adds, counts])
def test_an_argument_that_is_no_number_is_named(kernel, start):
    error = refused(kernel, start, numbers(), "4")
    assert error.hint == "`b` is str '4': pass a number, such as int(b)"


@tw.jit
def stores_a_store(y_ptr):
    tl.store(y_ptr, tl.store(y_ptr, 1.0))


@tw.jit
def loads_offsets(y_ptr):
    tl.store(y_ptr, tl.load(tl.arange(0, 4)))


@tw.jit
def misspells(y_ptr):
    tl.store(y_ptr, tl.load(y_ptr, msk=True))


@tw.jit
def misspells_of_helper(y_ptr):
    scales(y_ptr, bb=2.0)


@tw.jit
def leaves_out(y_ptr):
    tl.store(y_ptr + tl.arange(4), 1.0)


@tw.jit
def converts(y_ptr):
    tl.store(y_ptr, tl.load(y_ptr).astype(tl.float32))


WAYS_OUT = {
    stores_a_store: ("got None", "`tl.store(y_ptr, 1.0)` returns nothing"),
    loads_offsets: ("got i32[4]", "add the offsets to a pointer: tl.load(x_ptr + offsets, ...)"),
    misspells: ("`load` has no parameter `msk`", "did you mean `mask`? its parameters are"),
    misspells_of_helper: ("has no parameter `bb`", "did you mean `b`? its parameters are"),
    leaves_out: ("`arange` needs a value for `end`", "start, end; for instance tl.arange(0, 5)"),
    converts: ("no attribute `astype`", "x.to(dtype)"),
}


@BOTH
@pytest.mark.parametrize("kernel", WAYS_OUT, ids=lambda kernel: kernel.__name__)
def test_ways_out(kernel, start):
    error = refused(kernel, start, numbers())
    message, hint = WAYS_OUT[kernel]
    assert message in error.message
    assert hint in error.hint


@tw.jit
def as_array(y_ptr):
    tl.store(y_ptr, np.asarray(tl.load(y_ptr)))


@tw.jit
def magnitude(y_ptr):
    tl.store(y_ptr, np.fabs(np.tan(tl.load(y_ptr))))


def test_functions_of_arrays_are_only_offered_where_there_are_own_ones():
    assert "no `asarray`" in refused(as_array, "compiled", numbers()).hint
    assert "tl.extra.libdevice.tan" in refused(magnitude, "compiled", numbers()).hint
