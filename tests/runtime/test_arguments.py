"""What the values of a call mean: specialisation, and the messages for what is no argument."""

import array
import enum
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tilewright import LaunchError, MockTensor, TensorWrapper, jit, reinterpret
from tilewright.frontend.trace import Constant, Runtime
from tilewright.ir.types import DTYPES, PointerType, TileType
from tilewright.runtime.arguments import gpu_of, leaves, specialize
from tilewright.runtime.arrays import dtype_of
from tilewright.runtime.constants import constant_text


@jit
def plain(x): ...


@jit
def constant(x: tl.constexpr): ...


def parameter(annotation=None, **settings):
    def kernel(x): ...

    if annotation is not None:
        kernel.__annotations__["x"] = annotation
    return jit(**settings)(kernel).params[0]


def traced(value, **settings):
    return specialize(parameter(**settings), value).specialization.traced


def scalar(name, divisible_by=1):
    return Runtime(TileType(DTYPES[name]), divisible_by)


def pointer(name, divisible_by=16, *, const=False):
    return Runtime(TileType(PointerType(DTYPES[name], const)), divisible_by)


def aligned(count, dtype=np.float32, offset=0):
    """An array whose address is `offset` more than a multiple of 16."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 32, np.uint8)
    start = -raw.__array_interface__["data"][0] % 16 + offset
    return raw[start : start + count * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, Constant(1)),
        (0, scalar("i32", 16)),
        (-32, scalar("i32", 16)),
        (7, scalar("i32")),
        (2**31 - 1, scalar("i32")),
        (-(2**31), scalar("i32", 16)),
        (2**31, scalar("i64", 16)),
        (-(2**31) - 1, scalar("i64")),
        (2**63 - 1, scalar("i64")),
        (2**63, scalar("u64", 16)),
        (2**64 - 1, scalar("u64")),
        (True, scalar("i1")),
        (False, scalar("i1")),
        (1.0, scalar("fp32")),
        (1e300, scalar("fp32")),
        (None, Constant(None)),
        (tl.constexpr(5), Constant(5)),
        ((), ()),
        ((1, 16, None), (Constant(1), scalar("i32", 16), Constant(None))),
        ((7, (2.0,)), (scalar("i32"), (scalar("fp32"),))),
    ],
)
def test_values(value, expected):
    assert traced(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int32(7), scalar("i32")),
        (np.int64(1), Constant(1)),
        (np.uint8(16), scalar("i32", 16)),
        (np.float32(2), scalar("fp32")),
        (np.float64(2), scalar("fp32")),
        (np.float16(2), scalar("fp32")),
        (ml_dtypes.bfloat16(2), scalar("fp32")),
        (np.bool_(1), scalar("i1")),
    ],
)
def test_numpy_scalars_mean_their_value(value, expected):
    argument = specialize(plain.params[0], value)
    assert argument.specialization.traced == expected
    assert type(argument.value) in {bool, int, float}


def test_integers_that_fit_nowhere():
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(LaunchError, match=r"`x`: .* does not fit in 64 bits"):
            traced(value)


def test_namedtuples_keep_their_type():
    class Pair(NamedTuple):
        a: int
        b: float

    result = traced(Pair(1, 2.0))
    assert type(result) is Pair
    assert result == Pair(Constant(1), scalar("fp32"))


def test_do_not_specialize():
    assert traced(1, do_not_specialize=["x"]) == scalar("i32")
    assert traced(16, do_not_specialize=[0]) == scalar("i32")
    assert traced(2**40, do_not_specialize=["x"]) == scalar("i64")
    assert traced(aligned(4), do_not_specialize=["x"]) == pointer("fp32", 1)
    assert traced(1, do_not_specialize_on_alignment=["x"]) == Constant(1)
    assert traced(16, do_not_specialize_on_alignment=["x"]) == scalar("i32")


def test_keys_are_equal_exactly_where_the_code_is():
    values = [1, 2, 3, 16, 32, 2**40, 2**40 + 1, 2**63, True, 1.0, 2.0, None, (1,), (True,), (2,)]
    keys = [specialize(plain.params[0], value).specialization.key for value in values]
    same = {(i, j) for i, a in enumerate(keys) for j, b in enumerate(keys) if i < j and a == b}
    assert same == {(1, 2), (3, 4), (9, 10)}
    constants = [1, True, 1.0, 0.0, -0.0, "1", (1,), (1.0,), None, tl.float32, "fp32"]
    keys = [specialize(constant.params[0], value).specialization.key for value in constants]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (tl.int64, 1, scalar("i64")),
        ("i8", 5, scalar("i8")),
        (int, 16, scalar("i32", 16)),
        (float, 3, scalar("fp32")),
        (bool, 3, scalar("i1")),
        (tl.float16, 1.5, scalar("fp16")),
        (tl.float64, 1.5, scalar("fp64")),
        ("*fp32", 4096, pointer("fp32")),
        ("*fp32", 4097, pointer("fp32", 1)),
        ("*fp32", None, pointer("fp32")),
        (tl.pointer_type(tl.int8), 8192, pointer("i8")),
        ("const *fp32", 8192, pointer("fp32", const=True)),
    ],
)
def test_annotations_fix_the_type(annotation, value, expected):
    assert traced(value, annotation=annotation) == expected


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        ("i8", 128, "annotated as i8, which has -128 to 127: 128 does not fit"),
        (tl.int32, 2**31, "does not fit"),
        (tl.int32, 1.5, "takes an int, not 1.5"),
        (tl.int32, "a", "takes a number, not a str"),
        ("*fp32", np.zeros(4), "annotated as .fp32, but the array has elements of fp64"),
        ("*fp32", -1, "is no address"),
        ("*fp32", 1.5, "cannot take a float"),
    ],
)
def test_annotations_refuse_what_does_not_fit(annotation, value, message):
    with pytest.raises(LaunchError, match=message):
        traced(value, annotation=annotation)


def test_const_parameters():
    assert traced(aligned(4), annotation=tl.const) == pointer("fp32", const=True)


# Arrays.


@pytest.mark.parametrize("name", [d for d in DTYPES if d != "fp8e4b15"])
def test_arrays_of_every_element_type(name):
    assert traced(aligned(16, DTYPES[name].numpy)) == pointer(name)


def test_alignment_of_arrays():
    assert traced(aligned(4, offset=4)) == pointer("fp32", 1)
    with pytest.raises(LaunchError, match="not aligned to their 4 bytes"):
        traced(aligned(4, offset=2))


def test_buffers_and_interfaces():
    class Interface:
        def __init__(self, inner):
            self.__array_interface__ = inner.__array_interface__

    class Dlpack:
        def __init__(self, inner):
            self.inner = inner

        def __dlpack__(self, **settings):
            return self.inner.__dlpack__(**settings)

        def __dlpack_device__(self):
            return self.inner.__dlpack_device__()

    class Tensor:
        dtype = "float16"

        def data_ptr(self):
            return 48

    data = aligned(4)
    address = data.ctypes.data
    for value in (data, memoryview(data), Interface(data), Dlpack(data), data.reshape(2, 2).T):
        argument = specialize(plain.params[0], value)
        assert argument.specialization.traced == pointer("fp32")
        assert argument.value == address
    assert specialize(plain.params[0], bytearray(8)).specialization.element == PointerType(
        DTYPES["u8"]
    )
    assert specialize(plain.params[0], array.array("d", [1])).specialization.element == PointerType(
        DTYPES["fp64"]
    )
    assert traced(Tensor()) == pointer("fp16")


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_dlpack_of_types_that_numpy_does_not_know(name):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(8).to(getattr(torch, name))

    class Dlpack:
        dtype = name

        def __dlpack__(self, **settings):
            return tensor.__dlpack__()  # of before version 1

        def __dlpack_device__(self):
            return tensor.__dlpack_device__()

    view = specialize(plain.params[0], Dlpack()).view
    assert (view.address, view.gpu, view.is_writable) == (tensor.data_ptr(), None, False)
    assert view.dtype is dtype_of(tensor.dtype)
    assert view.extent == (tensor.data_ptr(), 8 * tensor.element_size())


def test_where_the_memory_of_an_array_is():
    whole = aligned(64)
    view = specialize(plain.params[0], whole[:10][::-2]).view
    start, size = view.extent
    assert start <= whole.ctypes.data
    assert start + size >= whole.ctypes.data + whole.nbytes
    assert view.address == whole.ctypes.data + 9 * 4
    assert specialize(plain.params[0], np.zeros((0, 4), np.float32)).view.extent[1] == 0
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert not specialize(plain.params[0], frozen).view.is_writable
    assert not specialize(plain.params[0], b"12345678").view.is_writable


def test_reinterpreted_arrays():
    data = aligned(4, np.uint8)
    wrapped = reinterpret(data, tl.float8e4b15)
    assert isinstance(wrapped, TensorWrapper)
    assert wrapped.data_ptr() == data.ctypes.data
    assert traced(wrapped) == pointer("fp8e4b15")
    assert traced(reinterpret(wrapped, tl.int8)) == pointer("i8")
    with pytest.raises(ValueError, match="elements of 1 bytes"):
        reinterpret(data, tl.float32)
    with pytest.raises(TypeError, match="no array"):
        reinterpret(3, tl.float32)


def test_mock_tensors():
    mock = MockTensor(tl.bfloat16, (2, 3))
    assert traced(mock) == pointer("bf16")
    assert mock.stride() == (3, 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3, object), "dtype 'object'.*\n.*astype"),
        (np.zeros(3, ">f4"), "dtype '>f4'.*\n.*byte order"),
        (np.zeros(3, np.longdouble), "dtype 'float128'.*\n.*astype"),
        (np.zeros(3, np.complex64), "dtype 'complex64'.*\n.*view"),
        (np.zeros(3, "M8[s]"), "datetime64.*\n.*np.int64"),
        (np.zeros(3, [("a", "f4")]), "dtype .*\n.*fields"),
        (np.ma.masked_array([1.0], [True]), "masked array"),
        ("text", "cannot take a str .'text'.\n.*tl.constexpr"),
        ([1, 2], "cannot take a list .*\n.*tuple"),
        ({"a": 1}, "cannot take a dict .*\n.*one by one"),
        ({1}, "cannot take a set"),
        (1j, "cannot take a complex .*\n.*two floats"),
        (tl.float32, "tl.constexpr"),
        (np.float32, "cannot take a type"),
        (lambda: 0, "cannot take a function.*\n.*@jit"),
        (object(), "cannot take an object"),
        (np.complex64(1), "NumPy scalar of type complex64"),
        ((1, "a"), "cannot take a str"),
    ],
)
def test_refused_values_say_what_to_pass(value, message):
    with pytest.raises(LaunchError, match="(?s)`x.*" + message):
        traced(value)


def test_arrays_elsewhere():
    class Tensor:
        dtype = "float32"
        device = "xpu:0"

        def data_ptr(self):
            return 64

    with pytest.raises(LaunchError, match=r"run on the CPU.*\n.*cpu\(\)"):
        traced(Tensor())
    Tensor.device = "cuda:1"
    on_gpu = specialize(plain.params[0], Tensor())
    assert on_gpu.view is not None
    assert on_gpu.view.gpu == 1
    here = specialize(plain.params[0], np.zeros(4))
    assert gpu_of("plain", [on_gpu]) == 1
    assert gpu_of("plain", [here]) is None
    with pytest.raises(LaunchError, match=r"the CPU.*GPU 1|GPU 1.*the CPU"):
        gpu_of("plain", [on_gpu, here])


def test_tensors():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, 4, dtype=torch.bfloat16)
    argument = specialize(plain.params[0], tensor[1:])
    assert argument.specialization.element == PointerType(DTYPES["bf16"])
    assert argument.view.extent == (tensor.data_ptr(), 32)
    assert traced(torch.zeros(4, dtype=torch.float8_e5m2)).type.element == PointerType(
        DTYPES["fp8e5"]
    )
    assert traced(tensor.shape) == (scalar("i32"), scalar("i32"))
    with pytest.raises(LaunchError, match="complex64"):
        traced(torch.zeros(4, dtype=torch.complex64))
    with pytest.raises(LaunchError, match="sparse"):
        traced(torch.zeros(4, 4).to_sparse())
    with pytest.raises(LaunchError, match="meta"):
        traced(torch.zeros(4, device="meta"))


# Constants.


class Color(enum.Enum):
    RED = 1


def test_constants():
    for value in (1, "text", tl.float32, (1, "a"), Color.RED, None, 0.5, plain):
        argument = specialize(constant.params[0], value)
        assert argument.specialization.traced == Constant(value)
        assert isinstance(argument.specialization.key, str)
    assert specialize(constant.params[0], np.int64(4)).value == 4
    assert specialize(constant.params[0], tl.constexpr((1, 2))).value == (1, 2)
    for value in ([1], {}, np.zeros(3)):
        with pytest.raises(LaunchError, match="must be hashable"):
            specialize(constant.params[0], value)


def test_what_no_other_process_knows_has_no_text():
    assert constant_text(object()) is None
    assert constant_text((1, object())) is None
    assert constant_text(float("nan")) == constant_text(float("nan"))

    class Text(str):
        __slots__ = ()

    assert constant_text(Text("a")) is None


def test_leaves_are_the_runtime_values_in_order():
    data = aligned(4)
    argument = specialize(plain.params[0], (data, 1, (2, None), 3.0))
    assert [leaf.value for leaf in leaves([argument])] == [data.ctypes.data, 2, 3.0]
