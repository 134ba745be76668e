"""The machine that ops are evaluated on: memory, place in the grid, regions, output."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tilewright.errors import LaunchError, Location
from tilewright.ir.core import Block, Function, MachineOp, Op, Value
from tilewright.ir.types import DType
from tilewright.ops.numerics import Array

__all__ = ["FIRST_PAGE_BYTES", "Interpreter", "MemoryRegion", "interpret"]

# From address 0 on; nothing is ever mapped there.
FIRST_PAGE_BYTES = 4096


@dataclass(frozen=True)
class MemoryRegion:
    """A range of addresses that a launch may touch; `name` is the argument it belongs to."""

    start: int
    size_bytes: int
    name: str
    writable: bool = True


class Interpreter:
    """Evaluates ops one by one. Implements `tilewright.ops.machine.Machine`.

    `regions` are the arrays of the launch: an access outside all of them is an error that names the
    nearest. With `regions=None` (a launch with raw addresses) any address is taken on trust.
    `checks_overflow` is for whoever makes the ops: eager mode asks it.
    """

    def __init__(
        self,
        grid: tuple[int, int, int] = (1, 1, 1),
        regions: Iterable[MemoryRegion] | None = None,
        *,
        output: Callable[[str], None] | None = None,
        check_assertions: bool = True,
        checks_overflow: bool = False,
    ) -> None:
        self.grid = grid
        self.program_id = (0, 0, 0)
        self.location: Location | None = None
        self.checks_overflow = checks_overflow
        self._regions = None if regions is None else tuple(regions)
        self._output = output or print
        self._check_assertions = check_assertions
        self._values: dict[Value, Any] = {}

    def evaluate(self, op: Op, lookup: Callable[[Value], Any]) -> tuple[Array, ...]:
        """Return the results of one op, given what its operands are."""
        arguments: list[Any] = [self] if isinstance(op, MachineOp) else []
        for name, variadic in op.operand_fields:
            field = getattr(op, name)
            if variadic:
                arguments.append(tuple(map(lookup, field)))
            else:
                arguments.append(None if field is None else lookup(field))
        self.location = op.location
        result = op.evaluate(*arguments)
        if len(op.results) == 1 and not isinstance(result, tuple):
            result = (result,)
        return tuple(
            np.asarray(array, value.type.element.numpy)
            for array, value in zip(result or (), op.results, strict=True)
        )

    def run(self, block: Block, *arguments: Any) -> tuple[Any, ...]:
        """Run a block on the values of its parameters and return what it yields."""
        values = self._values
        values.update(zip(block.params, arguments, strict=True))
        for op in block.ops:
            values.update(zip(op.results, self.evaluate(op, values.__getitem__), strict=True))
        return tuple(values[v] for v in block.yields)

    def call(self, function: Function, *arguments: Any) -> tuple[Any, ...]:
        """Run a function in a frame of its own."""
        outer, self._values = self._values, {}
        try:
            return self.run(function.body, *arguments)
        finally:
            self._values = outer

    def read(self, addresses: Array, dtype: DType) -> Array:
        """Return the elements at `addresses` (1-d)."""
        if not addresses.size:
            return np.empty(0, dtype.numpy)
        self._check(addresses, dtype.itemsize, "read", writing=False)
        memory, offsets = _window(addresses, dtype.itemsize)
        raw = memory[offsets[:, None] + np.arange(dtype.itemsize)]
        if dtype.is_bool():
            return np.not_equal(raw[:, 0], 0)
        return np.ascontiguousarray(raw).view(dtype.numpy)[:, 0]

    def write(self, addresses: Array, values: Array) -> None:
        """Store elements at `addresses` (1-d), the last of equal addresses winning."""
        if not addresses.size:
            return
        itemsize = values.dtype.itemsize
        self._check(addresses, itemsize, "write", writing=True)
        memory, offsets = _window(addresses, itemsize)
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1, itemsize)
        memory[offsets[:, None] + np.arange(itemsize)] = raw

    def print(self, text: str) -> None:
        """Show a line of `device_print`."""
        self._output(text)

    def fail(self, message: str, location: Location | None) -> None:
        """Raise for a `device_assert` that does not hold, where assertions are on."""
        if self._check_assertions:
            text = f"device-side assert: {message} (program {self.program_id})"
            raise LaunchError(text, location=location)

    def _check(self, addresses: Array, itemsize: int, what: str, *, writing: bool) -> None:
        self._require_not_null(addresses, what)
        if self._regions is None:
            return
        inside = np.zeros(addresses.shape, np.bool_)
        for region in self._regions:
            if writing and not region.writable:
                continue
            end = region.start + region.size_bytes - itemsize
            inside |= (addresses >= region.start) & (addresses <= end)
        if not inside.all():
            address = int(addresses[~inside][0])
            read_only = self._read_only(address)
            if read_only is not None:
                raise LaunchError(
                    f"`{read_only}` is read-only, and the kernel writes to it",
                    location=self.location,
                    hint="pass a copy: `array.copy()`",
                )
            raise LaunchError(
                f"out-of-bounds {what} of {itemsize} bytes {self._describe(address)} in program "
                f"{self.program_id}",
                location=self.location,
                hint="check the offsets and the mask against the size of the array",
            )

    def _require_not_null(self, addresses: Array, what: str) -> None:
        if ((addresses >= 0) & (addresses < FIRST_PAGE_BYTES)).any():
            raise LaunchError(
                f"{what} through a null pointer in program {self.program_id}",
                location=self.location,
                hint="pass an array, or mask the access",
            )

    def _read_only(self, address: int) -> str | None:
        """Return the name of the read-only array that an address lies in."""
        for region in self._regions or ():
            if 0 <= address - region.start < region.size_bytes and not region.writable:
                return region.name
        return None

    def _describe(self, address: int) -> str:
        def distance(region: MemoryRegion) -> int:
            end = region.start + region.size_bytes
            return max(region.start - address, address - end, 0)

        if not self._regions:
            return f"at address {address:#x}"
        region = min(self._regions, key=distance)
        offset = address - region.start
        return f"at byte {offset} of `{region.name}`, which has {region.size_bytes} bytes"


def _window(addresses: Array, itemsize: int) -> tuple[Array, Array]:
    """Return the bytes spanned by the addresses and each address's offset into them."""
    low, high = int(addresses.min()), int(addresses.max())
    memory = (ctypes.c_uint8 * (high - low + itemsize)).from_address(low)
    return np.frombuffer(memoryview(memory), np.uint8), addresses - low


def interpret(
    function: Function,
    arguments: Sequence[Any],
    grid: tuple[int, int, int] = (1, 1, 1),
    regions: Iterable[MemoryRegion] | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    """Run `function` for every program of the grid, x fastest; return the last program's results.

    Arguments are scalars: numbers, and addresses for pointers. `regions` and `options` are those of
    `Interpreter`.
    """
    machine = Interpreter(grid, regions, **options)
    values = [
        np.asarray(argument).astype(param.type.element.numpy)
        for param, argument in zip(function.params, arguments, strict=True)
    ]
    results: tuple[Any, ...] = ()
    with np.errstate(all="ignore"):
        for z, y, x in product(*(range(extent) for extent in reversed(grid))):
            machine.program_id = (x, y, z)
            results = machine.call(function, *values)
    return results
