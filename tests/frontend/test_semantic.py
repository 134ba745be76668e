import math

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, pointer, scalar, tile
from tilewright.errors import CompileError, Location
from tilewright.frontend.builtin import builtin, is_builtin
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.context import Tracing, activate
from tilewright.frontend.semantic import (
    condition,
    logical_and,
    logical_not,
    logical_or,
    to_constant,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Param
from tilewright.ir.types import DTYPES, PointerType, TileType
from tilewright.ops import Add

pytestmark = pytest.mark.usefixtures("machine")

FLOATS8 = ["fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15"]


@pytest.fixture
def trace():
    """Where ops go while a kernel is compiled, with a parameter of each kind."""
    builder = Builder(Block())
    builder.location = Location("kernel.py", 7)
    with activate(Tracing(builder)):
        yield builder


def parameter(dtype, *shape):
    return Tensor(Param(TileType(DTYPES[dtype], shape)))


# Casts.


def test_floats_truncate_to_integers_and_anything_but_zero_is_true():
    x = tile(np.float32([-1.9, -0.5, 0.0, 1.9, np.nan]))
    assert array(x.to(tl.int32)).tolist() == [-1, 0, 0, 1, 0]
    assert array(x.to(tl.int1)).tolist() == [True, True, False, True, True]


def test_integers_widen_by_the_sign_of_the_source():
    assert array(tile([-1], "i8").to(tl.uint32)).tolist() == [0xFFFFFFFF]
    assert array(tile([255], "u8").to(tl.int32)).tolist() == [255]
    assert array(tile([True]).to(tl.float32)).tolist() == [1.0]


def test_bits_are_reinterpreted_at_equal_width():
    assert array(tile([1.0], "fp32").to(tl.int32, bitcast=True)).tolist() == [0x3F800000]
    with pytest.raises(CompileError, match="32 bits against 16"):
        tile([1.0], "fp32").to(tl.int16, bitcast=True)


def test_rounding_toward_zero():
    x = tile(np.float32([1.0 + 2.0**-8 + 2.0**-9]))
    assert float(array(x.to(tl.bfloat16))[0]) == 1 + 2**-7
    assert float(array(x.to(tl.bfloat16, fp_downcast_rounding="rtz"))[0]) == 1.0


def test_rounding_says_nothing_where_the_type_stays():
    assert tile([1.5], "fp32").to(tl.float32, fp_downcast_rounding="rtz").dtype is tl.float32


@pytest.mark.parametrize("target", [tl.float64, tl.int32])
def test_rounding_is_for_floats_that_get_narrower(target):
    with pytest.raises(CompileError, match="fp_downcast_rounding"):
        tile([1.0], "fp32").to(target, fp_downcast_rounding="rtz")


def test_an_unknown_rounding_is_an_error():
    with pytest.raises(CompileError, match="'rtne' or 'rtz'"):
        tile([1.0], "fp32").to(tl.float16, fp_downcast_rounding="up")


@pytest.mark.parametrize("name", FLOATS8)
def test_narrowing_to_fp8_saturates(name):
    x = tile(np.float32([math.inf, -math.inf, 1.0])).to(DTYPES[name])
    back = array(x.to(tl.float32))
    assert np.isfinite(back).all()
    assert back[0] == -back[1] >= 1.75
    assert array((x + 1e30).to(tl.float32))[2] == back[0]


@pytest.mark.parametrize("name", FLOATS8)
def test_integers_convert_to_fp8_and_back(name):
    x = tile([0, 1, -1], "i32")
    assert array(x.to(DTYPES[name]).to(tl.int32)).tolist() == [0, 1, -1]


def test_pointers_convert_through_64_bits():
    memory = np.zeros(4, np.float32)
    p = pointer(memory)
    address = p.to(tl.int64)
    assert int(address) == memory.ctypes.data
    assert address.to(tl.pointer_type(tl.float32)).dtype == p.dtype
    assert p.to(tl.pointer_type(tl.int32), bitcast=True).dtype.element_ty is tl.int32
    assert bool(p.to(tl.int1))
    with pytest.raises(CompileError, match="int64 first"):
        p.to(tl.int32)
    with pytest.raises(CompileError, match="64 bits"):
        p.to(tl.float32)


def test_a_dtype_is_expected():
    with pytest.raises(CompileError, match=r"expected a dtype such as tl\.float32, got 5"):
        tile([1]).to(5)
    assert tile([1]).to("fp16").dtype is tl.float16


# Shapes.


def test_shapes_are_padded_in_front_and_ones_repeat():
    a, b = tl.arange(0, 3), tl.arange(0, 4)
    assert (a[:, None] + b).shape == (3, 4)
    assert (a[:, None] + b[None, :]).shape == (3, 4)
    assert (a + 1).shape == (3,)
    with pytest.raises(CompileError, match=r"\+: the shapes \[3\] and \[4\] do not fit together"):
        a + b


# Truth.


def test_a_condition_is_a_scalar_bool():
    assert condition(scalar(2, "i32")).dtype is tl.int1
    assert bool(condition(scalar(2, "i32")))
    assert bool(condition(scalar(float("nan"), "fp32")))
    assert condition(tile([0.0], "fp32")).shape == ()
    with pytest.raises(CompileError, match=r"truth value of a tile of shape \[2\] is ambiguous"):
        condition(tile([1, 2]))


def test_logic_is_on_truth_element_by_element():
    a, b = tile([0, 1, 2], "i32"), tile([True, False, True])
    assert array(logical_and(a, b)).tolist() == [False, False, True]
    assert array(logical_or(a, b)).tolist() == [True, True, True]
    assert array(logical_not(a)).tolist() == [True, False, False]
    assert array(logical_and(b, True)).tolist() == [True, False, True]


def test_a_tensor_is_a_python_value_in_eager_mode():
    assert bool(scalar(1, "i32"))
    assert not tile([0])
    assert int(scalar(3.7, "fp32")) == 3
    assert float(scalar(1, "bf16")) == 1.0
    assert [1, 2, 3][scalar(1, "i32")] == 2
    assert repr(scalar(3, "i32")) == "3"
    assert repr(tl.arange(0, 3)) == "tensor([0, 1, 2], i32[3])"
    assert f"{scalar(1.5, 'fp32'):.2f}" == "1.50"
    with pytest.raises(CompileError, match="ambiguous"):
        bool(tile([1, 2]))
    with pytest.raises(CompileError, match="must be an integer"):
        [1][scalar(0.0, "fp32")]


def test_a_value_is_unknown_while_compiling(trace):
    for convert in (bool, int, float):
        with pytest.raises(CompileError, match="known only when the kernel runs"):
            convert(parameter("i32"))
    with pytest.raises(CompileError, match="ambiguous"):
        bool(parameter("i32", 4))
    assert repr(parameter("i32", 4)) == "<tensor i32[4]>"


# Constants.


def test_arithmetic_on_constants_is_a_constant(trace):
    half = tl.to_tensor(16) // 2
    assert to_constant(half + 1, "it") == 9
    assert tl.arange(0, half).shape == (8,)
    assert tl.zeros((half, 4), tl.float32).shape == (8, 4)
    assert int(half) == 8


def test_a_runtime_value_is_no_constant(trace):
    with pytest.raises(CompileError, match="arange: the end must be a compile-time constant") as e:
        tl.arange(0, parameter("i32"))
    assert "tl.constexpr" in e.value.hint
    with pytest.raises(CompileError, match=r"zeros: each size must be an integer, got 1\.5"):
        tl.zeros((1.5,), tl.float32)


def test_constexprs_are_unwrapped_anywhere():
    four = constexpr(4)
    assert tl.arange(0, four).shape == (4,)
    assert tl.zeros((four, 2), dtype=constexpr(tl.float16)).shape == (4, 2)
    assert tl.full([four], constexpr(1.5), tl.float32).shape == (4,)


def test_the_language_marks_its_functions():
    @builtin
    def function(x):
        return x

    assert is_builtin(function)
    assert is_builtin(tl.load)
    assert is_builtin(tl.arange(0, 2).sum)
    assert not is_builtin(len)
    assert function((constexpr(1), 2)) == (1, 2)


# Ops and places.


def test_compiling_appends_ops_with_their_place(trace):
    x, y = parameter("fp32", 4), parameter("fp32", 4)
    total = x + y
    assert isinstance(total.value, Add)
    assert trace.block.ops == [total.value]
    assert total.value.location == Location("kernel.py", 7)


def test_a_type_rule_that_fails_knows_its_place(trace):
    with pytest.raises(CompileError, match="the last axis must have size 2") as caught:
        tl.split(parameter("fp32", 3))
    assert caught.value.location == Location("kernel.py", 7)


# Pointers.


def test_pointers_move_by_elements():
    memory = np.arange(8, dtype=np.float32)
    p = pointer(memory)
    assert float(tl.load(p + 3)) == 3
    assert float(tl.load(3 + p)) == 3
    assert float(tl.load(p + 5 - 2)) == 3
    assert float(tl.load((p + 5) - scalar(2, "u32"))) == 3
    assert array(tl.load(p + tl.arange(0, 8))).tolist() == [*range(8)]


def test_unsigned_offsets_are_extended_with_zeros():
    p = pointer(np.zeros(1, np.int8))
    moved = (p + scalar(0xFFFFFFFF, "u32")).to(tl.int64) - p.to(tl.int64)
    assert int(moved) == 0xFFFFFFFF
    back = (p + scalar(-1, "i32")).to(tl.int64) - p.to(tl.int64)
    assert int(back) == -1


def test_what_pointers_do_not_do():
    p = pointer(np.zeros(1, np.float32))
    for expression in ("p * 2", "p - p", "p + p", "p < p", "-p", "p + 1.5", "p & 1", "1 - p"):
        with pytest.raises(CompileError, match="pointer"):
            eval(expression, {"p": p})


# Choice.


def test_where_keeps_the_type_of_the_tile():
    x = tile([1.0, 2.0], "fp16")
    assert array(tl.where(x > 1.5, x, 0.0)).tolist() == [0, 2]
    assert tl.where(x > 1.5, x, 0.0).dtype is tl.float16
    assert array(tl.where(tile([2, 0]), x, 0.0)).tolist() == [1, 0]
    assert tl.where(x > 1.5, 1, 0).dtype is tl.int32


def test_where_chooses_pointers():
    a, b = np.float32([1]), np.float32([2])
    chosen = tl.where(tile([True, False]), pointer(a), pointer(b))
    assert isinstance(chosen.dtype, PointerType)
    assert array(tl.load(chosen)).tolist() == [1, 2]


def test_nan_in_maximum_and_clamp():
    x, y = tile(np.float32([np.nan, 1, -1])), tile(np.float32([0, np.nan, 2]))
    assert array(tl.maximum(x, y)).tolist() == [0, 1, 2]
    assert array(tl.minimum(x, y)).tolist() == [0, 1, -1]
    everywhere = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    assert np.isnan(array(everywhere)).tolist() == [True, True, False]
    assert array(tl.clamp(x, 0.0, 0.5)).tolist() == [0, 0.5, 0]
    kept = tl.clamp(x, 0.0, 0.5, propagate_nan=tl.PropagateNan.ALL)
    assert np.isnan(array(kept)).tolist() == [True, False, False]
    with pytest.raises(CompileError, match="propagate_nan"):
        tl.maximum(x, y, propagate_nan=True)


def test_none_is_not_comparable():
    with pytest.raises(CompileError, match="None is not comparable"):
        tile([1]) < None  # noqa: B015 - the mistake under test


def test_ceiling_division_of_mixed_signs_is_in_the_common_type():
    quotient = tl.cdiv(tile([7], "i8"), tile([2], "u8"))
    assert (quotient.dtype, array(quotient).tolist()) == (tl.uint8, [4])
    quotient = tl.cdiv(tile([-7], "i32"), tile([2], "u8"))
    assert (quotient.dtype, array(quotient).tolist()) == (tl.int32, [-3])


def test_no_tensor_equals_none():
    assert (tile([1]) == None) is False  # noqa: E711 - what is under test
    assert (tile([1]) != None) is True  # noqa: E711


def test_literals_are_rounded_once():
    value = 1 + 2.0**-8 + 2.0**-40  # fp32 would round to a tie, and that to even
    expected = ml_dtypes.bfloat16(1 + 2.0**-7)
    assert array(tl.full((1,), value, tl.bfloat16))[0] == expected
