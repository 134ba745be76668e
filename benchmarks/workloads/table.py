"""The rows of the table, with their goals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.workloads.attention import Attention
from benchmarks.workloads.elementwise import Add
from benchmarks.workloads.matmul import (
    BatchedMatmul,
    DescriptorMatmul,
    OddMatmul,
    PersistentMatmul,
    PointerMatmul,
)
from benchmarks.workloads.rows import Softmax
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
    for shape in ((65536, 1024), (16384, 4096), (8192, 8192), (8192, 16384)):
        yield Row(f"softmax fp16 {shape[0]}x{shape[1]}", 1.0, Softmax(*shape), Softmax(3, 256))
    yield Row("softmax fp16 4096x12288", 1.15, Softmax(4096, 12288), Softmax(3, 300))


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
                make = partial(Attention, head=head, is_causal=is_causal)
                large = make(16384 // length, 2048 // head, length)
                small = make(1, 2, 256)
                yield Row(f"attention bf16 descriptors {tail}", 1.0, large, small)
                if length == 4096:
                    large = make(4, 2048 // head, length, has_pointers=True)
                    small = make(1, 2, 256, has_pointers=True)
                    yield Row(f"attention bf16 pointers {tail}", 1.0, large, small)


def all_rows() -> list[Row]:
    return [*memory_rows(), *matmul_rows(), *attention_rows()]
