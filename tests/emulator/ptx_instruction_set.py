"""The instructions that are compared with NumPy, and with a device where there is one."""

import ml_dtypes
import numpy as np
from ptx_snippets import Snippet, snippet

BF16 = ml_dtypes.bfloat16
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def _type(kind):
    kind = np.dtype(kind)
    return ("s" if kind.kind == "i" else "u") + str(8 * kind.itemsize)


def _python(function, kind):
    """Apply a function of Python integers and wrap its result."""
    kind = np.dtype(kind)
    mask = (1 << 8 * kind.itemsize) - 1

    def apply(*arrays):
        rows = zip(*(array.tolist() for array in arrays), strict=True)
        unsigned = np.array([function(*row) & mask for row in rows], f"u{kind.itemsize}")
        return unsigned.view(kind)

    return apply


def _trunc(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def integers():
    for kind in ("i2", "u2", "i4", "u4", "i8", "u8"):
        t, bits = _type(kind), 8 * np.dtype(kind).itemsize
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        for name, function in {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul.lo": lambda a, b: a * b,
            "mul.hi": lambda a, b, bits=bits: a * b >> bits,
            "min": min,
            "max": max,
        }.items():
            yield snippet(f"{name}.{t} d, a, b;", two, kind, _python(function, kind))
        nonzero = f"or.b{bits} b, b, 1;"
        yield snippet(
            f"div.{t} d, a, b;".replace("div", f"{nonzero} div"),
            two,
            kind,
            _python(lambda a, b: _trunc(a, b | 1), kind),
            name=f"div.{t}",
        )
        yield snippet(
            f"{nonzero} rem.{t} d, a, b;",
            two,
            kind,
            _python(lambda a, b: a - _trunc(a, b | 1) * (b | 1), kind),
            name=f"rem.{t}",
        )
        yield snippet(
            f"mad.lo.{t} d, a, b, c;", three, kind, _python(lambda a, b, c: a * b + c, kind)
        )
        yield snippet(
            f"sad.{t} d, a, b, c;", three, kind, _python(lambda a, b, c: abs(a - b) + c, kind)
        )
        if kind[0] == "i":
            yield snippet(f"neg.{t} d, a;", kind, kind, _python(lambda a: -a, kind))
            yield snippet(f"abs.{t} d, a;", kind, kind, _python(abs, kind))
        if bits < 64:
            wide = f"{kind[0]}{bits // 4}"
            yield snippet(f"mul.wide.{t} d, a, b;", two, wide, _python(lambda a, b: a * b, wide))
            yield snippet(
                f"mad.wide.{t} d, a, b, c;",
                f"{two} {wide}",
                wide,
                _python(lambda a, b, c: a * b + c, wide),
            )
    yield snippet(
        "add.sat.s32 d, a, b;",
        "i4 i4",
        "i4",
        _python(lambda a, b: max(-(1 << 31), min((1 << 31) - 1, a + b)), "i4"),
    )
    yield snippet(
        "add.cc.u32 %r0, a, b; addc.u32 d, c, 0;",
        "u4 u4 u4",
        "u4",
        _python(lambda a, b, c: (a + b >> 32) + c, "u4"),
        name="add.cc",
    )
    yield snippet(
        "sub.cc.u32 %r0, a, b; subc.u32 d, c, 0;",
        "u4 u4 u4",
        "u4",
        _python(lambda a, b, c: c - (a < b), "u4"),
        name="sub.cc",
    )
    yield snippet("dp4a.s32.u32 d, a, b, c;", "i4 i4 i4", "i4")
    yield snippet("dp2a.lo.s32.s32 d, a, b, c;", "i4 i4 i4", "i4")


def _bfe(bits, *, signed):
    def extract(a, position, length):
        if bits == 32:
            position, length = position & 255, length & 255
        position, length = min(position, 1 << 9), min(length, 1 << 9)
        a &= (1 << bits) - 1
        field = (a >> position) & ((1 << length) - 1)
        top = min(position + length - 1, bits - 1)
        if signed and length and a >> top & 1:
            field |= -1 << min(length, max(bits - position, 0))
        return field

    return extract


def _bfi(bits):
    def insert(a, b, c):
        position, length = (c & 255, c >> 8 & 255) if bits == 32 else (c, c >> 8)
        position, length = min(position, 1 << 9), min(length, 1 << 9)
        mask = ((1 << length) - 1) << position & (1 << bits) - 1
        return (b & ~mask) | ((a << position) & mask)

    return insert


def _prmt(a, b, selector):
    both = (a | b << 32).to_bytes(8, "little")
    result = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = both[nibble & 7]
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * i
    return result


def bits():
    for size in (16, 32, 64):
        kind = f"u{size // 8}"
        for name, function in {
            "and": lambda a, b: a & b,
            "or": lambda a, b: a | b,
            "xor": lambda a, b: a ^ b,
        }.items():
            yield snippet(
                f"{name}.b{size} d, a, b;", f"{kind} {kind}", kind, _python(function, kind)
            )
        yield snippet(f"not.b{size} d, a;", kind, kind, _python(lambda a: ~a, kind))
        yield snippet(f"cnot.b{size} d, a;", kind, kind, _python(lambda a: a == 0, kind))
        yield snippet(
            f"shl.b{size} d, a, b;",
            f"{kind} u4",
            kind,
            _python(lambda a, b: a << b if b < 64 else 0, kind),
        )
        yield snippet(
            f"shr.u{size} d, a, b;", f"{kind} u4", kind, _python(lambda a, b: a >> b, kind)
        )
        yield snippet(
            f"shr.s{size} d, a, b;",
            f"i{size // 8} u4",
            f"i{size // 8}",
            _python(lambda a, b: a >> b, kind),
        )
        if size == 16:
            continue
        yield snippet(f"popc.b{size} d, a;", kind, "u4", _python(int.bit_count, "u4"))
        yield snippet(
            f"clz.b{size} d, a;", kind, "u4", _python(lambda a, n=size: n - a.bit_length(), "u4")
        )
        yield snippet(
            f"brev.b{size} d, a;",
            kind,
            kind,
            _python(lambda a, n=size: int(f"{a:0{n}b}"[::-1], 2), kind),
        )
        yield snippet(
            f"bfind.u{size} d, a;", kind, "u4", _python(lambda a: a.bit_length() - 1, "u4")
        )
        yield snippet(
            f"bfind.s{size} d, a;",
            f"i{size // 8}",
            "u4",
            _python(lambda a: (~a if a < 0 else a).bit_length() - 1, "u4"),
        )
        for sign in "us":
            yield snippet(
                f"bfe.{sign}{size} d, a, b, c;",
                f"{sign.replace('s', 'i')}{size // 8} u4 u4",
                f"{sign.replace('s', 'i')}{size // 8}",
                _python(_bfe(size, signed=sign == "s"), kind),
            )
        yield snippet(
            f"shr.u32 %r1, c, 8; bfi.b{size} d, a, b, c, %r1;",
            f"{kind} {kind} u4",
            kind,
            _python(_bfi(size), kind),
            name=f"bfi.b{size}",
        )
    for mode, mask in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        yield snippet(
            f"shf.l.{mode}.b32 d, a, b, c;",
            "u4 u4 u4",
            "u4",
            _python(lambda a, b, c, m=mask: ((b << 32 | a) << m(c)) >> 32, "u4"),
        )
        yield snippet(
            f"shf.r.{mode}.b32 d, a, b, c;",
            "u4 u4 u4",
            "u4",
            _python(lambda a, b, c, m=mask: (b << 32 | a) >> m(c), "u4"),
        )
    yield snippet("prmt.b32 d, a, b, c;", "u4 u4 u4", "u4", _python(_prmt, "u4"))
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield snippet(f"prmt.b32.{mode} d, a, b, c;", "u4 u4 u4", "u4")
    yield snippet(
        "lop3.b32 d, a, b, c, 0xCA;",
        "u4 u4 u4",
        "u4",
        _python(lambda a, b, c: (a & b) | (~a & c), "u4"),
    )
    yield snippet("bmsk.clamp.b32 d, a, b;", "u4 u4", "u4")
    yield snippet("szext.clamp.s32 d, a, b;", "i4 u4", "i4")
    yield snippet("szext.wrap.u32 d, a, b;", "u4 u4", "u4")
    yield snippet(
        "mov.b32 {%h0, %h1}, a; mov.b32 d, {%h1, %h0};",
        "u4",
        "u4",
        _python(lambda a: a >> 16 | a << 16, "u4"),
        name="mov.pack",
    )
    yield snippet(
        "mov.b64 {%r0, %r1}, a; mov.b64 d, {%r1, %r0};",
        "u8",
        "u8",
        _python(lambda a: a >> 32 | a << 32, "u8"),
        name="mov.pack64",
    )


def _zero_min(a, b):
    both = (a == 0) & (b == 0)
    return np.where(both, np.where(np.signbit(a) | np.signbit(b), -0.0, 0.0), np.fmin(a, b))


def _zero_max(a, b):
    both = (a == 0) & (b == 0)
    return np.where(both, np.where(np.signbit(a) & np.signbit(b), -0.0, 0.0), np.fmax(a, b))


def _half(function, kind):
    """Compute in float64 (enough for one operation) and round."""

    def apply(*arrays):
        return function(*(a.astype(np.float64) for a in arrays)).astype(np.float32).astype(kind)

    return apply


def floats():
    for t, kind in (("f32", "f4"), ("f64", "f8")):
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        yield snippet(f"add.rn.{t} d, a, b;", two, kind, np.add)
        yield snippet(f"sub.rn.{t} d, a, b;", two, kind, np.subtract)
        yield snippet(f"mul.rn.{t} d, a, b;", two, kind, np.multiply)
        yield snippet(f"div.rn.{t} d, a, b;", two, kind, np.divide)
        yield snippet(f"min.{t} d, a, b;", two, kind, _zero_min)
        yield snippet(f"max.{t} d, a, b;", two, kind, _zero_max)
        yield snippet(f"neg.{t} d, a;", kind, kind, np.negative)
        yield snippet(f"abs.{t} d, a;", kind, kind, np.abs)
        yield snippet(f"sqrt.rn.{t} d, a;", kind, kind, np.sqrt)
        yield snippet(f"rcp.rn.{t} d, a;", kind, kind, np.reciprocal)
        yield snippet(f"copysign.{t} d, a, b;", two, kind, lambda a, b: np.copysign(b, a))
        yield snippet(f"fma.rn.{t} d, a, b, c;", three, kind)
        for mode in ("rz", "rm", "rp"):
            yield snippet(f"add.{mode}.{t} d, a, b;", two, kind)
            yield snippet(f"mul.{mode}.{t} d, a, b;", two, kind)
            if t == "f32":
                yield snippet(f"fma.{mode}.{t} d, a, b, c;", three, kind)
                yield snippet(f"div.{mode}.{t} d, a, b;", two, kind)
    yield snippet("min.NaN.f32 d, a, b;", "f4 f4", "f4", np.minimum)
    yield snippet("max.NaN.f32 d, a, b;", "f4 f4", "f4", np.maximum)
    yield snippet("min.xorsign.abs.f32 d, a, b;", "f4 f4", "f4")
    yield snippet("max.NaN.xorsign.abs.f32 d, a, b;", "f4 f4", "f4")
    yield snippet("add.ftz.f32 d, a, b;", "f4 f4", "f4")
    yield snippet("mul.sat.f32 d, a, b;", "f4 f4", "f4")
    yield snippet("fma.rn.ftz.sat.f32 d, a, b, c;", "f4 f4 f4", "f4")
    yield snippet("mul.rn.f16 d, a, b;", "f2 f2", "f2", np.multiply)
    yield snippet("add.rn.f16 d, a, b;", "f2 f2", "f2", np.add)
    yield snippet("sub.sat.f16 d, a, b;", "f2 f2", "f2")
    yield snippet("fma.rn.f16 d, a, b, c;", "f2 f2 f2", "f2")
    yield snippet("fma.rn.relu.f16 d, a, b, c;", "f2 f2 f2", "f2")
    yield snippet("min.f16 d, a, b;", "f2 f2", "f2", _zero_min)
    yield snippet("max.NaN.f16 d, a, b;", "f2 f2", "f2")
    yield snippet("add.rn.bf16 d, a, b;", "bfloat16 bfloat16", "bfloat16", _half(np.add, BF16))
    yield snippet("mul.rn.bf16 d, a, b;", "bfloat16 bfloat16", "bfloat16", _half(np.multiply, BF16))
    yield snippet("fma.rn.bf16 d, a, b, c;", "bfloat16 bfloat16 bfloat16", "bfloat16")
    yield snippet("max.bf16 d, a, b;", "bfloat16 bfloat16", "bfloat16", _half(_zero_max, BF16))
    yield snippet("neg.bf16 d, a;", "bfloat16", "bfloat16")
    yield snippet("abs.f16 d, a;", "f2", "f2", np.abs)
    for t in ("f16x2", "bf16x2"):
        yield snippet(f"add.rn.{t} d, a, b;", "u4 u4", "u4")
        yield snippet(f"fma.rn.{t} d, a, b, c;", "u4 u4 u4", "u4")
        yield snippet(f"max.{t} d, a, b;", "u4 u4", "u4")
        yield snippet(f"neg.{t} d, a;", "u4", "u4")


def approximations():
    for name, function, ulp in (
        ("ex2.approx.f32", np.exp2, 2),
        ("lg2.approx.f32", np.log2, 64),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), 2),
        ("rcp.approx.f32", lambda x: 1 / x, 1),
        ("sqrt.approx.f32", np.sqrt, 2),
        ("tanh.approx.f32", np.tanh, 8192),
    ):
        yield snippet(
            f"{name} d, a;",
            "f4",
            "f4",
            lambda x, f=function: f(x.astype(np.float64)).astype(np.float32),
            ulp=ulp,
        )
    yield snippet("div.full.f32 d, a, b;", "f4 f4", "f4", np.divide, ulp=2)
    yield snippet("ex2.approx.ftz.bf16x2 d, a;", "u4", "u4", ulp=1 << 20)
    yield snippet("tanh.approx.f16x2 d, a;", "u4", "u4", ulp=1 << 20)


