"""Attention of arrays of equally long sequences."""

import math
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.kernels.arrays import contiguous, dtype_name, is_tensor
from tilewright.kernels.attention.modifications import name_of_function
from tilewright.kernels.attention.operator import UNLIMITED, Extras, attention_operation
from tilewright.kernels.block_sparse import require_sparsity, shape_of
from tilewright.kernels.checks import (
    FLOATING,
    array,
    broadcastable,
    floating,
    integral,
    plain,
    same_kind,
    seed_array,
    shaped,
    share,
    within,
)
from tilewright.kernels.operation import under_autocast

__all__ = ["attention", "require_operands", "scale_of", "slopes_of"]


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: tuple[int, int] | None = None,
    offset: int = 0,
    key_lengths: Any = None,
    alibi_slopes: Any = None,
    softcap: float = 0.0,
    score_mod: Any = None,
    score_mod_gradient: Any = None,
    mask_mod: Any = None,
    mod_tensors: tuple[Any, ...] = (),
    seed: Any = None,
    sparsity: Any = None,
) -> Any:
    """Return softmax(query keyᵀ * scale + ...) value, the logits never in memory; differentiable.

    Query i is at the position i + `offset`; a query that sees no key has the result 0.

    Args:
        query: (..., heads, L, E) of fp16, bf16, fp32 or fp64, of any strides. Sums are in fp32.
        key: (..., key heads, S, E).
        value: (..., key heads, S, Ev). E and Ev are at most 256; multiples of 8 need no copy.
        attn_mask: Broadcastable to (..., heads, L, S): bool, where True takes part, or numbers that
            are added to the logits; their gradient takes memory of that full size.
        dropout_p: The share of weights that are left out at random.
        is_causal: Whether a query sees keys only up to its own position.
        scale: By default 1 / sqrt(E).
        enable_gqa: Whether each key head may be shared by several heads of queries.
        window: How many keys a query sees before and after its position; -1 for all.
        offset: The position of the first query; S - L for queries that come last.
        key_lengths: (batch,) of int32 from 0 to S: so many keys of each sequence are there. On a
            GPU, and in compiled functions, they are not checked: what is above S counts as S.
        alibi_slopes: (heads,) or (batch, heads) of fp32: their product with the distance between
            positions is subtracted.
        softcap: If not 0, logits are `softcap * tanh(logits / softcap)`.
        score_mod: A jit function `(score, batch, head, query, key, tensors)` that returns the logit
            for a scaled score; numbers broadcast to the shape of `score`, `tensors` are pointers.
        score_mod_gradient: `(gradient, score, batch, head, query, key, tensors)` returns the
            gradient of the score; the backward pass needs it.
        mask_mod: `(batch, head, query, key, tensors)` returns whether the key is seen.
        mod_tensors: Arrays for these functions; without gradients.
        seed: Of dropout: an integer, or an array of one int64 on the same device; by default drawn
            from PyTorch's generator. The same seed leaves out the same weights.
        sparsity: A `BlockSparsity` of (L, S), for each head or one for all, as
            `block_sparse_attention` takes it: only keys in these blocks are seen.

    Returns:
        An array (..., heads, L, Ev) of the dtype of `query`.

    Source: Dao, "FlashAttention-2", 2023.

    >>> import numpy as np
    >>> ones = np.ones((1, 2, 3, 8), np.float32)
    >>> attention(ones, ones, ones, is_causal=True).shape
    (1, 2, 3, 8)
    """
    query, key, value = under_autocast((query, key, value), "lower")
    array(query=query, key=key, value=value)
    integral(key_lengths=key_lengths)
    share(dropout_p=dropout_p)
    same_kind(query=query, key=key, value=value, attn_mask=attn_mask, key_lengths=key_lengths)
    require_operands(query, key, value, enable_gqa)
    plain("a number", softcap=softcap)
    plain("an integer", offset=offset)
    left, right = sides_of(window)
    *batch, heads, queries, _ = query.shape
    keys = key.shape[-2]
    shaped((math.prod(batch),), key_lengths=key_lengths)
    within(0, keys, key_lengths=key_lengths)
    if sparsity is not None:
        _require_blocks(sparsity, query, keys)
    extras = Extras(
        bias=_bias(attn_mask, (*batch, heads, queries, keys)),
        key_lengths=None if key_lengths is None else contiguous(key_lengths),
        slopes=slopes_of(alibi_slopes, (math.prod(batch), heads)),
        seed=seed_array(query, seed) if dropout_p else None,
        blocks=None if sparsity is None else sparsity.table,
        tensors=list(mod_tensors),
        scale=scale_of(scale, query),
        cap=softcap,
        dropout=float(dropout_p),
        left=left,
        right=0 if is_causal else right,
        offset=offset,
        score_mod=name_of_function(score_mod=score_mod),
        score_mod_gradient=name_of_function(score_mod_gradient=score_mod_gradient),
        mask_mod=name_of_function(mask_mod=mask_mod),
        sparsity=None if sparsity is None else shape_of(sparsity),
    )
    out, _ = attention_operation(*map(_four_axes, (query, key, value)), *extras)
    return out.reshape((*query.shape[:-1], value.shape[-1]))


