"""A function on scalars, applied to every element of tiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir.core import Block, Effect, MachineOp, Value, require
from tilewright.ir.types import TileType
from tilewright.ops.control import Call
from tilewright.ops.machine import Machine
from tilewright.ops.numerics import Array

__all__ = ["MapElements", "has_branches", "on_elements"]


def has_branches(block: Block) -> bool:
    """Whether scalars decide what runs in a region, so that it cannot run on whole tiles."""
    return any(
        op.regions or (isinstance(op, Call) and has_branches(op.callee.body)) for op in block.walk()
    )


def on_elements(machine: Machine, block: Block, arrays: Sequence[Array]) -> list[Array]:
    """Apply a region on scalars to arrays of one shape; at once, if it has no branches."""
    if not has_branches(block):
        results = machine.run(block, *arrays)
        shape = arrays[0].shape
        return [np.broadcast_to(np.asarray(r), shape) for r in results]
    shape = arrays[0].shape
    outputs = [np.empty(shape, value.type.element.numpy) for value in block.yields]
    for place in np.ndindex(shape):
        values = machine.run(block, *(x[place] for x in arrays))
        for output, value in zip(outputs, values, strict=True):
            output[place] = value
    return outputs


class MapElements(MachineOp):
    """What `body`, a region on scalars that only computes, makes of each element of the inputs.

    It has a parameter for each input and yields an element of each result. Each element takes its
    own way through branches and loops.
    """

    inputs: tuple[Value, ...]
    body: Block

    def infer(self) -> tuple[TileType, ...]:
        require(self.inputs and self.inputs[0].shape, "map_elements: no tiles")
        shape = self.inputs[0].shape
        require(
            all(v.shape == shape for v in self.inputs),
            f"map_elements: shapes differ: {', '.join(str(v.type) for v in self.inputs)}",
        )
        require(
            [p.type for p in self.body.params] == [TileType(v.type.element) for v in self.inputs],
            "map_elements: the parameters are not the elements of the inputs",
        )
        require(
            all(v.type.is_scalar for v in self.body.yields), "map_elements: a result is no scalar"
        )
        _check_computes(self.body)
        return tuple(v.type.with_shape(shape) for v in self.body.yields)

    def evaluate(self, machine: Machine, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(on_elements(machine, self.body, inputs))


def _check_computes(block: Block) -> None:
    for op in block.walk():
        require(
            op.effects is Effect.NONE or op.regions,
            f"{op.op_name} in a function that is mapped over elements: it may only compute",
            hint="load before, and hand it the tile; store what it returns",
        )
