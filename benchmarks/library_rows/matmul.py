"""Matrix products, and what follows them."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.library_rows.row import COMPILED, EAGER, OURS, LibraryRow, Sides, compiled
from tilewright import kernels

SIZES = (1024, 2048, 4096, 8192)


def rows(device: str) -> list[LibraryRow]:
    if device == "cpu":
        return [product(1024, torch.float32, {EAGER: 0.9})]
    plain = [product(size, torch.bfloat16, {EAGER: 0.97} if size >= 4096 else {}) for size in SIZES]
    return [
        *plain,
        LibraryRow(
            "matmul bf16 128x128x65536",
            2 * 128 * 128 * 65536,
            "TFLOP/s",
            partial(sides, (128, 128, 65536), torch.bfloat16),
            {EAGER: 0.97},
        ),
        LibraryRow(
            "linear gelu residual bf16 4096",
            2 * 4096**3,
            "TFLOP/s",
            partial(layer, 4096),
            {EAGER: 1.0, COMPILED: 0.97},
        ),
    ]


def product(size: int, dtype: torch.dtype, goals: dict[str, float]) -> LibraryRow:
    name = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    return LibraryRow(
        f"matmul {name} {size}",
        2 * size**3,
        "TFLOP/s",
        partial(sides, (size, size, size), dtype),
        goals,
    )


def sides(sizes: tuple[int, int, int], dtype: torch.dtype, device: str) -> Sides:
    m, n, k = sizes
    a = torch.randn(m, k, dtype=dtype, device=device)
    b = torch.randn(k, n, dtype=dtype, device=device)
    return {OURS: lambda: kernels.matmul(a, b), EAGER: lambda: a @ b}


def layer(size: int, device: str) -> Sides:
    x, weight, residual = (
        torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(3)
    )
    bias = torch.randn(size, dtype=torch.bfloat16, device=device)

    def eager() -> torch.Tensor:
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias)) + residual

    return {
        OURS: lambda: kernels.linear(x, weight, bias, activation="gelu", residual=residual),
        EAGER: eager,
        COMPILED: compiled(eager),
    }
