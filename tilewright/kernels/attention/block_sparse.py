"""Attention among some blocks of queries and keys."""

from typing import Any

from tilewright.kernels.attention.dense import attention

__all__ = ["block_sparse_attention"]


def block_sparse_attention(
    query: Any,
    key: Any,
    value: Any,
    sparsity: Any,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    offset: int = 0,
    key_lengths: Any = None,
) -> Any:
    """Return `attention` of which some blocks of the weights are there; differentiable.

    Work is that of the blocks that are there: each block of queries has a list of them, and in the
    backward pass each block of keys. The sparsity makes these once. A query that sees no key has
    the result 0. `attention` takes the same sparsity beside all of its other arguments.

    Args:
        query: (..., heads, L, E) of fp16, bf16, fp32 or fp64, of any strides. Sums are in fp32.
        key: (..., key heads, S, E).
        value: (..., key heads, S, Ev). E and Ev are at most 256.
        sparsity: A `BlockSparsity` of (L, S), for each head of `query` or one for all; the last
            blocks may go beyond. Those of 64 rows or 128 suit GPUs best.
        is_causal: Whether a query sees keys only up to its own position; blocks beyond it take no
            time.
        scale: By default 1 / sqrt(E).
        enable_gqa: Whether each key head may be shared by several heads of queries.
        offset: The position of the first query; S - L for queries that come last.
        key_lengths: (batch,) of int32: so many keys of each sequence are there.

    Returns:
        An array (..., heads, L, Ev) of the dtype of `query`.

    Source: Child et al., "Generating long sequences with sparse transformers", 2019.

    >>> import numpy as np
    >>> from tilewright.kernels import BlockSparsity
    >>> x = np.ones((1, 1, 32, 16), np.float32)
    >>> block_sparse_attention(x, x, x, BlockSparsity(np.eye(2, dtype=bool), 16)).min()
    np.float32(1.0)
    """
    return attention(
        query,
        key,
        value,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
        offset=offset,
        key_lengths=key_lengths,
        sparsity=sparsity,
    )
