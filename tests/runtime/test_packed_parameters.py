"""Parameters of a launch, packed as the kernel finds them; a fake driver takes them apart."""

import random
import struct
import subprocess

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import INVALID_VALUE, CudaArray, DlpackArray
from tests.runtime.gpu_kernels import MANY, make_many
from tilewright.codegen.nvidia.tensor_map import Parameter, TensorMap
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.ir.types import DTYPES
from tilewright.runtime import cuda, gpu_launcher
from tilewright.runtime.launch_parameters import (
    AddressParameter,
    BoolParameter,
    ConstantParameter,
    FloatParameter,
    IntParameter,
)

ADDRESS = 0x7F00_0000_1230
# What the launcher checks, its type in PTX, its form in memory, and a value.
KINDS = [
    (AddressParameter(), ".u64", "<Q", ADDRESS),
    (IntParameter(8), ".u8", "<b", -3),
    (IntParameter(16), ".u16", "<h", -300),
    (IntParameter(32), ".u32", "<i", -70_000),
    (IntParameter(64), ".u64", "<q", -(2**40)),
    (IntParameter(8, signed=False), ".u8", "<B", 200),
    (IntParameter(64, signed=False), ".u64", "<Q", 2**63 + 1),
    (FloatParameter(32), ".f32", "<f", 0.1),
    (FloatParameter(64), ".f64", "<d", 0.2),
    (BoolParameter(), ".u8", "<?", True),
]
# The one of every kernel that has maps.
MAP = TensorMap(0, (64, Parameter(1)), (Parameter(2),), (8, 64), DTYPES["i8"], 64)
MAPPED = [KINDS[0], (IntParameter(64), ".u64", "<q", 640), (IntParameter(64), ".u64", "<q", 1024)]


def launcher_of(kinds, passed, map_count=0):
    """The launcher of a kernel that takes some of its parameters, and does nothing."""
    declared = [f".param {kinds[number][1]} p{number}" for number in passed]
    declared += [f".param .align 64 .b8 m{number}[128]" for number in range(map_count)]
    ptx = f".version 8.3\n.target sm_90a\n.entry k({', '.join(declared)}) {{ ret; }}"
    return gpu_launcher.bind_gpu_launcher(
        cuda.Module(cuda.device(0), ptx.encode() + b"\0", "k").function("k", "k", 0),
        [parameter for parameter, *_ in kinds],
        threads=32,
        attributes=gpu_launcher.Attributes(),
        passed=passed,
        tensor_maps=[MAP] * map_count,
        on_error=pytest.fail,
    )


@pytest.mark.parametrize("seed", range(30))
def test_any_mixture_of_types(fake_driver, fake_torch, seed):
    chance = random.Random(seed)
    map_count = chance.choice([0, 0, 1, 3])
    kinds = [*(MAPPED if map_count else []), *chance.choices(KINDS, k=chance.randrange(40))]
    passed = [number for number in range(len(kinds)) if chance.random() < 0.7]
    values = [value for *_, value in kinds]
    assert launcher_of(kinds, passed, map_count)(1, 1, 1, *values) is None
    arguments = fake_driver.launches[-1].arguments
    expected = [struct.pack(kinds[number][2], values[number]) for number in passed]
    assert arguments[: len(passed)] == expected
    assert [len(made) for made in arguments[len(passed) :]] == [128] * map_count
    assert len(set(arguments[len(passed) :])) <= 1
    assert fake_driver.launches[-1].packed is not None or not passed


def test_where_parameters_lie(fake_driver, fake_torch):
    chosen = [KINDS[number] for number in (9, 2, 1, 0, 7, 9, 8, 3)]
    assert launcher_of(chosen, range(8))(1, 1, 1, *(value for *_, value in chosen)) is None
    packed = fake_driver.launches[-1].packed
    assert len(packed) == 36
    for place, (_, _, form, value) in zip([0, 2, 4, 8, 16, 20, 24, 32], chosen, strict=True):
        assert packed[place : place + struct.calcsize(form)] == struct.pack(form, value)


