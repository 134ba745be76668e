"""Launchers and tensor descriptors: what they let through, what they leave to Python."""

import sys

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.launch_parameters import ArrayParameter, DescriptorParameter
from tilewright.runtime.launcher import accept_torch
from tilewright.runtime.launcher_shared import _descriptor_layout_is_known
from tilewright.runtime.tensor_descriptor import TensorDescriptor


def make_double():
    @tw.jit
    def double(before, x, y, i, j):
        y.store([i, j], before + 2 * x.load([i, j]))

    return double


def aligned(shape, dtype=np.float32, offset=0):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 16 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


def make_pair(columns=40):
    x, y = aligned((4, columns)), aligned((4, columns))
    x[:] = np.arange(4 * columns).reshape(4, columns)
    return [TensorDescriptor.from_tensor(array, [4, 16]) for array in (x, y)]


@pytest.fixture
def launch():
    """The launcher of a kernel for descriptors like those of `make_pair`."""
    assert _descriptor_layout_is_known()
    launcher = make_double()[(1,)](5, *make_pair(), 0, 0).code.launcher
    return lambda *values: launcher(1, 1, 1, *values)


def test_what_is_launched(launch):
    x, y = make_pair()
    assert launch(5, x, y, 0, 32) is None
    expected = np.zeros((4, 40), np.float32)
    expected[:, 32:] = 5 + 2 * x.base[:, 32:]
    np.testing.assert_array_equal(y.base, expected)


def test_launches_after_the_first_do_not_specialise(monkeypatch):
    double, (x, y) = make_double(), make_pair()
    compiled = double[(1,)](5, x, y, 0, 0)
    monkeypatch.setattr(double, "launch", None)
    assert double[(1,)](5, x, y, 0, 0) is compiled
    assert double[(1,)](5, *make_pair(), 0, 0) is compiled


def test_changes_in_place_are_seen(launch):
    x, y = make_pair()
    x.shape[0], x.shape[1], x.strides[0] = 2, 12, 20
    y.shape = (3, 40)
    assert launch(5, x, y, 0, 0) is None
    loaded = np.zeros((4, 16), np.float32)
    loaded[:2, :12] = x.base.reshape(-1)[:40].reshape(2, 20)[:, :12]
    expected = np.zeros((4, 40), np.float32)
    expected[:3, :16] = (5 + 2 * loaded)[:3]
    np.testing.assert_array_equal(y.base, expected)
    other = aligned((4, 40))
    y.base = other
    assert launch(5, x, y, 0, 0) is None
    np.testing.assert_array_equal(other, expected)


@pytest.mark.parametrize("kind", [list, tuple])
def test_sequences(launch, kind):
    x, y = make_pair()
    for field in ("shape", "strides", "block_shape"):
        setattr(x, field, kind(getattr(x, field)))
    assert launch(5, x, y, 0, 0) is None
    assert y.base[3, 15] == 5 + 2 * x.base[3, 15]


def test_tensors_and_shapes_of_pytorch():
    torch = pytest.importorskip("torch")
    x, y = make_pair()
    launch = make_double()[(1,)](5, x, y, 0, 0).code.launcher
    accept_torch()
    tensors = [torch.from_numpy(d.base.copy()) for d in (x, y)]
    described = [TensorDescriptor(t, t.shape, t.stride(), [4, 16]) for t in tensors]
    assert launch(1, 1, 1, 5, *described, 0, 0) is None
    np.testing.assert_array_equal(tensors[1].numpy(), y.base)
    described[0].base = tensors[0].double()
    assert launch(1, 1, 1, 5, *described, 0, 0) is NotImplemented


def test_descriptors_and_shapes_in_tuples():
    torch = pytest.importorskip("torch")

    @tw.jit
    def double_all(pairs, sizes, y_ptr):
        for pair in tl.static_range(2):
            x, y = pairs[pair]
            y.store([0, 0], 2 * x.load([0, 0]))
        tl.store(y_ptr, sizes[0] * sizes[1])

    pairs, size = tuple(tuple(make_pair(48)) for _ in range(2)), np.zeros(1, np.int32)
    launch = double_all[(1,)](pairs, (3, 5), size).code.launcher
    accept_torch()
    for x, y in pairs:
        x.base[:] += 1
        y.base[:] = 0
    assert launch(1, 1, 1, pairs, torch.Size([4, 6]), size) is None
    assert size == 24
    for x, y in pairs:
        np.testing.assert_array_equal(y.base[:, :16], 2 * x.base[:, :16])
    assert launch(1, 1, 1, pairs, torch.Size([4, 1]), size) is NotImplemented