def _saturating(kind):
    limits = np.iinfo(kind)

    def convert(a):
        whole = np.trunc(a.astype(np.float64))
        values = [
            0
            if x != x
            else min(
                max(int(x) if abs(x) < 1e30 else (limits.max if x > 0 else limits.min), limits.min),
                limits.max,
            )
            for x in whole.tolist()
        ]
        return np.array(values, kind)

    return convert


def _halves(values):
    """Pairs of halves, with the NaN that the hardware makes."""
    wide = values.astype(np.float16)
    return np.where(np.isnan(wide), np.uint16(0x7FFF), wide.view(np.uint16)).view(np.uint32)


def conversions():
    for to in ("i2", "u2", "i4", "u4"):
        yield snippet(f"cvt.rzi.{_type(to)}.f32 d, a;", "f4", to, _saturating(to))
    for to in ("i8", "u8"):
        yield snippet(f"cvt.rzi.{_type(to)}.f32 d, a;", "f4", to)
        yield snippet(f"cvt.rzi.{_type(to)}.f64 d, a;", "f8", to)
    yield snippet("cvt.rni.s32.f32 d, a;", "f4", "i4")
    yield snippet("cvt.rmi.s32.f64 d, a;", "f8", "i4")
    yield snippet("cvt.rzi.s32.f16 d, a;", "f2", "i4", _saturating("i4"))
    yield snippet("cvt.rzi.s8.f32 %r0, a; mov.b32 d, %r0;", "f4", "i4")
    yield snippet("cvt.rzi.u8.f32 %r0, a; mov.b32 d, %r0;", "f4", "i4")
    for source in ("i4", "u4", "i8", "u8"):
        yield snippet(f"cvt.rn.f32.{_type(source)} d, a;", source, "f4", lambda a: a.astype("f4"))
        yield snippet(f"cvt.rn.f64.{_type(source)} d, a;", source, "f8", lambda a: a.astype("f8"))
        yield snippet(f"cvt.rn.f16.{_type(source)} d, a;", source, "f2", lambda a: a.astype("f2"))
    yield snippet("cvt.rz.f32.s64 d, a;", "i8", "f4")
    yield snippet("cvt.rp.f32.u32 d, a;", "u4", "f4")
    yield snippet("cvt.s64.s16 d, a;", "i2", "i8", lambda a: a.astype("i8"))
    yield snippet("cvt.s64.s8 d, a;", "i2", "i8", lambda a: a.astype("i1").astype("i8"))
    yield snippet("cvt.u32.u64 d, a;", "u8", "u4", lambda a: a.astype("u4"))
    yield snippet("cvt.sat.u16.s32 d, a;", "i4", "u2", lambda a: np.clip(a, 0, 65535).astype("u2"))
    yield snippet("cvt.sat.s8.s32 d, a;", "i4", "i4", lambda a: np.clip(a, -128, 127))
    yield snippet("cvt.f32.f16 d, a;", "f2", "f4", lambda a: a.astype("f4"))
    yield snippet("cvt.f32.bf16 d, a;", "bfloat16", "f4", lambda a: a.astype("f4"))
    yield snippet("cvt.f64.f32 d, a;", "f4", "f8", lambda a: a.astype("f8"))
    yield snippet("cvt.rn.f32.f64 d, a;", "f8", "f4", lambda a: a.astype("f4"))
    yield snippet("cvt.rni.f32.f32 d, a;", "f4", "f4", np.rint)
    yield snippet("cvt.rmi.f32.f32 d, a;", "f4", "f4", np.floor)
    yield snippet("cvt.sat.f32.f32 d, a;", "f4", "f4")
    for mode in ("rz", "rm", "rp"):
        yield snippet(f"cvt.{mode}.f32.f64 d, a;", "f8", "f4")
    yield snippet("cvt.rn.f16.f32 d, a;", "f4", "f2", lambda a: a.astype("f2"))
    yield snippet("cvt.rz.f16.f32 d, a;", "f4", "f2")
    yield snippet("cvt.rn.bf16.f32 d, a;", "f4", "bfloat16", lambda a: a.astype(BF16))
    yield snippet("cvt.rz.bf16.f32 d, a;", "f4", "bfloat16")
    yield snippet("cvt.rn.relu.bf16.f32 d, a;", "f4", "bfloat16")
    yield snippet("cvt.rna.tf32.f32 d, a;", "f4", "u4")
    for t in ("f16x2", "bf16x2"):
        yield snippet(f"cvt.rn.{t}.f32 d, a, b;", "f4 f4", "u4")
        yield snippet(f"cvt.rz.relu.{t}.f32 d, a, b;", "f4 f4", "u4")
    for t, kind in (("e4m3x2", E4M3), ("e5m2x2", E5M2)):
        yield snippet(f"cvt.rn.satfinite.{t}.f32 d, a, b;", "f4 f4", "u2")
        yield snippet(f"cvt.rn.satfinite.{t}.f16x2 d, a;", "u4", "u2")
        yield snippet(
            f"cvt.rn.f16x2.{t} d, a;",
            "u2",
            "u4",
            lambda a, k=kind: _halves(a.view(k)),
        )
    yield snippet("cvt.pack.sat.s8.s32.b32 d, a, b, c;", "i4 i4 u4", "u4")
    yield snippet("cvt.pack.sat.u16.s32 d, a, b;", "i4 i4", "u4")


