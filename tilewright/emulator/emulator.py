"""Launching kernels of a PTX text on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, product
from math import prod
from typing import Any, TypedDict, Unpack

import numpy as np

from tilewright.emulator.binding import Binder, numpy_type
from tilewright.emulator.floats import Array
from tilewright.emulator.global_writes import GlobalWrites
from tilewright.emulator.groups import Step
from tilewright.emulator.instructions import HANDLERS
from tilewright.emulator.instructions.control import guarded
from tilewright.emulator.machine import Machine, Shape
from tilewright.emulator.memory import CONSTANT_START, Buffer, GlobalMemory
from tilewright.emulator.parser import parse, type_bits
from tilewright.emulator.profile import Profile
from tilewright.emulator.program import (
    Address,
    EmulatorError,
    Kernel,
    Operand,
    Parameter,
    Symbol,
    Variable,
    Vector,
)
from tilewright.emulator.races import RaceDetector
from tilewright.emulator.register_watch import RegisterWatch
from tilewright.emulator.report import Finding, Report
from tilewright.emulator.scheduler import Scheduler
from tilewright.emulator.tensor_map import TensorMap

__all__ = ["Argument", "Emulator", "LaunchOptions"]

Argument = Any  # a NumPy array, a number, a TensorMap, or bytes
_THREADS_AT_ONCE = 32768
_SHARED_AT_ONCE = 64 << 20
_WATCHED_AT_ONCE = 128 << 20  # bytes that the race detector keeps
_WAITING_AT_ONCE = 64  # blocks that wait take the time of those that they wait for
_LARGEST_BLOCK = 1024
_LARGEST_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)


class LaunchOptions(TypedDict, total=False):
    """What a launch can be told beside its arguments."""

    shared_bytes: int
    """Dynamic shared memory of a block."""
    races: bool
    """Look for races in shared memory and missing proxy fences."""
    uninitialised: bool
    """Look for reads of shared memory that nothing has written."""
    profile: bool
    """Count bank conflicts and global sectors by source line."""
    names: Sequence[str]
    """What messages call the arguments; the parameters' names if left out."""
    buffers: Sequence[Array | Buffer]
    """More memory that the kernel reaches through addresses."""
    output: Callable[[str], None]
    """Takes the text of `printf`, which the report collects in any case."""


class Emulator:
    """Runs the kernels of a PTX text.

    Example:
        ```python
        report = Emulator(ptx).launch("add", grid=(4,), block=(128,), arguments=[x, y, out, 500])
        print(report)
        ```
    """

    def __init__(self, ptx_text: str) -> None:
        self.module = parse(ptx_text)

    def launch(
        self,
        kernel_name: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Argument],
        **options: Unpack[LaunchOptions],
    ) -> Report:
        """Run a kernel for every block of the grid and return what was seen.

        Args:
            kernel_name: The name of the entry.
            grid: Blocks along x, y, z.
            block: Threads along x, y, z.
            arguments: NumPy arrays (passed by their address), numbers, NumPy scalars (by their
                bits), `TensorMap`s, or bytes.
            **options: See `LaunchOptions`.

        Raises:
            EmulatorError: The kernel does what it must not: an access out of bounds or misaligned,
                a deadlock, a failed assertion, an instruction that is not modelled.
        """
        kernel = self._kernel(kernel_name)
        started = time.perf_counter()
        report = Report(kernel_name)
        memory, parameters = GlobalMemory(), _Parameters(kernel, options.get("names", ()))
        for argument in parameters.pack(arguments):
            memory.add(argument)
        for i, more in enumerate(options.get("buffers", ())):
            memory.add(more if isinstance(more, Buffer) else Buffer.of(more, f"buffer {i}"))
        placed = _place_variables(self.module.variables, memory)
        symbols = {name: buffer.start for name, buffer in placed.items()}
        report.variables = {name: buffer.data for name, buffer in placed.items()}
        finds_races = options.get("races", False)
        finds_uninitialised = options.get("uninitialised", False)
        watched = finds_races or finds_uninitialised
        shape = _shape(kernel, grid, block, options.get("shared_bytes", 0), watched=watched)
        external = [v for v in self.module.variables if v.space == "shared"]
        machine = Machine(_with_variables(kernel, external), shape, memory, symbols, parameters.raw)
        if watched:
            machine.races = RaceDetector(
                machine.threads_per_block,
                machine.shared_bytes,
                blocks=machine.blocks,
                cell_bytes=_smallest_access(machine.kernel),
                races=finds_races,
                uninitialised=finds_uninitialised,
                global_writes=GlobalWrites(memory) if _has_bulk_copies(machine.kernel) else None,
            )
        machine.profile = Profile() if options.get("profile", False) else None
        machine.print = _collector(report, options.get("output"))
        try:
            with np.errstate(all="ignore"):
                _run(machine, report)
        except EmulatorError as error:
            found = _findings(machine)
            if not found:
                raise
            earlier = "\n".join(map(str, found))
            message = f"{error.message}\nfound before:\n{earlier}"
            raise EmulatorError(message, location=error.location) from None
        report.findings = _findings(machine)
        if machine.profile is not None:
            report.lines = machine.profile.lines
        report.seconds = time.perf_counter() - started
        return report

    def _kernel(self, name: str) -> Kernel:
        if name not in self.module.kernels:
            known = ", ".join(self.module.kernels) or "none"
            raise EmulatorError(f"there is no kernel `{name}`; there are: {known}")
        return self.module.kernels[name]


