"""How a formula becomes a function of the language.

A formula is arithmetic on `Expression`s, made of ops that are exact or correctly rounded on every
machine. The result is therefore the same in every executor, to the bit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.context import current
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic.casts import convert
from tilewright.frontend.semantic.promotion import common_type
from tilewright.frontend.semantic.shapes import broadcast_tensors
from tilewright.frontend.semantic.values import as_tensor, fail
from tilewright.frontend.tensor import Tensor
from tilewright.ir.core import Op, Value
from tilewright.ir.types import DTYPES, DType
from tilewright.ops import Bitcast, Mul
from tilewright.ops.numerics import is_narrow_float
from tilewright.passes.expression import Expression

__all__ = ["Formula", "Function", "named", "of_floats", "of_integers", "of_reals", "of_types"]

Formula = Callable[..., Expression]
Function = Callable[..., Tensor]

FP32, FP64 = DTYPES["fp32"], DTYPES["fp64"]


def of_reals(formula: Formula) -> Function:
    """Make a function of floats (integers enter as fp32) from a formula in fp64.

    fp32 is computed in fp64 and rounded, fp16 and bf16 as fp32 and rounded again.
    """

    def compute(tensors: Sequence[Tensor]) -> Tensor:
        element = _float_type(tensors)
        result = _apply(formula, [convert(x, FP64) for x in tensors])
        return _rounded(result, element)

    return _declared(formula, compute)


def of_floats(formula: Formula) -> Function:
    """Make a function of floats (integers enter as fp32) from a formula in fp32 or fp64.

    A result of the type that was computed in is rounded to that of the operands; any other (a bool,
    an integer) stays.
    """

    def compute(tensors: Sequence[Tensor]) -> Tensor:
        element = _float_type(tensors)
        wide = FP32 if is_narrow_float(element) else element
        result = _apply(formula, [convert(x, wide) for x in tensors])
        return _rounded(result, element) if result.dtype is wide else result

    return _declared(formula, compute)


def named(formula: Formula, name: str, doc: str) -> Function:
    """Make a formula of a family a function of floats, under its own name."""
    formula.__name__ = formula.__qualname__ = name
    formula.__doc__ = doc
    return of_floats(formula)


def of_integers(*, widths: tuple[int, ...] = (32, 64)) -> Callable[[Formula], Function]:
    """Make a function of integers of one of these widths; narrower ones enter as 32 bits."""

    def declare(formula: Formula) -> Function:
        def compute(tensors: Sequence[Tensor]) -> Tensor:
            element = functools.reduce(common_type, map(_number_type, tensors))
            if not element.is_int():
                fail(
                    f"{formula.__name__}: expected integers, got {element}",
                    hint="convert it: x.to(tl.int32)",
                )
            if element.primitive_bitwidth < 32:
                element = DTYPES["i32"]
            if element.primitive_bitwidth not in widths:
                fail(
                    f"{formula.__name__}: expected integers of 32 bits, got {element}",
                    hint="convert it: x.to(tl.int32)",
                )
            return _apply(formula, [convert(x, element) for x in tensors])

        return _declared(formula, compute)

    return declare


def of_types(*names: str) -> Callable[[Formula], Function]:
    """Make a function of operands of these types.

    An operand of another type is converted where that loses nothing; an integer of the same width
    is read by its bits.
    """

    def declare(formula: Formula) -> Function:
        def compute(tensors: Sequence[Tensor]) -> Tensor:
            operands = [
                _exactly(formula.__name__, x, DTYPES[name])
                for x, name in zip(tensors, names, strict=True)
            ]
            return _apply(formula, operands)

        return _declared(formula, compute)

    return declare


def _declared(formula: Formula, compute: Callable[[Sequence[Tensor]], Tensor]) -> Function:
    name, parameters = formula.__name__, tuple(inspect.signature(formula).parameters)

    @builtin
    @functools.wraps(formula)
    def function(*args: Any, **named: Any) -> Tensor:
        operands = _in_order(name, parameters, args, named)
        tensors = [as_tensor(x, name) for x in operands]
        for x in tensors:
            if not isinstance(x.dtype, DType):
                fail(
                    f"{name}: expected numbers, got {x.value.type}",
                    hint="convert a pointer first: x.to(tl.int64)",
                )
        return compute(broadcast_tensors(name, *tensors))

    return function


def _in_order(
    name: str, parameters: Sequence[str], args: Sequence[Any], named: dict[str, Any]
) -> list[Any]:
    """Return the operands by place; `arg0`, `arg1`, ... are other names of the parameters."""
    operands = list(args)
    for index, parameter in enumerate(parameters[len(args) :], len(args)):
        for spelling in (parameter, f"arg{index}"):
            if spelling in named:
                operands.append(named.pop(spelling))
                break
    if named or len(operands) != len(parameters):
        fail(f"{name}: expected the arguments {', '.join(parameters)}")
    return operands


def _float_type(tensors: Sequence[Tensor]) -> DType:
    """Return the common type of the floats among the operands; integers follow them."""
    floats = [element for element in map(_number_type, tensors) if element.is_floating()]
    return functools.reduce(common_type, floats) if floats else FP32


def _number_type(x: Tensor) -> DType:
    element = x.dtype
    assert isinstance(element, DType)  # pointers are refused before
    return element


def _rounded(x: Tensor, element: DType) -> Tensor:
    return convert(convert(x, FP32), element) if is_narrow_float(element) else convert(x, element)


def _exactly(name: str, x: Tensor, element: DType) -> Tensor:
    source = _number_type(x)
    bits, wanted = source.primitive_bitwidth, element.primitive_bitwidth
    if source.is_int() == element.is_int() and bits == wanted:
        return x if source == element else emit(Bitcast, x, element)
    if source.is_int() == element.is_int() and bits < wanted:
        return convert(x, element)
    message = f"{name}: expected {element}, got {x.value.type}"
    return fail(message, f"convert it with .to({element})")


def _apply(formula: Formula, tensors: Sequence[Tensor]) -> Tensor:
    constants: dict[tuple[str, object], Value] = {}
    return Tensor(formula(*(Expression(x.value, _emit, constants) for x in tensors)).value)


def _emit(op: Op) -> Any:
    """Append an op; formulas count on each product being rounded."""
    context = current()
    if isinstance(op, Mul) and op.type.element.is_floating():
        op = Mul(op.x, op.y, is_rounded=True)
    op.location = context.location
    (result,) = context.emit(op)
    return result
