"""Variables of Triton: what they change in kernels, and in what is told of them."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import env
from tilewright.compiler import ASTSource, GPUTarget, compile
from tilewright.errors import CompileError

STEP = 3


@tw.jit
def scale(x_ptr, a, b):
    x = tl.load(x_ptr)
    tl.store(x_ptr, x * a + b)


@tw.jit
def read_global(x_ptr):
    tl.store(x_ptr, STEP)


@pytest.fixture
def ptx(monkeypatch, tmp_path):
    """The PTX of `scale`, under variables that are given."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))

    def make(**variables):
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        source = ASTSource(scale, {"x_ptr": "*fp32", "a": "fp32", "b": "fp32"})
        return compile(source, GPUTarget("cuda", 90, 32)).asm["ptx"]

    return make


def test_ordinary_globals(launch, monkeypatch):
    x = np.zeros(1, np.int32)
    with pytest.raises(CompileError, match="ordinary global variable"):
        launch(read_global, (1,), x)
    monkeypatch.setenv("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "1")
    launch(read_global, (1,), x)
    assert x[0] == STEP


def test_products_are_fused_by_default(ptx):
    assert "fma.rn.f32" in ptx()
    assert "fma.rn.f32" not in ptx(TRITON_DEFAULT_FP_FUSION="0")


def test_line_numbers(ptx):
    assert ".loc" in ptx()
    assert ".loc" not in ptx(TRITON_DISABLE_LINE_INFO="1")


def test_ptx_is_shown(ptx, capsys):
    text = ptx(NVPTX_ENABLE_DUMP="1")
    assert text in capsys.readouterr().err


def test_the_assembler(ptx, capsys, tmp_path):
    tool = tmp_path / "assembler"
    tool.write_text("""#!/bin/sh
echo "called with $*"
while [ "$1" != -o ]; do shift; done
echo code > "$2"
""")
    tool.chmod(0o755)
    options = {"PTXAS_OPTIONS": "--warn-on-spills", "DISABLE_PTXAS_OPT": "1"}
    ptx(TRITON_PTXAS_PATH=str(tool), TRITON_DUMP_PTXAS_LOG="1", **options)
    said = capsys.readouterr().err
    assert "called with -arch=sm_90a" in said
    assert "--opt-level 0 --warn-on-spills" in said


def test_where_things_are_kept(monkeypatch, tmp_path):
    for name in ("TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_DIR", "TILEWRIGHT_DUMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "1")

    @tw.jit
    def clear(x_ptr):
        tl.store(x_ptr, 0)

    clear[(1,)](np.ones(1, np.int32))
    assert list((tmp_path / ".triton" / "cache").iterdir())
    assert list((tmp_path / ".triton" / "dump").rglob("*.ll"))


OURS = {
    "TILEWRIGHT_INTERPRET": env.interpret,
    "TILEWRIGHT_DEVICE_DEBUG": env.device_debug,
    "TILEWRIGHT_VERIFY": env.verify,
    "TILEWRIGHT_ALWAYS_COMPILE": env.always_compile,
    "TILEWRIGHT_PRINT_AUTOTUNING": env.print_autotuning,
    "TILEWRIGHT_TUNE": env.tune,
    "TILEWRIGHT_CACHE_AUTOTUNING": env.cache_autotuning,
    "TILEWRIGHT_STRICT": env.strict,
}


@pytest.mark.parametrize("name", OURS)
def test_switches_are_on_or_off(name, monkeypatch):
    for text, expected in (("Yes", True), (" on ", True), ("0", False), ("no", False), ("", False)):
        monkeypatch.setenv(name, text)
        assert OURS[name]() is expected
    monkeypatch.setenv(name, "2")
    with pytest.raises(ValueError, match=f"{name}=2: one of 1, .* is needed"):
        OURS[name]()


def test_triton_takes_what_it_does_not_know_for_off(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "2")
    assert not env.interpret()
