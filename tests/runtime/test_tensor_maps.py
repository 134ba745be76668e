"""Tensor maps of launches: what the driver is given, what is refused, what is kept."""

import ast

import pytest

from tests.runtime.fake_cuda import INVALID_VALUE, Encoding
from tilewright.codegen.nvidia.tensor_map import Parameter, Product, TensorMap
from tilewright.emulator.tensor_map import decode_tensor_map
from tilewright.errors import LaunchError
from tilewright.ir.types import DTYPES
from tilewright.runtime import cuda
from tilewright.runtime.emulated import encode_for_emulator
from tilewright.runtime.tensor_maps import TensorMaps, from_literal, to_literal, with_driver

ADDRESS = 0x7000_0000_0100
MATRIX = TensorMap(
    0, (Parameter(1), Parameter(2)), (Parameter(3),), (64, 32), DTYPES["fp16"], 64
)  # fmt: skip
VALUES = [ADDRESS, 100, 200, 208]
NAMES = ["x_ptr", "m", "n", "stride"]


def encoded(fake_driver, tensor_map, values):
    """What the driver is given for one map."""
    maps = TensorMaps([tensor_map], "copy", with_driver(cuda.device(0), "copy"))
    (made,) = maps.of_launch(values, [f"p{i}" for i in range(len(values))])
    assert len(made) == 128
    (encoding,) = fake_driver.encodings
    return encoding


def test_what_the_driver_is_given(fake_driver):
    assert encoded(fake_driver, MATRIX, VALUES) == Encoding(
        element=6, address=ADDRESS, sizes=(200, 100), strides=(416,), box=(32, 64), steps=(1, 1),
        interleave=0, swizzle=2, promotion=2, fill=0,
    )  # fmt: skip


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_every_rank(fake_driver, rank):
    sizes = tuple(Parameter(1 + axis) for axis in range(rank))
    strides = tuple(Parameter(1 + rank + axis) for axis in range(rank - 1))
    box = (1, 2, 4, 8, 16)[-rank:]
    tensor_map = TensorMap(0, sizes, strides, box, DTYPES["fp32"], 0, fills_nan=True)
    extents, steps = [11, 12, 13, 14, 15][:rank], [4096, 1024, 256, 16][5 - rank :]
    encoding = encoded(fake_driver, tensor_map, [ADDRESS, *extents, *steps])
    assert encoding.sizes == tuple(reversed(extents))
    assert encoding.strides == tuple(4 * step for step in reversed(steps))
    assert encoding.box == tuple(reversed(box))
    assert encoding.steps == (1,) * rank
    assert (encoding.element, encoding.swizzle, encoding.fill) == (7, 0, 1)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("i8", 0), ("u8", 0), ("fp8e4nv", 0), ("fp8e5", 0), ("fp8e4b8", 0), ("fp8e5b16", 0),
        ("fp8e4b15", 0), ("i16", 1), ("u16", 1), ("u32", 2), ("i32", 3), ("u64", 4), ("i64", 5),
        ("fp16", 6), ("fp32", 7), ("fp64", 8), ("bf16", 9),
    ],
)  # fmt: skip
def test_every_element_type(fake_driver, name, number):
    element = DTYPES[name]
    tensor_map = TensorMap(0, (Parameter(1), 64), (64,), (8, 16), element, 0)
    encoding = encoded(fake_driver, tensor_map, [ADDRESS, 5])
    assert encoding.element == number
    assert encoding.sizes == (64, 5)
    assert encoding.strides == (64 * element.itemsize,)


@pytest.mark.parametrize(("swizzle", "number"), [(0, 0), (32, 1), (64, 2), (128, 3)])
def test_every_swizzle(fake_driver, swizzle, number):
    box = (8, (swizzle or 16) // 2)
    tensor_map = TensorMap(0, (8, 64), (64,), box, DTYPES["bf16"], swizzle)
    assert encoded(fake_driver, tensor_map, [ADDRESS]).swizzle == number


def test_the_emulator_encodes_the_same():
    maps = TensorMaps([MATRIX], "copy", encode_for_emulator)
    view = decode_tensor_map(*maps.of_launch(VALUES, NAMES))
    assert (view.address, view.type, view.swizzle) == (ADDRESS, "f16", 2)
    assert (view.extents, view.strides, view.box) == ((200, 100), (2, 416), (32, 64))


def test_maps_are_kept_for_the_same_values(fake_driver):
    other = TensorMap(0, (8, 64), (64,), (8, 16), DTYPES["fp16"], 0)
    maps = TensorMaps([MATRIX, other], "copy", with_driver(cuda.device(0), "copy"))
    first = maps.of_launch(VALUES, NAMES)
    assert maps.of_launch(VALUES, NAMES) == first
    assert len(fake_driver.encodings) == 2
    changed = [(0, ADDRESS + 16), (1, 101), (2, 201), (3, 216)]
    for place, value in changed:
        values = [*VALUES]
        values[place] = value
        assert maps.of_launch(values, NAMES)[0] != first[0]
    for step in range(1000):
        maps.of_launch([ADDRESS + 16 * step, *VALUES[1:]], NAMES)
    assert len(maps._known) <= 256


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, ADDRESS + 8, "the address of the array, 0x700000000108, is not a multiple of 16 bytes"),
        (3, 201, "the stride of axis 0, 201 elements of fp16, is not a multiple of 16 bytes"),
        (3, -208, r"the stride of axis 0, -416 bytes, is not from 0 to 2\*\*40"),
        (3, 2**40, "the stride of axis 0, 2199023255552 bytes, is not from 0"),
    ],
)
@pytest.mark.parametrize("emulated", [True, False])
def test_what_is_refused(fake_driver, place, value, message, emulated):
    encode = encode_for_emulator if emulated else with_driver(cuda.device(0), "copy")
    values = [*VALUES]
    values[place] = value
    with pytest.raises(LaunchError, match=f"copy: `x_ptr`: tensor descriptor: {message}"):
        TensorMaps([MATRIX], "copy", encode).of_launch(values, NAMES)
    assert not fake_driver.encodings


def test_arrays_without_elements():
    maps = TensorMaps([MATRIX], "copy", encode_for_emulator)
    assert maps.fit(VALUES)
    for sizes in ((0, 200), (100, 0), (100, -3)):
        values = [ADDRESS, *sizes, 208]
        assert not maps.fit(values)
        with pytest.raises(LaunchError, match=r"`x_ptr`: .* that have elements, but the sizes are"):
            maps.of_launch(values, NAMES)


def test_an_error_of_the_driver(fake_driver):
    fake_driver.failures["cuTensorMapEncodeTiled"] = INVALID_VALUE
    maps = TensorMaps([MATRIX], "copy", with_driver(cuda.device(0), "copy"))
    with pytest.raises(LaunchError, match=r"launching copy: making the tensor map of .*CUDA_ERROR"):
        maps.of_launch(VALUES, NAMES)


def test_maps_as_literals():
    others = [
        TensorMap(2, (5,), (), (256,), DTYPES["i8"], 0),
        TensorMap(
            1,
            (Parameter(0), 7, Product((2, 2, 4), -3, 32)),
            (64, Parameter(3)),
            (1, 2, 4),
            DTYPES["bf16"],
            128,
            fills_nan=True,
        ),
    ]
    for tensor_map in (MATRIX, *others):
        text = repr(to_literal(tensor_map))
        assert from_literal(ast.literal_eval(text)) == tensor_map
