"""Functions of real analysis as arithmetic that every machine has.

`exp`, `sin` and the like become additions, multiplications, fma, bit operations and selections:
without branches, tables or gathers, so that every target vectorises them, and with the same result
on each. Left as they are: `Sqrt`, `Floor`, `Ceil`, `Trunc`, `Rint`, which are exact everywhere.
Narrow floats are computed in fp32.

    %y = exp %x : fp32[64]   →   %n = ..., %r = ..., %p = fma ..., %y = mul %p, %scale : fp32[64]

"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import DType
from tilewright.ops.math import Cos, Erf, Exp, Exp2, Log, Log2, Pow, Rsqrt, Sin, Tanh
from tilewright.ops.numerics import is_narrow_float
from tilewright.passes.expand_exponential import expand_exp, expand_exp2
from tilewright.passes.expand_logarithm import expand_log, expand_log2
from tilewright.passes.expand_power import expand_pow, expand_rsqrt
from tilewright.passes.expand_sigmoid import expand_erf, expand_tanh
from tilewright.passes.expand_trigonometric import expand_cos, expand_sin
from tilewright.passes.expression import Expression

__all__ = ["expand_math", "expand_math_for_gpu"]

Expansions = Mapping[type[Op], Callable[..., Expression]]

EXPANSIONS: Expansions = {
    Cos: expand_cos,
    Erf: expand_erf,
    Exp: expand_exp,
    Exp2: expand_exp2,
    Log: expand_log,
    Log2: expand_log2,
    Pow: expand_pow,
    Rsqrt: expand_rsqrt,
    Sin: expand_sin,
    Tanh: expand_tanh,
}


def _native_exp2(x: Expression) -> Expression:
    return x.append(Exp2(x.value))


GPU_EXPANSIONS: Expansions = {
    **{kind: EXPANSIONS[kind] for kind in (Cos, Log, Log2, Pow, Sin)},
    Erf: partial(expand_erf, exp2=_native_exp2),
    Tanh: partial(expand_tanh, exp2=_native_exp2),
}
"""fp32 on GPUs, which have instructions for powers of two and for 1 / sqrt(x)."""


def expand_math(function: Function) -> Function:
    """Replace every function of real analysis by arithmetic."""
    return rewrite(function, partial(_expand, fp32=EXPANSIONS))


def expand_math_for_gpu(function: Function) -> Function:
    """Replace the functions of real analysis that GPUs have no instruction for."""
    return rewrite(function, partial(_expand, fp32=GPU_EXPANSIONS))


def _expand(op: Op, emit: Emit, fp32: Expansions) -> Value | None:
    if type(op) not in EXPANSIONS:
        return None
    element = op.type.element
    assert isinstance(element, DType)
    expansion = (EXPANSIONS if element.short_name == "fp64" else fp32).get(type(op))
    if expansion is None:
        return None
    constants: dict[tuple[str, object], Value] = {}
    operands = [Expression(value, emit, constants) for value in op.operands]
    if not is_narrow_float(element):
        return expansion(*operands).value
    return expansion(*(x.cast("fp32") for x in operands)).cast(element.short_name).value
