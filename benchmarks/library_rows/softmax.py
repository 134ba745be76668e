"""Softmax, forward and backward."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.library_rows.row import (
    COMPILED,
    COPY,
    EAGER,
    OURS,
    LibraryRow,
    Sides,
    backward_of,
    compiled,
)
from tilewright import kernels

GPU_SHAPES = [(16384, 4096), (8192, 16384)]
CPU_SHAPES = [(4096, 4096)]


def rows(device: str) -> list[LibraryRow]:
    on_gpu = device == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    goals = {EAGER: 2.0, COMPILED: 1.0, COPY: 0.85} if on_gpu else {EAGER: 1.2}
    return [
        LibraryRow(
            f"softmax{' backward' if is_backward else ''} {name_of(dtype)} {shape[0]}x{shape[1]}",
            (3 if is_backward else 2) * shape[0] * shape[1] * dtype.itemsize,
            "GB/s",
            partial(backward if is_backward else forward, shape, dtype),
            goals,
        )
        for is_backward in (False, True)
        for shape in (GPU_SHAPES if on_gpu else CPU_SHAPES)
    ]


def name_of(dtype: torch.dtype) -> str:
    return {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[dtype]


def eager(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def forward(shape: tuple[int, int], dtype: torch.dtype, device: str) -> Sides:
    x = torch.randn(shape, dtype=dtype, device=device)
    with_inductor = compiled(eager)
    return {
        OURS: lambda: kernels.softmax(x),
        EAGER: lambda: eager(x),
        COMPILED: lambda: with_inductor(x),
    }


def backward(shape: tuple[int, int], dtype: torch.dtype, device: str) -> Sides:
    x = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    dy = torch.randn_like(x)
    return {
        OURS: backward_of(kernels.softmax, [x], dy),
        EAGER: backward_of(eager, [x], dy),
        COMPILED: backward_of(compiled(eager), [x], dy),
    }
