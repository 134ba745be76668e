"""Layer norm and RMS norm, forward and backward, and of a sum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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

F = torch.nn.functional
GPU_SHAPES = [(16384, 4096), (8192, 8192)]
CPU_SHAPES = [(4096, 4096)]


def rows(device: str) -> list[LibraryRow]:
    on_gpu = device == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    goals = {EAGER: 2.0, COMPILED: 1.0, COPY: 0.85} if on_gpu else {EAGER: 1.2}
    name = "bf16" if on_gpu else "fp32"
    return [
        LibraryRow(
            f"{norm} {name} {shape[0]}x{shape[1]}",
            passes * shape[0] * shape[1] * dtype.itemsize,
            "GB/s",
            partial(sides, norm, shape, dtype),
            goals,
        )
        for norm, passes in (
            ("layer norm", 2),
            ("rms norm", 2),
            ("add rms norm", 4),
            ("layer norm backward", 3),
            ("rms norm backward", 3),
        )
        for shape in (GPU_SHAPES if on_gpu else CPU_SHAPES)
    ]


def functions(norm: str, columns: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Ours and PyTorch's, as functions of the input, the residual, the weight and the bias."""
    shape = (columns,)
    if norm.startswith("layer"):
        return (
            lambda x, _, weight, bias: kernels.layer_norm(x, shape, weight, bias),
            lambda x, _, weight, bias: F.layer_norm(x, shape, weight, bias),
        )
    if norm.startswith("rms"):
        return (
            lambda x, _, weight, __: kernels.rms_norm(x, shape, weight, 1e-5),
            lambda x, _, weight, __: F.rms_norm(x, shape, weight, 1e-5),
        )

    def plain(x: Any, residual: Any, weight: Any, _: Any) -> Any:
        total = x + residual
        return F.rms_norm(total, shape, weight, 1e-5), total

    return lambda x, residual, weight, _: kernels.add_rms_norm(
        x, residual, shape, weight, 1e-5
    ), plain


def sides(norm: str, shape: tuple[int, int], dtype: torch.dtype, device: str) -> Sides:
    ours, plain = functions(norm, shape[1])
    is_backward = norm.endswith("backward")
    x, residual = (torch.randn(shape, dtype=dtype, device=device) for _ in range(2))
    weight, bias = (torch.randn(shape[1], dtype=dtype, device=device) for _ in range(2))
    with_inductor = compiled(plain)
    if not is_backward:
        inputs = (x, residual, weight, bias)
        return {
            OURS: lambda: ours(*inputs),
            EAGER: lambda: plain(*inputs),
            COMPILED: lambda: with_inductor(*inputs),
        }
    needed = [x, weight] + [bias] * norm.startswith("layer")
    for parameter in needed:
        parameter.requires_grad_()
    inputs = [x, residual, weight, bias]
    return {
        OURS: backward_of(ours, inputs, residual),
        EAGER: backward_of(plain, inputs, residual),
        COMPILED: backward_of(with_inductor, inputs, residual),
    }