def _collector(report: Report, output: Callable[[str], None] | None) -> Callable[[str], None]:
    def collect(text: str) -> None:
        report.output += text
        if output is not None:
            output(text)

    return collect


def _findings(machine: Machine) -> list[Finding]:
    return [] if machine.races is None else list(machine.races.findings.values())


def _with_variables(kernel: Kernel, variables: Sequence[Variable]) -> Kernel:
    """Return the kernel with the module's shared variables that it names."""
    own = {variable.name for variable in kernel.variables}
    used = {
        symbol for instruction in kernel.instructions for symbol in _symbols(instruction.operands)
    }
    more = [v for v in variables if v.name not in own and v.name in used]
    return Kernel(
        kernel.name,
        kernel.parameters,
        kernel.instructions,
        kernel.labels,
        kernel.branch_targets,
        [*kernel.variables, *more],
        kernel.directives,
    )


def _symbols(operands: Sequence[Operand]) -> list[str]:
    found: list[str] = []
    for operand in operands:
        match operand:
            case Symbol(name):
                found.append(name)
            case Address(base, _, rest):
                found += _symbols([base, *rest])
            case Vector(items):
                found += _symbols(items)
    return found


def _shape(
    kernel: Kernel, grid: Sequence[int], block: Sequence[int], shared_bytes: int, *, watched: bool
) -> Shape:
    def three(sizes: Sequence[int]) -> tuple[int, int, int]:
        x, y, z = (*sizes, 1, 1, 1)[:3]
        return x, y, z

    grid_shape, block_shape = three(grid), three(block)
    threads = int(np.prod(block_shape))
    if not 1 <= threads <= _LARGEST_BLOCK:
        raise EmulatorError(f"a block has 1 to {_LARGEST_BLOCK} threads, not {threads}")
    if any(size > largest for size, largest in zip(grid_shape, _LARGEST_GRID, strict=True)):
        raise EmulatorError(f"a grid has at most {_LARGEST_GRID} blocks, not {grid_shape}")
    cluster = int(np.prod(kernel.directives.get("reqnctapercluster", (1,))))
    if cluster > 1:
        raise EmulatorError(f"clusters of {cluster} blocks are not modelled, only of one")
    required = kernel.directives.get("reqntid")
    if required is not None and three(required) != block_shape:
        raise EmulatorError(f"`{kernel.name}` requires blocks of {required}, not {block_shape}")
    largest = kernel.directives.get("maxntid")
    if largest is not None and threads > int(np.prod(largest)):
        raise EmulatorError(f"`{kernel.name}` allows {int(np.prod(largest))} threads a block")
    at_once = _THREADS_AT_ONCE // threads
    at_once = min(at_once, _SHARED_AT_ONCE // max(shared_bytes, 1), prod(grid_shape))
    if watched:
        at_once = min(at_once, _WATCHED_AT_ONCE // RaceDetector.block_bytes(threads, shared_bytes))
    if _may_wait(kernel):
        at_once = min(at_once, _WAITING_AT_ONCE)
    return Shape(grid_shape, block_shape, max(1, at_once), shared_bytes)


def _may_wait(kernel: Kernel) -> bool:
    """Whether there is an atomic in a loop, which may wait for another block."""
    atomics = [i for i, item in enumerate(kernel.instructions) if item.opcode == "atom"]
    for end, item in enumerate(kernel.instructions if atomics else ()):
        if item.opcode == "bra" and isinstance(item.operands[0], Symbol):
            start = kernel.labels.get(item.operands[0].name, end)
            if any(start <= place < end for place in atomics):
                return True
    return False


def _has_bulk_copies(kernel: Kernel) -> bool:
    """Whether the asynchronous proxy comes to global memory."""
    return any(i.opcode == "cp" and i.has("bulk") for i in kernel.instructions)


def _smallest_access(kernel: Kernel) -> int:
    """How many bytes of shared memory no access of a kernel tears apart: 1, 2 or 4."""
    sizes = [
        type_bits(instruction.type) // 8
        for instruction in kernel.instructions
        if instruction.opcode in {"ld", "st", "atom", "red"}
        and not instruction.has("global", "param", "local", "const")
    ]
    return max(1, min([4, *sizes]))


# -- arguments ------------------------------------------------------------------------------------


class _Parameters:
    """The parameter space of a launch."""

    def __init__(self, kernel: Kernel, names: Sequence[str]) -> None:
        self.kernel, self.names = kernel, names
        last = kernel.parameters[-1] if kernel.parameters else None
        size = last.offset + last.size_bytes if last is not None else 0
        self.raw: Array = np.zeros(-(-max(size, 1) // 16) * 16, np.uint8)

    def pack(self, arguments: Sequence[Argument]) -> list[Buffer]:
        """Write the arguments; return the buffers that they lead to."""
        parameters = self.kernel.parameters
        if len(arguments) != len(parameters):
            raise EmulatorError(
                f"`{self.kernel.name}` has {len(parameters)} parameters, not {len(arguments)}"
            )
        buffers = []
        for i, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
            name = self.names[i] if i < len(self.names) else parameter.name
            if isinstance(argument, TensorMap):
                buffers.append(Buffer.of(argument.array, name))
            elif isinstance(argument, np.ndarray) and argument.ndim:
                buffers.append(Buffer.of(argument, name))
            raw = _argument_bytes(parameter, argument)
            start = parameter.offset
            if len(raw) > parameter.size_bytes:
                raise EmulatorError(f"argument `{name}` has {len(raw)} bytes, too many")
            self.raw[start : start + len(raw)] = np.frombuffer(raw, np.uint8)
        return buffers


def _argument_bytes(parameter: Parameter, argument: Argument) -> bytes:
    if isinstance(argument, TensorMap):
        return argument.encode()
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, np.ndarray) and argument.ndim:
        return int(argument.ctypes.data).to_bytes(8, "little")
    if isinstance(argument, np.generic | np.ndarray):
        return argument.tobytes()
    if isinstance(argument, float):
        kind = {2: np.float16, 4: np.float32, 8: np.float64}[parameter.size_bytes]
        return np.asarray(argument, kind).tobytes()
    mask = (1 << 8 * parameter.size_bytes) - 1
    return (int(argument) & mask).to_bytes(parameter.size_bytes, "little")


def _place_variables(variables: Sequence[Variable], memory: GlobalMemory) -> dict[str, Buffer]:
    """Put the module's variables into global memory; return where they are."""
    placed: dict[str, tuple[Variable, Buffer]] = {}
    # Constant memory is small, and code may hold its addresses in 32 bits: addresses of its own,
    # below all that a process maps.
    next_constant = CONSTANT_START
    for variable in variables:
        if variable.space in {"global", "const"} and not variable.is_external:
            dtype = numpy_type(variable.type)
            storage = np.zeros(max(variable.count, 1) * dtype.itemsize + 256, np.uint8)
            first = -storage.ctypes.data % 256
            view = storage[first : first + variable.count * dtype.itemsize]
            buffer = Buffer.of(view, variable.name)
            if variable.space == "const":
                buffer = replace(buffer, start=next_constant)
                next_constant += -(-view.size // 256) * 256
            placed[variable.name] = variable, buffer
    symbols = {name: buffer.start for name, (_, buffer) in placed.items()}
    for variable, buffer in placed.values():
        dtype = numpy_type(variable.type)
        for i, value in enumerate(variable.values):
            number = symbols[value.name] + value.offset if isinstance(value, Symbol) else value
            mask = (1 << 8 * dtype.itemsize) - 1
            raw = (
                np.asarray(number, dtype).tobytes()
                if isinstance(number, float)
                else (number & mask).to_bytes(dtype.itemsize, "little")
            )
            start = i * dtype.itemsize
            buffer.data[start : start + dtype.itemsize] = np.frombuffer(raw, np.uint8)
        memory.add(buffer)
    return {name: buffer for name, (_, buffer) in placed.items()}


# -- running --------------------------------------------------------------------------------------


def _bind(machine: Machine) -> list[Step]:
    """Turn the instructions into functions."""
    binder, steps = Binder(machine), []
    watch = RegisterWatch(machine) if machine.races is not None else None
    for pc, instruction in enumerate(machine.kernel.instructions):
        handler = HANDLERS.get(instruction.opcode)
        if handler is None:
            raise EmulatorError(
                f"the emulator does not know the instruction `{instruction.opcode}`, "
                + instruction.place()
            )
        try:
            step = guarded(binder, instruction, pc, handler(binder, instruction, pc))
        except EmulatorError as error:
            raise EmulatorError(f"{error.message}\n  {instruction.place()}") from None
        except (IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise EmulatorError(
                f"the emulator cannot read the instruction ({error})\n  {instruction.place()}"
            ) from error
        steps.append(step if watch is None else watch.around(instruction, step))
    return [*steps, machine.end_threads]


def _run(machine: Machine, report: Report) -> None:
    steps = _bind(machine)
    x, y, z = machine.shape.grid
    blocks = ((i, j, k) for k, j, i in product(range(z), range(y), range(x)))
    while chosen := list(islice(blocks, machine.blocks)):
        machine.start(chosen)
        scheduler = Scheduler(machine, machine.kernel.instructions, steps)
        scheduler.run()
        report.instructions += scheduler.instructions_run
        report.thread_instructions += scheduler.thread_instructions
