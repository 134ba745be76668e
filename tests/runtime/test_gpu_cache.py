"""Kernels of GPUs in the disk cache."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import INVALID_IMAGE, INVALID_VALUE
from tests.runtime.gpu_kernels import make_add
from tilewright.codegen.nvidia import toolkit
from tilewright.errors import LaunchError
from tilewright.runtime import cuda, gpu_build


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path


def entries(directory):
    return [path for path in directory.iterdir() if path.name.startswith("add-")]


def forget_compiler(monkeypatch):
    def fail(*arguments):
        raise AssertionError("compiled although it is in the cache")

    monkeypatch.setattr(gpu_build, "lower_for_gpu", fail)


def test_machine_code_comes_from_the_disk_cache(arrays, fake_driver, own_cache, monkeypatch):
    first = make_add()[2,](*arrays, BLOCK=64)
    assert len(entries(own_cache)) == 1
    forget_compiler(monkeypatch)
    arrays[2].numbers[:] = 0
    second = make_add()[2,](*arrays, BLOCK=64)
    np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)
    assert fake_driver.loaded == ["cubin", "cubin"]
    assert second.asm["ptx"] == first.asm["ptx"]
    assert second.hash == first.hash
    assert second.code.written == {"out_ptr"}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_entry_costs_a_compile(arrays, own_cache, damage):
    make_add()[2,](*arrays, BLOCK=64)
    (path,) = entries(own_cache)
    data = path.read_bytes()
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    path.write_bytes({"cut": data[:middle], "changed": changed, "empty": b""}[damage])
    arrays[2].numbers[:] = 0
    make_add()[2,](*arrays, BLOCK=64)
    np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)
    assert path.read_bytes() == data


def test_options_drivers_and_architectures_have_entries_of_their_own(
    arrays, fake_driver, own_cache, monkeypatch, tmp_path
):
    make_add()[2,](*arrays, BLOCK=64)
    make_add()[2,](*arrays, BLOCK=64, num_stages=4)
    fake_driver.version = 13010
    monkeypatch.setattr(cuda._State, "driver", cuda.Driver(fake_driver))
    make_add()[2,](*arrays, BLOCK=64)
    (tmp_path / "version").write_text("NVRM version: another release of the same CUDA\n")
    monkeypatch.setattr(cuda, "_BUILD", tmp_path / "version")
    monkeypatch.setattr(cuda._State, "driver", cuda.Driver(fake_driver))
    make_add()[2,](*arrays, BLOCK=64)
    fake_driver.capability = (8, 0)
    monkeypatch.setattr(cuda._State, "devices", {})
    assert make_add()[2,](*arrays, BLOCK=64).metadata.target.arch == 80
    assert len(entries(own_cache)) == 5


def test_another_ptxas_compiles_again(arrays, fake_driver, own_cache, monkeypatch, tmp_path):
    """Its machine code is not that of the one before, nor of the driver."""
    monkeypatch.setenv("PATH", str(tmp_path))
    ptxas = tmp_path / "ptxas"
    for number, text in enumerate(("#!/bin/sh\n", "#!/bin/sh\n# a later version\n")):
        ptxas.write_text(text)
        ptxas.chmod(0o755)
        for _ in range(2):
            make_add()[2,](*arrays, BLOCK=64)
        assert len(entries(own_cache)) == number + 1


def test_machine_code_that_a_driver_does_not_take(arrays, fake_driver, own_cache):
    fake_driver.failures["cubin"] = INVALID_IMAGE
    compiled = make_add()[2,](*arrays, BLOCK=64)
    np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)
    assert fake_driver.loaded == ["ptx"]
    assert "cubin" not in compiled.asm


@pytest.mark.parametrize("reason", ["warning", "failure"])
def test_ptx_is_kept_where_the_linker_is_of_no_use(arrays, fake_driver, own_cache, reason):
    if reason == "warning":
        fake_driver.log = "ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored"
    else:
        fake_driver.failures["cuLinkComplete"] = INVALID_IMAGE
    for _ in range(2):
        make_add()[2,](*arrays, BLOCK=64)
    assert fake_driver.loaded == ["ptx", "ptx"]


def test_the_assemblers_words_are_in_the_error(arrays, fake_driver, own_cache):
    fake_driver.failures |= {"cuLinkComplete": 218, "ptx": 218}
    with pytest.raises(LaunchError, match=r"loading add on GPU 0 \(the log\): .*CUDA_ERROR_218"):
        make_add()[2,](*arrays, BLOCK=64)


def test_ptxas_is_used_where_it_is(arrays, own_cache, monkeypatch, fake_driver):
    if toolkit.find_ptxas() is None:
        pytest.skip("there is no ptxas")
    monkeypatch.setattr(gpu_build, "find_ptxas", toolkit.find_ptxas)
    fake_driver.runs = False
    fake_driver.failures["cuLinkCreate_v2"] = INVALID_VALUE
    compiled = make_add().warmup(*arrays, BLOCK=64)
    assert compiled.asm["cubin"].startswith(b"\x7fELF")


def make_square():
    @tw.jit
    def square(x_ptr, out_ptr, SIDE: tl.constexpr):
        i = tl.arange(0, SIDE)
        place = i[:, None] * SIDE + i[None, :]
        x = tl.load(x_ptr + place)
        tl.store(out_ptr + place, tl.dot(x, x))

    return square


@pytest.mark.parametrize(("registers", "said"), [(136, ".maxnreg 128"), (160, ".minnctapersm 1")])
def test_the_linker_makes_room_for_another_block(arrays, fake_driver, own_cache, registers, said):
    fake_driver.registers = registers
    for _ in range(2):
        compiled = make_square().warmup(arrays[0], arrays[2], SIDE=16, num_warps=8)
        assert said in compiled.asm["ptx"]
        assert compiled.asm["ptx"].encode() in compiled.asm["cubin"]
    assert fake_driver.loaded == ["cubin"] * (1 + (registers == 136))


@pytest.mark.parametrize("maxnreg", [None, 128])
def test_the_drivers_assembler_is_not_asked_to_make_that_room(
    arrays, fake_driver, own_cache, maxnreg
):
    """It is another one than that which needed no more memory for it."""
    fake_driver.registers = 136
    arguments = {"SIDE": 16, "num_warps": 8, "maxnreg": maxnreg}
    compiled = make_square().warmup(arrays[0], arrays[2], **arguments)
    assert ".maxnreg 128" in compiled.asm["ptx"]
    fake_driver.failures["cubin"] = INVALID_IMAGE
    fake_driver.runs = False
    compiled = make_square()[1,](arrays[0], arrays[2], **arguments)
    assert "cubin" not in compiled.asm
    said = ".minnctapersm 1" if maxnreg is None else ".maxnreg 128"
    assert said in compiled.asm["ptx"]