def sides_of(window: Any) -> tuple[int, int]:
    """Return how many keys are seen before a query, and after."""
    if window is None:
        return UNLIMITED, UNLIMITED
    if not isinstance(window, list | tuple) or len(window) != 2:
        raise ValueError(
            f"`window` is {window!r}; how many keys are seen before, and after, is needed"
        )
    for side in window:
        plain("an integer", window=side)
    return window[0], window[1]


def _require_blocks(sparsity: Any, query: Any, keys: int) -> None:
    """Raise unless the blocks of a sparsity are those of all queries and keys."""
    require_sparsity(sparsity, query=query)
    heads, queries = query.shape[-3:-1]
    rows, columns = tw.cdiv(queries, sparsity.size), tw.cdiv(keys, sparsity.size)
    found = sparsity.heads, sparsity.rows, sparsity.columns
    if found not in {(heads, rows, columns), (1, rows, columns)}:
        raise ValueError(
            f"`sparsity` is of {found} blocks of {sparsity.size}; for {queries} queries and {keys} "
            f"keys, (heads, {rows}, {columns}) with {heads} heads or 1 are needed"
        )


def require_operands(query: Any, key: Any, value: Any, enable_gqa: bool) -> None:
    """Raise unless the operands fit together, as (..., heads, rows, width)."""
    array(query=query, key=key, value=value)
    floating(query=query, key=key, value=value)
    for name, x in {"query": query, "key": key, "value": value}.items():
        if x.ndim < 3:
            raise ValueError(f"`{name}` has {x.ndim} axes; (..., heads, rows, width) is needed")
        if x.dtype != query.dtype:
            raise TypeError(f"`query` is of {query.dtype}, and `{name}` of {x.dtype}")
        if x.shape[-1] > 256:
            raise ValueError(f"`{name}` has heads of {x.shape[-1]} elements; 256 are the most")
    batch, (heads, _, width), (key_heads, keys) = (
        query.shape[:-3],
        query.shape[-3:],
        key.shape[-3:-1],
    )
    shaped((*batch, key_heads, keys, width), key=key)
    shaped((*batch, key_heads, keys, value.shape[-1]), value=value)
    if heads != key_heads and not enable_gqa:
        raise ValueError(
            f"`query` has {heads} heads, and `key` {key_heads}: `enable_gqa=True` lets them share"
        )
    if heads and (not key_heads or heads % key_heads):
        raise ValueError(
            f"the {heads} heads of `query` are no multiple of the {key_heads} of `key`"
        )


def scale_of(scale: float | None, query: Any) -> float:
    """Return the scale of the scores."""
    if scale is None:
        return 1 / math.sqrt(query.shape[-1] or 1)
    plain("a number", scale=scale)
    if scale <= 0:
        raise ValueError(f"`scale` is {scale}; a number above 0 is needed")
    return scale


def _four_axes(x: Any) -> Any:
    shape = x.shape
    return x.reshape((math.prod(shape[:-3]), *shape[-3:]))


def _bias(mask: Any, shape: tuple[int, ...]) -> Any:
    if mask is None:
        return None
    name = dtype_name(mask)
    if name not in {"bool", *FLOATING}:
        raise TypeError(
            f"`attn_mask` is of {name}; bool, or one of {', '.join(FLOATING)}, is needed"
        )
    broadcastable(shape, attn_mask=mask)
    wide = mask.expand(shape) if is_tensor(mask) else np.broadcast_to(mask, shape)
    return _four_axes(wide)


def slopes_of(slopes: Any, shape: tuple[int, int]) -> Any:
    """Return slopes for each (batch, head), or None."""
    if slopes is None:
        return None
    floating(alibi_slopes=slopes)
    broadcastable(shape, alibi_slopes=slopes)
    return slopes.expand(shape) if is_tensor(slopes) else np.broadcast_to(slopes, shape)
