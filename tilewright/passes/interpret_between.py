"""An observer that runs the function before and after every pass and compares what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.errors import InternalError
from tilewright.interpreter.machine import interpret
from tilewright.ir.core import Function
from tilewright.ops.numerics import Array
from tilewright.passes.step import Observer, Step

__all__ = ["interpret_between"]

Inputs = tuple[Sequence[Any], Sequence[Array]]
"""The arguments of a launch, and the arrays whose contents afterwards are results too."""


def interpret_between(
    make_inputs: Callable[[], Inputs], grid: tuple[int, int, int] = (1, 1, 1)
) -> Observer:
    """Return an observer that raises `InternalError` for a pass that changes a result.

    `make_inputs` returns fresh inputs, the same each time. Results are equal when their bits are;
    any NaN equals any other, since arithmetic keeps neither sign nor payload.
    """

    def observe(step: Step) -> None:
        if step.after is step.before:
            return
        before, after = (_run(f, make_inputs, grid) for f in (step.before, step.after))
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            if not _is_equal(old, new):
                place = f"result {number} of {step.after.name}"
                message = f"pass {step.name} changed {place}: {old} became {new}"
                raise InternalError(message, location=step.after.location)

    return observe


def _run(
    function: Function, make_inputs: Callable[[], Inputs], grid: tuple[int, int, int]
) -> list[Array]:
    arguments, arrays = make_inputs()
    results = interpret(function, arguments, grid)
    return [*map(np.asarray, results), *arrays]


def _is_equal(x: Array, y: Array) -> bool:
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    return _bits(x) == _bits(y)


def _bits(x: Array) -> bytes:
    nan = x != x  # noqa: PLR0124 - true for NaN of every float type, also those NumPy does not know
    return np.where(nan, np.zeros((), x.dtype), x).tobytes() + np.asarray(nan).tobytes()
