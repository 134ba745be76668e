"""The types that operators compute in and return, as Triton's compiler gives them."""

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, scalar, tile
from tilewright.errors import CompileError, TilewrightError
from tilewright.frontend.semantic.promotion import common_type
from tilewright.ir.types import DTYPES

pytestmark = pytest.mark.usefixtures("machine")

INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


def of(dtype):
    return tile([1, 2, 3, 4], dtype)


@pytest.mark.parametrize(
    ("dtype", "literal", "expected"),
    [
        ("i8", 3, "i8"),
        ("i8", True, "i8"),
        ("u8", 255, "u8"),
        ("fp16", 2.0, "fp16"),
        ("fp16", 2, "fp16"),
        ("bf16", 2.5, "bf16"),
        ("fp16", 1e300, "fp16"),
        ("fp64", 1.5, "fp64"),
        ("i1", 1, "i32"),
        ("i1", True, "i1"),
        ("i32", 2.5, "fp32"),
        ("u64", 1.5, "fp32"),
        ("i64", 1.5, "fp32"),
        ("i32", 1e300, "fp64"),
        ("i32", 1e-300, "fp64"),
        ("i32", float("inf"), "fp32"),
        ("fp8e5", 2.0, "fp8e5"),
    ],
)
def test_a_literal_adopts_the_type_of_the_tile_unless_its_kind_is_higher(dtype, literal, expected):
    assert (of(dtype) + literal).dtype is DTYPES[expected]
    assert (literal + of(dtype)).dtype is DTYPES[expected]
    assert tl.where(of(dtype) == of(dtype), of(dtype), literal).dtype is DTYPES[expected]


def test_a_float_literal_beyond_fp16_becomes_infinity():
    assert np.isinf(array(tile([1.0], "fp16") + 1e300)).all()


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("fp16", "bf16", "fp16"),
        ("fp16", "i64", "fp16"),
        ("bf16", "bf16", "bf16"),
        ("bf16", "i32", "fp32"),
        ("bf16", "fp32", "fp32"),
        ("fp64", "fp16", "fp64"),
        ("fp8e5", "fp8e5", "fp8e5"),
        ("fp8e5", "fp8e4nv", "fp16"),
        ("fp8e5", "bf16", "fp32"),
        ("fp8e5", "fp16", "fp16"),
        ("fp8e5", "i32", "fp32"),
        ("i1", "i1", "i1"),
        ("i1", "i8", "i8"),
        ("u8", "i8", "u8"),
        ("u8", "i32", "i32"),
        ("u32", "i32", "u32"),
        ("u32", "i64", "i64"),
        ("u64", "i64", "u64"),
        ("i16", "i8", "i16"),
    ],
)
def test_two_tiles(left, right, expected):
    assert (of(left) + of(right)).dtype is DTYPES[expected]
    assert (of(right) + of(left)).dtype is DTYPES[expected]


@pytest.mark.parametrize("left", INTEGERS)
@pytest.mark.parametrize("right", INTEGERS)
def test_integers_wrap_in_the_common_type(left, right):
    a, b = (np.array([-3, 1, 100, 7]).astype(DTYPES[name].numpy) for name in (left, right))
    dtype = common_type(DTYPES[left], DTYPES[right]).numpy
    result = array(tile(a) * tile(b))
    assert result.dtype == dtype
    assert np.array_equal(result, a.astype(dtype) * b.astype(dtype))


def test_a_loaded_scalar_is_no_literal():
    assert (of("fp16") * scalar(2.0, "fp32")).dtype is tl.float32
    assert (of("i8") + scalar(2, "i32")).dtype is tl.int32


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_narrow_floats_divide_in_fp32(dtype):
    assert (of(dtype) / of(dtype)).dtype is tl.float32
    assert (of(dtype) % of(dtype)).dtype is tl.float32
    assert (of(dtype) / 2).dtype is tl.float32
    assert (of(dtype) * of(dtype)).dtype is DTYPES[dtype]


def test_integers_divide_in_fp32():
    assert (of("i64") / of("i64")).dtype is tl.float32
    assert (of("i8") / 2).dtype is tl.float32
    a = tile(np.arange(1, 100))
    assert array(((2 * a) / a).to(tl.int64)).tolist() == [2] * 99