class Sizes(list):
    pass


class Described(TensorDescriptor):
    pass


FROZEN = aligned((4, 40))
FROZEN.flags.writeable = False


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", aligned((4, 40), offset=4)),
        ("base", aligned((4, 40), np.float64)),
        ("base", FROZEN),
        ("base", None),
        ("shape", [4]),
        ("shape", [4, 40, 1]),
        ("shape", Sizes([4, 40])),
        ("shape", np.array([4, 40])),
        ("shape", [np.int64(4), 40]),
        ("shape", [True, 40]),
        ("shape", [-1, 40]),
        ("shape", [2**31, 40]),
        ("shape", [2**70, 40]),
        ("shape", [4, 39]),
        ("shape", None),
        ("strides", [40, 2]),
        ("strides", [40, True]),
        ("strides", [42, 1]),
        ("strides", [40]),
        ("block_shape", [4, 32]),
        ("block_shape", [8, 16]),
        ("block_shape", [4, 16, 1]),
        ("block_shape", [16]),
        ("block_shape", [4, 16.0]),
        ("padding", "nan"),
        ("padding", None),
        ("round_f32_to_tf32", True),
        ("round_f32_to_tf32", 0),
    ],
)
def test_what_is_left_to_python(launch, field, value):
    x, y = make_pair()
    setattr(y, field, value)
    assert launch(5, x, y, 0, 0) is NotImplemented
    assert not make_pair()[1].base.any()


@pytest.mark.parametrize(
    "field", ["base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32"]
)
def test_a_field_that_was_deleted(launch, field):
    x, y = make_pair()
    delattr(x, field)
    assert launch(5, x, y, 0, 0) is NotImplemented


def test_other_objects_than_descriptors(launch):
    x, y = make_pair()
    derived = Described(x.base, x.shape, x.strides, x.block_shape)
    for other in (derived, x.base, None, 3, "x", (x,)):
        assert launch(5, other, y, 0, 0) is NotImplemented


def test_rows_that_are_not_whole_have_their_own_kernel():
    double = make_double()
    x, y = make_pair()
    whole = double[(1,)](5, x, y, 0, 0)
    x.shape = y.shape = [4, 39]
    part = double[(1,)](5, x, y, 0, 0)
    assert whole is not part
    assert part.code.launcher(1, 1, 1, 5, x, y, 0, 0) is None
    x.shape = [4, 40]
    assert part.code.launcher(1, 1, 1, 5, x, y, 0, 0) is NotImplemented


def test_arguments_behind_descriptors_are_checked(launch):
    x, y = make_pair()
    assert launch(5, x, y, 0, 1.5) is NotImplemented
    assert launch(5, x, y, 0) is NotImplemented


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_every_rank(rank):
    @tw.jit
    def copy(x, y, ZEROS: tl.constexpr):
        y.store(ZEROS, x.load(ZEROS))

    x, y = aligned((2,) * (rank - 1) + (4,)), aligned((2,) * (rank - 1) + (4,))
    x[:] = np.arange(x.size).reshape(x.shape)
    zeros = tuple([0] * rank)
    described = [TensorDescriptor.from_tensor(a, list(a.shape)) for a in (x, y)]
    launcher = copy[(1,)](*described, zeros).code.launcher
    np.testing.assert_array_equal(x, y)
    y[:] = 0
    assert launcher(1, 1, 1, *described, zeros) is None
    np.testing.assert_array_equal(x, y)


def test_references(launch):
    x, y = make_pair()
    watched = [x, x.base, x.shape, x.strides, x.block_shape, x.padding]
    before = list(map(sys.getrefcount, watched))
    for _ in range(100):
        launch(5, x, y, 0, 0)
        launch(5, x, None, 0, 0)
    assert list(map(sys.getrefcount, watched)) == before


def test_what_a_kernel_asks_of_a_descriptor():
    double, (x, y) = make_double(), make_pair()
    y.padding, y.shape = "nan", [4, 39]
    compiled = double[(1,)](5, x, y, 0, 0)
    parameters = compiled.code.parameters()
    first, second = (p for p in parameters if isinstance(p, DescriptorParameter))
    assert isinstance(first.base, ArrayParameter)
    assert (first.base.written, second.base.written) == (False, True)
    assert (first.padding, second.padding) == ("zero", "nan")
    assert (first.whole_rows, second.whole_rows) == (True, False)
    assert first.block_shape == (4, 16)