def test_tensor_maps_lie_behind_them(fake_driver, fake_torch):
    chosen = [*MAPPED, *KINDS[-1:] * 42]
    launch = launcher_of(chosen, [0, *range(3, 45)], map_count=2)
    assert launch(1, 1, 1, *(value for *_, value in chosen)) is None
    packed = fake_driver.launches[-1].packed
    # 50 bytes, of which none of the last is overwritten by a map, nor a map by them. Those lie at
    # multiples of 64 in the memory of constants, whose parameters begin at 0x210 there.
    assert packed[8:50] == b"\1" * 42
    assert len(packed) == 0x70 + 2 * 128
    assert packed[0x70:0xF0] == packed[0xF0:] == fake_driver.launches[-1].arguments[-1]


def test_a_driver_that_does_not_tell_where_they_lie(fake_driver, fake_torch, monkeypatch):
    monkeypatch.delattr(fake_driver, "cuFuncGetParamInfo")
    assert launcher_of(MAPPED, [0], map_count=1)(1, 1, 1, ADDRESS, 640, 1024) is NotImplemented
    assert launcher_of(MAPPED, [0])(1, 1, 1, ADDRESS, 640, 1024) is None


def parameters_of(cubin):
    """The offsets and sizes of a kernel's parameters, and the size of all, as ptxas lays them."""
    (headers,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<2H", cubin, 60)
    sections = [struct.unpack_from("<2I4Q", cubin, headers + 64 * n) for n in range(count)]
    places, total = {}, 0
    (start, size), *_ = [
        section[4:]
        for section in sections
        if cubin.startswith(b".nv.info.k", sections[names][4] + section[0])
    ]
    at = start
    while at < start + size:
        form, attribute, length = struct.unpack_from("<BBH", cubin, at)
        if attribute == 0x17:
            _, number, offset, field = struct.unpack_from("<I2HI", cubin, at + 4)
            places[number] = (offset, field >> 18)
        elif attribute == 0x19:
            total = length
        at += 4 + (length if form == 4 else 0)
    return [places[number] for number in sorted(places)], total


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_100a", "sm_120a"])
def test_as_ptxas_lays_them(architecture, tmp_path):
    """What the fake driver says of sm_90 is what the assembler does, and others differ."""
    if (assembler := find_ptxas()) is None:
        pytest.skip("no ptxas")
    fields = [".u64 p0", ".u8 p1", ".f32 p2", ".align 64 .b8 m0[128]", ".align 64 .b8 m1[128]"]
    declared = ", ".join(f".param {field}" for field in fields)
    version = {"sm_90a": "8.0", "sm_100a": "8.6", "sm_120a": "8.7"}[architecture]
    head = f".version {version}\n.target {architecture}\n.address_size 64\n"
    text = f"{head}.entry k({declared}) {{ ret; }}"
    source, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(text)
    subprocess.run([assembler, f"-arch={architecture}", source, "-o", cubin], check=True)
    places, total = parameters_of(cubin.read_bytes())
    assert places[:3] == [(0, 8), (8, 1), (12, 4)]
    maps = {"sm_90a": 0x30, "sm_100a": 0x40, "sm_120a": 0x40}[architecture]
    assert places[3:] == [(maps, 128), (maps + 128, 128)]
    assert total == maps + 256


def test_no_parameters_are_no_memory(fake_driver, fake_torch):
    assert launcher_of(KINDS, [])(1, 1, 1, *(value for *_, value in KINDS)) is None
    assert fake_driver.launches[-1].arguments == []
    assert fake_driver.launches[-1].packed is None


def test_a_kernel_reads_them(tensor, fake_driver):
    many = make_many()
    out = tensor(np.zeros(16, np.float32))
    for _ in range(2):
        out.numbers[:] = 0
        many[1,](out, *MANY, BLOCK=16)
        assert (out.numbers == np.float32(sum(MANY))).all()
    first, second = fake_driver.launches
    assert first == second


def test_the_items_of_tuples_are_parameters(tensor, fake_driver, monkeypatch):
    @tw.jit
    def weigh(pairs, scale):
        for i in tl.static_range(len(pairs)):
            x_ptr, (weight, offset) = pairs[i]
            tl.store(x_ptr, scale * weight + offset)

    places = [tensor(np.zeros(4, np.float32)) for _ in range(2)]
    pairs = (places[0], (3, 1)), (places[1], (5, 0.25))
    compiled = weigh[1,](pairs, 2.0)
    monkeypatch.setattr(weigh, "launch", None)
    assert weigh[1,](pairs, 2.0) is compiled
    assert [place.numbers[0] for place in places] == [7.0, 10.25]
    first, second = fake_driver.launches
    assert first == second


@pytest.mark.parametrize("skipped_bytes", [0, 4])
@pytest.mark.parametrize("kind", [CudaArray, DlpackArray])
def test_arrays_of_other_libraries_are_passed_as_their_addresses(
    tensor, fake_driver, kind, skipped_bytes
):
    @tw.jit
    def mix(
        flag: tl.int1, x_ptr, small: tl.int8, nested, scale: tl.float64, out_ptr, wide, nothing
    ):
        y_ptr, (step, _, also_x_ptr) = nested
        i = tl.arange(0, 16)
        total = tl.load(x_ptr + i) + tl.load(y_ptr + i) * step + tl.load(also_x_ptr + i)
        tl.store(out_ptr + i, ((total + small + wide) * scale).to(tl.float32), mask=flag)

    x, y, out = (tensor(np.arange(17, dtype=np.float32) + i) for i in range(3))
    one, other = (kind(array, skipped_bytes=skipped_bytes) for array in (x, y))
    # A tensor beside them; and one after a launch on tensors alone, which is in machine code.
    for target in (CudaArray(out), out):
        out.numbers[:] = 0
        mix[1,](True, one, -3, (other, (5, 1, one)), 0.5, target, 2**40, None)
        first = skipped_bytes // 4
        numbers = x.numbers[first:][:16] * 2 + y.numbers[first:][:16] * 5
        expected = (numbers - np.float32(3) + np.float32(2**40)) * np.float32(0.5)
        np.testing.assert_array_equal(out.numbers[:16], expected)
        x_place, y_place = (array.data_ptr() + skipped_bytes for array in (x, y))
        assert fake_driver.launches[-1].arguments == [
            *(struct.pack("<?", True), struct.pack("<Q", x_place), struct.pack("<b", -3)),
            *(struct.pack("<Q", y_place), struct.pack("<i", 5), struct.pack("<Q", x_place)),
            *(struct.pack("<d", 0.5), struct.pack("<Q", out.data_ptr()), struct.pack("<q", 2**40)),
        ]


def test_a_launch_with_attributes_packs_them_too(arrays, fake_driver):
    @tw.jit
    def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        place = tl.arange(0, BLOCK)
        tl.store(out_ptr + place, 2 * tl.load(x_ptr + place, mask=place < n), mask=place < n)

    x, _, out, n = arrays
    for _ in range(2):
        fake_driver.calls.clear()
        double[1,](x, out, n, BLOCK=128, launch_cooperative_grid=True)
        assert "cuLaunchKernelEx" in fake_driver.calls
        assert fake_driver.launches[-1].packed == struct.pack(
            "<2Qi", x.data_ptr(), out.data_ptr(), n
        )
    np.testing.assert_array_equal(out.numbers, 2 * x.numbers)


def test_a_size_that_is_not_the_kernels_is_an_error(fake_driver, fake_torch):
    """That the fake driver looks, as a real one does."""
    declared = "(.param .u64 p0, .param .u8 p1)"
    function = cuda.Module(
        cuda.device(0), f".version 8.3\n.target sm_90a\n.entry k{declared} {{ ret; }}".encode(), "k"
    ).function("k", "k", 0)
    answers = []
    launch = gpu_launcher.bind_gpu_launcher(
        function,
        [AddressParameter(), IntParameter(16), ConstantParameter(None)],
        threads=32,
        attributes=gpu_launcher.Attributes(),
        passed=[0, 1],
        on_error=answers.append,
    )
    with pytest.raises(SystemError):
        launch(1, 1, 1, ADDRESS, 5, None)
    assert answers == [INVALID_VALUE]
