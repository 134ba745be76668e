"""Attention, forward and backward, beside the flash backend of PyTorch and cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.library_rows.row import (
    EAGER,
    LIBRARY,
    OURS,
    LibraryRow,
    Sides,
    backward_of,
)
from tilewright import kernels

TOKENS = 16384  # of a batch
CPU_SHAPE = (1, 8, 2048, 64)
SDPA = torch.nn.functional.scaled_dot_product_attention


def rows(device: str) -> list[LibraryRow]:
    """For a GPU, eager is the flash backend, and the library cuDNN."""
    if device == "cpu":
        return [row(CPU_SHAPE, False, False, torch.float32, {EAGER: 1.0})]
    found = []
    for is_backward in (False, True):
        goals = {EAGER: 1.0} if is_backward else {EAGER: 1.3, LIBRARY: 0.9}
        for head, heads in ((64, 32), (128, 16)):
            for length in (1024, 4096, 16384):
                shape = (max(TOKENS // length, 1), heads, length, head)
                found += [
                    row(shape, is_causal, is_backward, torch.bfloat16, goals)
                    for is_causal in (False, True)
                ]
    return found


def row(
    shape: tuple[int, ...],
    is_causal: bool,
    is_backward: bool,
    dtype: torch.dtype,
    goals: dict[str, float],
) -> LibraryRow:
    batch, heads, length, head = shape
    name = f"attention{' backward' if is_backward else ''} {length} d{head}"
    amount = 4 * batch * heads * length**2 * head
    amount *= (2.5 if is_backward else 1) * (0.5 if is_causal else 1)
    return LibraryRow(
        name + (" causal" if is_causal else ""),
        amount,
        "TFLOP/s",
        partial(sides, shape, is_causal, is_backward, dtype),
        goals,
        tolerance=4e-2,
    )


def by_backend(backend: SDPBackend, is_causal: bool) -> Callable[..., Any]:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return SDPA(q, k, v, is_causal=is_causal)

    return run


def sides(
    shape: tuple[int, ...], is_causal: bool, is_backward: bool, dtype: torch.dtype, device: str
) -> Sides:
    inputs = [
        torch.randn(shape, dtype=dtype, device=device, requires_grad=is_backward) for _ in range(3)
    ]
    functions = {
        OURS: partial(kernels.attention, is_causal=is_causal),
        EAGER: by_backend(SDPBackend.FLASH_ATTENTION, is_causal),
    }
    if device == "cuda":
        functions[LIBRARY] = by_backend(SDPBackend.CUDNN_ATTENTION, is_causal)
    if is_backward:
        upstream = torch.randn_like(inputs[0])
        return {
            name: backward_of(function, inputs, upstream) for name, function in functions.items()
        }
    return {name: partial(function, *inputs) for name, function in functions.items()}
