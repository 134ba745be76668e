"""The tile language: what kernels are written with, under the names Triton gave it (`tl`).

A scalar has shape `()`, a tile any other shape of positive sizes. Where a parameter is a tile, a
number or a scalar will do. What a function cannot take is a `CompileError` at the line of the call.

The functions work inside kernels. The examples beside them are expressions of a kernel, with what
eager mode shows; `x_ptr` points to the fp32 numbers 0, ..., 7.
"""

from types import FunctionType
from typing import TYPE_CHECKING, Any

from tilewright.frontend.builtin import offer
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.function import KernelFunction
from tilewright.frontend.iterators import condition, range, static_range
from tilewright.frontend.semantic import PropagateNan
from tilewright.frontend.semantic import TensorDescriptor as tensor_descriptor  # noqa: N813
from tilewright.frontend.semantic import TensorDescriptorType as tensor_descriptor_type  # noqa: N813
from tilewright.frontend.tensor import Tensor as tensor  # noqa: N813 - the language's name
from tilewright.language import core, extra, math, random, standard, target_info
from tilewright.language.creation import (
    arange,
    cast,
    full,
    num_programs,
    program_id,
    to_tensor,
    zeros,
    zeros_like,
)
from tilewright.language.debug import (
    assume,
    debug_barrier,
    device_assert,
    device_print,
    expect_zero,
    max_constancy,
    max_contiguous,
    multiple_of,
    static_assert,
    static_print,
)
from tilewright.language.descriptor import (
    _experimental_descriptor_load as _experimental_descriptor_load,
)
from tilewright.language.descriptor import (
    _experimental_descriptor_store as _experimental_descriptor_store,
)
from tilewright.language.descriptor import (
    load_tensor_descriptor,
    make_tensor_descriptor,
    store_tensor_descriptor,
)
from tilewright.language.dtypes import (
    TRITON_MAX_TENSOR_NUMEL,
    bfloat16,
    block_type,
    const,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pi32_t,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.language.elementwise import (
    add,
    clamp,
    dot,
    dot_scaled,
    logical_and,
    logical_or,
    maximum,
    minimum,
    mul,
    sub,
    where,
)
from tilewright.language.extra import libdevice
from tilewright.language.mapping import map_elementwise
from tilewright.language.math import (
    abs,
    cdiv,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    tanh,
    umulhi,
)
from tilewright.language.memory import (
    advance,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    make_block_ptr,
    store,
)
from tilewright.language.native import inline_asm_elementwise
from tilewright.language.random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from tilewright.language.reduction import (
    argmax,
    argmin,
    argsort,
    associative_scan,
    bitonic_merge,
    cumprod,
    cumsum,
    histogram,
    max,
    min,
    reduce,
    reduce_or,
    sort,
    sum,
    topk,
    xor_sum,
)
from tilewright.language.shape import (
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    flip,
    gather,
    interleave,
    join,
    permute,
    ravel,
    reshape,
    split,
    squeeze,
    trans,
    unsqueeze,
    view,
)
from tilewright.language.standard import (
    sigmoid,
    softmax,
    swizzle2d,
)
from tilewright.language.structures import (
    aggregate,
    aggregate_replace,
    constexpr_type,
    slice,
    str_to_ty,
    tuple,
    tuple_type,
)
from tilewright.spelling import unknown_name

# The older name.
_experimental_make_tensor_descriptor = make_tensor_descriptor

__all__ = [
    "TRITON_MAX_TENSOR_NUMEL",
    "PropagateNan",
    "abs",
    "add",
    "advance",
    "aggregate",
    "aggregate_replace",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "associative_scan",
    "assume",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "bfloat16",
    "bitonic_merge",
    "block_type",
    "broadcast",
    "broadcast_to",
    "cast",
    "cat",
    "cdiv",
    "ceil",
    "clamp",
    "condition",
    "const",
    "constexpr",
    "constexpr_type",
    "core",
    "cos",
    "cumprod",
    "cumsum",
    "debug_barrier",
    "device_assert",
    "device_print",
    "div_rn",
    "dot",
    "dot_scaled",
    "dtype",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "expect_zero",
    "extra",
    "fdiv",
    "flip",
    "float8e4b8",
    "float8e4b15",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "float16",
    "float32",
    "float64",
    "floor",
    "fma",
    "full",
    "gather",
    "histogram",
    "inline_asm_elementwise",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "interleave",
    "join",
    "libdevice",
    "load",
    "load_tensor_descriptor",
    "log",
    "log2",
    "logical_and",
    "logical_or",
    "make_block_ptr",
    "make_tensor_descriptor",
    "map_elementwise",
    "math",
    "max",
    "max_constancy",
    "max_contiguous",
    "maximum",
    "min",
    "minimum",
    "mul",
    "multiple_of",
    "num_programs",
    "pair_uniform_to_normal",
    "permute",
    "philox",
    "philox_impl",
    "pi32_t",
    "pointer_type",
    "program_id",
    "rand",
    "rand4x",
    "randint",
    "randint4x",
    "randn",
    "randn4x",
    "random",
    "range",
    "ravel",
    "reduce",
    "reduce_or",
    "reshape",
    "rsqrt",
    "sigmoid",
    "sin",
    "slice",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "sqrt_rn",
    "squeeze",
    "standard",
    "static_assert",
    "static_print",
    "static_range",
    "store",
    "store_tensor_descriptor",
    "str_to_ty",
    "sub",
    "sum",
    "swizzle2d",
    "tanh",
    "target_info",
    "tensor",
    "tensor_descriptor",
    "tensor_descriptor_type",
    "to_tensor",
    "topk",
    "trans",
    "tuple",
    "tuple_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uint_to_uniform_float",
    "umulhi",
    "unsqueeze",
    "view",
    "void",
    "where",
    "xor_sum",
    "zeros",
    "zeros_like",
]  # fmt: skip

_ABSENT = {
    "async_task": "leave it out: it changes no result",
}
# What neither Triton has, where names that are spelt alike would mislead.
_INSTEAD = {
    "relu": "write `tl.maximum(x, 0)`",
}


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # where types are checked, a name that is not there is an error

    def __getattr__(name: str) -> Any:
        raise unknown_name("tl", name, __all__, _ABSENT, _INSTEAD)


# Triton had the functions of libdevice under `tl.math` before they had a module of their own.
vars(math).update(
    {name: getattr(libdevice, name) for name in libdevice.__all__ if name not in vars(math)}
)

offer(
    "tl", [name for name in __all__ if isinstance(globals()[name], FunctionType | KernelFunction)]
)
offer("tl.extra.libdevice", libdevice.__all__)
