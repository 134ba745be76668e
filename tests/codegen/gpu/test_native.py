"""What only GPUs have: inline assembly, numbers of the hardware, launches that overlap."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tilewright.errors import CompileError, Unsupported


def _emulate(kernel, arrays, target="sm_90a", **options):
    return harness.run(kernel, (1,), arrays, target=target, **options).ptx


@tw.jit
def assembly_kernel(
    x_ptr, y_ptr, out_ptr, N: tl.constexpr, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr,
    PACK: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    out = tl.inline_asm_elementwise(
        ASM, CONSTRAINTS, [x, y], dtype=out_ptr.dtype.element_ty, is_pure=True, pack=PACK
    )
    tl.store(out_ptr + i, out)


@pytest.mark.parametrize("size", [512, 100])
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_each_element_goes_through_the_assembly(size, target):
    x, y = (np.arange(k, k + size, dtype=np.int32) for k in (0, 7))
    out = np.zeros(size, np.int32)
    constants = {"N": size, "ASM": "shf.l.wrap.b32 $0, $1, $2, 5;", "CONSTRAINTS": "=r,r,r"}
    ptx = _emulate(assembly_kernel, [x, y, out], target, PACK=1, **constants)
    wide = (y.astype(np.int64) << 32 | x) << 5 >> 32
    np.testing.assert_array_equal(out, wide.astype(np.int32))
    assert "shf.l.wrap.b32" in ptx


@pytest.mark.parametrize("pack", [1, 2, 4])
def test_narrow_elements_share_registers(pack):
    x, y = np.arange(256, dtype=np.int8), np.arange(256, 0, -1).astype(np.int8)
    out = np.zeros(256, np.int8)
    constants = {"N": 256, "ASM": "xor.b32 $0, $1, $2; // of all of them"}
    ptx = _emulate(assembly_kernel, [x, y, out], CONSTRAINTS="=r,r,r", PACK=pack, **constants)
    np.testing.assert_array_equal(out, x ^ y)
    assert ptx.count("xor.b32") >= 2 // pack


def test_two_registers_to_a_pack_and_floats():
    x, y = (np.arange(k, k + 300, dtype=np.float32) for k in (0, 3))
    out = np.zeros(300, np.float32)
    text = """
    {
        .reg .f32 t;
        sub.f32 t, $2, $4;
        mul.f32 $0, t, $2;
        sub.f32 t, $3, $5;
        mul.f32 $1, t, $3;
    }
    """
    constants = {"N": 300, "ASM": text, "CONSTRAINTS": "=&f,=&f,f,f,f,f", "PACK": 2}
    _emulate(assembly_kernel, [x, y, out], **constants)
    np.testing.assert_array_equal(out, (x - y) * x)


def test_halves_in_a_register_of_16_bits():
    x, y = (np.arange(k, k + 64, dtype=np.float16) for k in (0, 3))
    out = np.zeros(64, np.float16)
    constants = {"N": 64, "ASM": "add.f16 $0, $1, $2;", "CONSTRAINTS": "=h,h,h", "PACK": 1}
    _emulate(assembly_kernel, [x, y, out], **constants)
    np.testing.assert_array_equal(out, x + y)


@tw.jit
def two_results_kernel(x_ptr, sums_ptr, wide_ptr, y, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    total, wide = tl.inline_asm_elementwise(
        "add.s32 $0, $2, $3; mul.wide.s32 $1, $2, $3;", "=&r,=l,r,r", [tl.load(x_ptr + place), y],
        dtype=(tl.int32, tl.int64), is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(sums_ptr + place, total)
    tl.store(wide_ptr + place, wide)


def test_several_results_and_a_number_as_argument():
    x = np.arange(128, dtype=np.int32).reshape(8, 16)
    sums, wide = np.zeros((8, 16), np.int32), np.zeros((8, 16), np.int64)
    _emulate(two_results_kernel, [x, sums, wide, 1 << 30], M=8, N=16)
    np.testing.assert_array_equal(sums, x + (1 << 30))
    np.testing.assert_array_equal(wide, x.astype(np.int64) << 30)


@tw.jit
def effect_kernel(x_ptr):
    tl.inline_asm_elementwise(
        "st.global.b32 [$1], 42; mov.u32 $0, 0;", "=r,l", [x_ptr], tl.int32, is_pure=False, pack=1
    )


def test_assembly_that_is_not_pure_runs_without_users():
    x = np.zeros(1, np.int32)
    _emulate(effect_kernel, [x], num_warps=1)
    assert x[0] == 42


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ("=r,r", "the arguments take 1 registers|cannot lie in a register ''"),
        ("=r,r,r,r", "the arguments take 2 registers, 3 are named"),
        ("=f,l,r", "cannot lie in a register 'l'"),
        ("=q,r,r", "results lie in registers h, r, f, l, d"),
    ],
)
def test_constraints_that_do_not_fit(constraints, message):
    x = np.zeros(64, np.int32)
    constants = {"N": 64, "ASM": "add.s32 $0, $1, $2;", "CONSTRAINTS": constraints, "PACK": 1}
    with pytest.raises(CompileError, match=message) as caught:
        _emulate(assembly_kernel, [x, x.copy(), x.copy()], **constants)
    assert caught.value.location is not None


@tw.jit
def timer_kernel(x_ptr):
    tl.store(x_ptr, tl.extra.cuda.globaltimer())


@pytest.mark.cpu_only
def test_other_targets_have_no_numbers_of_the_hardware(launch):
    with pytest.raises(Unsupported, match="globaltimer"):
        launch(timer_kernel, (1,), np.zeros(1, np.int64))


@tw.jit
def hardware_kernel(x_ptr):
    start = tl.extra.cuda.globaltimer()
    tl.store(x_ptr, tl.extra.cuda.num_threads())
    tl.store(x_ptr + 1, tl.extra.cuda.num_warps())
    tl.store(x_ptr + 2, tl.extra.cuda.smid().to(tl.int64))
    tl.store(x_ptr + 3, tl.extra.cuda.globaltimer() - start)


def test_numbers_of_the_hardware():
    x = np.full(4, -1, np.int64)
    ptx = _emulate(hardware_kernel, [x], num_warps=2)
    assert x[:3].tolist() == [64, 2, 0]
    assert x[3] >= 0
    assert ptx.count("%globaltimer") == 2


@tw.jit
def dependent_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.extra.cuda.gdc_wait()
    x = tl.load(x_ptr + i)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out_ptr + i, x + 1)


@pytest.mark.parametrize(("target", "count"), [("sm_80", 0), ("sm_90a", 1), ("sm_120a", 1)])
def test_launches_that_overlap(target, count):
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    ptx = _emulate(dependent_kernel, [x, out], target, N=64)
    np.testing.assert_array_equal(out, x + 1)
    assert ptx.count("griddepcontrol.wait") == count
    assert ptx.count("griddepcontrol.launch_dependents") == count
    if count:  # nothing is read before the wait
        assert ptx.index("griddepcontrol.wait") < ptx.index("ld.global")


def test_elsewhere_launches_follow_each_other(launch):
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    launch(dependent_kernel, (1,), x, out, N=64)
    np.testing.assert_array_equal(out, x + 1)


@tw.jit
def libdevice_kernel(x_ptr, y_ptr, out_ptr, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, F(tl.load(x_ptr + i), tl.load(y_ptr + i)))


@pytest.mark.parametrize("name", ["mul_ru", "div_rd", "fmod", "pow", "hypot"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_libdevice_are_those_of_other_targets(name, dtype):
    """Their products are not fused with sums: they count on each rounding."""
    info = np.finfo(dtype)
    special = [0, -0.0, 1, -2.5, 1e-3, info.max, -info.max, info.tiny, info.smallest_subnormal]
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(special, special))
    out = [np.zeros_like(x), np.zeros_like(x)]
    function = getattr(tl.extra.libdevice, name)
    libdevice_kernel.debug[(1,)](x, y, out[0], F=function, N=x.size)
    _emulate(libdevice_kernel, [x, y, out[1]], F=function, N=x.size)
    np.testing.assert_array_equal(*out)
