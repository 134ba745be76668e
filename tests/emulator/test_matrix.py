"""Matrix instructions: every type of `mma`, the shared-memory layouts of `wgmma`, `ldmatrix`."""

import numpy as np
import pytest
from ptx_matrix_kernels import (
    HEAD,
    KINDS,
    a_elements,
    b_elements,
    c_elements,
    fragment_kernel,
    held,
    k_major,
    mn_major,
    registers,
    warpgroup_kernel,
    wgmma_elements,
)
from ptx_snippets import assemble

from tilewright.emulator import Emulator

MMA = [
    ("m16n8k16", "f32", "f16", "f16", "f32"),
    ("m16n8k8", "f32", "f16", "f16", "f32"),
    ("m16n8k16", "f16", "f16", "f16", "f16"),
    ("m16n8k16", "f32", "bf16", "bf16", "f32"),
    ("m16n8k8", "f32", "bf16", "bf16", "f32"),
    ("m16n8k8", "f32", "tf32", "tf32", "f32"),
    ("m16n8k4", "f32", "tf32", "tf32", "f32"),
    ("m16n8k32", "s32", "s8", "s8", "s32"),
    ("m16n8k16", "s32", "u8", "s8", "s32"),
    ("m16n8k32", "f32", "e4m3", "e5m2", "f32"),
    ("m16n8k16", "f64", "f64", "f64", "f64"),
]


def integers(shape, kind, seed, low=-3, high=4):
    low = max(low, 0) if np.dtype(kind).kind == "u" else low
    return np.random.default_rng(seed).integers(low, high, shape).astype(kind)


def mma_case(shape, types):
    to, a_type, b_type, c_type = types
    k = int(shape.partition("k")[2])
    a = integers((16, k), KINDS[a_type], 0)
    b = integers((k, 8), KINDS[b_type], 1)
    c = integers((16, 8), KINDS[c_type], 2, -50, 50)
    a_held, b_held = held(a, a_elements(a_type, k)), held(b, b_elements(b_type, k))
    c_held = held(c, c_elements())
    bits = 64 if to == "f64" else 32
    counts = [len(a_held), len(b_held), len(c_held), len(c_held)]
    operands = ", ".join(
        "{" + registers(x, n) + "}" for x, n in zip("dabc", [counts[3], *counts[:3]], strict=True)
    )
    extra = ".satfinite" if to == "s32" else ""
    form = f"mma.sync.aligned.{shape}.row.col{extra}.{'.'.join(types)} {operands};"
    expected = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    return fragment_kernel(form, counts, bits), [a_held, b_held, c_held], expected.astype(KINDS[to])


@pytest.mark.parametrize("case", MMA, ids=".".join)
def test_mma(case):
    text, inputs, expected = mma_case(case[0], case[1:])
    out = np.zeros_like(held(expected, c_elements()))
    Emulator(text).launch("k", (1,), (32,), [*inputs, out])
    assert np.array_equal(out, held(expected, c_elements()))


WGMMA = {
    # name: types, N, K, layout and swizzle of A, those of B, steps
    "bf16": ("f32", "bf16", 64, 16, ("k", 128), ("k", 128), 1),
    "bf16-steps": ("f32", "bf16", 128, 64, ("k", 128), ("k", 128), 4),
    "f16-n256": ("f32", "f16", 256, 16, ("k", 32), ("k", 32), 1),
    "f16-64-byte-swizzle": ("f32", "f16", 32, 32, ("k", 64), ("k", 64), 2),
    "f16-no-swizzle": ("f32", "f16", 32, 16, ("k", 0), ("k", 0), 1),
    "b-by-rows": ("f32", "bf16", 128, 16, ("k", 32), ("mn", 128), 1),
    "a-by-rows": ("f32", "bf16", 16, 16, ("mn", 128), ("k", 32), 1),
    "both-by-rows-64": ("f32", "f16", 64, 16, ("mn", 64), ("mn", 64), 1),
    "both-by-rows-32": ("f32", "f16", 32, 16, ("mn", 32), ("mn", 32), 1),
    "by-rows-no-swizzle": ("f32", "f16", 32, 16, ("mn", 0), ("mn", 0), 1),
    "f16-accumulators": ("f16", "f16", 24, 16, ("k", 32), ("k", 32), 1),
    "tf32": ("f32", "tf32", 40, 8, ("k", 32), ("k", 32), 1),
    "e4m3": ("f32", "e4m3", 64, 64, ("k", 64), ("k", 64), 2),
    "e5m2": ("f32", "e5m2", 8, 32, ("k", 32), ("k", 32), 1),
    "s8": ("s32", "s8", 64, 32, ("k", 32), ("k", 32), 1),
    "u8": ("s32", "u8", 64, 32, ("k", 32), ("k", 32), 1),
    "a-in-registers": ("f32", "bf16", 64, 16, ("registers", 0), ("k", 32), 1),
    "e4m3-a-in-registers": ("f32", "e4m3", 64, 32, ("registers", 0), ("k", 32), 1),
}


