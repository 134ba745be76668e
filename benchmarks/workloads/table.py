"""The rows of the table, with their goals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.workloads.attention import Attention, AttentionBackward, PointerAttention
from benchmarks.workloads.elementwise import (
    Add,
    BiasGeluResidual,
    Dropout,
    GatherRows,
    Histogram,
    Transpose,
)
from benchmarks.workloads.inference import GroupedMatmul, Int4Matmul, PagedDecode
from benchmarks.workloads.matmul import (
    BatchedMatmul,
    DescriptorMatmul,
    OddMatmul,
    PersistentMatmul,
    PointerMatmul,
)
from benchmarks.workloads.rows import (
    CumSum,
    LayerNorm,
    LayerNormBackward,
    Recurrence,
    RowSum,
    Softmax,
)
from benchmarks.workloads.workload import Workload


@dataclass(frozen=True)
class Row:
    """`goal` is the least ratio of Tilewright's rate to Triton's.

    `floor` names a row whose rate it must reach as well. `small` is a problem of the same kind
    that a CPU solves at once.
    """

    name: str
    goal: float
    workload: Workload
    small: Workload
    floor: str = ""


def memory_rows() -> Iterator[Row]:
    yield Row("add fp32 2^28", 1.0, Add(1 << 28), Add(3000))
    yield Row("row sum fp32 65536x4096", 1.0, RowSum(65536, 4096), RowSum(3, 300))
    yield Row("gather bf16 2^20 rows x 256", 1.0, GatherRows(1 << 20, 256), GatherRows(100, 256))
    yield Row("transpose fp16 8192", 1.0, Transpose(8192, 8192), Transpose(200, 72))
    for shape in ((65536, 1024), (16384, 4096), (8192, 8192), (8192, 16384)):
        yield Row(f"softmax fp16 {named(shape)}", 1.0, Softmax(*shape), Softmax(3, 256))
    yield Row("softmax fp16 4096x12288", 1.15, Softmax(4096, 12288), Softmax(3, 300))
    for shape in ((16384, 4096), (8192, 8192)):
        yield Row(f"layer norm bf16 {named(shape)}", 1.0, LayerNorm(*shape), LayerNorm(3, 300))
    for shape in ((16384, 4096), (8192, 8192)):
        large, small = LayerNormBackward(*shape), LayerNormBackward(5, 300)
        yield Row(f"layer norm backward bf16 {named(shape)}", 1.0, large, small)
    gelu = BiasGeluResidual(16384, 4096)
    yield Row("bias gelu residual bf16 16384x4096", 1.0, gelu, BiasGeluResidual(3, 2100))
    yield Row("cumsum fp32 32768x4096", 1.0, CumSum(32768, 4096), CumSum(3, 300))
    yield Row("associative scan fp32 16384x4096", 1.0, Recurrence(16384, 4096), Recurrence(3, 300))
    yield Row("dropout fp32 2^27", 1.3, Dropout(1 << 27), Dropout(3000))
    yield Row("histogram 2^26", 1.3, Histogram(1 << 26), Histogram(1 << 14))


def named(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"


def matmul_rows() -> Iterator[Row]:
    small = PointerMatmul(256, 256, 128)
    for size in (8192, 4096, 2048, 1024):
        yield Row(f"matmul bf16 pointers {size}", 1.0, PointerMatmul(size, size, size), small)
    odd = OddMatmul(8191, 4099, 1031)
    yield Row("matmul bf16 pointers 8191x4099x1031", 1.0, odd, OddMatmul(131, 70, 83))
    yield Row(
        "matmul bf16 pointers 64 of 512^3",
        1.0,
        BatchedMatmul(512, 512, 512, batch=64),
        BatchedMatmul(128, 128, 128, batch=2),
    )
    for form, kind in (("descriptors", DescriptorMatmul), ("persistent", PersistentMatmul)):
        for size in (8192, 4096, 2048, 1024):
            yield Row(
                f"matmul bf16 {form} {size}",
                1.0,
                kind(size, size, size),
                kind(256, 256, 128),
                floor=f"matmul bf16 pointers {size}" if form == "descriptors" else "",
            )
    for dtype in ("fp8", "fp16", "tf32", "int8"):
        for form, kind, size in (
            ("pointers", PointerMatmul, 4096),
            ("descriptors", DescriptorMatmul, 4096),
            ("descriptors", DescriptorMatmul, 8192),
        ):
            workload, small = kind(size, size, size, dtype), kind(256, 256, 256, dtype)
            yield Row(f"matmul {dtype} {form} {size}", 1.0, workload, small)


def attention_rows() -> Iterator[Row]:
    for head in (64, 128):
        for length in (4096, 16384):
            for is_causal in (False, True):
                tail = f"{length} d{head}{' causal' if is_causal else ''}"
                large = (16384 // length, 2048 // head, length, head, is_causal)
                small = (1, 2, 256, head, is_causal)
                for form, kind in (("descriptors", Attention), ("pointers", PointerAttention)):
                    if kind is Attention or length == 4096:
                        name = f"attention bf16 {form} {tail}"
                        yield Row(name, 1.0, kind(*large), kind(*small))


def backward_rows() -> Iterator[Row]:
    for head in (64, 128):
        for length in (4096, 16384):
            for is_causal in (False, True):
                tail = f"{length} d{head}{' causal' if is_causal else ''}"
                make = partial(AttentionBackward, head=head, is_causal=is_causal)
                large = make(16384 // length, 2048 // head, length)
                yield Row(f"attention backward bf16 {tail}", 1.0, large, make(1, 2, 256))


def inference_rows() -> Iterator[Row]:
    grouped = GroupedMatmul(32768, 4096, 2048)
    yield Row("grouped matmul bf16 64 experts", 1.0, grouped, GroupedMatmul(70, 256, 64))
    few, many = Int4Matmul(16, 28672, 8192), Int4Matmul(4096, 8192, 8192)
    yield Row("matmul int4 M=16", 1.2, few, Int4Matmul(16, 256, 256))
    yield Row("matmul int4 M=4096", 1.2, many, Int4Matmul(256, 256, 256))
    yield Row("paged decode bf16", 1.0, PagedDecode(64, 8192), PagedDecode(1, 300))


def all_rows() -> list[Row]:
    return [
        *memory_rows(),
        *matmul_rows(),
        *attention_rows(),
        *backward_rows(),
        *inference_rows(),
    ]
