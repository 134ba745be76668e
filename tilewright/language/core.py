"""The primitives of the language in one place, as kernels may name them: `tl.core.load`."""

from __future__ import annotations

from tilewright.frontend.builtin import builtin
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.iterators import condition, range, static_range
from tilewright.frontend.semantic import PropagateNan
from tilewright.frontend.semantic import TensorDescriptor as tensor_descriptor  # noqa: N813
from tilewright.frontend.semantic import TensorDescriptorType as tensor_descriptor_type  # noqa: N813
from tilewright.frontend.tensor import Tensor as tensor  # noqa: N813 - the language's name
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
    max_constancy,
    max_contiguous,
    multiple_of,
    static_assert,
    static_print,
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
    maximum,
    minimum,
    mul,
    sub,
    where,
)
from tilewright.language.mapping import map_elementwise
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
from tilewright.language.reduction import associative_scan, histogram, reduce
from tilewright.language.shape import (
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    gather,
    join,
    permute,
    reshape,
    split,
    squeeze,
    trans,
    unsqueeze,
    view,
)

__all__ = [
    "TRITON_MAX_TENSOR_NUMEL", "PropagateNan", "add", "advance", "arange", "associative_scan",
    "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
    "atomic_xchg", "atomic_xor", "bfloat16", "block_type", "broadcast", "broadcast_to", "builtin",
    "cast", "cat", "clamp", "condition", "const", "constexpr", "debug_barrier", "device_assert",
    "device_print", "dot", "dot_scaled", "dtype", "expand_dims", "float8e4b8", "float8e4b15",
    "float8e4nv", "float8e5", "float8e5b16", "float16", "float32", "float64", "full", "gather",
    "histogram", "inline_asm_elementwise", "int1", "int8", "int16", "int32", "int64", "join",
    "load", "load_tensor_descriptor", "make_block_ptr", "make_tensor_descriptor", "map_elementwise",
    "max_constancy", "max_contiguous", "maximum", "minimum", "mul", "multiple_of", "num_programs",
    "permute", "pi32_t", "pointer_type", "program_id", "range", "reduce", "reshape", "split",
    "squeeze", "static_assert", "static_print", "static_range", "store", "store_tensor_descriptor",
    "sub", "tensor", "tensor_descriptor", "tensor_descriptor_type", "to_tensor", "trans", "uint8",
    "uint16", "uint32", "uint64", "unsqueeze", "view", "void", "where", "zeros", "zeros_like",
]  # fmt: skip
