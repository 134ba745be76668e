"""Inline assembly on every executor: the numeric instructions of PTX, and an error for others."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompileError, Unsupported

N = 96


@tw.jit
def one(
    x_ptr, out_ptr, N: tl.constexpr, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr,
    PACK: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, N)
    out = tl.inline_asm_elementwise(
        ASM, CONSTRAINTS, [tl.load(x_ptr + i)], dtype=out_ptr.dtype.element_ty, is_pure=True,
        pack=PACK,
    )  # fmt: skip
    tl.store(out_ptr + i, out)


@tw.jit
def three(
    x_ptr, y_ptr, z_ptr, out_ptr, N: tl.constexpr, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr,
    PACK: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, N)
    x, y, z = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i)
    out = tl.inline_asm_elementwise(
        ASM, CONSTRAINTS, [x, y, z], dtype=out_ptr.dtype.element_ty, is_pure=True, pack=PACK
    )
    tl.store(out_ptr + i, out)


def random_bits(dtype, seed, size=N):
    raw = np.random.default_rng(seed).bytes(size * np.dtype(dtype).itemsize)
    return np.frombuffer(raw, dtype).copy()


def numbers(dtype, seed, size=N):
    """Numbers near 1, special ones, and random bits."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(size) * 4
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
        x[: size // 3] = random_bits(dtype, seed, size // 3)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -3e-39, 448, 464, 6, 5, 0.75, 2.5]
        x[-len(special) :] = np.array(special).astype(dtype)
    return generator.permutation(x)


# Exact instructions: text, constraints, types of the arguments and the result, elements at a time.
F32, F16, BF16, I32, U8, U16 = (
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    np.int32,
    np.uint8,
    np.uint16,
)
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
EXACT = {
    "mov": ("mov.b32 $0, $1;", "=r,r", [F32], F32, 1),
    "add": ("add.rn.f32 $0, $1, $2; add.f32 $0, $0, $3;", "=&f,f,f,f", [F32] * 3, F32, 1),
    "add_ftz": ("add.rn.ftz.f32 $0, $1, 0f00000001;", "=f,f", [F32], F32, 1),
    "mul": ("mul.rn.f32 $0, $1, $2; sub.f32 $0, $0, $3;", "=&f,f,f,f", [F32] * 3, F32, 1),
    "fma": ("fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [F32] * 3, F32, 1),
    "div": ("div.rn.f32 $0, $1, $2; max.f32 $0, $0, $3;", "=&f,f,f,f", [F32] * 3, F32, 1),
    "sat": ("add.sat.f32 $0, $1, 0.25;", "=f,f", [F32], F32, 1),
    "min_nan": ("min.NaN.f32 $0, $1, 1.0;", "=f,f", [F32], F32, 1),
    "abs": ("abs.f32 $0, $1; neg.f32 $0, $0;", "=&f,f", [F32], F32, 1),
    "sqrt": ("abs.f32 $0, $1; sqrt.rn.f32 $0, $0;", "=&f,f", [F32], F32, 1),
    "rcp": ("rcp.rn.f32 $0, $1;", "=f,f", [F32], F32, 1),
    "pairs": ("add.f16x2 $0, $1, $2; max.f16x2 $0, $0, $3;", "=&r,r,r,r", [F16] * 3, F16, 2),
    "halves": ("mul.f16 $0, $1, $2; add.f16 $0, $0, $3;", "=&h,h,h,h", [F16] * 3, F16, 1),
    "logic": ("lop3.b32 $0, $1, $2, $3, 0xE8;", "=r,r,r,r", [I32] * 3, I32, 1),
    "shifts": (
        """{
            .reg .b32 t;
            shl.b32 t, $1, 7;
            shr.s32 $0, t, 3;  // the sign stays
            and.b32 t, $2, 31;
            shr.u32 t, $3, t;
            xor.b32 $0, $0, t;
            not.b32 $0, $0;
        }""",
        "=&r,r,r,r", [I32] * 3, I32, 1,
    ),
    "funnel": ("shf.l.wrap.b32 $0, $1, $2, $3;", "=r,r,r,r", [I32] * 3, I32, 1),
    "permute": ("prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [I32] * 3, I32, 1),
    "permute_constant": ("prmt.b32 $0, $1, $2, 0x9462;", "=r,r,r", [I32] * 2, I32, 1),
    "bytes": ("prmt.b32 $0, $1, 0, 0x3210;", "=r,r", [U8], U8, 4),
    "extract": ("bfe.s32 $0, $1, 5, 11;", "=r,r", [I32], I32, 1),
    "integers": (
        "mad.lo.s32 $0, $1, $2, $3; mul.hi.s32 $0, $0, $2;", "=&r,r,r,r", [I32] * 3, I32, 1,
    ),
    "wide": (
        "{ .reg .b64 t; mul.wide.s32 t, $1, $2; mov.b64 {_, $0}, t; add.u32 $0, $0, $3; }",
        "=&r,r,r,r", [I32] * 3, I32, 1,
    ),
    "select": (
        "{ .reg .pred p; setp.gt.f32 p, $1, $2; selp.f32 $0, $1, $3, p; @!p add.f32 $0, $0, 1.0; }",
        "=&f,f,f,f", [F32] * 3, F32, 1,
    ),
    "unordered": (
        "{ .reg .pred p; setp.neu.f32 p, $1, $2; selp.b32 $0, 1, 0, p; }",
        "=r,f,f", [F32] * 2, I32, 1,
    ),
    "to_int": ("cvt.rzi.s32.f32 $0, $1;", "=r,f", [F32], I32, 1),
    "to_float": ("cvt.rn.f32.s32 $0, $1;", "=f,r", [I32], F32, 1),
    "to_half": ("{ .reg .b16 t; cvt.rn.f16.f32 t, $1; cvt.f32.f16 $0, t; }", "=f,f", [F32], F32, 1),
    "to_narrow_int": ("cvt.sat.s8.s32 $0, $1;", "=r,r", [I32], I32, 1),
    "to_halves": ("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [F32], F16, 2),
    "to_bf16": ("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [F32], BF16, 2),
    "to_e4m3": (
        """{
            .reg .b16 l, h;
            cvt.rn.satfinite.e4m3x2.f32 l, $2, $1;
            cvt.rn.satfinite.e4m3x2.f32 h, $4, $3;
            mov.b32 $0, {l, h};
        }""",
        "=r,f,f,f,f", [F32], E4M3, 4,
    ),
    "to_e5m2": ("{ .reg .b16 t; cvt.rn.satfinite.e5m2x2.f32 t, $2, $1; cvt.u32.u16 $0, t; }",
                "=r,f,f", [F32], E5M2, 2),
    "from_e4m3": (
        """{
            .reg .b16 l, h;
            mov.b32 {l, h}, $2;
            cvt.rn.f16x2.e4m3x2 $0, l;
            cvt.rn.f16x2.e4m3x2 $1, h;
        }""",
        "=&r,=r,r", [E4M3], F16, 4,
    ),
}  # fmt: skip


def arguments(types, dtype_of_seed=numbers):
    return [
        numbers(t, i) if np.dtype(t).kind not in "iu" else random_bits(t, i)
        for i, t in enumerate(types)
    ]


def padded(values):
    return values + [np.zeros(1, values[0].dtype)] * (3 - len(values))


@tw.jit
def two(
    x_ptr, y_ptr, out_ptr, N: tl.constexpr, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr,
    PACK: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    out = tl.inline_asm_elementwise(
        ASM, CONSTRAINTS, [x, y], dtype=out_ptr.dtype.element_ty, is_pure=True, pack=PACK
    )
    tl.store(out_ptr + i, out)


KERNELS = {1: one, 2: two, 3: three}


def computed(case, launch):
    text, constraints, types, result, pack = case
    values = arguments(types)
    out = np.zeros(N, result)
    constants = {"N": N, "ASM": text, "CONSTRAINTS": constraints, "PACK": pack}
    launch(KERNELS[len(types)], (1,), *values, out, **constants)
    return out


def same_numbers(x, y):
    """Equal bits, but for the bits of NaN."""
    if x.dtype.kind in "iu":
        return (x == y).all()
    wide = x.astype(np.float64), y.astype(np.float64)
    nan = np.isnan(wide[0]) & np.isnan(wide[1])
    return (nan | ((wide[0] == wide[1]) & (np.signbit(wide[0]) == np.signbit(wide[1])))).all()


def emulated(case):
    def launch(kernel, grid, *args, **named):
        with tw.emulate("sm_90a"):
            kernel[grid](*args, **named)

    return computed(case, launch)


def on_cpu(case):
    return computed(case, lambda kernel, grid, *args, **named: kernel[grid](*args, **named))


def in_eager_mode(case):
    return computed(case, lambda kernel, grid, *args, **named: kernel.debug[grid](*args, **named))


@pytest.mark.parametrize("name", EXACT)
def test_exact_instructions_do_what_the_gpu_does(name):
    case = EXACT[name]
    expected = emulated(case)
    assert same_numbers(in_eager_mode(case), expected)
    assert same_numbers(on_cpu(case), expected)


APPROXIMATE = {
    "ex2.approx.ftz.f32": (np.exp2, -5, 5),
    "lg2.approx.f32": (np.log2, 0.1, 9),
    "rcp.approx.ftz.f32": (np.reciprocal, 0.1, 9),
    "sqrt.approx.f32": (np.sqrt, 0, 9),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "sin.approx.f32": (np.sin, -3, 3),
    "cos.approx.f32": (np.cos, -3, 3),
    "tanh.approx.f32": (np.tanh, -3, 3),
}


@pytest.mark.parametrize("opcode", APPROXIMATE)
def test_approximations(launch, opcode):
    function, low, high = APPROXIMATE[opcode]
    x = np.random.default_rng(0).uniform(low, high, N).astype(np.float32)
    out = np.zeros(N, np.float32)
    constants = {"N": N, "ASM": f"{opcode} $0, $1;", "CONSTRAINTS": "=f,f", "PACK": 1}
    launch(one, (1,), x, out, **constants)
    np.testing.assert_allclose(out, function(x.astype(np.float64)), rtol=2e-3, atol=1e-5)


def test_numbers_of_4_bits(launch):
    """`e2m1` has 0, 0.5, 1, 1.5, 2, 3, 4 and 6; ties go to the even code, NaN is 6."""
    if launch.is_gpu:
        pytest.skip("instructions of sm_100a")
    x = numbers(np.float32, 3)
    x[0] = -np.nan
    out = np.zeros(N, np.uint8)
    text = (
        "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $2, $1;"
        " .reg .b16 u; cvt.u16.u8 u, t; and.b16 u, u, 255; cvt.u32.u16 $0, u; }"
    )
    constants = {"N": N, "ASM": text, "CONSTRAINTS": "=r,f,f", "PACK": 2}
    launch(one, (1,), x, out, **constants)
    with np.errstate(all="ignore"):
        codes = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    codes = np.where(np.isnan(x), 7, codes)
    expected = codes[::2] | codes[1::2] << 4
    np.testing.assert_array_equal(out[::2], expected)
    assert not out[1::2].any()


@pytest.mark.parametrize("rounding", ["rp", "rz"])
def test_exponents_of_8_bits(launch, rounding):
    """`ue8m0` has the powers of two from 2^-127; its sign is that of no number, 255 is NaN."""
    if launch.is_gpu:
        pytest.skip("instructions of sm_100a")
    x = numbers(np.float32, 3)
    edges = [0.0, 1.0, 1.5, -2.0, np.inf, np.nan, 2.0**-127, 2.0**-126, 3e38, 6e-39, 7e-39, 1e-45]
    x[: len(edges)] = edges
    out = np.zeros(N, np.uint16)
    text = f"cvt.{rounding}.satfinite.ue8m0x2.f32 $0, 0.0, $1;"
    launch(one, (1,), x, out, N=N, ASM=text, CONSTRAINTS="=h,f", PACK=1)
    with np.errstate(all="ignore"):
        power = np.log2(np.abs(x.astype(np.float64)))
    power = np.ceil(power) if rounding == "rp" else np.floor(power)
    expected = np.where(np.isnan(x), 255, np.clip(power, -127, 127) + 127)
    np.testing.assert_array_equal(out, expected)


def test_rounding_by_random_bits(launch):
    if launch.is_gpu:
        pytest.skip("instructions of sm_100a")
    x = np.random.default_rng(0).uniform(-4, 4, N).astype(np.float32)
    random = random_bits(np.int32, 1)
    out = np.zeros(N, np.float16)
    constants = {
        "N": N, "ASM": "cvt.rs.f16x2.f32 $0, $2, $1, $3;", "CONSTRAINTS": "=r,f,f,r,r", "PACK": 2,
    }  # fmt: skip
    launch(two, (1,), x, random, out, **constants)
    below, above = (np.nextafter(x.astype(np.float16), np.float16(sign * 9)) for sign in (-1, 1))
    assert ((below <= out) & (out <= above)).all()
    low = random.view(np.uint32)[::2] & 0x1FFF
    raised = (x[::2].view(np.uint32) + low) & ~np.uint32(0x1FFF)
    np.testing.assert_array_equal(out[::2], raised.view(np.float32).astype(np.float16))


@tw.jit
def several(x_ptr, low_ptr, high_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    low, high = tl.inline_asm_elementwise(
        "mov.b64 {$0, $1}, $2;", "=r,=r,l", [tl.load(x_ptr + i)], dtype=(tl.int32, tl.int32),
        is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(low_ptr + i, low)
    tl.store(high_ptr + i, high)


def test_several_results_and_vectors_of_registers(launch):
    x = random_bits(np.int64, 0, 33)
    low, high = np.zeros((2, 33), np.int32)
    launch(several, (1,), x, low, high, N=33)
    words = x.view(np.int32).reshape(33, 2)
    np.testing.assert_array_equal(low, words[:, 0])
    np.testing.assert_array_equal(high, words[:, 1])


@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_last_group_need_not_be_full(launch, size):
    x = random_bits(np.uint8, 0, size)
    out = np.zeros(size, np.uint8)
    constants = {"N": size, "ASM": "xor.b32 $0, $1, -1;", "CONSTRAINTS": "=r,r", "PACK": 4}
    launch(one, (1,), x, out, **constants)
    np.testing.assert_array_equal(out, ~x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bar.sync 0; mov.b32 $0, $1;", r"`bar.sync 0`: this instruction is there on NVIDIA GPUs"),
        ("mov.u32 $0, %tid.x;", r"`mov.u32 \$0, %tid.x`: .*%tid"),
        ("add.rz.f32 $0, $1, $1;", r"the rounding .rz is there on NVIDIA GPUs only"),
        ("mov.b32 $0, t;", "reads t, which nothing has written"),
    ],
)
@pytest.mark.cpu_only
def test_what_only_gpus_have_is_named(launch, text, message):
    x, out = np.zeros((2, 8), np.float32)
    constants = {"N": 8, "ASM": text, "CONSTRAINTS": "=f,f", "PACK": 1}
    with pytest.raises((Unsupported, CompileError), match=message) as caught:
        launch(one, (1,), x, out, **constants)
    assert caught.value.location is not None


@pytest.mark.parametrize("text", ["mov.b32 $0, $7;", "mov.b32 $0, ${2};", "mov.b32 $0, $1; // $x",
                                  "mov.b32 $0, ${1:q};", "mov.b32 $0, $1; $"])  # fmt: skip
def test_dollar_signs_name_registers(launch, text):
    x, out = np.zeros((2, 8), np.float32)
    constants = {"N": 8, "ASM": text, "CONSTRAINTS": "=f,f", "PACK": 1}
    with pytest.raises(CompileError, match=r"is no register, the constraints name \$0 to \$1"):
        launch(one, (1,), x, out, **constants)


def test_a_dollar_sign_may_be_written(launch):
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    text = "// a comment of $$7\n mov.b32 $0, $1;"
    launch(one, (1,), x, out, N=8, ASM=text, CONSTRAINTS="=f,f", PACK=1)
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ("=f,~{memory},f", "results come first, then arguments, then what is changed"),
        ("f,=f", "results come first"),
        ("=f,f,~{", "what is changed is not named"),
    ],
)
def test_constraints_in_another_order(launch, constraints, message):
    x, out = np.zeros((2, 8), np.float32)
    constants = {"N": 8, "ASM": "mov.b32 $0, $1;", "CONSTRAINTS": constraints, "PACK": 1}
    with pytest.raises(CompileError, match=message):
        launch(one, (1,), x, out, **constants)
