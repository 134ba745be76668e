"""The operator of attention: its arguments, its results, and the launches."""

from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.arrays import (
    descriptor_strides,
    dtype_name,
    empty,
    empty_like,
    for_descriptors,
    product_precision,
    strides,
)
from tilewright.kernels.attention.forward import attention_kernel
from tilewright.kernels.attention.key_gradients import key_gradients_kernel
from tilewright.kernels.attention.lists import lists_of
from tilewright.kernels.attention.logits import Terms
from tilewright.kernels.attention.modifications import function_named
from tilewright.kernels.attention.places import Sizes
from tilewright.kernels.attention.query_gradients import query_gradients_kernel
from tilewright.kernels.operation import operation

__all__ = ["UNLIMITED", "Extras", "attention_operation", "padded_width"]

UNLIMITED = -1  # of a window, as in other libraries


class Extras(NamedTuple):
    """What the operator takes beside queries, keys and values, in the order of its schema."""

    bias: Any = None
    query_starts: Any = None
    key_starts: Any = None
    key_lengths: Any = None
    slopes: Any = None
    seed: Any = None
    blocks: Any = None
    tensors: Any = ()
    scale: float = 1.0
    cap: float = 0.0
    dropout: float = 0.0
    left: int = UNLIMITED
    right: int = UNLIMITED
    offset: int = 0
    most_queries: int = 0
    most_keys: int = 0
    score_mod: str = ""
    score_mod_gradient: str = ""
    mask_mod: str = ""
    sparsity: Any = None  # the shape of a sparsity, of which `blocks` is the table


_ARRAYS = Extras._fields.index("tensors")  # so many of the extras are arrays, or None
_EXTRAS = """Tensor? bias, Tensor? query_starts, Tensor? key_starts, Tensor? key_lengths,
    Tensor? slopes, Tensor? seed, Tensor? blocks, Tensor[] tensors, float scale, float cap,
    float dropout, int left, int right, int offset, int most_queries, int most_keys,
    str score_mod, str score_mod_gradient, str mask_mod, int[]? sparsity"""


def _accumulator(x: Any) -> str:
    return "float64" if dtype_name(x) == "float64" else "float32"


def _rows(queries: Any) -> Any:
    """Numbers for each head in arrays with one for each query: rows of them are aligned."""
    return (queries + 127) // 128 * 128


def _allocate(query: Any, key: Any, value: Any, *extras: Any) -> tuple[Any, Any]:
    batch, heads, queries, _ = query.shape
    _, at_head, at_row, _ = strides(query)
    if at_head < at_row:  # rows of all heads next to each other, as projections make them
        out = empty((batch, queries, heads, value.shape[3]), query).swapaxes(1, 2)
    else:
        out = empty((batch, heads, queries, value.shape[3]), query)
    return out, empty((batch, heads, _rows(queries)), query, _accumulator(query))


def _sizes(query: Any, key: Any, value: Any, extras: Extras) -> Sizes:
    batch, heads, queries, width = query.shape
    key_heads, keys, value_width = value.shape[1:]
    shared = heads // key_heads
    rows = _rows(queries)
    block = None if extras.blocks is None else tl.constexpr(extras.sparsity[4])
    return Sizes(batch, heads, key_heads, shared, queries, keys, width, value_width, rows, block)


def _terms(extras: Extras, *, by_column: bool) -> Terms:
    def limit(number: int) -> int | None:
        return None if number == UNLIMITED else number

    lists = None
    if extras.blocks is not None:
        lists = lists_of(extras.blocks, extras.sparsity, by_column=by_column)
    return Terms(
        query_starts=extras.query_starts,
        key_starts=extras.key_starts,
        key_lengths=extras.key_lengths,
        lists=lists,
        left=limit(extras.left),
        right=limit(extras.right),
        offset=extras.offset,
        bias=extras.bias,
        bias_strides=None if extras.bias is None else strides(extras.bias),
        slopes=extras.slopes,
        slope_strides=None if extras.slopes is None else strides(extras.slopes),
        cap=extras.cap or None,
        seed=extras.seed,
        dropout=None if extras.seed is None else extras.dropout,
        score_mod=function_named(extras.score_mod),
        score_mod_gradient=function_named(extras.score_mod_gradient),
        mask_mod=function_named(extras.mask_mod),
        tensors=tuple(extras.tensors),
    )


def padded_width(size: int) -> int:
    """Return how wide the tiles of heads of a size are."""
    return max(16, tw.next_power_of_2(size))


def _widths(query: Any, extras: Extras, sizes: Sizes) -> dict[str, Any]:
    itemsize = 2 if dtype_name(query) in {"float16", "bfloat16"} else 4
    is_aligned = (sizes.width * itemsize) % 16 == (sizes.value_width * itemsize) % 16 == 0
    return {
        "WIDTH": padded_width(sizes.width),
        "VALUE_WIDTH": padded_width(sizes.value_width),
        "PRECISION": product_precision(query),
        "BY_DESCRIPTOR": is_aligned and extras.query_starts is None,
    }


def _is_usual(extras: Extras) -> bool:
    """Whether logits are but scaled scores, and no key is too far before a query."""
    numbers = extras.cap, extras.left, extras.score_mod, extras.mask_mod
    has_arrays = any(x is not None for x in extras._replace(blocks=None)[:_ARRAYS])
    return numbers == (0.0, UNLIMITED, "", "") and not has_arrays


def _is_plain(extras: Extras, sizes: Sizes) -> bool:
    """Whether, too, queries see whole blocks of keys, if any."""
    block = 128 if sizes.block is None else max(128, sizes.block.value)
    return _is_usual(extras) and extras.right == UNLIMITED and sizes.keys % block == 0


