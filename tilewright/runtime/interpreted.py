"""Launches on the interpreter: the kernel's body runs as ordinary Python, one program at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tilewright.frontend.constexpr import same_tuple
from tilewright.frontend.context import Evaluated
from tilewright.frontend.eager import require_no_result, run_eagerly
from tilewright.frontend.function import KernelFunction
from tilewright.frontend.tensor import Tensor
from tilewright.frontend.trace import Constant, Described
from tilewright.interpreter import Interpreter, MemoryRegion
from tilewright.ir.types import PointerType, TileType
from tilewright.runtime.arguments import Argument, leaves, require_memory
from tilewright.runtime.dispatch import Extents

__all__ = ["run_interpreted"]


def run_interpreted(
    function: KernelFunction,
    arguments: Sequence[Argument],
    grid: Extents,
    *,
    checks_overflow: bool = True,
) -> None:
    """Run a kernel for every program of a grid, x fastest.

    An access outside the memory of the arrays is an error, unless an argument is a raw address or
    an array of unknown size. `device_assert` is always checked, and with `checks_overflow` that no
    sum, difference or product of int32 wraps.
    """
    __tracebackhide__ = True  # of pytest's and IPython's tracebacks and debuggers
    if not all(grid):
        return  # before the sizes that are not 0 are counted through
    machine = Interpreter(grid, _regions(arguments), checks_overflow=checks_overflow)
    with np.errstate(all="ignore"):
        values = {argument.name: _evaluated(argument) for argument in arguments}
        for z, y, x in product(*(range(size) for size in reversed(grid))):
            machine.program_id = (x, y, z)
            require_no_result(function, run_eagerly(function, values, machine))


def _regions(arguments: Sequence[Argument]) -> list[MemoryRegion] | None:
    regions = list(map(_region, _pointers(arguments)))
    known = [region for region in regions if region is not None]
    return known if len(known) == len(regions) else None


def _pointers(arguments: Sequence[Argument]) -> Iterator[Argument]:
    for argument in leaves(arguments):
        if isinstance(argument.specialization.element, PointerType):
            yield argument


def _region(argument: Argument) -> MemoryRegion | None:
    view = argument.view
    if view is None:
        # None stands for no memory; any other address may be anything.
        return MemoryRegion(0, 0, argument.name) if argument.value == 0 else None
    require_memory(argument)
    extent = view.extent
    return None if extent is None else MemoryRegion(*extent, argument.name, view.is_writable)


def _evaluated(argument: Argument) -> Any:
    """What the kernel's body sees: a scalar tile, a constant, or a bundle of these."""
    traced = argument.specialization.traced
    if isinstance(traced, Constant):
        return traced.value
    if isinstance(traced, Described):
        return traced.descriptor(list(map(_evaluated, argument.items)))
    element = argument.specialization.element
    if element is None:
        return same_tuple(traced, map(_evaluated, argument.items))
    value = argument.value
    if isinstance(element, PointerType) and value >= 2**63:
        value -= 2**64
    return Tensor(Evaluated(TileType(element), np.asarray(value).astype(element.numpy)))
