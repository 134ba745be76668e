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