def comparisons():
    for name, function in (
        ("lt", np.less),
        ("leu", lambda a, b: (a <= b) | np.isnan(a) | np.isnan(b)),
        ("neu", lambda a, b: a != b),
        ("ne", lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b)),
        ("num", lambda a, b: ~np.isnan(a) & ~np.isnan(b)),
        ("nan", lambda a, b: np.isnan(a) | np.isnan(b)),
    ):
        for t, kind in (("f32", "f4"), ("f64", "f8"), ("f16", "f2")):
            yield snippet(
                f"setp.{name}.{t} %p0, a, b; selp.b32 d, 1, 0, %p0;",
                f"{kind} {kind}",
                "u4",
                lambda a, b, f=function: f(a, b).astype("u4"),
                name=f"setp.{name}.{t}",
            )
    for name in ("eq", "lt", "ge", "hi"):
        t = "u32" if name == "hi" else "s32"
        functions = {"eq": np.equal, "lt": np.less, "ge": np.greater_equal, "hi": np.greater}
        kind = "u4" if name == "hi" else "i4"
        yield snippet(
            f"setp.{name}.{t} %p0|%p1, a, b; selp.u32 %r0, 1, 0, %p0; selp.u32 %r1, 2, 0, %p1;"
            " or.b32 d, %r0, %r1;",
            f"{kind} {kind}",
            "u4",
            lambda a, b, f=functions[name]: np.where(f(a, b), 1, 2),
            name=f"setp.{name}.{t}",
        )
    yield snippet(
        "setp.gt.s32 %p1, b, 0; setp.lt.and.s32 %p0, a, b, !%p1; selp.b32 d, 1, 0, %p0;",
        "i4 i4",
        "u4",
        lambda a, b: (a < b) & ~(b > 0),
        name="setp.and",
    )
    yield snippet(
        "set.lt.u32.f32 d, a, b;", "f4 f4", "u4", lambda a, b: np.where(a < b, 0xFFFFFFFF, 0)
    )
    yield snippet("set.ge.f32.s32 d, a, b;", "i4 i4", "f4", lambda a, b: (a >= b).astype("f4"))
    yield snippet(
        "slct.b32.s32 d, a, b, c;", "u4 u4 i4", "u4", lambda a, b, c: np.where(c >= 0, a, b)
    )
    yield snippet(
        "setp.lt.f16x2 %p0|%p1, a, b; selp.u32 %r0, 1, 0, %p0; selp.u32 %r1, 2, 0, %p1;"
        " or.b32 d, %r0, %r1;",
        "u4 u4",
        "u4",
        name="setp.f16x2",
    )
    yield snippet(
        "testp.subnormal.f32 %p0, a; selp.b32 d, 1, 0, %p0;",
        "f4",
        "u4",
        lambda a: (a != 0) & (np.abs(a) < 2.0**-126),
        name="testp",
    )


