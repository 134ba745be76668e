"""Attention among a tenth of the blocks, beside dense attention and PyTorch's flex_attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.library_rows.row import (
    COMPILED,
    EAGER,
    LIBRARY,
    OURS,
    LibraryRow,
    Sides,
    backward_of,
    compiled,
)
from tilewright import kernels

SDPA = torch.nn.functional.scaled_dot_product_attention


def rows(device: str) -> list[LibraryRow]:
    """Eager is dense attention with a mask, compiled flex_attention; the library has no mask."""
    if device == "cpu":
        return [row((1, 8, 2048, 64), 64, False, False, torch.float32, {EAGER: 4.0})]
    kinds = ((False, False), (True, False), (False, True), (True, True))
    return [
        row((2, heads, 8192, head), 128, is_causal, is_backward, torch.bfloat16, {LIBRARY: 4.0})
        for heads, head in ((32, 64), (16, 128))
        for is_causal, is_backward in kinds
    ]


def row(
    shape: tuple[int, ...],
    block: int,
    is_causal: bool,
    is_backward: bool,
    dtype: torch.dtype,
    goals: dict[str, float],
) -> LibraryRow:
    batch, heads, length, head = shape
    kind = f"{' causal' if is_causal else ''}{' backward' if is_backward else ''}"
    share = layout_of(length // block, is_causal).sum().item() / (length // block) ** 2
    return LibraryRow(
        f"block-sparse attention{kind} {length} d{head}, blocks of {block}, 90 % zeros",
        4 * batch * heads * length**2 * head * (2.5 if is_backward else 1) * share,
        "TFLOP/s",
        partial(sides, shape, block, is_causal, is_backward, dtype),
        goals,
        tolerance=4e-2,
    )


def layout_of(count: int, is_causal: bool) -> torch.Tensor:
    """A tenth of the blocks of each row, or of those up to the diagonal, which is there, too."""
    generator = torch.Generator().manual_seed(0)
    layout = torch.zeros((count, count), dtype=torch.bool)
    for number in range(count):
        there = number + 1 if is_causal else count
        chosen = torch.randperm(there, generator=generator)[: max(there // 10, 1)]
        layout[number, chosen] = True
        layout[number, number] |= is_causal
    return layout


def sides(
    shape: tuple[int, ...],
    block: int,
    is_causal: bool,
    is_backward: bool,
    dtype: torch.dtype,
    device: str,
) -> Sides:
    length = shape[2]
    inputs = [
        torch.randn(shape, dtype=dtype, device=device, requires_grad=is_backward) for _ in range(3)
    ]
    layout = layout_of(length // block, is_causal).to(device)
    sparsity = kernels.BlockSparsity(layout, block)
    mask = layout.repeat_interleave(block, 0).repeat_interleave(block, 1)
    mask = mask.tril() if is_causal else mask
    functions: dict[str, Callable[..., Any]] = {
        OURS: partial(kernels.block_sparse_attention, sparsity=sparsity, is_causal=is_causal),
        EAGER: partial(SDPA, attn_mask=mask),
    }
    if device == "cuda":
        functions[COMPILED] = flexible(layout, length, block, is_causal)
        functions[LIBRARY] = partial(dense, is_causal)
    if is_backward:
        upstream = torch.randn_like(inputs[0])
        runs = {name: backward_of(f, inputs, upstream) for name, f in functions.items()}
    else:
        runs = {name: partial(function, *inputs) for name, function in functions.items()}
    if LIBRARY in runs:
        runs[LIBRARY] = timed_only(runs[LIBRARY], runs[EAGER]())
    return runs


def dense(is_causal: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return SDPA(q, k, v, is_causal=is_causal)


def timed_only(run: Callable[[], Any], expected: Any) -> Callable[[], Any]:
    """Run what computes something else, and answer with what the others compute."""

    def timed() -> Any:
        _ = run()
        return expected

    return timed


def flexible(
    layout: torch.Tensor, length: int, block: int, is_causal: bool
) -> Callable[..., torch.Tensor]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
        there = layout[query // block, key // block]
        return there & (key <= query) if is_causal else there

    mask = create_block_mask(
        seen, None, None, length, length, device=layout.device, BLOCK_SIZE=block
    )
    return partial(compiled(flex_attention), block_mask=mask)
