"""Compiled kernels: from a kernel and what is known of its arguments to machine code that runs.

A `Request` says what to compile. Its `MachineCode` comes from the disk cache, where neither the
frontend nor LLVM's code generator is needed, or through all the stages. A `CompiledKernel` is
what a launch returns: the code, the options it was asked for with, and the text of each stage.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tilewright import env
from tilewright.codegen.cpu.compile import CpuKernel, generate
from tilewright.codegen.llvm import (
    LoadedObject,
    assembly,
    compile_to_object,
    host,
    load_object,
    optimized_ir,
)
from tilewright.errors import CompileError, LaunchError, Location
from tilewright.frontend.function import KernelFunction
from tilewright.frontend.trace import Runtime, trace
from tilewright.ir.builder import Emit, rewrite
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.printer import to_text
from tilewright.ir.types import PointerType
from tilewright.ops import Assert
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.pipeline import optimize, prepare_for_cpu
from tilewright.passes.written_parameters import written_parameters
from tilewright.runtime.arguments import (
    Argument,
    Specialization,
    leaves,
    require_memory,
    traced_constant,
)
from tilewright.runtime.cache import (
    build_fingerprint,
    cached_object,
    digest,
    read_entry,
    write_entry,
)
from tilewright.runtime.dispatch import Extents
from tilewright.runtime.launcher import (
    AddressParameter,
    ArrayParameter,
    BoolParameter,
    ConstantParameter,
    FloatParameter,
    IntParameter,
    LaunchParameter,
    accept_torch,
    bind_launcher,
    launcher_ir,
    pack_argument,
)
from tilewright.runtime.options import DEFAULTS
from tilewright.runtime.pool import pool, run_packed
from tilewright.runtime.report import tell

__all__ = ["CompiledKernel", "MachineCode", "Request", "begin_compile", "compile_kernel"]


@dataclass(frozen=True)
class Request:
    """A kernel and what is known of its arguments.

    `values` are the ints of the call that asks, for error messages only.
    """

    function: KernelFunction
    specializations: Mapping[str, Specialization]
    debug: bool = False
    version: str = ""
    values: Mapping[str, int] = field(default_factory=dict)

    @functools.cached_property
    def is_portable(self) -> bool:
        """Whether another process can ask for the same."""
        return all(isinstance(s.key, str) for s in self.specializations.values())

    @functools.cached_property
    def hash(self) -> str:
        """A name for the code: equal names, equal code."""
        keys = (f"{name}:{s.key}" for name, s in self.specializations.items())
        return digest(
            [
                build_fingerprint(),
                self.function.cache_key,
                self.version,
                f"debug={self.debug}",
                f"disabled={sorted(env.disabled_passes())}",
                *keys,
            ]
        )

    @property
    def cache_name(self) -> str:
        """The name of its entry in the disk cache."""
        return f"{self.function.name[:60]}-{self.hash}"

    def parameters(self, written: frozenset[str]) -> list[LaunchParameter] | None:
        """What a launcher in machine code has to check, or None where only Python can."""
        checks = [
            _launch_parameter(known, name in written)
            for name, known in self.specializations.items()
        ]
        known = [check for check in checks if check is not None]
        return known if len(known) == len(checks) else None


def _launch_parameter(known: Specialization, is_written: bool) -> LaunchParameter | None:
    element = known.element
    if element is None:
        constant = traced_constant(known.traced)
        return None if constant is None else ConstantParameter(constant.value)
    if isinstance(element, PointerType):
        if known.is_address:
            return AddressParameter(known.divisible_by_16)
        return ArrayParameter(element.element_ty.name, known.divisible_by_16, is_written)
    if element.is_bool():
        return BoolParameter()
    if element.is_floating():
        bits = element.primitive_bitwidth
        return FloatParameter(bits) if bits >= 32 else None
    return IntParameter(
        bits=element.primitive_bitwidth,
        signed=element.is_int_signed(),
        divisible_by_16=known.divisible_by_16,
        excludes_one=known.excludes_one,
        excludes_narrower=known.chosen_by_value and element.primitive_bitwidth == 64,
    )


# ---- compiling ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel as LLVM IR, and what is written down beside its object in the cache."""

    llvm_ir: str
    header: dict[str, Any]


def compile_kernel(request: Request) -> MachineCode:
    """Return the machine code of a request, from the disk cache if it is there."""
    code = find_kernel(request)
    if code is not None:
        return code
    lowered = lower(request)
    with _timed(request, "machine code"):
        object_bytes = compile_to_object(lowered.llvm_ir, host=host())
    return finish(request, lowered, object_bytes)


