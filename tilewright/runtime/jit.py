"""`@jit`: a Python function that is launched as a kernel, `kernel[grid](*arguments)`."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import FunctionType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from tilewright import env
from tilewright.errors import CompileError, LaunchError
from tilewright.frontend.parameters import Parameter
from tilewright.ir.types import DTYPES, DType, PointerType
from tilewright.locks import Lock, cached_property
from tilewright.runtime.arguments import Argument, gpu_of, specialize, specialize_type
from tilewright.runtime.arrays import dtype_of
from tilewright.runtime.async_compile import active_mode
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.dispatch import MISSING, Binder, Extents, Grid, extents, make_binder
from tilewright.runtime.emulated import (
    EmulatedKernel,
    Emulation,
    current_emulation,
    emulation_of_environment,
)
from tilewright.runtime.hooks import hooks
from tilewright.runtime.interpreted import run_interpreted
from tilewright.runtime.kernel_interface import KernelInterface
from tilewright.runtime.launch_parameters import Launcher
from tilewright.runtime.options import check_options
from tilewright.runtime.readable import ReadableErrors
from tilewright.runtime.remembered import note_remembering, remembering
from tilewright.runtime.report import tell
from tilewright.runtime.source_fields import SourceFields
from tilewright.runtime.unique_names import find, give_name

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tilewright.codegen.gpu import options as gpu_options
    from tilewright.runtime import (
        codes,
        compile_hooks,
        cuda,
        gpu_target,
        host_copies,
        launch_function,
        override,
        request,
        specialization_text,
    )
else:
    codes = Deferred("tilewright.runtime.codes")
    compile_hooks = Deferred("tilewright.runtime.compile_hooks")
    cuda = Deferred("tilewright.runtime.cuda")
    gpu_options = Deferred("tilewright.codegen.gpu.options")
    gpu_target = Deferred("tilewright.runtime.gpu_target")
    host_copies = Deferred("tilewright.runtime.host_copies")
    launch_function = Deferred("tilewright.runtime.launch_function")
    override = Deferred("tilewright.runtime.override")
    request = Deferred("tilewright.runtime.request")
    specialization_text = Deferred("tilewright.runtime.specialization_text")

__all__ = ["JITFunction", "jit"]

# Launchers that a launch tries before it works out which kernel it needs.
_RECENT = 4

# Functions that are kept, one for each grid.
_GRIDS = 256


class JITFunction(SourceFields, KernelInterface):
    """A kernel: `kernel[grid](*arguments, **options)` runs it for every program of a grid.

    The grid is an int, a tuple of 1 to 3 ints, or a function from the arguments (a dictionary) to
    one. Arrays are passed as they are. The launch returns the `CompiledKernel` when all programs
    are done.

    `kernel.debug[grid](...)` runs the body as ordinary Python instead, where `print` and
    `breakpoint()` work and accesses out of bounds are errors; `TILEWRIGHT_INTERPRET=1` makes every
    launch such a one. It is read when the kernel is defined, as `TILEWRIGHT_DEBUG` is.
    """

    def __init__(  # noqa: PLR0913 - the signature is Triton's
        self,
        fn: FunctionType,
        version: str | None = None,
        do_not_specialize: Iterable[str | int] | None = None,
        do_not_specialize_on_alignment: Iterable[str | int] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        repr: Callable[[Any], str] | None = None,
        launch_metadata: Callable[..., Any] | None = None,
        *,
        text: str | None = None,
        strict: bool | None = None,
    ) -> None:
        self.do_not_specialize = tuple(do_not_specialize or ())
        self.do_not_specialize_on_alignment = tuple(do_not_specialize_on_alignment or ())
        super().__init__(
            fn,
            source=text,
            noinline=bool(noinline),
            strict=env.strict() if strict is None else strict,
            do_not_specialize=self.do_not_specialize,
            do_not_specialize_on_alignment=self.do_not_specialize_on_alignment,
        )
        self.version = version
        self.repr = repr or operator.attrgetter("name")
        self.launch_metadata = launch_metadata
        # What generators of kernels read, and take off before they pickle a function.
        self.__globals__ = fn.__globals__
        self.used_global_vals: Any = {}
        self._remembered: list[Any] = [self.check_globals, ()]
        self.checks_assertions = env.device_debug() if debug is None else bool(debug)
        self.is_interpreted = env.interpret()
        self._is_reported = env.debug_level() >= 1
        self._launches: dict[Any, Callable[..., Any]] = {}
        self._hooks: list[Callable[..., Any]] = []
        self._codes: dict[Any, codes.Code] = {}
        self._kernels: dict[Any, list[codes.Compiled]] = {}
        self._emulated_kernels: dict[Any, EmulatedKernel] = {}
        self._emulation = emulation_of_environment()
        self._lock = Lock()
        self._compiling: dict[Any, Lock] = {}
        # For operators of PyTorch, which take text but no functions: see `named`.
        self.unique_name = give_name(self, f"{fn.__module__}.{fn.__qualname__}")

    @staticmethod
    def named(unique_name: str) -> JITFunction:
        """Return the function that has this `unique_name` in this process.

        Raise `LookupError` where there is none any more.
        """
        function: JITFunction = find(unique_name)
        return function

    def forget_globals(self) -> None:
        """Read what the body takes from outside anew, unless a kernel has been made of it."""
        if not self._kernels:
            super().forget_globals()

    def forget_compiled(self) -> None:
        """Forget the text, as it was, and the kernels made of it."""
        super().forget_compiled()
        with self._lock:
            for kept in (self._codes, self._kernels, self._emulated_kernels):
                kept.clear()
            self.recent = ()

    # ---- launching

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        if type(grid) is tuple:
            try:
                return self._launches[grid]
            except (KeyError, TypeError):
                return self._keep_grid(grid)
        return MethodType(self._launch_function, grid if callable(grid) else extents(grid))

    def run(self, *args: Any, grid: Grid, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or with `warmup` only compile: `kernel[grid](*args, **kwargs)` as a method."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return self[grid](*args, **kwargs)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile without launching and return the `CompiledKernel`.

        A dtype (of the language, NumPy or PyTorch) stands for an aligned array of that type, as a
        `MockTensor` does. Returns None where kernels are interpreted, and where `jit_cache_hook`
        refuses to have one compiled; within an `AsyncCompileMode` a `FutureKernel`.
        """
        values, options = self.binder.bind(*args, **kwargs)
        self._check_call(values, options)
        if self.is_interpreted:
            return None
        arguments = list(map(_without_memory, self.params, values))
        if self.emulation is not None:
            return self._emulated_kernel(arguments, options, self.emulation, is_warmup=True)
        mode = active_mode()
        if mode is not None:
            key = self, self._key(gpu_of(self.name, arguments), arguments, options), str(options)
            return mode.submit(key, lambda pool: self._begin(pool, arguments, options))
        return self._kernel(arguments, options, is_warmup=True)

    def preload(self, specialization_data: str) -> Any:
        """Compile for what `jit_post_compile_hook` was told as `specialization_data`.

        A launch on such arguments finds the kernel then; it is returned.

        Raises `LaunchError` where the text is of another kernel.
        """
        gpu, known, options = specialization_text.read_specialization_data(
            self, specialization_data
        )
        arguments = [Argument(name, specialization, 0) for name, specialization in known.items()]
        return self._kernel_on(gpu, arguments, options)

    def begin_compile(
        self, executor: Executor, *args: Any, **kwargs: Any
    ) -> Callable[[], codes.Compiled | None]:
        """Start compiling for the arguments of a call; return a function that waits for the kernel.

        The executor runs LLVM, on text: it may be one of threads, processes or other machines.
        """
        values, options = self.binder.bind(*args, **kwargs)
        self._check_call(values, options)
        return self._begin(executor, list(map(specialize, self.params, values)), options)

    def _begin(
        self, executor: Executor, arguments: list[Argument], options: dict[str, Any]
    ) -> Callable[[], codes.Compiled | None]:
        gpu = gpu_of(self.name, arguments)
        code = self._codes.get(self._key(gpu, arguments, options))
        if code is not None:
            return lambda: self._kernel(arguments, options)
        finish = codes.begin_code(self._request(gpu, arguments, options), executor)
        return lambda: self._kernel(arguments, options, finish)

    @property
    def debug(self) -> DebugLauncher:
        """`kernel.debug[grid](...)`: run the body as ordinary Python, on the interpreter."""
        return DebugLauncher(self)

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        """Call `hook(*arguments, **options)` before each launch from now on."""
        with remembering():
            self._hooks.append(hook)
            # The way through `recent` does not come past the hooks.
            self.recent = ()

    @property
    def pre_run_hooks(self) -> tuple[Callable[..., Any], ...]:
        """What `add_pre_run_hook` has added."""
        return tuple(self._hooks)

    @property
    def device_caches(self) -> Mapping[int, tuple[Mapping[str, Any], ...]]:
        """The kernels compiled so far, by device (the CPU is 0, too) and by what they are for.

        As in Triton they are the first item of a tuple; its others are of no use here.
        """
        found: dict[int, dict[str, Any]] = {}
        with self._lock:
            for key, kernels in self._kernels.items():
                for kernel in kernels:
                    device = kernel.code.device
                    found.setdefault(device, {})[f"{key}{kernel.options}"] = kernel
        return MappingProxyType({n: (MappingProxyType(kept),) for n, kept in found.items()})

    @cached_property
    def binder(self) -> Binder:
        """The functions that match a call with the parameters."""
        return make_binder(self.name, self.params)

    def _keep_grid(self, grid: tuple[Any, ...]) -> Callable[..., Any]:
        """Return the function for a grid; the same one from then on, since making it takes long."""
        function = MethodType(self._launch_function, extents(grid))
        with contextlib.suppress(TypeError):  # a size that has no hash
            if len(self._launches) >= _GRIDS:
                self._launches.clear()
            self._launches[grid] = function
        return function

    @cached_property
    def _launch_function(self) -> Callable[..., Any]:
        binder = self.binder
        in_python = binder.launch_function(self)
        if binder.takes_any_number:
            return in_python
        return launch_function.bind_launch_function(
            *(self.name, binder.names, binder.defaults, binder.positional),
            self._remembered,
            in_python,
        )

    @property
    def recent(self) -> tuple[tuple[Launcher, Mapping[str, Any], object], ...]:
        """The launchers that a launch tries before it works out which kernel it needs."""
        return cast("tuple[Any, ...]", self._remembered[1])

    @recent.setter
    def recent(self, entries: tuple[Any, ...]) -> None:
        self._remembered[1] = entries

    @property
    def check(self) -> Callable[[], None] | None:
        """What is called before they are tried."""
        return cast("Callable[[], None] | None", self._remembered[0])

    def launch(self, grid: Extents, values: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Launch on values in the order of the parameters; the way for what is new or unusual."""
        __tracebackhide__ = True
        with ReadableErrors(self.arg_names, values):
            return self._launch(grid, values, options)

    def _launch(self, grid: Extents, values: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self._check_call(values, options)
        for hook in self._hooks:
            hook(*values, **options)
        if self.emulation is not None and not self.is_interpreted:
            return self._emulate(grid, values, options, self.emulation)
        arguments = list(map(specialize, self.params, values))
        if self.is_interpreted:
            return self._interpret(grid, arguments, options)
        kernel = self._kernel(arguments, options)
        if kernel is None:
            return None
        if self._is_reported:
            tell(f"[tilewright] {self.name}[{grid}]: {kernel.hash[:12]} on {kernel.code.place}")
        launcher = kernel.code.launcher
        with self._hooks_around(kernel, kernel.code.stream, grid, values):
            if launcher is not None and launcher(*grid, *values) is not NotImplemented:
                self._remember(launcher, kernel)
            else:
                codes.run_code(kernel.code, grid, arguments)
        if self._is_reported:
            kernel.code.wait()
        return kernel

    @property
    def emulation(self) -> Emulation | None:
        """The emulated GPU that launches go to now, None where there is none."""
        return current_emulation() or self._emulation

    def _emulate(
        self,
        grid: Extents,
        values: tuple[Any, ...],
        options: dict[str, Any],
        emulation: Emulation,
    ) -> EmulatedKernel | None:
        arguments = list(map(specialize, self.params, values))
        kernel = self._emulated_kernel(arguments, options, emulation)
        if kernel is None:
            return None
        if self._is_reported:
            name = emulation.target.architecture
            tell(f"[tilewright] {self.name}[{grid}]: {kernel.hash[:12]} on an emulated {name}")
        with self._hooks_around(kernel, 0, grid, values), self._on_host(arguments) as here:
            kernel.emulate(grid, here, emulation)
        return kernel

    def _emulated_kernel(
        self,
        arguments: list[Argument],
        options: dict[str, Any],
        emulation: Emulation,
        *,
        is_warmup: bool = False,
    ) -> EmulatedKernel | None:
        options = {**options, **emulation.options}
        chosen = gpu_options.GpuOptions.among(options)
        others = sorted((k, v) for k, v in options.items() if k != "extern_libs")
        key = (emulation.target, chosen, *others, *self._key(None, arguments, options))
        with self._lock:
            kernel = self._emulated_kernels.get(key)
            if kernel is None:
                if compile_hooks.is_refused(self, arguments, options, is_warmup=is_warmup):
                    return None
                with self._making():
                    asked = self._request(None, arguments, options)
                    kernel = EmulatedKernel(asked, emulation.target, options)
                self._emulated_kernels[key] = kernel
                compile_hooks.tell_compiled(self, arguments, options, is_warmup=is_warmup)
        return kernel

    def interpret(self, grid: Extents, values: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Run the body as ordinary Python on values in the order of the parameters."""
        __tracebackhide__ = True
        with ReadableErrors(self.arg_names, values):
            self._check_call(values, options)
            self._interpret(grid, list(map(specialize, self.params, values)), options)

    def _interpret(self, grid: Extents, arguments: list[Argument], options: dict[str, Any]) -> None:
        __tracebackhide__ = True
        if self._is_reported:
            tell(f"[tilewright] {self.name}[{grid}]: as Python")
        if options.get("ir_override"):
            raise LaunchError(
                f"{self.name}: `ir_override` is for compiled kernels, and this one runs as Python",
                hint="leave it out here",
            )
        checks_overflow = bool(options.get("sanitize_overflow", True))
        with self._on_host(arguments) as here, self._making():
            run_interpreted(self, here, grid, checks_overflow=checks_overflow)

    @contextlib.contextmanager
    def _on_host(self, arguments: list[Argument]) -> Iterator[list[Argument]]:
        """Copy arrays of a GPU to this machine's memory for a while."""
        if gpu_of(self.name, arguments) is None:
            yield arguments
        else:
            with host_copies.on_host(arguments) as copied:
                yield copied

    def _hooks_around(
        self, kernel: Any, stream: int, grid: Extents, values: tuple[Any, ...]
    ) -> contextlib.AbstractContextManager[None]:
        return hooks.around_launch(lambda: kernel.launch_metadata(grid, stream, *values))

    def _check_call(self, values: tuple[Any, ...], options: dict[str, Any]) -> None:
        if options:
            try:
                check_options(self.name, options, self.arg_names)
            except LaunchError as error:
                error.at(self.location)
                raise
        self.require_arguments(values)
        self.check_globals()

    def require_arguments(self, values: Iterable[Any], computed: Collection[str] = ()) -> None:
        """Raise `LaunchError` for parameters that a call does not give, nor decorators compute."""
        given = zip(self.params, values, strict=True)
        missing = [p.name for p, v in given if v is MISSING and p.name not in computed]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            call = ", ".join(p.name for p in self.params if p.name not in computed)
            raise LaunchError(
                f"{self.name} is missing the argument{'s'[: len(missing) - 1]} {names}",
                location=self.location,
                hint=f"{self.name}[grid]({call})",
            )

    # ---- compiling

    def _kernel(
        self,
        arguments: list[Argument],
        options: dict[str, Any],
        compile_: Callable[[], codes.Code] | None = None,
        *,
        is_warmup: bool = False,
    ) -> codes.Compiled | None:
        """Return the kernel for a call; None where `jit_cache_hook` refuses to have it compiled."""
        gpu = gpu_of(self.name, arguments)
        key = self._key(gpu, arguments, options)
        kernel = self._known(key, options)
        if kernel is not None:
            return kernel
        if not hooks.surround_compiling:
            return self._kernel_on(gpu, arguments, options, compile_)
        with self._compiling_for(key):
            kernel = self._known(key, options)
            if kernel is None:
                if compile_hooks.is_refused(self, arguments, options, is_warmup=is_warmup):
                    return None
                kernel = self._kernel_on(gpu, arguments, options, compile_)
                compile_hooks.tell_compiled(self, arguments, options, is_warmup=is_warmup)
        return kernel

    def _kernel_on(
        self,
        gpu: int | None,
        arguments: list[Argument],
        options: dict[str, Any],
        compile_: Callable[[], codes.Code] | None = None,
    ) -> codes.Compiled:
        key = self._key(gpu, arguments, options)
        with self._compiling_for(key):
            kernel = self._known(key, options)
            if kernel is None:
                if key not in self._codes:
                    with self._making():
                        asked = self._request(gpu, arguments, options)
                        self._codes[key] = compile_() if compile_ else codes.code_for(asked)
                kernel = codes.kernel_of(self._codes[key], options)
                self._kernels[key] = [*self._kernels.get(key, ()), kernel]
        return kernel

    @contextlib.contextmanager
    def _making(self) -> Iterator[None]:
        """Where the first code fails, nothing is made of constants: later ones may be others."""
        __tracebackhide__ = True
        try:
            yield
        except CompileError:
            for function in self._reachable:
                function.forget_globals()
            raise

    def _compiling_for(self, key: Any) -> Lock:
        """What one thread at a time holds while it compiles for a key, and calls the hooks."""
        with self._lock:
            return self._compiling.setdefault(key, Lock())

    def _known(self, key: Any, options: dict[str, Any]) -> codes.Compiled | None:
        # Options that change no code on this target still belong to the kernel.
        return next((k for k in self._kernels.get(key, ()) if k.options == options), None)

    def _key(self, gpu: int | None, arguments: list[Argument], options: dict[str, Any]) -> Any:
        keys = [argument.specialization.key for argument in arguments]
        target = () if gpu is None else (gpu, gpu_options.GpuOptions.among(options))
        named = options.get("ir_override")
        replaced = () if not named else (override.read_override(named),)
        return (*target, *self._checks(options), *replaced, *keys)

    def _checks(self, options: dict[str, Any]) -> tuple[bool, bool]:
        """Whether assertions are compiled in, and whether overflow is one of them."""
        debug = options.get("debug")
        debug = self.checks_assertions if debug is None else bool(debug)
        return debug, debug and bool(options.get("sanitize_overflow", True))

    def _request(
        self, gpu: int | None, arguments: list[Argument], options: dict[str, Any]
    ) -> request.Request:
        debug, checks_overflow = self._checks(options)
        target = None
        if gpu is not None:
            device, chosen = cuda.device(gpu), gpu_options.GpuOptions.among(options)
            target = gpu_target.GpuTarget(device.target, chosen, device)
        return request.Request(
            self,
            {argument.name: argument.specialization for argument in arguments},
            debug=debug,
            checks_overflow=checks_overflow,
            version=str(self.version),
            target=target,
            override=override.read_override(options.get("ir_override")),
            values={
                argument.name: argument.value
                for argument in arguments
                if isinstance(argument.value, int)
                and isinstance(argument.specialization.element, DType)
            },
        )

    def _remember(self, launcher: Launcher, kernel: codes.Compiled) -> None:
        if self._is_reported or kernel.options.get("ir_override"):
            return  # launches are told of; the file may change
        with remembering():
            if self._hooks or hooks.surround_launches or self.emulation is not None:
                return
            note_remembering(self)
            others = [entry for entry in self.recent if entry[2] is not kernel]
            self._remembered[0] = self.check_globals if self._recorded else None
            self.recent = ((launcher, kernel.options, kernel), *others[: _RECENT - 1])


class DebugLauncher:
    """`kernel.debug`: true if `device_assert` is compiled in; indexed by a grid, it interprets."""

    def __init__(self, kernel: JITFunction) -> None:
        self._kernel = kernel

    # What the launch functions look at: nothing is ever remembered.
    recent: tuple[Any, ...] = ()
    check: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return self._kernel.checks_assertions

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        grid = grid if callable(grid) else extents(grid)
        return MethodType(self._kernel.binder.launch_function(self), grid)

    def launch(self, grid: Extents, values: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Run the kernel's body as ordinary Python."""
        self._kernel.interpret(grid, values, options)


# The types of dtypes: ours, and those of PyTorch and (one for each) of NumPy.
_DTYPES = frozenset({"DType", "dtype", *(type(d.numpy).__name__ for d in DTYPES.values())})


def _without_memory(parameter: Parameter, value: Any) -> Argument:
    """Specialise for a value, or for the array that a dtype stands for."""
    stands_for_array = type(value).__name__ in _DTYPES or (
        isinstance(value, type) and issubclass(value, np.generic)
    )
    dtype = dtype_of(value) if stands_for_array and not parameter.is_constexpr else None
    if dtype is None:
        return specialize(parameter, value)
    return specialize_type(parameter, PointerType(dtype, parameter.is_const))


@overload
def jit(fn: Callable[..., Any]) -> JITFunction: ...


@overload
def jit(
    *,
    version: str | None = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[str | int] | None = None,
    do_not_specialize_on_alignment: Iterable[str | int] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
    strict: bool | None = None,
    source: str | None = None,
) -> Callable[[Callable[..., Any]], JITFunction]: ...


def jit(  # noqa: PLR0913 - the signature is Triton's
    fn: Callable[..., Any] | None = None,
    *,
    version: str | None = None,
    repr: Callable[[Any], str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    do_not_specialize: Iterable[str | int] | None = None,
    do_not_specialize_on_alignment: Iterable[str | int] | None = None,
    debug: bool | None = None,
    noinline: bool | None = None,
    strict: bool | None = None,
    source: str | None = None,
) -> JITFunction | Callable[[Callable[..., Any]], JITFunction]:
    """Make a kernel of a function, or a function that kernels call.

    `do_not_specialize` names parameters (or gives their positions) whose value must not lead to a
    kernel of its own: no constant where an int is 1, no assumption that 16 divides it;
    `do_not_specialize_on_alignment` leaves the first. `debug` compiles `device_assert` in,
    `noinline` keeps a called function apart, `version` is part of what identifies the kernel in
    the disk cache, and `source` is its text where it is neither in a file nor at hand.
    `strict` makes what Triton does not have an error (`TILEWRIGHT_STRICT=1` does so everywhere).
    `launch_metadata(grid, metadata, arguments)` returns what else hooks around a launch are told,
    and `repr` is accepted for kernels that have it; what generates kernels asks it.

    >>> import numpy as np, tilewright, tilewright.language as tl
    >>> @tilewright.jit
    ... def double(x_ptr, n, BLOCK: tl.constexpr):
    ...     offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     x = tl.load(x_ptr + offsets, mask=offsets < n)
    ...     tl.store(x_ptr + offsets, 2 * x, mask=offsets < n)
    >>> x = np.ones(1000, np.float32)
    >>> compiled = double[(tilewright.cdiv(1000, 256),)](x, 1000, BLOCK=256)
    >>> float(x.sum())
    2000.0
    """

    def decorate(fn: Callable[..., Any]) -> JITFunction:
        if hasattr(fn, "base_fn"):
            decorator = type(fn).__module__.rpartition(".")[2]
            raise CompileError(
                f"a kernel must be a Python function: here `@{decorator}` has been applied to it",
                hint=f"`@tilewright.jit` stands below `@tilewright.{decorator}`, next to the `def`",
            )
        return JITFunction(
            cast("FunctionType", fn),
            version,
            do_not_specialize,
            do_not_specialize_on_alignment,
            debug,
            noinline,
            repr,
            launch_metadata,
            text=source,
            strict=strict,
        )

    return decorate if fn is None else decorate(fn)