def test_integer_division_truncates_as_in_c():
    a = tile([-7, 7, -7, 7], "i32")
    b = tile([2, -2, -2, 2], "i32")
    assert array(a // b).tolist() == [-3, -3, 3, 3]
    assert array(a % b).tolist() == [-1, 1, -1, 1]
    assert array(tl.arange(0, 5) // -2).tolist() == [0, 0, -1, -1, -2]


def test_float_floor_division_and_remainder():
    a, b = tile(np.float32([-7, 7, 7.5])), tile(np.float32([2, -2, 2]))
    assert array(a // b).tolist() == [-4, -4, 3]
    assert array(a % b).tolist() == [-1, 1, 1.5]


@pytest.mark.parametrize("name", ["//", "%"])
def test_division_of_mixed_signedness_is_an_error(name):
    with pytest.raises(CompileError, match="signedness"):
        eval(f"a {name} b", {"a": of("i32"), "b": of("u32")})


@pytest.mark.parametrize(
    ("dtype", "literal"), [("i8", 300), ("u8", -1), ("i32", 2**31), ("u64", -1), ("i64", 2**63)]
)
def test_a_literal_out_of_range_is_an_error(dtype, literal):
    with pytest.raises(CompileError, match=f"{literal} is out of range for {dtype}"):
        of(dtype) + literal


def test_comparisons_convert_the_literal_first():
    third = np.float16(1 / 3)
    assert not array(tile([third]) == 1 / 3).any()  # in fp32, not in fp16
    assert array(tile([0xFFFFFFFF], "u32") == -1).all()
    assert (of("fp16") > 0.5).dtype is tl.int1


@pytest.mark.parametrize(
    ("dtype", "literal", "expected"),
    [
        ("fp16", 0.0, "fp32"),
        ("i8", 5, "i32"),
        ("bf16", 0.0, "fp32"),
        ("fp32", 0.0, "fp32"),
        ("fp64", 0.0, "fp64"),
    ],
)
def test_maximum_converts_the_literal_first(dtype, literal, expected):
    for function in (tl.maximum, tl.minimum):
        assert function(of(dtype), literal).dtype is DTYPES[expected]
    assert tl.clamp(of(dtype), literal, literal).dtype is DTYPES[expected]


def test_extremes_of_bf16_are_fp32():
    assert tl.maximum(of("bf16"), of("bf16")).dtype is tl.float32
    assert tl.maximum(of("fp16"), of("fp16")).dtype is tl.float16


@pytest.mark.parametrize(
    ("literal", "dtype"),
    [
        (True, "i1"),
        (5, "i32"),
        (-(2**31), "i32"),
        (2**31, "u32"),
        (2**32, "i64"),
        (2**63, "u64"),
        (1.5, "fp32"),
        (1e300, "fp64"),
        (0.0, "fp32"),
        (float("nan"), "fp32"),
    ],
)
def test_a_literal_bound_to_a_name_decays(literal, dtype):
    assert tl.to_tensor(literal).dtype is DTYPES[dtype]


def test_other_objects_do_not_decay():
    for value in (None, "text", tl.float32, (1, 2), len):
        assert tl.to_tensor(value) is value
    with pytest.raises(CompileError, match="64 bits"):
        tl.to_tensor(2**64)


def test_bit_operators_are_for_integers():
    assert array(of("i8") & 3).tolist() == [1, 2, 3, 0]
    assert array(of("i8") << 6).tolist() == [64, -128, -64, 0]
    assert array(tile([-8], "i32") >> 1).tolist() == [-4]
    assert array(tile([0x80000000], "u32") >> 31).tolist() == [1]
    assert array(~tile([True, False])).tolist() == [False, True]
    with pytest.raises(CompileError, match=r"&: defined for integers"):
        of("fp32") & of("fp32")
    with pytest.raises(CompileError, match=r"~: defined for integers"):
        ~of("fp32")


def test_powers():
    assert array(tile([3, -2], "i32") ** 5).tolist() == [243, -32]
    assert array(tile([3.0, 2.0], "fp32") ** 2).tolist() == [9, 4]
    assert array(tile([4.0], "fp32") ** 0.5).tolist() == [2]
    assert array(2.0 ** tile([3.0], "fp32")).tolist() == [8]
    assert (of("i32") ** 0.5).dtype is tl.float32
    assert array(of("i32") ** 0).tolist() == [1] * 4
    with pytest.raises(CompileError, match="to a negative power"):
        of("i32") ** -1


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "u32", "i64", "u64"])
def test_integers_to_computed_powers_wrap(dtype):
    base = tile([0, 1, 2, 3, 5, 7, 10, 100, 127], dtype)
    exponent = tile([0, 1, 2, 3, 7, 8, 31, 63, 100], dtype)
    powers = base[:, None] ** exponent[None, :]
    width = powers.dtype.primitive_bitwidth
    expected = [[int(x) ** int(y) % 2**width for y in array(exponent)] for x in array(base)]
    assert (array(powers).astype(object) % 2**width).tolist() == expected


def test_negative_powers_of_integers():
    base, exponent = tile([2, 1, -1, -1, 0], "i32"), tile([-1, -3, -3, -2, -1], "i32")
    with pytest.raises(TilewrightError, match="an integer to a negative power"):
        base**exponent
