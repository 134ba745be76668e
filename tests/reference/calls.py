"""How each function of the language is called, as an expression of a kernel.

`x`, `y` and `z` are tiles of 16 elements of the type `D`, `s` is a scalar, `p` points to 64 of
them; `i` are the numbers 0 to 15 and `m` whether they are even.
"""

from __future__ import annotations

import inspect

import tilewright.language as tl

__all__ = ["CALLS", "LIBDEVICE", "METHODS", "NOT_CALLED", "OF_MACHINES", "WHERE"]

_MATRIX = "tl.reshape({}, (4, 4))"
_XX, _YY = _MATRIX.format("x"), _MATRIX.format("y")
_DESCRIPTOR = "tl.make_tensor_descriptor(p, [4, 16], [16, 1], [1, 16])"
_BLOCK = "tl.make_block_ptr(p, (4, 4), (4, 1), (0, 0), (4, 4), (1, 0))"

CALLS: dict[str, str] = {
    # memory
    "load": "tl.load(p + i, mask=m, other=0)",
    "store": "tl.store(p + i, x, mask=m)",
    "make_block_ptr": f"tl.load({_BLOCK})",
    "advance": f"tl.load(tl.advance({_BLOCK}, (1, 0)), boundary_check=(0,))",
    "make_tensor_descriptor": f"{_DESCRIPTOR}.load([1, 0])",
    "load_tensor_descriptor": f"tl.load_tensor_descriptor({_DESCRIPTOR}, [1, 0])",
    "store_tensor_descriptor": f"tl.store_tensor_descriptor({_DESCRIPTOR}, [1, 0], x[None, :])",
    "atomic_add": "tl.atomic_add(p + i, x, mask=m)",
    "atomic_max": "tl.atomic_max(p + i, x, mask=m)",
    "atomic_min": "tl.atomic_min(p + i, x, mask=m)",
    "atomic_and": "tl.atomic_and(p + i, x, mask=m)",
    "atomic_or": "tl.atomic_or(p + i, x, mask=m)",
    "atomic_xor": "tl.atomic_xor(p + i, x, mask=m)",
    "atomic_xchg": "tl.atomic_xchg(p + i, x, mask=m)",
    "atomic_cas": "tl.atomic_cas(p + i, x, y)",
    # creation
    "arange": "tl.arange(3, 19)",
    "cast": "(tl.cast(x, tl.float32), tl.cast(i, D))",
    "full": "tl.full((16,), 3, D)",
    "num_programs": "tl.num_programs(0)",
    "program_id": "tl.program_id(0)",
    "to_tensor": "tl.to_tensor(3)",
    "zeros": "tl.zeros((16,), D)",
    "zeros_like": "tl.zeros_like(x)",
    # arithmetic and selection
    "add": "tl.add(x, y)",
    "sub": "tl.sub(x, y)",
    "mul": "tl.mul(x, y)",
    "maximum": "tl.maximum(x, y)",
    "minimum": "tl.minimum(x, y)",
    "clamp": "tl.clamp(x, y, z)",
    "where": "tl.where(m, x, y)",
    "logical_and": "tl.logical_and(x, y)",
    "logical_or": "tl.logical_or(x, y)",
    "dot": f"tl.dot({_XX}, {_YY}, input_precision='ieee')",
    "dot_scaled": "tl.dot_scaled(tl.reshape(x, (4, 4)), tl.full((4, 1), 128, tl.uint8), {format}, "
    "tl.reshape(y, (4, 4)), None, {format})",
    "map_elementwise": "tl.map_elementwise(tl.maximum, x, y)",
    "inline_asm_elementwise": "tl.inline_asm_elementwise('xor.b32 $0, $1, $2;', '=r,r,r', "
    "[i, i + 1], tl.int32, True, 1)",
    # functions
    **{
        name: f"tl.{name}(x)"
        for name in (
            "abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "rsqrt", "sigmoid",
            "sin", "softmax", "sqrt", "sqrt_rn", "tanh",
        )
    },
    "cdiv": "tl.cdiv(x, y)",
    "div_rn": "tl.div_rn(x, y)",
    "fdiv": "tl.fdiv(x, y)",
    "fma": "tl.fma(x, y, z)",
    "umulhi": "tl.umulhi(x, y)",
    # shapes
    "broadcast": "tl.broadcast(x[:, None], y[None, :])[0]",
    "broadcast_to": "tl.broadcast_to(x, (2, 16))",
    "cat": "tl.cat(x, y)",
    "expand_dims": "tl.expand_dims(x, 0)",
    "flip": "tl.flip(x, 0)",
    "gather": "tl.gather(x, 15 - i, 0)",
    "interleave": "tl.interleave(x, y)",
    "join": "tl.join(x, y)",
    "permute": f"tl.permute({_XX}, 1, 0)",
    "ravel": f"tl.ravel({_XX})",
    "reshape": "tl.reshape(x, (2, 8))",
    "split": "tl.split(tl.reshape(x, (8, 2)))",
    "squeeze": "tl.squeeze(x[None, :], 0)",
    "swizzle2d": "tl.swizzle2d(i // 4, i % 4, 4, 4, 2)",
    "trans": f"tl.trans({_XX})",
    "unsqueeze": "tl.unsqueeze(x, 0)",
    "view": "tl.view(x, (2, 8))",
    # reductions, scans, sorting
    **{
        name: f"tl.{name}(x, 0)"
        for name in (
            "argmax", "argmin", "cumprod", "cumsum", "max", "min", "reduce_or", "sum", "xor_sum",
        )
    },
    "argsort": "tl.argsort(x)",
    "associative_scan": "tl.associative_scan(x, 0, tl.maximum)",
    "bitonic_merge": "tl.bitonic_merge(tl.cat(tl.sort(x), tl.sort(y, descending=True)))",
    "histogram": "tl.histogram(x, 8)",
    "reduce": "tl.reduce(x, 0, tl.maximum)",
    "sort": "tl.sort(x)",
    "topk": "tl.topk(x, 4)",
    # random numbers
    "pair_uniform_to_normal": "tl.pair_uniform_to_normal(x, y)",
    "philox": "tl.philox(7, i.to(tl.uint32), i.to(tl.uint32), i.to(tl.uint32), i.to(tl.uint32))",
    "philox_impl": "tl.philox_impl(i.to(tl.uint32), i.to(tl.uint32), i.to(tl.uint32), "
    "i.to(tl.uint32), i.to(tl.uint32), i.to(tl.uint32))",
    **{name: f"tl.{name}(7, i)" for name in ("rand", "rand4x", "randint", "randint4x", "randn",
                                             "randn4x")},
    "uint_to_uniform_float": "tl.uint_to_uniform_float(x)",
    # hints and checks
    "assume": "tl.assume(s != 3)",
    "debug_barrier": "tl.debug_barrier()",
    "device_assert": "tl.device_assert(x == x)",
    "device_print": "tl.device_print('s', s)",
    "expect_zero": "tl.expect_zero(x, x != x)",
    "max_constancy": "tl.max_constancy(x, 1)",
    "max_contiguous": "tl.max_contiguous(x, 1)",
    "multiple_of": "tl.multiple_of(x, 1)",
    "static_assert": "tl.static_assert(D.itemsize > 0)",
    "static_print": "tl.static_print('')",
}  # fmt: skip