def begin_compile(request: Request, executor: Executor) -> Callable[[], MachineCode]:
    """Start compiling, LLVM's part on an executor; return a function that waits for the code."""
    code = find_kernel(request)
    if code is not None:
        return lambda: code
    lowered = lower(request)
    future = executor.submit(compile_to_object, lowered.llvm_ir, host=host())
    return lambda: finish(request, lowered, future.result())


def find_kernel(request: Request) -> MachineCode | None:
    """Return the machine code of a request if an earlier process has compiled it."""
    entry = read_entry(request.cache_name) if request.is_portable else None
    return None if entry is None else MachineCode(request, entry.header, entry.payload)


def finish(request: Request, lowered: Lowered, object_bytes: bytes) -> MachineCode:
    """Keep an object in the disk cache and return it as machine code."""
    if request.is_portable:
        write_entry(request.cache_name, lowered.header, object_bytes)
    return MachineCode(request, lowered.header, object_bytes)


def lower(request: Request) -> Lowered:
    """Take a kernel through every stage but LLVM's."""
    with _timed(request, "tile IR"):
        function = tile_ir(request)
    if env.debug_level() >= 3:
        tell(to_text(function))
    with _timed(request, "LLVM IR"):
        kernel = generate(prepare_for_cpu(function), host())
    written = _written_names(request, function)
    text = kernel.llvm_ir + _launcher_text(request, kernel, written)
    if env.debug_level() >= 5:
        tell(assembly(text, host=host()))
    header = {
        "symbol": kernel.symbol,
        "scratch_bytes": kernel.scratch_bytes,
        "assertions": [[text, place and asdict(place)] for text, place in kernel.assertions],
        "written": sorted(written),
    }
    return Lowered(text, header)


def tile_ir(request: Request) -> Function:
    """Return the optimised tile IR of a request.

    Raises `CompileError` for what the language does not allow, with a hint where a number was
    passed in place of an array.
    """
    arguments = {name: s.traced for name, s in request.specializations.items()}
    try:
        function = trace(request.function, arguments)
        return optimize(function if request.debug else _without_assertions(function))
    except CompileError as error:
        _explain_addresses(request, error)
        raise


def _without_assertions(function: Function) -> Function:
    def drop(op: Op, emit: Emit) -> tuple[Value, ...] | None:
        return () if isinstance(op, Assert) else None

    return rewrite(inline_calls(function), drop)


def _written_names(request: Request, function: Function) -> frozenset[str]:
    """The parameters of the kernel through which it may store; a tuple counts as one."""
    owners = [
        name
        for name, known in request.specializations.items()
        for _ in range(_count_runtime(known.traced))
    ]
    return frozenset(owners[position] for position in written_parameters(function))


def _count_runtime(traced: Any) -> int:
    if isinstance(traced, tuple):
        return sum(map(_count_runtime, traced))
    return isinstance(traced, Runtime)


def _launcher_text(request: Request, kernel: CpuKernel, written: frozenset[str]) -> str:
    parameters = request.parameters(written)
    if parameters is None:
        return ""
    return launcher_ir(
        parameters,
        kernel_symbol=kernel.symbol,
        launcher_symbol=_launcher_symbol(kernel.symbol),
        scratch_bytes=kernel.scratch_bytes,
    )


def _launcher_symbol(kernel_symbol: str) -> str:
    return f"{kernel_symbol}.launch"


_LEAST_ADDRESS = 2**20


def _explain_addresses(request: Request, error: CompileError) -> None:
    """Say what to do about an int that the kernel uses as a pointer, where that was the mistake."""
    # Small numbers are sizes.
    addresses = {n: hex(v) for n, v in request.values.items() if v >= _LEAST_ADDRESS}
    if "pointer" not in error.message or not addresses:
        return
    given = ", ".join(f"`{name}` got the number {value}" for name, value in addresses.items())
    error.hint = (
        f"{given}. If that is a `data_ptr()`: pass the array itself, or say in the kernel what the "
        f'address points to, `{next(iter(addresses))}: "*fp32"`'
    )