def wgmma_case(to, type, n, k, a_layout, b_layout, steps):
    a, b = integers((64, k), KINDS[type], 3), integers((n, k), KINDS[type], 4)
    c = integers((64, n), KINDS[to], 5, -9, 9)
    images, words = [], []
    for matrix, (layout, swizzle) in ((a, a_layout), (b, b_layout)):
        if layout == "registers":
            parts = [held(a[16 * w : 16 * w + 16], a_elements(type, k)) for w in range(4)]
            image, word = np.ascontiguousarray(np.concatenate(parts, axis=1)), 0
        else:
            image, word = (k_major if layout == "k" else mn_major)(matrix, swizzle)
        images.append(image)
        words.append(word)
    elements = wgmma_elements(n)
    each = 4 // np.dtype(KINDS[to]).itemsize
    start = c[elements].reshape(-1, each, 128).transpose(0, 2, 1)
    start = np.ascontiguousarray(start).view(np.uint32)[..., 0]
    from_registers = a_layout[0] == "registers"
    flags = ", 1, 1" if to != "s32" else ""
    if type in {"f16", "bf16"}:
        by_rows = [int(layout[0] == "mn") for layout in (a_layout, b_layout)]
        flags += "".join(f", {flag}" for flag in by_rows[from_registers:])
    form = f"m64n{n}k{k // steps}.{to}.{type}.{type}"
    text = warpgroup_kernel(
        form,
        0 if from_registers else images[0].nbytes,
        images[1].nbytes,
        len(start),
        a_registers=4 * from_registers,
        flags=flags,
        steps=steps,
    )
    total = (a.astype(np.float64) @ b.astype(np.float64).T + c.astype(np.float64)).astype(KINDS[to])
    expected = total[elements].reshape(-1, each, 128).transpose(0, 2, 1)
    expected = np.ascontiguousarray(expected).view(np.uint32)[..., 0]
    shared = (0 if from_registers else images[0].nbytes) + images[1].nbytes
    return text, [*images, *words], np.ascontiguousarray(start), expected, shared


@pytest.mark.parametrize("case", WGMMA.values(), ids=WGMMA)
def test_wgmma(case):
    text, inputs, out, expected, shared = wgmma_case(*case)
    report = Emulator(text).launch(
        "k", (1,), (128,), [*inputs, out], shared_bytes=shared, races=True, uninitialised=True
    )
    assert np.array_equal(out, expected)
    assert report.is_clean, report


def matrix_memory_kernel(count, trans):
    """Store threads' numbers with stmatrix, load them back with ldmatrix."""
    data = "{" + registers("d", count) + "}"
    lines = [HEAD, ".visible .entry k(.param .u64 pa, .param .u64 pd)\n{"]
    lines.append(".shared .align 16 .b8 tile[512];\n.reg .b64 %address, %offset, %to;")
    lines.append(f".reg .b32 %thread, %at;\n.reg .b32 %d<{count}>;\nmov.u32 %thread, %tid.x;")
    lines.append("ld.param.u64 %address, [pa];\nld.param.u64 %to, [pd];")
    lines.append("mul.wide.u32 %offset, %thread, 4;\nadd.s64 %address, %address, %offset;")
    lines.append("add.s64 %to, %to, %offset;\nmov.b32 %at, tile;\nshl.b32 %thread, %thread, 4;")
    lines.append("add.s32 %at, %at, %thread;")
    lines += [f"ld.global.b32 %d{i}, [%address+{128 * i}];" for i in range(count)]
    lines.append(f"stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [%at], {data};")
    lines.append("bar.warp.sync -1;")
    lines.append(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {data}, [%at];")
    lines += [f"st.global.b32 [%to+{128 * i}], %d{i};" for i in range(count)]
    return "\n".join([*lines, "ret;\n}\n"])


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_in_shared_memory(count, trans):
    text = matrix_memory_kernel(count, trans)
    source = np.random.default_rng(0).integers(0, 1 << 32, (count, 32), np.uint64).astype(np.uint32)
    out = np.zeros_like(source)
    report = Emulator(text).launch("k", (1,), (32,), [source, out], races=True)
    matrices = source.view(np.uint16).reshape(count, 8, 8)
    expected = matrices.transpose(0, 2, 1) if trans else matrices
    assert np.array_equal(out, np.ascontiguousarray(expected).reshape(count, 64).view(np.uint32))
    assert report.is_clean, report


def test_an_assembler_accepts_all():
    texts = [mma_case(case[0], case[1:])[0] for case in MMA]
    texts += [wgmma_case(*case)[0] for case in WGMMA.values()]
    texts += [matrix_memory_kernel(4, ".trans")]
    joined = HEAD
    for i, text in enumerate(texts):
        body = text.replace(HEAD, "").replace(".entry k(", f".entry k{i}(")
        if "smem[]" in body and "smem[]" in joined:
            body = body.replace(".extern .shared .align 1024 .b8 smem[];", "")
        joined += body
    assemble(joined)
