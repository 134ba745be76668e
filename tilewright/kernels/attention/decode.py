"""Attention of new tokens to a cache, of pages or of a row for each sequence."""

from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import (
    contiguous,
    dtype_name,
    empty,
    on_cpu,
    product_precision,
    strides,
)
from tilewright.kernels.attention.decode_kernels import decode_kernel, join_parts_kernel
from tilewright.kernels.attention.dense import scale_of, slopes_of
from tilewright.kernels.attention.logits import Terms
from tilewright.kernels.attention.modifications import function_named, name_of_function
from tilewright.kernels.attention.operator import UNLIMITED, padded_width
from tilewright.kernels.attention.places import Sizes
from tilewright.kernels.checks import (
    array,
    floating,
    integral,
    plain,
    ranked,
    same_kind,
    shaped,
    within,
)
from tilewright.kernels.operation import operation
from tilewright.kernels.rows import MULTIPROCESSORS

__all__ = ["decode_attention", "paged_attention"]

_LEAST_TOKENS = 256  # that a program is worth
_MOST_SPLITS = 32


def paged_attention(
    query: Any,
    key_cache: Any,
    value_cache: Any,
    block_table: Any,
    lengths: Any,
    *,
    scale: float | None = None,
    window: int | None = None,
    alibi_slopes: Any = None,
    softcap: float = 0.0,
    score_mod: Any = None,
    mask_mod: Any = None,
    mod_tensors: tuple[Any, ...] = (),
) -> Any:
    """Return attention of the last tokens of sequences to a cache of pages that has them already.

    Each token sees those up to itself. Long sequences are shared out to several processors.

    Args:
        query: (sequences, heads, E), or (sequences, tokens, heads, E) for several last tokens, of
            fp16, bf16, fp32 or fp64. Best are few tokens: all that share a key head are one tile.
        key_cache: (pages, page, key heads, E); a page has a power of two of tokens.
        value_cache: (pages, page, key heads, Ev).
        block_table: (sequences, most pages) of int32: the pages of each sequence, in order. A token
            that is seen, of a page that the cache does not have, gives NaN.
        lengths: (sequences,) of int32: the tokens of each sequence, the new ones included; at most
            as many as its pages hold. On a GPU, and in compiled functions, that is not checked: the
            others are left out.
        scale: By default 1 / sqrt(E).
        window: How many tokens before itself a token sees; by default all.
        alibi_slopes: (heads,) or (sequences, heads) of fp32, as for `attention`.
        softcap: As for `attention`.
        score_mod: As for `attention`; `query` is the number of the last token, from 0.
        mask_mod: As for `attention`.
        mod_tensors: As for `attention`.

    Returns:
        An array of the shape of `query`, with Ev for E, and of its dtype.

    Source: Kwon et al., "PagedAttention", 2023.

    >>> import numpy as np
    >>> cache, table = np.ones((4, 16, 2, 8), np.float32), np.array([[3, 1]], np.int32)
    >>> query = np.ones((1, 4, 8), np.float32)
    >>> paged_attention(query, cache, cache, table, np.array([20], np.int32)).shape
    (1, 4, 8)
    """
    array(query=query, key_cache=key_cache, block_table=block_table, lengths=lengths)
    integral(block_table=block_table)
    same_kind(query=query, key_cache=key_cache, block_table=block_table, lengths=lengths)
    ranked(3, 4, query=query)
    ranked(4, 4, key_cache=key_cache)
    ranked(2, 2, block_table=block_table)
    page = key_cache.shape[1]
    if page < 1 or page & (page - 1):
        raise ValueError(f"pages of {page} tokens; a power of two is needed")
    shaped((query.shape[0], block_table.shape[1]), block_table=block_table)
    return _decoded(
        query,
        key_cache,
        value_cache,
        block_table,
        lengths,
        scale,
        window,
        alibi_slopes,
        softcap,
        (score_mod, mask_mod, mod_tensors),
    )


def decode_attention(
    query: Any,
    key_cache: Any,
    value_cache: Any,
    lengths: Any,
    *,
    scale: float | None = None,
    window: int | None = None,
    alibi_slopes: Any = None,
    softcap: float = 0.0,
    score_mod: Any = None,
    mask_mod: Any = None,
    mod_tensors: tuple[Any, ...] = (),
) -> Any:
    """Return `paged_attention` for caches that have room for each sequence in one piece.

    Args:
        query: As for `paged_attention`.
        key_cache: (sequences, key heads, most tokens, E).
        value_cache: (sequences, key heads, most tokens, Ev).
        lengths: As for `paged_attention`.
        scale: By default 1 / sqrt(E).
        window: As for `paged_attention`.
        alibi_slopes: As for `paged_attention`.
        softcap: As for `attention`.
        score_mod: As for `paged_attention`.
        mask_mod: As for `attention`.
        mod_tensors: As for `attention`.

    Returns:
        An array of the shape of `query`, with Ev for E, and of its dtype.

    >>> import numpy as np
    >>> cache, query = np.ones((1, 2, 32, 8), np.float32), np.ones((1, 4, 8), np.float32)
    >>> decode_attention(query, cache, cache, np.array([20], np.int32)).shape
    (1, 4, 8)
    """
    array(query=query, key_cache=key_cache, value_cache=value_cache, lengths=lengths)
    same_kind(query=query, key_cache=key_cache, value_cache=value_cache, lengths=lengths)
    ranked(3, 4, query=query)
    ranked(4, 4, key_cache=key_cache, value_cache=value_cache)
    if key_cache.shape[0] != query.shape[0]:
        raise ValueError(
            f"`query` has {query.shape[0]} sequences, and `key_cache` {key_cache.shape[0]}"
        )
    return _decoded(
        query,
        key_cache.swapaxes(1, 2),
        value_cache.swapaxes(1, 2),
        None,
        lengths,
        scale,
        window,
        alibi_slopes,
        softcap,
        (score_mod, mask_mod, mod_tensors),
    )


