import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, scalar, tile
from tilewright.errors import CompileError, CompileTimeAssertionFailure, LaunchError
from tilewright.frontend.context import Eager, activate
from tilewright.interpreter import Interpreter


@pytest.fixture
def printed():
    """The lines that a kernel prints."""
    lines = []
    with activate(Eager(Interpreter((4, 2, 1), output=lines.append))):
        yield lines


def test_prints_name_program_and_place(printed):
    tl.device_print("x", tile([1, 2], "i32"))
    tl.device_print("value: ", scalar(1.5, "fp32"), hex=True)
    tl.device_print("here")
    assert printed == [
        "pid (0, 0, 0) idx (0) x: 1",
        "pid (0, 0, 0) idx (1) x: 2",
        "pid (0, 0, 0) idx () value: 0x3fc00000",
        "pid (0, 0, 0) here",
    ]
    with pytest.raises(CompileError, match="prefix must be a string"):
        tl.device_print(tile([1]))


def test_assertions(machine):
    tl.device_assert(tile([1, 2], "i32"), "fine")
    tl.device_assert(tile([True, False]), "masked", mask=tile([True, False]))
    with pytest.raises(LaunchError, match="too big"):
        tl.device_assert(tile([1, 2], "i32") < 2, "too big")
    with pytest.raises(LaunchError, match="assume"):
        tl.assume(scalar(0, "i32") > 0)
    tl.assume(scalar(1, "i32") > 0)
    tl.assume(True)
    tl.static_assert(True, "fine")
    with pytest.raises(CompileTimeAssertionFailure, match="static_assert: not so"):
        tl.static_assert(False, "not so")


def test_hints_give_the_value_back():
    x = tl.arange(0, 4)
    for hint in (tl.multiple_of, tl.max_contiguous, tl.max_constancy):
        assert array(hint(x, 4)).tolist() == [0, 1, 2, 3]
        assert hint(x[:, None], (1, 4)).shape == (4, 1)
        with pytest.raises(CompileError, match="expected 1 positive numbers"):
            hint(x, -7)
        with pytest.raises(CompileError, match="expected 2 positive numbers"):
            hint(x[:, None], 4)
    tl.debug_barrier()


def test_static_print_shows_values(capsys):
    tl.static_print("BLOCK", tl.constexpr(4), tl.arange(0, 2), sep="|")
    assert capsys.readouterr().out == "BLOCK|4|tensor([0, 1], i32[2])\n"


def test_the_place_in_the_grid(printed):
    assert [int(tl.program_id(axis)) for axis in range(3)] == [0, 0, 0]
    assert [int(tl.num_programs(axis)) for axis in range(3)] == [4, 2, 1]
    with pytest.raises(CompileError, match="axis must be 0, 1 or 2"):
        tl.program_id(3)


def test_loops_in_eager_mode():
    assert [int(i) for i in tl.range(3)] == [0, 1, 2]
    assert [int(i) for i in tl.range(scalar(88, "i32"), -1, -8)] == list(range(88, -1, -8))
    assert [int(i) for i in tl.range(5, 10, scalar(-3, "i32"))] == []
    assert next(iter(tl.range(3))).dtype is tl.int32
    assert next(iter(tl.range(scalar(3, "i64")))).dtype is tl.int64
    assert list(tl.static_range(5, 0, tl.constexpr(-2))) == [5, 3, 1]
    with pytest.raises(CompileError, match="the step of a range must not be 0"):
        iter(tl.range(0, 5, 0))
    with pytest.raises(CompileError, match="the stop of a range must be a scalar integer"):
        iter(tl.range(2.5))
    with pytest.raises(CompileError, match="must not be 0"):
        tl.static_range(0, 3, 0)
    assert bool(tl.condition(scalar(2, "i32")))


def test_options_of_loops_are_kept():
    loop = tl.range(0, 8, num_stages=3, loop_unroll_factor=2, flatten=True, disable_licm=True)
    assert (loop.num_stages, loop.loop_unroll_factor) == (3, 2)
    assert (loop.flatten, loop.warp_specialize, loop.disable_licm) == (True, False, True)
    assert repr(loop) == "tl.range(0, 8, 1)"


def test_dtypes_have_tritons_names():
    assert (tl.float16.name, tl.int1.name, tl.float8e4nv.name) == ("fp16", "int1", "fp8e4nv")
    pointer = tl.pointer_type(tl.float32, const=True)
    assert (str(pointer), pointer.element_ty) == ("*kfp32", tl.float32)
    assert tl.block_type(tl.int8, [2, 4]).shape == (2, 4)
    assert tl.TRITON_MAX_TENSOR_NUMEL == 2**20
    assert isinstance(tl.bfloat16, tl.dtype)
    assert np.dtype(np.int32) == tl.int32.numpy


def test_what_is_expected_to_be_zero():
    x, mask = tile([0.0, 2.0, 0.0]), tile([True, False, False])
    assert tl.expect_zero(x, mask) is x
    assert tl.expect_zero(0, mask) == 0
    with pytest.raises(LaunchError, match="expect_zero: a number is not 0 where the mask is true"):
        tl.expect_zero(x, tile([True, True, False]))
