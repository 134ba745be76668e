"""From products of queries and keys to weights: all that may stand between the two.

A tile of *scores*, products of queries and keys, has queries along one axis and keys along the
other, in either order; `query` and `key` are their numbers, shaped to broadcast. A *logit* is what
the softmax takes: the score times the scale, capped, changed by the user's function, plus biases.
Weights are exp2 of a logit times a factor: exp2 takes one multiplication less than exp.
"""

from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl

__all__ = ["Terms", "kept", "kept_factor", "logits_of", "score_gradients", "weights_of"]

LOG2_E = tl.constexpr(1.4426950408889634)


class Terms(NamedTuple):
    """What a launch has beside the operands; None where there is no such thing."""

    query_starts: Any = None  # where sequences begin in an array of all, and the last one's end
    key_starts: Any = None
    key_lengths: Any = None
    lists: Any = None  # of the blocks that there are, if not all
    left: Any = None  # how many keys a query sees before its own position
    right: Any = None  # and after it
    offset: Any = 0  # the position of the first query
    bias: Any = None
    bias_strides: Any = None
    slopes: Any = None
    slope_strides: Any = None
    cap: Any = None
    seed: Any = None  # of dropout
    dropout: Any = None
    score_mod: Any = None
    score_mod_gradient: Any = None
    mask_mod: Any = None
    tensors: Any = ()  # the last argument of these functions


@tw.jit
def hyperbolic_tangent(x):
    """Return tanh(x)."""
    return 1.0 - tl.fdiv(2.0, tl.exp(2.0 * x) + 1.0)


@tw.jit
def capped(scores, terms, scale):
    """Return scores times the scale, and between -cap and cap if there is one."""
    x = scores * scale
    if terms.cap is not None:
        x = hyperbolic_tangent(tl.fdiv(x, terms.cap)) * terms.cap
    return x


@tw.jit
def numbers_in(place, query, key):
    """Return numbers of queries and keys that there are, for functions that load with them."""
    return tl.minimum(query, place.queries - 1), tl.minimum(key, place.keys - 1)


@tw.jit
def loaded_bias(terms, place, query, key):
    """Return the bias of a tile."""
    at_batch, at_head, at_query, at_key = terms.bias_strides
    corner = place.batch.to(tl.int64) * at_batch + place.head.to(tl.int64) * at_head
    at = corner + query.to(tl.int64) * at_query + key.to(tl.int64) * at_key
    inside = (query < place.queries) & (key < place.keys)
    return tl.load(terms.bias + at, mask=inside, other=0)


@tw.jit
def logits_of(scores, terms, place, query, key, scale, EDGE: tl.constexpr):
    """Return the logits, -inf where a key is not seen, and the factor for exp2.

    `EDGE`: some keys may be outside of what the queries see by their positions.
    """
    has_mask: tl.constexpr = terms.bias is not None and terms.bias.dtype.element_ty == tl.int1
    has_bias: tl.constexpr = terms.bias is not None and not has_mask
    is_plain: tl.constexpr = terms.cap is None and terms.score_mod is None
    near_query, near_key = numbers_in(place, query, key)
    if is_plain and terms.slopes is None and not has_bias:
        x = scores
        factor = scale * LOG2_E
    else:
        x = capped(scores, terms, scale)
        factor = scale * 0.0 + LOG2_E
        if terms.score_mod is not None:
            x = terms.score_mod(x, place.batch, place.head, near_query, near_key, terms.tensors)
            x = x.to(scores.dtype)
        if terms.slopes is not None:
            at_batch, at_head = terms.slope_strides
            slope = tl.load(terms.slopes + place.batch * at_batch + place.head * at_head)
            distance = tl.abs(query + place.offset - key)
            x -= slope.to(x.dtype) * distance.to(x.dtype)
        if has_bias:
            x += loaded_bias(terms, place, query, key).to(x.dtype)
    if EDGE:
        seen = key < place.keys
        if terms.right is not None:
            seen = seen & (key <= query + place.offset + terms.right)
        if terms.left is not None:
            seen = seen & (key >= query + place.offset - terms.left)
        x = tl.where(seen, x, -float("inf"))
    if has_mask:
        x = tl.where(loaded_bias(terms, place, query, key), x, -float("inf"))
    if terms.mask_mod is not None:
        seen = terms.mask_mod(place.batch, place.head, near_query, near_key, terms.tensors)
        x = tl.where(seen, x, -float("inf"))
    return x, factor


@tw.jit
def kept(terms, place, query, key, heads):
    """Return which weights dropout keeps: by the numbers of queries and keys, whatever the tile."""
    seed = tl.load(terms.seed)
    zero = query * 0 + key * 0
    head = zero + (place.batch * heads + place.head)
    word, _, _, _ = tl.philox(seed, key + zero, query + zero, head, zero)
    return tl.uint_to_uniform_float(word) >= terms.dropout


@tw.jit
def kept_factor(terms):
    """Return what weights that dropout keeps are multiplied by; where it keeps none, any number."""
    return 1.0 / tl.where(terms.dropout < 1.0, 1.0 - terms.dropout, 1.0)


@tw.jit
def weights_of(logits, factor, highest, CAN_BE_EMPTY: tl.constexpr):
    """Return the weights beside the highest logit so far, that one, and how to rescale sums."""
    new_highest = tl.maximum(highest, tl.max(logits, axis=1) * factor)
    top = new_highest
    if CAN_BE_EMPTY:  # rows that have seen no key have no highest logit
        top = tl.where(new_highest == -float("inf"), 0.0, new_highest)
    return tl.exp2(logits * factor - top[:, None]), new_highest, tl.exp2(highest - top)


@tw.jit
def score_gradients(
    scores, weight_gradients, lse, delta, terms, place, query, key, scale, heads, EDGE: tl.constexpr
):
    """Return the weights after dropout, and the gradients of scores (not scaled) and logits.

    `lse` is the base-2 logarithm of the sum of the weights, `delta` the sum of the products of the
    result and its gradient; both are shaped as `query`.
    """
    logits, factor = logits_of(scores, terms, place, query, key, scale, EDGE)
    weights = tl.exp2(logits * factor - lse)
    dropped = weights
    if terms.seed is not None:
        factor = kept_factor(terms)
        is_kept = kept(terms, place, query, key, heads)
        dropped = tl.where(is_kept, weights * factor, 0.0)
        weight_gradients = tl.where(is_kept, weight_gradients * factor, 0.0)
    logit_gradients = weights * (weight_gradients - delta)
    gradients = logit_gradients
    if terms.score_mod is not None:
        near_query, near_key = numbers_in(place, query, key)
        gradients = terms.score_mod_gradient(
            gradients,
            capped(scores, terms, scale),
            place.batch,
            place.head,
            near_query,
            near_key,
            terms.tensors,
        ).to(scores.dtype)
    if terms.cap is not None:
        part = hyperbolic_tangent(tl.fdiv(scores * scale, terms.cap))
        gradients = gradients * (1.0 - part * part)
    return dropped, gradients, logit_gradients