NOT_CALLED = {
    "element types": (
        "bfloat16", "float16", "float32", "float64", "float8e4b15", "float8e4b8", "float8e4nv",
        "float8e5", "float8e5b16", "int1", "int16", "int32", "int64", "int8", "uint16", "uint32",
        "uint64", "uint8", "pi32_t",
    ),
    "constants": ("TRITON_MAX_TENSOR_NUMEL",),
    "modules": ("core", "extra", "libdevice", "math", "random", "standard", "target_info"),
    "for who adds to the language": (
        "core.CONSTEXPR_0", "core.builtin", "core.extern", "core.extern_elementwise",
        "core.get_int_dtype", "core.must_use_result",
    ),
    "types": (
        "PropagateNan", "block_type", "const", "constexpr", "constexpr_type", "dtype",
        "pointer_type", "slice", "str_to_ty", "tensor", "tensor_descriptor",
        "tensor_descriptor_type", "tuple", "tuple_type", "void",
    ),
    "syntax": ("aggregate", "aggregate_replace", "condition", "range", "static_range"),
}  # fmt: skip
"""What is no operation on values; the tests of the frontend are about it."""

# Functions that tell of the machine, or are there for it, with where they run.
OF_MACHINES = {
    "extra.cuda": {
        "globaltimer": "on NVIDIA GPUs, real or emulated; elsewhere an error",
        "smid": "on NVIDIA GPUs, real or emulated; elsewhere an error",
        "num_threads": "on NVIDIA GPUs, real or emulated; elsewhere an error",
        "num_warps": "on NVIDIA GPUs, real or emulated; elsewhere an error",
        "gdc_wait": "on NVIDIA GPUs from 9.0 on; elsewhere nothing",
        "gdc_launch_dependents": "on NVIDIA GPUs from 9.0 on; elsewhere nothing",
        "convert_custom_float8_sm70": "everywhere",
        "convert_custom_float8_sm80": "everywhere",
    },
    "target_info": dict.fromkeys(
        (
            "current_target", "is_cuda", "cuda_capability_geq", "is_hip", "is_hip_cdna3",
            "is_hip_cdna4", "is_hip_gfx1250",
        ),
        "everywhere; a constant in kernels",
    ),
}  # fmt: skip
"""Not compared between executors: other tests are about them."""

LIBDEVICE = {
    name: f"tl.extra.libdevice.{name}({', '.join('xyzs'[:_arguments])})"
    for name in tl.extra.libdevice.__all__
    if (_arguments := len(inspect.signature(getattr(tl.extra.libdevice, name)).parameters))
}

METHODS = {
    "load": f"{_DESCRIPTOR}.load([1, 0])",
    "store": f"{_DESCRIPTOR}.store([1, 0], x[None, :])",
    "gather": f"{_DESCRIPTOR}.gather(tl.arange(0, 8) % 4, 0)",
    "scatter": f"{_DESCRIPTOR}.scatter(tl.broadcast_to(x, (4, 16)), 3 - tl.arange(0, 4), 0)",
    **{
        f"atomic_{kind}": f"{_DESCRIPTOR}.atomic_{kind}([1, 0], x[None, :])"
        for kind in ("add", "and", "max", "min", "or", "xor")
    },
}
"""Of tensor descriptors."""

WHERE = {
    "associative_scan": "on GPUs the function must be associative",
    "inline_asm_elementwise": "PTX; beside NVIDIA GPUs, its numeric instructions",
    "device_assert": "compiled kernels check when compiled for debugging",
    "expect_zero": "compiled kernels check when compiled for debugging",
}
"""What differs between executors; where nothing is said they do the same."""
