"""Attention of sequences of different lengths, one after another in one array."""

from typing import Any

import numpy as np

from tilewright.kernels.arrays import contiguous, is_at_hand, is_tensor
from tilewright.kernels.attention.dense import (
    require_operands,
    scale_of,
    sides_of,
    slopes_of,
)
from tilewright.kernels.attention.modifications import name_of_function
from tilewright.kernels.attention.operator import Extras, attention_operation
from tilewright.kernels.checks import (
    array,
    integral,
    plain,
    ranked,
    rising,
    same_kind,
    seed_array,
    shaped,
    share,
)
from tilewright.kernels.operation import under_autocast

__all__ = ["varlen_attention"]


def varlen_attention(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
    window: tuple[int, int] | None = None,
    alibi_slopes: Any = None,
    softcap: float = 0.0,
    score_mod: Any = None,
    score_mod_gradient: Any = None,
    mask_mod: Any = None,
    mod_tensors: tuple[Any, ...] = (),
    seed: Any = None,
) -> Any:
    """Return `attention` within each of several sequences that share arrays; differentiable.

    The last query of a sequence has the position of its last key. Heads may share key heads.

    Args:
        query: (all queries, heads, E) of fp16, bf16, fp32 or fp64, of any strides.
        key: (all keys, key heads, E).
        value: (all keys, key heads, Ev).
        cu_seq_q: (sequences + 1,) of int32: where the queries of each sequence begin, and the end.
            They do not fall. On a GPU, and in compiled functions, that is not checked: a sequence
            is the part of it that is there, of at most `max_q` queries.
        cu_seq_k: The same for keys.
        max_q: The queries of the longest sequence, or more.
        max_k: The keys of the longest sequence, or more.
        is_causal: Whether a query sees keys only up to its own position.
        scale: By default 1 / sqrt(E).
        dropout_p: The share of weights that are left out at random.
        window: How many keys a query sees before and after its position; -1 for all.
        alibi_slopes: (heads,) or (sequences, heads) of fp32, as for `attention`.
        softcap: As for `attention`.
        score_mod: As for `attention`; `batch` is the number of the sequence, and `query` and `key`
            are numbers in it.
        score_mod_gradient: As for `attention`.
        mask_mod: As for `attention`.
        mod_tensors: As for `attention`.
        seed: As for `attention`.

    Returns:
        An array (all queries, heads, Ev) of the dtype of `query`; 0 for rows in no sequence.

    >>> import numpy as np
    >>> ones, starts = np.ones((5, 2, 8), np.float32), np.array([0, 2, 5], np.int32)
    >>> varlen_attention(ones, ones, ones, starts, starts, 3, 3).shape
    (5, 2, 8)
    """
    query, key, value = under_autocast((query, key, value), "lower")
    array(query=query, key=key, value=value, cu_seq_q=cu_seq_q, cu_seq_k=cu_seq_k)
    integral(cu_seq_q=cu_seq_q, cu_seq_k=cu_seq_k)
    share(dropout_p=dropout_p)
    same_kind(query=query, key=key, value=value, cu_seq_q=cu_seq_q, cu_seq_k=cu_seq_k)
    ranked(1, 1, cu_seq_q=cu_seq_q)
    shaped(tuple(cu_seq_q.shape), cu_seq_k=cu_seq_k)
    q, k, v = _one_batch("query", query), _one_batch("key", key), _one_batch("value", value)
    require_operands(q, k, v, True)
    plain("a number", softcap=softcap)
    plain("an integer", max_q=max_q, max_k=max_k)
    rising(query.shape[0], cu_seq_q=cu_seq_q)
    rising(key.shape[0], cu_seq_k=cu_seq_k)
    _require_longest(max_q, "max_q", cu_seq_q=cu_seq_q)
    _require_longest(max_k, "max_k", cu_seq_k=cu_seq_k)
    left, right = sides_of(window)
    sequences = cu_seq_q.shape[0] - 1
    extras = Extras(
        query_starts=_starts(cu_seq_q),
        key_starts=_starts(cu_seq_k),
        slopes=slopes_of(alibi_slopes, (sequences, query.shape[1])),
        seed=seed_array(query, seed) if dropout_p else None,
        tensors=list(mod_tensors),
        scale=scale_of(scale, query),
        cap=softcap,
        dropout=float(dropout_p),
        left=left,
        right=0 if is_causal else right,
        most_queries=max_q,
        most_keys=max_k,
        score_mod=name_of_function(score_mod=score_mod),
        score_mod_gradient=name_of_function(score_mod_gradient=score_mod_gradient),
        mask_mod=name_of_function(mask_mod=mask_mod),
    )
    out, _ = attention_operation(q, k, v, *extras)
    return out[0].swapaxes(0, 1)


def _one_batch(name: str, x: Any) -> Any:
    """Return (rows, heads, width) as (1, heads, rows, width)."""
    if x.ndim != 3:
        raise ValueError(f"`{name}` has {x.ndim} axes; (rows, heads, width) is needed")
    return x[None].swapaxes(1, 2)


def _require_longest(longest: int, name: str, **starts: Any) -> None:
    """Raise `ValueError` if a sequence is longer than the longest is said to be."""
    ((argument, x),) = starts.items()
    if is_at_hand(x) and x.shape[0] > 1:
        found = int((x[1:] - x[:-1]).max())
        if found > longest:
            raise ValueError(f"`{name}` is {longest}, and a sequence of `{argument}` has {found}")


def _starts(starts: Any) -> Any:
    return contiguous(starts.int() if is_tensor(starts) else starts.astype(np.int32))
