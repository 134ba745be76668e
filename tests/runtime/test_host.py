"""The facts about the machine: kept in the disk cache, believed only where Linux confirms them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tilewright.codegen import llvm
from tilewright.codegen.loading import link_object
from tilewright.runtime import cache
from tilewright.runtime import host as host_module
from tilewright.runtime.host import compiler_version, host, load_object

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or llvm.host().architecture != "x86_64",
    reason="on other systems LLVM is always asked",
)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """Counts how often LLVM is asked."""
    times = []

    class Counting:
        @staticmethod
        def host():
            times.append(1)
            return llvm.host()

        version = staticmethod(llvm.version)

    monkeypatch.setattr(host_module, "llvm", Counting)
    return times


def find_out():
    """What another process would find out."""
    return host.__wrapped__()


def entry_name(directory):
    (path,) = directory.glob("host-*")
    return path.name.removesuffix(".tilewright")


def test_llvm_is_asked_once(directory, asked):
    assert find_out() == find_out() == llvm.host()
    assert len(asked) == 1


@pytest.mark.parametrize(
    "forge",
    [
        lambda header: header | {"features": header["features"] + ",avx512unheard"},
        lambda header: (
            header | {"features": header["features"] + ",amx-tile,amx-bf16,amx-int8,xop"}
        ),
        lambda header: header | {"identity": "another machine"},
        lambda header: header | {"features": 5},
        lambda header: header | {"features": ["avx2"]},
        lambda header: {"identity": header["identity"]},
        lambda header: {},
    ],
)
def test_forged_facts_are_replaced(directory, asked, forge):
    find_out()
    name = entry_name(directory)
    header = cache.read_entry(name).header
    cache.write_entry(name, forge(header))
    assert find_out() == llvm.host()
    assert len(asked) == 2
    assert cache.read_entry(name).header == header


def test_a_damaged_file_is_replaced(directory, asked):
    find_out()
    path = directory / f"{entry_name(directory)}.tilewright"
    path.write_bytes(path.read_bytes().replace(b"avx", b"awx"))
    assert find_out() == llvm.host()
    assert len(asked) == 2


def test_each_kind_of_cpu_has_an_entry_of_its_own(directory, asked, monkeypatch, tmp_path):
    find_out()
    other = tmp_path / "cpuinfo"
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    other.write_text(text.replace(" sse4_2 ", " "), encoding="utf-8")
    monkeypatch.setattr(host_module, "_CPU_FACTS", other)
    # LLVM finds what this text denies: the entry is never believed.
    for expected in (2, 3):
        assert find_out() == llvm.host()
        assert len(asked) == expected
    assert len(list(directory.glob("host-*"))) == 2


@pytest.mark.parametrize("text", ["", "model : 7\n\n", "flags :\n\n", None])
def test_without_facts_from_linux_llvm_is_asked(directory, asked, monkeypatch, tmp_path, text):
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(host_module, "_CPU_FACTS", file)
    assert find_out() == llvm.host()
    assert len(asked) == 1
    assert not list(directory.glob("host-*"))


def test_permissions_and_cores_are_not_kept(directory, asked, monkeypatch):
    find_out()
    monkeypatch.setattr("tilewright.codegen.host._usable_cores", lambda: 77)
    assert find_out() == llvm.host()._replace(cores=77)
    assert len(asked) == 1


def test_another_llvm_has_another_entry(directory, asked, monkeypatch):
    find_out()
    monkeypatch.setattr(host_module, "compiler_version", lambda: "another")
    find_out()
    assert len(asked) == 2


def test_where_the_package_cannot_be_read_llvm_tells_its_version(monkeypatch):
    assert compiler_version() == compiler_version.__wrapped__()
    monkeypatch.setattr(host_module.PathFinder, "find_spec", lambda name: None)
    assert compiler_version.__wrapped__() == llvm.version()


def test_what_the_linker_refuses_goes_to_llvm(monkeypatch):
    text = llvm.module_header(llvm.host()) + "define i32 @f() {\n  ret i32 7\n}"
    data = llvm.compile_to_object(text, host=llvm.host())
    assert link_object(data) is not None
    monkeypatch.setattr(host_module, "link_object", lambda data: None)
    assert load_object(data).address("f")


KERNEL = """
    import sys
    import numpy as np
    import tilewright as tw
    import tilewright.language as tl

    @tw.jit
    def scale(x_ptr, FACTOR: tl.constexpr):
        i = tl.program_id(0)
        tl.store(x_ptr + i, tl.load(x_ptr + i) * FACTOR)

    x = np.arange(8, dtype=np.float32)
    scale[(8,)](x, FACTOR=3)
    assert (x == np.arange(8) * 3).all(), x
    compiler = ("llvmlite", "tilewright.codegen.llvm", "tilewright.runtime.build")
    compiler += ("tilewright.codegen.cpu.compile", "tilewright.passes.pipeline", "json")
    print([name for name in compiler if name in sys.modules])
"""


def test_a_kernel_from_the_cache_needs_no_llvm(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(textwrap.dedent(KERNEL), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
    }
    outputs = [
        subprocess.run(
            [sys.executable, str(script)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(2)
    ]
    assert "llvmlite" in outputs[0]
    assert outputs[1].strip() == "[]"
