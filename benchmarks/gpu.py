"""Measure the NVIDIA target beside torch, on the same tensors: `python benchmarks/gpu.py`.

Every row is checked against torch before it is timed. Times are medians over runs in turn, each
after a write to memory that is larger than the second-level cache.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples.attention import attention_kernel
from examples.elementwise import add_kernel
from examples.matmul import whole_matmul_kernel
from examples.rows import layer_norm_kernel, softmax_kernel
from tilewright import cdiv, next_power_of_2

RUNS = 20
CACHE_BYTES = 256 << 20
LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Row:
    """`amount` is in units of a billion: bytes, or floating-point operations."""

    name: str
    amount: float
    unit: str
    tolerance: float
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    out: Any


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
    """Normally distributed numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def add(size: int) -> Row:
    x, y = random(size), random(size)
    out = torch.empty_like(x)
    grid = (cdiv(size, 1024),)
    return Row(
        f"add fp32 {size}", 12e-9 * size, "GB/s", 0.0,
        lambda: add_kernel[grid](x, y, out, size, BLOCK=1024),
        lambda: torch.add(x, y), out,
    )  # fmt: skip


def softmax(rows: int, columns: int) -> Row:
    x = random(rows, columns, dtype=torch.float16)
    out = torch.empty_like(x)
    block = next_power_of_2(columns)
    warps = min(16, max(4, block // 1024))
    return Row(
        f"softmax fp16 {rows}x{columns}", 4e-9 * x.numel(), "GB/s", 2e-3,
        lambda: softmax_kernel[rows,](
            x, out, columns, columns, columns, BLOCK=block, num_warps=warps
        ),
        lambda: torch.softmax(x, 1), out,
    )  # fmt: skip


def layer_norm(rows: int, columns: int) -> Row:
    x = random(rows, columns, dtype=torch.bfloat16)
    weight, bias = (random(columns, dtype=torch.bfloat16) for _ in range(2))
    mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    block = next_power_of_2(columns)
    return Row(
        f"layer norm bf16 {rows}x{columns}", 4e-9 * x.numel(), "GB/s", 5e-2,
        lambda: layer_norm_kernel[rows,](
            x, weight, bias, out, mean, rstd, columns, columns, 1e-5,
            BLOCK=block, num_warps=min(16, max(4, block // 1024)),
        ),
        lambda: torch.nn.functional.layer_norm(x, (columns,), weight, bias), out,
    )  # fmt: skip


def matmul(size: int, dtype: torch.dtype, block: tuple[int, int, int], warps: int) -> Row:
    a, b = random(size, size, dtype=dtype), random(size, size, dtype=dtype)
    out = torch.empty_like(a)
    m, n, k = block
    grid = (cdiv(size, m) * cdiv(size, n),)
    return Row(
        f"matmul {str(dtype)[6:]} {size} {m}x{n}x{k} {warps} warps", 2e-9 * size**3, "GFLOP/s",
        0.02 * size**0.5,
        lambda: whole_matmul_kernel[grid](
            a, b, out, size, size, size, size, 1, size, 1, size, 1,
            BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP_M=8, num_warps=warps,
        ),
        lambda: a @ b, out,
    )  # fmt: skip


def attention(length: int, head: int, *, causal: bool) -> Row:
    heads = 32
    q, k, v = (random(heads, length, head, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    scale = LOG2_E / head**0.5
    work = 4e-9 * heads * length**2 * head * (0.5 if causal else 1)
    return Row(
        f"attention fp16 {length} d{head}{' causal' if causal else ''}", work, "GFLOP/s", 1e-2,
        lambda: attention_kernel[cdiv(length, 128), heads](
            q, k, v, out, scale, length,
            HEAD=head, BLOCK_M=128, BLOCK_N=64, CAUSAL=causal, num_warps=8,
        ),
        lambda: torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=causal
        )[0], out,
    )  # fmt: skip


def rows() -> Iterator[Callable[[], Row]]:
    yield lambda: add(1 << 28)
    yield lambda: add(100_000_007)
    for shape in ((65536, 1024), (16384, 4096), (8192, 8192), (4096, 12288)):
        yield lambda shape=shape: softmax(*shape)
    for shape in ((16384, 4096), (8192, 8192)):
        yield lambda shape=shape: layer_norm(*shape)
    for size in (8192, 4096):
        for block, warps in (((128, 128, 32), 4), ((128, 128, 64), 8), ((128, 256, 64), 8)):
            yield lambda size=size, block=block, warps=warps: matmul(
                size, torch.bfloat16, block, warps
            )
    yield lambda: matmul(4096, torch.float16, (128, 128, 32), 8)
    for head in (64, 128):
        for causal in (False, True):
            yield lambda head=head, causal=causal: attention(4096, head, causal=causal)


def median_ms(functions: list[Callable[[], Any]]) -> list[float]:
    """The median time of each function, called in turn."""
    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(RUNS):
        for function, own in zip(functions, times, strict=True):
            cache.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            torch.cuda.synchronize()
            own.append(start.elapsed_time(end))
    return [statistics.median(own) for own in times]


def measure(make: Callable[[], Row]) -> str:
    row = make()
    began = time.perf_counter()
    kernel = row.ours()
    torch.cuda.synchronize()
    compiling = time.perf_counter() - began
    difference = (row.out.float() - row.theirs().float()).abs().max().item()
    right = difference <= row.tolerance
    ours, theirs = median_ms([row.ours, row.theirs])
    rates = [row.amount / milliseconds * 1e3 for milliseconds in (ours, theirs)]
    return (
        f"{row.name:40} {rates[0]:9.0f} {rates[1]:9.0f} {row.unit:8}"
        f" {theirs / ours:5.2f}x  {compiling:5.2f} s  {kernel.n_regs:3} registers"
        f" {kernel.n_spills:4} spilled  {'right' if right else f'WRONG by {difference}'}"
    )


def host_time() -> str:
    """How long a launch keeps the host, for a kernel with 5 arguments."""
    x = random(1024)
    for _ in range(100):
        add_kernel[1,](x, x, x, 1024, BLOCK=1024)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(1000):
        add_kernel[1,](x, x, x, 1024, BLOCK=1024)
    return f"host time of a launch: {(time.perf_counter() - began) * 1e3:.1f} us"


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    print(f"{'':40} {'ours':>9} {'torch':>9}")
    for make in rows():
        try:
            print(measure(make), flush=True)
        except Exception as error:  # noqa: BLE001 - the other rows are still worth having
            print(f"{type(error).__name__}: {error}", flush=True)
    print(host_time())


if __name__ == "__main__":
    main()
