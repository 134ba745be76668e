"""Launches on an emulated GPU: compiled as for a real one, run by the emulator on arrays in memory.

`with tilewright.emulate("sm_90a"):` turns the launches inside into such ones, on NumPy arrays and
tensors of the CPU; `TILEWRIGHT_EMULATE=sm_90a` does so for all kernels defined from then on.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import env
from tilewright.codegen.gpu.failure import FAILURE
from tilewright.errors import LaunchError, TilewrightError
from tilewright.ir.types import PointerType
from tilewright.locks import cached_property
from tilewright.runtime.arguments import Argument, leaves
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.dispatch import Extents
from tilewright.runtime.kernel_code import check_arguments, check_grid, checked_arguments
from tilewright.runtime.launchable import LaunchableKernel
from tilewright.runtime.parameter_bytes import parameter_bytes
from tilewright.runtime.remembered import forget_launchers
from tilewright.runtime.stages import gpu_stages
from tilewright.target import NVIDIA_TARGETS, GPUTarget, NvidiaTarget

if TYPE_CHECKING:
    from tilewright import emulator
    from tilewright.codegen.gpu import options as gpu_options
    from tilewright.codegen.nvidia import assembler
    from tilewright.runtime import build, gpu_build, request, tensor_maps
else:
    build = Deferred("tilewright.runtime.build")
    emulator = Deferred("tilewright.emulator")
    gpu_options = Deferred("tilewright.codegen.gpu.options")
    gpu_build = Deferred("tilewright.runtime.gpu_build")
    tensor_maps = Deferred("tilewright.runtime.tensor_maps")

__all__ = [
    "EmulatedKernel",
    "Emulation",
    "current_emulation",
    "emulate",
    "emulation_of_environment",
    "encode_for_emulator",
]


@dataclass(eq=False, repr=False)
class Emulation:
    """What kernels are emulated for, what is looked for in them, and the launches so far.

    A finding is a `LaunchError` unless `collects` is set: then it is in the report of its launch,
    and what else is wrong with a launch is among the `failures`. `options` override those of each
    launch. `counts` has the number of launches of each kernel, those that failed included, and
    `elsewhere` those of emulations inside of this one.
    """

    target: NvidiaTarget
    races: bool = False
    uninitialised: bool = False
    profile: bool = False
    collects: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    launches: MutableSequence[tuple[EmulatedKernel, emulator.Report]] = field(default_factory=list)
    failures: list[tuple[EmulatedKernel, TilewrightError]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        launched = ", ".join(f"{name} ({count})" for name, count in self.counts.items())
        found = sum(len(report.findings) for _, report in self.launches) + len(self.failures)
        return (
            f"<emulated {self.target.architecture}: launches of {launched or 'no kernel'}; "
            f"{found} finding{'s' * (found != 1)}>"
        )


_active: list[Emulation] = []


@contextlib.contextmanager
def emulate(
    target: str = "sm_90a",
    *,
    races: bool = False,
    uninitialised: bool = False,
    profile: bool = False,
    collects: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Emulation]:
    """Compile the kernels launched inside for an NVIDIA GPU, and run them in the emulator.

    Args:
        target: The architecture: sm_75, sm_80, sm_86, sm_89, sm_90a, sm_100a or sm_120a.
        races: Find accesses to shared memory that no barrier or fence orders.
        uninitialised: Find reads of shared memory that nothing has written.
        profile: Count bank conflicts and sectors of global memory by source line.
        collects: Keep findings in the reports of `launches`, and what fails in `failures`, instead
            of raising an error.
        options: Launch options in place of those of each launch: `{"num_warps": 8}`.

    An access outside of the arrays is a `LaunchError`, too. This holds for all threads of
    the process. Kernels that are autotuned take their first configuration that fits.

    >>> import numpy as np, tilewright, tilewright.language as tl
    >>> @tilewright.jit
    ... def double(x_ptr, BLOCK: tl.constexpr):
    ...     offsets = tl.arange(0, BLOCK)
    ...     tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets))
    >>> x = np.ones(256, np.float32)
    >>> with tilewright.emulate("sm_80", races=True) as emulation:
    ...     compiled = double[(1,)](x, BLOCK=256)
    >>> float(x.sum()), "ld.global" in compiled.asm["ptx"]
    (512.0, True)
    """
    emulation = Emulation(
        _named_target(target),
        races=races,
        uninitialised=uninitialised,
        profile=profile,
        collects=collects,
        options=options or {},
    )
    _active.append(emulation)
    forget_launchers()
    try:
        yield emulation
    finally:
        _active.remove(emulation)
        if _active:
            _active[-1].elsewhere += emulation.counts + emulation.elsewhere


def current_emulation() -> Emulation | None:
    """Return the emulation that launches go to now, None where there is none."""
    return _active[-1] if _active else None


def emulation_of_environment() -> Emulation | None:
    """Return what `TILEWRIGHT_EMULATE` asks for: races in shared memory are looked for."""
    name = env.emulated_architecture()
    if not name:
        return None
    return Emulation(_target_of_environment(name), races=True, launches=deque(maxlen=1))


def _named_target(name: str) -> NvidiaTarget:
    """Return an architecture by its name; raise `LaunchError` for one that is not known."""
    for target in NVIDIA_TARGETS:
        if name in {target.architecture, target.architecture.removesuffix("a")}:
            return target
    known = [target.architecture for target in NVIDIA_TARGETS]
    raise LaunchError(
        f"there is no architecture {name!r} to emulate",
        hint=f"one of {', '.join(known)}",
    )


def _target_of_environment(name: str) -> NvidiaTarget:
    try:
        return _named_target(name)
    except LaunchError as error:
        message = f"TILEWRIGHT_EMULATE={name}: {error.message}"
        raise LaunchError(message, hint=error.hint) from None


class EmulatedKernel(LaunchableKernel):
    """A kernel compiled for one set of types, constants and options, for an emulated GPU.

    `asm` has its tile IR as it is written (`"source"`) and optimised (`"tir"`), LLVM IR (`"llir"`)
    and PTX (`"ptx"`); `n_regs` and `n_spills` are what `ptxas` says of it, where one is installed.
    """

    def __init__(
        self, asked: request.Request, target: NvidiaTarget, options: Mapping[str, Any]
    ) -> None:
        super().__init__(self, options)
        self.request, self.target = asked, target
        chosen = gpu_options.GpuOptions.among(options)
        function, self._ptx = build.with_room(
            asked, lambda: gpu_build.write_ptx(asked, target, chosen)
        )
        self._effects = build.effects(asked, function)
        self.num_warps = self._ptx.num_warps
        self.asm = gpu_stages(asked, lambda: self._ptx.llvm_ir, self._ptx.ptx, None, target)
        self._emulator = emulator.Emulator(self._ptx.ptx)
        self._tensor_maps = tensor_maps.TensorMaps(
            self._ptx.tensor_maps,
            self.name,
            encode_for_emulator,
            lambda: asked.function.location,
        )

    def __repr__(self) -> str:
        target = self.target.architecture
        return f"<compiled kernel {self.name} {self.hash[:12]} for an emulated {target}>"

    @property
    def facts(self) -> dict[str, Any]:
        return {"target": GPUTarget.of(self.target), "shared": self._ptx.shared_bytes}

    @property
    def entry(self) -> str:
        """The name of the entry: there is no address."""
        return self._ptx.symbol

    @property
    def stream(self) -> int:
        """0: there are no streams."""
        return 0

    @property
    def kernel(self) -> bytes:
        return self._ptx.ptx.encode() if self._assembled is None else self._assembled.cubin

    @property
    def files(self) -> dict[str, str]:
        """None: what is emulated is not kept on disk."""
        return {}

    @cached_property
    def _assembled(self) -> assembler.Assembled | None:
        return gpu_build.assembled(self._ptx, self.target)

    @property
    def n_regs(self) -> int | None:
        """The registers of a thread; None where there is no `ptxas` that knows the target."""
        return None if self._assembled is None else self._assembled.registers

    @property
    def n_spills(self) -> int | None:
        """The bytes of them that spill to memory; None where `n_regs` is."""
        return None if self._assembled is None else self._assembled.stack_bytes

    @property
    def n_max_threads(self) -> int:
        """How many threads a block of this kernel has: an emulator asks for no more."""
        return self.target.warp_size * self.num_warps

    @cached_property
    def _without_tensor_maps(self) -> EmulatedKernel:
        """The same without tensor maps: of an array without elements there is none."""
        return EmulatedKernel(self.request, self.target, {**self.options, "tensor_maps": False})

    def launch(self, grid: Extents, values: Sequence[Any], stream: int | None = None) -> None:
        """Launch on values in the order of the parameters, constants included."""
        emulation = current_emulation() or Emulation(self.target)
        self.emulate(grid, checked_arguments(self.request, values), emulation)

    def emulate(self, grid: Extents, arguments: Sequence[Argument], emulation: Emulation) -> None:
        """Run all programs of a grid; what comes of it is added to the emulation."""
        if all(grid):
            emulation.counts[self.name] += 1
        try:
            self._emulate(grid, arguments, emulation)
        except LaunchError as error:
            if not emulation.collects:
                raise
            emulation.failures.append((self, error))

    def _emulate(self, grid: Extents, arguments: Sequence[Argument], emulation: Emulation) -> None:
        given = list(leaves(arguments))
        check_grid(grid, self.target.largest_grid, self.name)
        check_arguments(grid, arguments, self._effects["written"], self._effects["accessed"])
        if not all(grid):
            return
        names, values = [a.name for a in given], [a.value for a in given]
        if not self._tensor_maps.fit(values):
            self._without_tensor_maps._emulate(grid, arguments, emulation)  # noqa: SLF001 - its own class
            return
        maps = self._tensor_maps.of_launch(values, names)
        passed = [given[number] for number in self._ptx.passed]
        try:
            report = self._emulator.launch(
                self._ptx.symbol,
                grid,
                (self.target.warp_size * self.num_warps,),
                [*map(parameter_bytes, passed), *maps],
                shared_bytes=self._ptx.shared_bytes,
                names=[argument.name for argument in passed],
                buffers=_buffers(given),
                races=emulation.races,
                uninitialised=emulation.uninitialised,
                profile=emulation.profile,
                output=lambda text: print(text, end=""),  # noqa: T201 - what the kernel prints
            )
        except emulator.EmulatorError as error:
            raise LaunchError(f"{self.name}: {error.message}", location=error.location) from None
        emulation.launches.append((self, report))
        self._require_assertions(report)
        if report.findings and not emulation.collects:
            raise LaunchError(f"{self.name}: " + "\n".join(map(str, report.findings)))

    def _require_assertions(self, report: emulator.Report) -> None:
        """Raise `LaunchError` if a `device_assert` does not hold."""
        if not self._ptx.assertions:
            return
        failure = int(report.variables[FAILURE].view(np.uint32)[0])
        if failure:
            message, place = self._ptx.assertions[failure - 1]
            raise LaunchError(f"device-side assert: {message}", location=place)


def encode_for_emulator(array: tensor_maps.MappedArray) -> bytes:
    """Return the tensor map of an array, as the emulator reads it."""
    return emulator.encode_tensor_map(
        array.address,
        array.element,
        array.sizes,
        array.strides,
        array.box,
        array.swizzle,
        fill_nan=array.fills_nan,
    )


def _buffers(arguments: Sequence[Argument]) -> list[emulator.Buffer]:
    """The memory that a launch may touch: all there is, if an array's extent is not known."""
    buffers = []
    for argument in arguments:
        if not isinstance(argument.specialization.element, PointerType) or argument.value == 0:
            continue
        extent = argument.view.extent if argument.view is not None else None
        if extent is None:
            return [emulator.Buffer.everything()]
        assert argument.view is not None
        start, size = extent
        if size:
            buffers.append(
                emulator.Buffer.at(
                    start,
                    size,
                    argument.name,
                    writable=argument.view.is_writable,
                    owner=argument.view.array,
                )
            )
    return buffers
