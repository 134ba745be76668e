"""The functions that the example models are made of, by plain PyTorch and by `tilewright.kernels`.

Both have the same names and the same meaning, so that a model takes either: `functions("torch")` or
`functions("tilewright")`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional

from tilewright import kernels


def functions(backend: str) -> SimpleNamespace:
    return SimpleNamespace(**{"torch": TORCH, "tilewright": OURS}[backend])


# ---- plain PyTorch --------------------------------------------------------------------------


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the halves of each head; x is (batch, heads, length, head), cos (length, head / 2)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def paged_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tables: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """One query for each sequence, over keys in blocks.

    q is (batch, heads, head), keys (blocks, block, heads, head), tables (batch, most blocks).
    """
    out = []
    for query, table, length in zip(q, tables, lengths.tolist(), strict=True):
        k, v = (x[table].flatten(0, 1)[:length].transpose(0, 1) for x in (keys, values))
        out.append(functional.scaled_dot_product_attention(query[:, None], k, v)[:, 0])
    return torch.stack(out)


TORCH: dict[str, Any] = {
    "rms_norm": rms_norm,
    "rotary": rotary,
    "swiglu": swiglu,
    "paged_attention": paged_attention,
    "attention": functional.scaled_dot_product_attention,
    "cross_entropy": functional.cross_entropy,
    "conv2d": functional.conv2d,
    "group_norm": functional.group_norm,
    "silu": functional.silu,
}

OURS: dict[str, Any] = {
    "rms_norm": lambda x, weight: kernels.rms_norm(x, x.shape[-1], weight, 1e-6),
    "rotary": kernels.rotary_embedding,
    "swiglu": kernels.swiglu,
    "paged_attention": kernels.paged_attention,
    "attention": kernels.attention,
    "cross_entropy": kernels.cross_entropy,
    "conv2d": kernels.conv2d,
    "group_norm": kernels.group_norm,
    "silu": kernels.silu,
}