@contextlib.contextmanager
def _timed(request: Request, stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    if env.debug_level() >= 2:
        milliseconds = (time.perf_counter() - started) * 1e3
        tell(f"[tilewright] {request.function.name}: {stage} {milliseconds:.1f} ms")


# ---- running --------------------------------------------------------------------------------


class MachineCode:
    """An object that holds a kernel and its launcher; loaded when it is first run."""

    def __init__(self, request: Request, header: dict[str, Any], object_bytes: bytes) -> None:
        self.request = replace(request, values={})
        self.object_bytes = object_bytes
        self.symbol: str = header["symbol"]
        self.scratch_bytes: int = header["scratch_bytes"]
        self._assertions: list[tuple[str, dict[str, Any] | None]] = header["assertions"]
        self.written = frozenset[str](header["written"])

    @functools.cached_property
    def _loaded(self) -> LoadedObject:
        pool(cached_object)
        return load_object(self.object_bytes)

    @functools.cached_property
    def launcher(self) -> Callable[..., object] | None:
        """The builtin that checks and launches, or None where only Python can check."""
        parameters = self.request.parameters(self.written)
        if parameters is None:
            return None
        return bind_launcher(
            self._loaded,
            parameters,
            launcher_symbol=_launcher_symbol(self.symbol),
            on_error=self._fail,
        )

    def run(self, grid: Extents, arguments: Sequence[Argument]) -> None:
        """Run the kernel on arguments that it was compiled for.

        Raises `LaunchError` for a read-only array that the kernel writes to, and for a
        `device_assert` that does not hold.
        """
        for argument in leaves(arguments):
            require_memory(argument)
            if argument.name.partition("[")[0] in self.written:
                _require_writable(argument)
        run_packed(
            self._loaded.address(self.symbol),
            b"".join(map(_packed, leaves(arguments))),
            grid,
            self.scratch_bytes,
            on_error=self._fail,
        )
        # The launcher has declined: perhaps because it does not know PyTorch's types yet.
        accept_torch()

    def _fail(self, code: int) -> None:
        text, place = self._assertions[code - 1]
        raise LaunchError(f"device-side assert: {text}", location=_location(place))


def _location(fields: Mapping[str, Any] | None) -> Location | None:
    if fields is None:
        return None
    return Location(**{**fields, "caller": _location(fields["caller"])})


def _require_writable(argument: Argument) -> None:
    if argument.view is not None and not argument.view.is_writable:
        raise LaunchError(
            f"`{argument.name}` is read-only, and the kernel writes to it",
            hint="pass a copy: `array.copy()`",
        )


def _packed(argument: Argument) -> bytes:
    element = argument.specialization.element
    if element is None or isinstance(element, PointerType):
        return pack_argument(AddressParameter(), argument.value)
    if not element.is_floating():
        return pack_argument(IntParameter(64), argument.value)
    if element.primitive_bitwidth >= 32:
        return pack_argument(FloatParameter(element.primitive_bitwidth), argument.value)
    half: bytes = element.numpy.type(argument.value).tobytes()
    return half.ljust(8, b"\0")


# ---- what the user sees ---------------------------------------------------------------------

_named_tuple: Any = collections.namedtuple  # noqa: PYI024 - the fields are data
_Metadata = _named_tuple(
    "Metadata", ["hash", "name", "target", "shared", "scratch_bytes", *DEFAULTS]
)


class _Stages(Mapping[str, Any]):
    """The text of each stage, made when it is asked for."""

    def __init__(self, code: MachineCode) -> None:
        self._code = code

    def __getitem__(self, stage: str) -> Any:
        match stage:
            case "tir":
                return self._tile_ir
            case "llir":
                return self._llvm_ir
            case "optimized":
                return optimized_ir(self._llvm_ir, host=host())
            case "asm":
                return assembly(self._llvm_ir, host=host())
            case "object":
                return self._code.object_bytes
        raise KeyError(f"{stage!r}: the stages are {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(("tir", "llir", "optimized", "asm", "object"))

    def __len__(self) -> int:
        return 5

    @property
    def _tile_ir(self) -> str:
        return to_text(tile_ir(self._code.request))

    @functools.cached_property
    def _llvm_ir(self) -> str:
        return lower(self._code.request).llvm_ir


class CompiledKernel:
    """A kernel compiled for one set of types and constants; what `kernel[grid](...)` returns.

    `asm` has its tile IR (`"tir"`), LLVM IR (`"llir"`), the same after LLVM's optimiser
    (`"optimized"`), assembly (`"asm"`) and object (`"object"`, bytes).
    """

    def __init__(self, code: MachineCode, options: Mapping[str, Any]) -> None:
        self.code = code
        self.options = dict(options)
        self.asm: Mapping[str, Any] = _Stages(code)

    def __repr__(self) -> str:
        return f"<compiled kernel {self.name} {self.hash[:12]}>"

    @property
    def name(self) -> str:
        return str(self.code.request.function.name)

    @property
    def hash(self) -> str:
        return self.code.request.hash

    @property
    def metadata(self) -> Any:
        """What the kernel was compiled for: a named tuple with `name`, `hash`, `num_warps`, ..."""
        settings = {**DEFAULTS, **self.options, "debug": self.code.request.debug}
        return _Metadata(
            hash=self.hash,
            name=self.name,
            target=host().cpu,
            shared=0,
            scratch_bytes=self.code.scratch_bytes,
            **settings,
        )