def _decoded(
    query: Any,
    key_cache: Any,
    value_cache: Any,
    block_table: Any,
    lengths: Any,
    scale: float | None,
    window: int | None,
    alibi_slopes: Any,
    softcap: float,
    functions: tuple[Any, Any, tuple[Any, ...]],
) -> Any:
    array(value_cache=value_cache)
    integral(lengths=lengths)
    floating(query=query, key_cache=key_cache, value_cache=value_cache)
    ranked(4, 4, value_cache=value_cache)
    tokens = query[:, None] if query.ndim == 3 else query
    sequences, _, heads, width = tokens.shape
    shaped((*key_cache.shape[:3], width), key_cache=key_cache)
    shaped((*key_cache.shape[:3], value_cache.shape[3]), value_cache=value_cache)
    shaped((sequences,), lengths=lengths)
    pages = 1 if block_table is None else block_table.shape[1]
    within(0, pages * key_cache.shape[1], lengths=lengths)
    plain("a number", softcap=softcap)
    if window is not None:
        plain("an integer", window=window)
    if not key_cache.shape[2] or heads % key_cache.shape[2]:
        raise ValueError(f"the {heads} heads are no multiple of the cache's {key_cache.shape[2]}")
    score_mod, mask_mod, tensors = functions
    out = _decode(
        tokens,
        key_cache,
        value_cache,
        block_table,
        lengths,
        slopes_of(alibi_slopes, (sequences, heads)),
        list(tensors),
        scale_of(scale, query),
        softcap,
        UNLIMITED if window is None else window,
        name_of_function(score_mod=score_mod),
        name_of_function(mask_mod=mask_mod),
    )
    return out[:, 0] if query.ndim == 3 else out


def _allocate(query: Any, key_cache: Any, value_cache: Any, *_: Any) -> Any:
    return empty((*query.shape[:3], value_cache.shape[3]), query)


@operation(
    """decode_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor? block_table,
    Tensor lengths, Tensor? slopes, Tensor[] tensors, float scale, float cap, int left,
    str score_mod, str mask_mod) -> Tensor""",
    allocate=_allocate,
)
def _decode(
    out: Any,
    query: Any,
    key_cache: Any,
    value_cache: Any,
    block_table: Any,
    lengths: Any,
    slopes: Any,
    tensors: Any,
    scale: float,
    cap: float,
    left: int,
    score_mod: str,
    mask_mod: str,
) -> None:
    if 0 in out.shape:
        return
    if block_table is not None:
        block_table = contiguous(block_table)
    query, *caches = (
        x if strides(x)[-1] == 1 else contiguous(x) for x in (query, key_cache, value_cache)
    )
    sequences, queries, heads, width = query.shape
    _, page, key_heads, value_width = value_cache.shape
    room = page * (1 if block_table is None else block_table.shape[1])
    sizes = Sizes(
        sequences, heads, key_heads, heads // key_heads, queries, room, width, value_width, 0
    )
    splits = _splits(query, sequences * key_heads, room)
    parts, lse = out, None
    if splits > 1:
        sums = "float64" if dtype_name(query) == "float64" else "float32"
        parts = empty((*query.shape[:3], splits, value_width), query, sums)
        lse = empty((*query.shape[:3], splits), query, sums)
    widths = padded_width(width), padded_width(value_width)
    decode_kernel[sequences, key_heads, splits](
        query,
        *caches,
        parts,
        lse,
        block_table,
        contiguous(lengths),
        (
            *(strides(x)[:3] for x in (query, *caches)),
            0 if block_table is None else strides(block_table)[0],
        ),
        value_cache.shape[0],
        sizes,
        _terms(slopes, tensors, cap, left, score_mod, mask_mod),
        scale,
        PAGE=page if block_table is not None else 0,
        SPLITS=splits,
        WIDTH=widths[0],
        VALUE_WIDTH=widths[1],
        IS_WHOLE=widths == (width, value_width),
        PRECISION=product_precision(query),
        BLOCK_M=max(16, tw.next_power_of_2(queries * sizes.shared)),
        BLOCK_N=64 if max(widths) <= 128 else 32,
        num_warps=4,
        num_stages=3,
    )
    if splits > 1:
        join_parts_kernel[(sequences * queries * heads,)](
            parts, lse, out, value_width, SPLITS=splits, VALUE_WIDTH=widths[1]
        )


def _terms(
    slopes: Any, tensors: Any, cap: float, left: int, score_mod: str, mask_mod: str
) -> Terms:
    return Terms(
        left=None if left == UNLIMITED else left,
        right=0,
        slopes=slopes,
        slope_strides=None if slopes is None else strides(slopes),
        cap=cap or None,
        score_mod=function_named(score_mod),
        mask_mod=function_named(mask_mod),
        tensors=tuple(tensors),
    )


def _splits(query: Any, programs: int, capacity: int) -> int:
    """Return into how many parts sequences are split: a power of two."""
    wanted = tw.get_num_threads() if on_cpu(query) else 2 * MULTIPROCESSORS
    splits = min(wanted // programs, capacity // _LEAST_TOKENS, _MOST_SPLITS)
    return 1 << max(splits.bit_length() - 1, 0)
