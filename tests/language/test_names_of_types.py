"""The names of types, and what holds several values."""

from collections import namedtuple

import pytest

import tilewright.language as tl

Pair = namedtuple("Pair", ["x", "y"])  # noqa: PYI024 - as kernels pass them


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i32", tl.int32),
        ("u1", tl.int1),
        ("fp8e4nv", tl.float8e4nv),
        ("*fp32", tl.pointer_type(tl.float32)),
        ("*ki8", tl.pointer_type(tl.int8, const=True)),
        (("i32", "*fp16"), tl.tuple_type((tl.int32, tl.pointer_type(tl.float16)))),
        (Pair("i8", "u8"), tl.tuple_type((tl.int8, tl.uint8), ("x", "y"))),
    ],
)
def test_types_of_signatures(text, expected):
    assert tl.str_to_ty(text, None) == expected


def test_types_of_descriptors_and_constants():
    descriptor = tl.str_to_ty("tensordesc<bf16[16, 64]>", None)
    assert descriptor.block_type == tl.block_type(tl.bfloat16, [16, 64])
    assert tl.str_to_ty("constexpr", tl.constexpr(4)) == tl.constexpr_type(4)
    with pytest.raises(ValueError, match="'i33' is no type of a kernel's argument"):
        tl.str_to_ty("i33", None)


def test_tuples_are_pythons():
    assert tl.tuple((1, 2)) == (1, 2)
    assert tl.slice(1, 3) == slice(1, 3)
    assert isinstance(Pair(1, 2), tl.tuple)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("uint32", tl.uint32), ("u32", tl.uint32), ("fp16", tl.float16), ("float16", tl.float16)],
)
def test_types_by_name(name, expected):
    assert tl.dtype(name) is expected
    assert tl.dtype.is_dtype(name)


def test_what_types_tell_of_themselves():
    assert [t.name for t in (tl.int1, tl.int32, tl.uint8, tl.float16, tl.bfloat16)] == [
        *("int1", "int32", "uint8", "fp16", "bf16")
    ]
    kinds = [t.kind() for t in (tl.int1, tl.uint8, tl.float8e5)]
    assert kinds == [tl.dtype.KIND.BOOLEAN, tl.dtype.KIND.INTEGRAL, tl.dtype.KIND.FLOATING]
    signs = [t.int_signedness for t in (tl.int1, tl.uint8, tl.int8)]
    assert [s.name for s in signs] == ["UNSIGNED", "UNSIGNED", "SIGNED"]
    assert not hasattr(tl.float32, "int_signedness")
    pointer = tl.pointer_type(tl.float32, const=True)
    assert pointer.is_const()
    assert pointer.address_space == 1
    assert not pointer.is_fp32()
    with pytest.raises(ValueError, match="there is no type 'float33'"):
        tl.dtype("float33")