def warp():
    lane = np.arange(128) % 32
    first = np.arange(128) - lane
    yield snippet(
        "shfl.sync.bfly.b32 d, a, 5, 31, -1;", "u4", "u4", lambda a: a[np.arange(128) ^ 5]
    )
    yield snippet(
        "shfl.sync.down.b32 d, a, 3, 31, -1;",
        "u4",
        "u4",
        lambda a: a[np.where(lane + 3 < 32, np.arange(128) + 3, np.arange(128))],
    )
    yield snippet(
        "shfl.sync.up.b32 d|%p0, a, 2, 0, -1; @!%p0 mov.b32 d, 7;",
        "u4",
        "u4",
        lambda a: np.where(lane >= 2, a[np.maximum(np.arange(128) - 2, 0)], 7),
        name="shfl.up",
    )
    yield snippet(
        "and.b32 b, b, 31; shfl.sync.idx.b32 d, a, b, 31, -1;",
        "u4 u4",
        "u4",
        lambda a, b: a[first + (b & 31)],
        name="shfl.idx",
    )
    yield snippet(
        "shfl.sync.idx.b32 d, a, 2, 0x181F, -1;", "u4", "u4", lambda a: a[first + lane // 8 * 8 + 2]
    )
    yield snippet(
        "setp.lt.s32 %p0, a, b; vote.sync.ballot.b32 d, %p0, -1;",
        "i4 i4",
        "u4",
        lambda a, b: np.repeat(
            np.packbits((a < b).reshape(4, 32), axis=1, bitorder="little").view("u4"), 32
        ),
        name="vote.ballot",
    )
    for mode, function in (("all", np.all), ("any", np.any)):
        yield snippet(
            f"setp.lt.s32 %p0, a, b; vote.sync.{mode}.pred %p1, %p0, -1; selp.b32 d, 1, 0, %p1;",
            "i4 i4",
            "u4",
            lambda a, b, f=function: np.repeat(f((a < b).reshape(4, 32), axis=1), 32),
            name=f"vote.{mode}",
        )
    for name, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
        for t, kind in (("u32", "u4"), ("s32", "i4")):
            yield snippet(
                f"redux.sync.{name}.{t} d, a, -1;",
                kind,
                kind,
                lambda a, f=function: np.repeat(
                    f.reduce(a.reshape(4, 32), axis=1, dtype=a.dtype), 32
                ),
            )
    yield snippet(
        "redux.sync.xor.b32 d, a, -1;",
        "u4",
        "u4",
        lambda a: np.repeat(np.bitwise_xor.reduce(a.reshape(4, 32), axis=1), 32),
    )
    yield snippet("and.b32 a, a, 3; match.any.sync.b32 d, a, -1;", "u4", "u4", name="match.any")
    yield snippet("match.all.sync.b32 d|%p0, a, -1;", "u4", "u4", name="match.all")
    yield snippet(
        "elect.sync %r0|%p0, -1; selp.b32 d, a, 0, %p0;",
        "u4",
        "u4",
        lambda a: np.where(lane == 0, a, 0),
        name="elect",
    )
    yield snippet(
        "setp.lt.u32 %p0, %thread, 40; mov.b32 d, 0; @%p0 activemask.b32 d;",
        "u4",
        "u4",
        name="activemask",
    )
    yield snippet("mov.u32 d, %lanemask_lt;", "u4", "u4", lambda a: (1 << lane) - 1)
    yield snippet("movmatrix.sync.aligned.m8n8.trans.b16 d, a;", "u4", "u4")


def all_snippets() -> list[Snippet]:
    groups = (integers, bits, floats, approximations, conversions, comparisons, warp)
    return [item for group in groups for item in group()]
