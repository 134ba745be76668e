"""Launches that make tensor maps, on a fake driver: in Python, and in machine code."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import INVALID_VALUE, CudaArray, DlpackArray
from tilewright.codegen.nvidia.tensor_map import Parameter, Product, TensorMap
from tilewright.errors import LaunchError
from tilewright.ir.types import DTYPES
from tilewright.runtime import cuda, gpu_build, gpu_launcher
from tilewright.runtime.arguments import specialize
from tilewright.runtime.launch_parameters import AddressParameter, IntParameter
from tilewright.runtime.launcher_code_tensor_map import KEPT_MAPS
from tilewright.runtime.tensor_descriptor import TensorDescriptor
from tilewright.runtime.tensor_maps import TensorMaps, with_driver


def make_double():
    @tw.jit
    def double(factor, x, y, i, j):
        y.store([i, j], factor * x.load([i, j]))

    return double


def make_described():
    @tw.jit
    def copy(x_ptr, y_ptr, m, n, stride, BLOCK: tl.constexpr):
        x = tl.make_tensor_descriptor(x_ptr, [m, n], [stride, 1], [BLOCK, BLOCK])
        y = tl.make_tensor_descriptor(y_ptr, [m, 64], [stride, 1], [BLOCK, BLOCK])
        row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
        y.store([row, column], x.load([row, column]))

    return copy


@pytest.fixture
def matrix(tensor):
    """A tensor of 16 rows of 64 numbers, and how a kernel is given it."""

    def make(block=(8, 16), rows=16):
        values = np.arange(64 * rows, dtype=np.float32).reshape(rows, 64)
        base = tensor(values)
        return base, TensorDescriptor(base, [rows, 64], [64, 1], list(block))

    return make


def in_machine_code(monkeypatch, compiled):
    monkeypatch.setattr(compiled.code.function, "launch", None)


def test_python_and_machine_code_launch_alike(matrix, fake_driver, monkeypatch):
    double, (x, described_x), (y, described_y) = make_double(), matrix(), matrix()
    arguments = 3, described_x, described_y, 0, 16
    compiled = double.warmup(*arguments, grid=(1,))
    specialized = list(map(specialize, double.params, arguments))
    y.numbers[:] = 0
    with monkeypatch.context() as patch:
        compiled.code.run((1, 1, 1), specialized)
        in_machine_code(patch, compiled)
        for _ in range(2):
            np.testing.assert_array_equal(y.numbers[:8, 16:32], 3 * x.numbers[:8, 16:32])
            assert not y.numbers[:, :16].any()
            y.numbers[:] = 0
            assert double[1,](*arguments) is compiled
    compiled.code.run((1, 1, 1), specialized)
    first, *others = fake_driver.launches
    assert others == [first] * 3
    assert list(map(len, first.arguments))[-2:] == [128, 128]
    # Both keep what they have made.
    assert len(fake_driver.encodings) == 4
    assert fake_driver.encodings[:2] == fake_driver.encodings[2:]


@pytest.mark.parametrize("kind", [CudaArray, DlpackArray])
def test_descriptors_of_arrays_of_other_libraries(matrix, fake_driver, kind):
    double, (x, described_x), (y, described_y) = make_double(), matrix(), matrix()
    launches = []
    for base in (x, kind(x)):
        described_x.base = base
        y.numbers[:] = 0
        double[1,](3, described_x, described_y, 0, 16)
        np.testing.assert_array_equal(y.numbers[:8, 16:32], 3 * x.numbers[:8, 16:32])
        launches.append(fake_driver.launches[-1])
    assert launches[0] == launches[1]


def test_changed_descriptors_have_other_maps(matrix, fake_driver, monkeypatch):
    double, (x, described_x), (y, described_y) = make_double(), matrix(), matrix()
    compiled = double[1,](2, described_x, described_y, 0, 0)
    in_machine_code(monkeypatch, compiled)

    def launched():
        y.numbers[:] = 0
        fake_driver.encodings.clear()
        assert double[1,](2, described_x, described_y, 0, 0) is compiled
        return len(fake_driver.encodings)

    assert launched() == 0
    described_x.shape[0] = 3
    assert launched() == 1
    np.testing.assert_array_equal(y.numbers[:3, :16], 2 * x.numbers[:3, :16])
    assert not y.numbers[3:].any()
    described_x.strides = (32, 1)
    assert launched() == 1
    halves = x.numbers.reshape(-1, 32)[:3, :16]
    np.testing.assert_array_equal(y.numbers[:3, :16], 2 * halves)
    other, described_x.base = x, matrix()[0]
    described_x.base.numbers[:] = 7
    assert launched() == 1
    assert (y.numbers[:3, :16] == 14).all()
    described_x.base, described_x.shape, described_x.strides = other, [16, 64], [64, 1]
    launched()  # perhaps with a map that is kept
    np.testing.assert_array_equal(y.numbers[:8, :16], 2 * x.numbers[:8, :16])


def test_a_changed_block_has_another_kernel(matrix):
    double, (x, described_x), (y, described_y) = make_double(), matrix(), matrix()
    first = double[1,](2, described_x, described_y, 0, 0)
    described_x.block_shape = described_y.block_shape = [4, 8]
    y.numbers[:] = 0
    for _ in range(2):
        assert double[1,](2, described_x, described_y, 0, 0) is not first
    np.testing.assert_array_equal(y.numbers[:4, :8], 2 * x.numbers[:4, :8])
    assert not y.numbers[4:].any()


def test_more_arrays_than_maps_are_kept(matrix, fake_driver, monkeypatch):
    double, (y, described_y) = make_double(), matrix()
    inputs = [matrix() for _ in range(2 * KEPT_MAPS)]
    for x, _ in inputs:
        x.numbers[:] = np.random.default_rng(0).integers(0, 9, x.numbers.shape)
    for _ in range(2):
        for x, described_x in inputs:
            compiled = double[1,](2, described_x, described_y, 0, 0)
            np.testing.assert_array_equal(y.numbers[:8, :16], 2 * x.numbers[:8, :16])
        in_machine_code(monkeypatch, compiled)


def test_parts_that_are_arguments_and_constants(matrix, fake_driver, monkeypatch):
    copy, (x, _), (y, _) = make_described(), matrix(), matrix()
    for _ in range(2):
        y.numbers[:] = 0
        compiled = copy[2, 4](x, y, 13, 50, 64, BLOCK=16)
        np.testing.assert_array_equal(y.numbers[:13, :50], x.numbers[:13, :50])
        assert not y.numbers[13:].any()
        assert not y.numbers[:, 50:].any()
        in_machine_code(monkeypatch, compiled)
    assert [e.sizes for e in fake_driver.encodings] == [(50, 13), (64, 13)]
    assert {e.strides for e in fake_driver.encodings} == {(256,)}


def launcher_of(tensor_map, parameters=5):
    """The launcher of a kernel that takes an address, numbers and a map."""
    declared = [f".param .u64 p{i}" for i in range(parameters)] + [".param .align 64 .b8 m[128]"]
    ptx = f".version 8.3\n.target sm_90a\n.entry k({', '.join(declared)}) {{ ret; }}"
    return gpu_launcher.bind_gpu_launcher(
        cuda.Module(cuda.device(0), ptx.encode() + b"\0", "k").function("k", "k", 0),
        [AddressParameter(), *[IntParameter(64) for _ in range(1, parameters)]],
        threads=32,
        attributes=gpu_launcher.Attributes(),
        passed=range(parameters),
        tensor_maps=[tensor_map],
        on_error=pytest.fail,
    )


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("fills_nan", [True, False])
def test_machine_code_asks_the_driver_for_the_same(fake_driver, fake_torch, rank, fills_nan):
    # Every second extent is a constant.
    extents = [Parameter(1 + i) if i % 2 else 64 * (i + 1) for i in range(2 * rank - 1)]
    tensor_map = TensorMap(
        0, tuple(extents[:rank]), tuple(extents[rank:]), (1, 2, 4, 8, 32)[-rank:],
        DTYPES["bf16"], 64, fills_nan,
    )  # fmt: skip
    values = [0x7F00_0000_1230, *[16 * (i + 3) for i in range(2 * rank - 1)]]
    python = TensorMaps([tensor_map], "k", with_driver(cuda.device(0), "k"))
    maps = python.of_launch(values, ["x"] * len(values))
    launch = launcher_of(tensor_map, 2 * rank)
    for _ in range(2):
        assert launch(1, 1, 1, *values) is None
        assert fake_driver.launches[-1].arguments[-1:] == maps
    assert fake_driver.encodings[0] == fake_driver.encodings[1]
    assert len(fake_driver.encodings) == 2
    for place in range(2 * rank):
        other = [*values]
        other[place] += 16
        assert launch(1, 1, 1, *other) is None
        is_read = place == 0 or isinstance(extents[place - 1], Parameter)
        assert (fake_driver.launches[-1].arguments[-1:] == maps) != is_read


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([3, 5, 7, 11], 210),
        ([2, 5, 2**30 + 7, 11], 140),
        ([-3, -5, 7, 2**32 + 3], 210),
    ],
)
def test_products_of_arguments_as_the_kernel_computes_them(fake_driver, fake_torch, values, size):
    tensor_map = TensorMap(
        0, (Product((1, 2, 3), 2, 32), 64), (Product((4,), 16, 64),), (8, 64), DTYPES["i8"], 64
    )
    passed = [0x7F00_0000_1230, *values]
    maps = TensorMaps([tensor_map], "k", with_driver(cuda.device(0), "k"))
    expected = maps.of_launch(passed, ["x"] * 5)
    assert launcher_of(tensor_map)(1, 1, 1, *passed) is None
    assert fake_driver.launches[-1].arguments[-1:] == expected
    first, second = fake_driver.encodings
    assert first == second
    assert (first.sizes, first.strides) == ((64, size), (16 * values[3],))


def test_arrays_without_elements_have_code_without_maps(matrix, fake_driver):
    copy, (x, _), (y, _) = make_described(), matrix(), matrix()
    y.numbers[:] = 0
    compiled = copy[1, 1](x, y, 13, 50, 64, BLOCK=16)
    y.numbers[:] = -1
    for _ in range(2):
        assert copy[1, 1](x, y, 0, 50, 64, BLOCK=16) is not compiled  # 16 divides 0
        copy[1, 1](x, y, 13, -5, 64, BLOCK=16)
        assert [len(a) for a in fake_driver.launches[-1].arguments][-1] < 128
        assert (y.numbers[13:] == -1).all()
        assert not y.numbers[:13, :16].any()
    assert fake_driver.calls.count("cuModuleLoadDataEx") == 4
    with pytest.raises(LaunchError, match=r"that have elements, but the sizes are \[13, -5\]"):
        compiled[1, 1](x, y, 13, -5, 64, 16)


def test_strides_that_are_refused_and_empty_grids_that_are_not(matrix, fake_driver):
    copy, (x, _), (y, _) = make_described(), matrix(), matrix()
    copy[1, 1](x, y, 13, 50, 64, BLOCK=16)
    fake_driver.launches.clear()
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"`x_ptr`.* stride of axis 0, 50 elements of fp32"):
            copy[1, 1](x, y, 13, 50, 50, BLOCK=16)
        copy[0, 1](x, y, 0, 50, 64, BLOCK=16)
    assert not fake_driver.launches


def test_an_error_of_the_driver_is_told(matrix, fake_driver):
    double, (_, x), (_, y) = make_double(), matrix(), matrix()
    double[1,](2, x, y, 0, 0)
    fake_driver.failures["cuTensorMapEncodeTiled"] = INVALID_VALUE
    y.shape[0] = x.shape[0] = 9
    with pytest.raises(
        LaunchError, match=r"launching double: making the tensor map .*CUDA_ERROR_1"
    ):
        double[1,](2, x, y, 0, 0)


def test_maps_come_from_the_disk_cache(matrix, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    (x, described_x), (y, described_y) = matrix(), matrix()
    make_double()[1,](2, described_x, described_y, 0, 0)
    monkeypatch.setattr(gpu_build, "lower_for_gpu", None)
    y.numbers[:] = 0
    compiled = make_double()[1,](2, described_x, described_y, 0, 0)
    np.testing.assert_array_equal(y.numbers[:8, :16], 2 * x.numbers[:8, :16])
    assert ".b8" in compiled.asm["ptx"]
