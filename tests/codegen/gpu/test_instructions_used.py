"""The benchmarks' kernels are made of the instructions that they should be made of."""

import re
from collections import Counter

import pytest

from tests.codegen.gpu import harness
from tilewright.codegen.gpu import convert
from tilewright.layout import Rename

pytest.importorskip("torch")

from benchmarks.workloads.table import all_rows
from tests.codegen.gpu.benchmark_calls import calls_of, ptx_of_call

ROWS = {row.name: row for row in all_rows()}
ARCHITECTURES = ["sm_80", "sm_90a"]
CP_ASYNC, TENSOR_LOAD = "cp.async.cg.shared.global", "cp.async.bulk.tensor.2d.shared::cluster"
TENSOR_STORE = "cp.async.bulk.tensor.2d.global.shared::cta"
# Tiles come and go by 16 bytes; what is left are the numbers that a row has one of.
STREAMED = {
    "add fp32 2^28": 0,
    "row sum fp32 65536x4096": 1,
    "gather bf16 2^20 rows x 256": 1,
    "transpose fp16 8192": 0,
    "softmax fp16 65536x1024": 0,
    "softmax fp16 16384x4096": 0,
    "softmax fp16 8192x16384": 0,
    "softmax fp16 4096x12288": 0,
    "layer norm bf16 16384x4096": 2,
    "layer norm bf16 8192x8192": 2,
    "bias gelu residual bf16 16384x4096": 0,
}
# What multiplies on sm_90a and on sm_80.
WGMMA = {
    "bf16": r"m64n\d+k16\.f32\.bf16\.bf16",
    "fp16": r"m64n\d+k16\.f32\.f16\.f16",
    "fp8": r"m64n\d+k32\.f32\.e4m3\.e4m3",
    "tf32": r"m64n\d+k8\.f32\.tf32\.tf32",
    "int8": r"m64n\d+k32\.s32\.s8\.s8",
}
MMA = {
    "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "fp16": "m16n8k16.row.col.f32.f16.f16.f32",
    "fp8": "m16n8k16.row.col.f32.f16.f16.f32",  # which has no instruction there
    "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "int8": "m16n8k32.row.col.s32.s8.s8.s32",
}
PRODUCTS = [
    ("bf16", "matmul bf16 pointers 8192"),
    ("bf16", "matmul bf16 descriptors 8192"),
    ("bf16", "matmul bf16 persistent 8192"),
    ("bf16", "grouped matmul bf16 64 experts"),
    ("bf16", "attention bf16 descriptors 4096 d64"),
    ("bf16", "attention bf16 descriptors 4096 d128 causal"),
    ("bf16", "attention bf16 pointers 4096 d64"),
    ("bf16", "attention backward bf16 4096 d64"),
    *((name, f"matmul {name} pointers 4096") for name in ("fp16", "fp8", "tf32", "int8")),
    *((name, f"matmul {name} descriptors 4096") for name in ("fp16", "fp8", "tf32", "int8")),
]
EVERYDAY = {
    "matmul bf16 persistent 8192",
    "attention bf16 descriptors 4096 d64",
    "matmul int8 pointers 4096",
}


def ptx_of_row(name, architecture):
    """The texts of all kernels of a row."""
    target = harness.ARCHITECTURES[architecture]
    return [ptx_of_call(call, target).ptx for call in calls_of(ROWS[name], target)]


def instructions(ptx):
    """The names of all instructions, without their predicates, and how many there are of each."""
    return Counter(re.findall(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)[ \t;]", ptx, re.MULTILINE))


def starting_with(found, *names):
    return sum(count for name, count in found.items() if name.startswith(names))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", STREAMED)
def test_tiles_come_and_go_by_16_bytes(name, architecture):
    (ptx,) = ptx_of_row(name, architecture)
    found = instructions(ptx)
    accesses = {n: c for n, c in found.items() if re.match(r"(ld|st)\.global", n)}
    narrow = sum(count for name, count in accesses.items() if not name.endswith(".v4.b32"))
    assert sum(accesses.values()) > narrow == STREAMED[name]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", [n for n in STREAMED if n.startswith(("softmax", "layer norm"))])
def test_rows_are_never_moved_between_layouts(name, architecture, monkeypatch):
    plans = []
    plan = convert._plan
    monkeypatch.setattr(convert, "_plan", lambda *given: plans.append(plan(*given)) or plans[-1])
    (ptx,) = ptx_of_row(name, architecture)
    assert all(isinstance(made, Rename) for made in plans)
    # A word of each warp for each of the two reductions, and shuffles within warps for them alone.
    found = instructions(ptx)
    assert starting_with(found, "st.shared") == found["st.shared.b32"] == 2
    assert found["shfl.sync.bfly.b32"] == starting_with(found, "shfl")
    assert found["bar.sync"] == 2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("element", "name"),
    [
        pytest.param(*row, marks=[] if row[1] in EVERYDAY else pytest.mark.slow, id=row[1])
        for row in PRODUCTS
    ],
)
def test_products(element, name, architecture):
    texts = [ptx for ptx in ptx_of_row(name, architecture) if re.search(r"mma", ptx)]
    (ptx,) = texts
    found = instructions(ptx)
    if architecture == "sm_80":
        products = [n for n in found if n.startswith("mma.sync")]
        assert products == [f"mma.sync.aligned.{MMA[element]}"]
        assert found[CP_ASYNC]
        # Elements of 8 bits that become wider on the way are read as they are needed.
        assert starting_with(found, "ldmatrix") or element == "fp8"
    else:
        products = [n for n in found if n.startswith(("mma.sync", "wgmma.mma"))]
        assert all(
            re.fullmatch(rf"wgmma\.mma_async\.sync\.aligned\.{WGMMA[element]}", n) for n in products
        )
        copied = starting_with(found, TENSOR_LOAD)
        is_by_maps = "descriptors" in name or "persistent" in name or "backward" in name
        assert bool(copied) == is_by_maps
        assert bool(found[CP_ASYNC]) == (not is_by_maps)
        assert bool(starting_with(found, TENSOR_STORE)) == is_by_maps
        # No tile passes by registers on its way to a product.
        assert not is_by_maps or not starting_with(found, "ld.global")
    assert products
