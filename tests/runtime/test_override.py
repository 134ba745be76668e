"""The launch option `ir_override`: code from a file in place of a kernel's own."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler import ASTSource, GPUTarget, compile
from tilewright.errors import CompileError, LaunchError


@tw.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = i < n
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=inside) * 2.0, mask=inside)


def written(path, text, old, new):
    assert old in text
    path.write_text(text.replace(old, new))
    return str(path)


@pytest.mark.parametrize("stage", ["ttir", "source"])
def test_tile_ir(launch, tmp_path, stage):
    x = np.ones(8, np.float32)
    own = scale.warmup(x, 8, BLOCK=8).asm[stage]
    path = written(tmp_path / f"scale.{stage}", own, "value=2.0", "value=5.0")
    if launch.is_eager:
        with pytest.raises(LaunchError, match="runs as Python"):
            launch(scale, (1,), x, 8, BLOCK=8, ir_override=path)
        return
    launch(scale, (1,), x, 8, BLOCK=8, ir_override=path)
    assert x.tolist() == [5] * 8
    launch(scale, (1,), x, 8, BLOCK=8)
    assert x.tolist() == [10] * 8
    written(tmp_path / f"scale.{stage}", own, "value=2.0", "value=0.5")
    launch(scale, (1,), x, 8, BLOCK=8, ir_override=path)
    assert x.tolist() == [5] * 8


def test_ptx(tmp_path):
    x = np.ones(8, np.float32)
    with tw.emulate("sm_90a"):
        own = scale[(1,)](x, 8, BLOCK=8).asm["ptx"]
        # x + x is how x * 2 is written.
        path = written(tmp_path / "scale.ptx", own, "add.rn.f32", "mul.rn.f32")
        x[:] = 3
        kernel = scale[(1,)](x, 8, BLOCK=8, ir_override=path)
    assert x.tolist() == [9] * 8
    assert "add.rn.f32" not in kernel.asm["ptx"]


def test_what_cannot_stand_there(tmp_path):
    x = np.ones(8, np.float32)

    def launch(path, text="", **options):
        (tmp_path / path).write_text(text)
        scale[(1,)](x, 8, BLOCK=8, ir_override=str(tmp_path / path), **options)

    with pytest.raises(LaunchError, match="the stage is not known"):
        launch("kernel.ttgir")
    with pytest.raises(LaunchError, match="No such file"):
        scale[(1,)](x, 8, BLOCK=8, ir_override=str(tmp_path / "nothing.ttir"))
    with pytest.raises(LaunchError, match="no PTX"):
        launch("kernel.ptx")
    with pytest.raises(CompileError):
        launch("kernel.ttir", "func @scale(")
    with pytest.raises(LaunchError, match="the parameters are not those of `scale`"):
        launch("other.ttir", "func @scale(%x: i32) {\n}\n")
    with tw.emulate("sm_80"), pytest.raises(LaunchError, match="no entry"):
        launch("other.ptx", ".version 8.0")


def test_code_for_types_that_are_written_down(tmp_path):
    source = ASTSource(scale, {"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 8})
    target = GPUTarget("cuda", 90, 32)
    own = compile(source, target)
    path = written(tmp_path / "scale.ttir", own.asm["ttir"], "value=2.0", "value=5.0")
    other = compile(source, target, {"ir_override": path})
    assert other.hash != own.hash
    assert "0f40A00000" in other.asm["ptx"]