def _is_empty(sizes: Sizes) -> bool:
    return 0 in (sizes.batch, sizes.heads, sizes.queries, sizes.keys, sizes.value_width)


def _longest(starts: Any, longest: int, sizes: Sizes, rows: int) -> tuple[int, int]:
    """Return how many rows the longest sequence may have, and how many sequences there are."""
    return (rows, sizes.batch) if starts is None else (longest, starts.shape[0] - 1)


@operation(
    f"attention(Tensor query, Tensor key, Tensor value, {_EXTRAS}) -> (Tensor, Tensor)",
    allocate=_allocate,
)
def attention_operation(outputs: Any, query: Any, key: Any, value: Any, *extras: Any) -> None:
    """Fill in attention of (batch, heads, rows, width), and the logarithms of sums of weights."""
    given = Extras(*extras)
    sizes = _sizes(query, key, value, given)
    out, lse = outputs
    lse[..., sizes.queries :] = 0  # blocks are read whole
    if _is_empty(sizes) or given.query_starts is not None:  # rows that are in no sequence
        out[...] = 0
        lse[...] = 0
    if _is_empty(sizes):
        return
    arrays = [for_descriptors(x) for x in (query, key, value)]
    most_queries, sequences = _longest(given.query_starts, given.most_queries, sizes, sizes.queries)
    attention_kernel[lambda at: (tw.cdiv(most_queries, at["BLOCK_M"]), sizes.heads, sequences)](
        *arrays,
        out,
        lse,
        (*map(descriptor_strides, arrays), strides(out)[:3]),
        sizes,
        _terms(given, by_column=False),
        given.scale,
        **_widths(query, given, sizes),
        IS_PLAIN=_is_plain(given, sizes),
        IS_CAUSAL=_is_usual(given) and given.right != UNLIMITED,
    )


def _allocate_backward(
    out_gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    lse: Any,
    has_bias_gradient: bool,
    *extras: Any,
) -> tuple[Any, ...]:
    bias = Extras(*extras).bias
    shape = (*query.shape[:3], key.shape[2]) if has_bias_gradient else (0,)
    bias_gradient = empty(shape, query if bias is None else bias)
    return empty_like(query), empty_like(key), empty_like(value), bias_gradient


@operation(
    f"""attention_backward(Tensor out_gradient, Tensor query, Tensor key, Tensor value, Tensor out,
    Tensor lse, bool has_bias_gradient, {_EXTRAS}) -> (Tensor, Tensor, Tensor, Tensor)""",
    allocate=_allocate_backward,
)
def _attention_backward(
    outputs: Any,
    out_gradient: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    lse: Any,
    has_bias_gradient: bool,
    *extras: Any,
) -> None:
    given = Extras(*extras)
    sizes = _sizes(query, key, value, given)
    query_gradient, key_gradient, value_gradient, bias_gradient = outputs
    if _is_empty(sizes) or given.query_starts is not None:  # rows that are in no sequence
        for gradient in outputs:
            gradient[...] = 0
    if _is_empty(sizes):
        return
    bias_gradient[...] = 0  # blocks that no query sees are not visited
    q, k, v, result, upstream = map(for_descriptors, (query, key, value, out, out_gradient))
    delta = empty_like(lse)
    widths = _widths(query, given, sizes)
    most_queries, sequences = _longest(given.query_starts, given.most_queries, sizes, sizes.queries)
    query_gradients_kernel[
        lambda at: (tw.cdiv(most_queries, at["BLOCK_M"]), sizes.heads, sequences)
    ](
        *(q, k, v),
        (result, upstream),
        (lse, delta),
        (query_gradient, bias_gradient if has_bias_gradient else None),
        (*map(descriptor_strides, (q, k, v, result, upstream)), strides(query_gradient)[:3]),
        sizes,
        _terms(given, by_column=False),
        given.scale,
        **widths,
        IS_PLAIN=_is_plain(given, sizes),
    )
    most_keys, sequences = _longest(given.key_starts, given.most_keys, sizes, sizes.keys)
    gradients = (key_gradient, value_gradient)
    key_gradients_kernel[
        lambda at: (tw.cdiv(most_keys, at["BLOCK_N"]), sizes.key_heads, sequences)
    ](
        *(q, k, v, upstream),
        (lse, delta),
        gradients,
        (*map(descriptor_strides, (q, k, v, upstream)), *(strides(x)[:3] for x in gradients)),
        sizes,
        _terms(given, by_column=True),
        given.scale,
        **widths,
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    extras = Extras(*inputs[3:])
    ctx.save_for_backward(*inputs[: 3 + _ARRAYS], *output, *extras.tensors)
    ctx.numbers = extras[_ARRAYS + 1 :]
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, out_gradient: Any, _: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    operands, arrays, (out, lse) = saved[:3], saved[3 : 3 + _ARRAYS], saved[3 + _ARRAYS :][:2]
    tensors = list(saved[3 + _ARRAYS + 2 :])
    extras = Extras._make((*arrays, tensors, *ctx.numbers))
    if extras.score_mod and not extras.score_mod_gradient:
        raise NotImplementedError(
            "attention with `score_mod` needs `score_mod_gradient` for its backward pass"
        )
    has_bias_gradient = ctx.needs_input_grad[3]
    *gradients, bias_gradient = _attention_backward(
        out_gradient, *operands, out, lse, has_bias_gradient, *extras
    )
    others: dict[str, Any] = dict.fromkeys(Extras._fields)
    others["bias"] = bias_gradient if has_bias_gradient else None
    others["tensors"] = [None] * len(tensors)
    return *gradients, *others.values()


attention_operation.register_autograd(_backward, setup_context=_setup_context)
