"""Trying configurations: compile each, time each, and leave no trace in the arrays."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.errors import (
    CompileTimeAssertionFailure,
    LaunchError,
    TilewrightError,
    Unsupported,
)
from tilewright.locks import cached_property
from tilewright.runtime.arrays import view_array
from tilewright.runtime.config import Config
from tilewright.runtime.constants import constant_text
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.progress import Progress
from tilewright.runtime.snapshot import Snapshot, zero
from tilewright.runtime.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tilewright.runtime import cache, cuda, fingerprint, pool
else:
    cache = Deferred("tilewright.runtime.cache")
    cuda = Deferred("tilewright.runtime.cuda")
    fingerprint = Deferred("tilewright.runtime.fingerprint")
    pool = Deferred("tilewright.runtime.pool")

__all__ = ["Call", "TrialHooks", "Trials", "name_configuration"]

_QUANTILES = (0.5, 0.2, 0.8)
_MOST_THREADS = 8

Times = list[float]


@dataclass(frozen=True)
class Call:
    """One call of an autotuned kernel; `named` has its arguments by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grid: Any
    named: dict[str, Any]

    def arguments(self, config: Config) -> dict[str, Any]:
        """Return all arguments by name, those of a configuration included."""
        return {**self.named, **config.all_kwargs()}

    def keywords(self, config: Config) -> dict[str, Any]:
        """Return what the kernel is launched with by name, for a configuration."""
        return {**self.kwargs, **config.all_kwargs()}

    def set_blocks(self, config: Config) -> None:
        """Prepare compiling for a configuration: its hook may set the blocks of descriptors."""
        has_descriptors = any(isinstance(v, TensorDescriptor) for v in self.named.values())
        if config.pre_hook is not None and has_descriptors:
            config.pre_hook(self.arguments(config))


@dataclass(frozen=True)
class TrialHooks:
    """What happens around the launches of an autotuned kernel.

    `before(arguments)` and `after(arguments, exception=...)`, where they are given, replace
    zeroing `reset_to_zero` and restoring `restore_value`.
    """

    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    before: Callable[..., Any] | None = None
    after: Callable[..., Any] | None = None

    def reset(self, arguments: dict[str, Any]) -> None:
        """Prepare a launch that counts."""
        if self.before is not None:
            self.before(arguments, reset_only=True)
        else:
            self._zero(arguments)

    @contextlib.contextmanager
    def around_trial(self, arguments: dict[str, Any]) -> Iterator[None]:
        """Surround a launch that is only there to be timed."""
        saved = None
        if self.before is not None:
            self.before(arguments)
        else:
            self._zero(arguments)
            if self.restore_value:
                saved = Snapshot((name, arguments.get(name)) for name in self.restore_value)
        exception: BaseException | None = None
        try:
            yield
        except Exception as error:
            exception = error
            raise
        finally:
            if self.after is not None:
                self.after(arguments, exception=exception)
            elif saved is not None:
                saved.restore()

    def _zero(self, arguments: Mapping[str, Any]) -> None:
        for name in self.reset_to_zero:
            zero(name, arguments.get(name))


@dataclass
class Trials:
    """One tuning: `fn` is what is launched, `kernel` the function below its decorators.

    `key` is what the result is kept for on disk, or None to keep nothing; `all_stored` says that
    an earlier tuning has kept all times. Times are the median and
    the 20 % and 80 % quantiles, in milliseconds.
    """

    fn: Any
    kernel: JITFunction
    call: Call
    hooks: TrialHooks
    do_bench: Callable[..., Any]
    executor: Executor | None = None
    key: tuple[Any, ...] | None = None
    times: dict[Config, Times] = field(default_factory=dict)
    failures: dict[Config, BaseException] = field(default_factory=dict)
    all_stored: bool = False

    @cached_property
    def gpu(self) -> int | None:
        """The number of the GPU that the arrays of the call are on."""
        return next((gpu for value in self.call.named.values() for gpu in _gpus(value)), None)

    def best(self, configs: Sequence[Config], progress: Progress) -> Config:
        """Return the fastest of these configurations.

        Those that need more than the machine has, and those that a `static_assert` of the kernel
        refuses, are left out. Raises `LaunchError` if none is left.
        """
        stored = {config: self._stored(config) for config in configs}
        self.all_stored = None not in stored.values()
        kernels = self._compiled([config for config, times in stored.items() if times is None])
        written = {name for kernel in kernels.values() for name in kernel.code.written}
        named = self.call.named
        saved = Snapshot((name, named[name]) for name in sorted(written & named.keys()))
        try:
            for config in configs:
                times = stored[config]
                if times is None and config in kernels:
                    twin = self._twin(config, kernels)
                    times = self._timed(config, saved) if twin is None else self.times[twin]
                    self._store(config, times)
                self.times[config] = times or [math.inf] * len(_QUANTILES)
                progress.show(str(config), self.times[config][0])
        finally:
            saved.restore()
        working = [config for config in configs if config not in self.failures]
        if not working:
            raise self._nothing_works()
        return min(working, key=self.times.__getitem__)

    def best_stored(self, configs: Sequence[Config]) -> Config | None:
        """Return the fastest of those whose times an earlier tuning has kept, without a trial."""
        stored = {config: times for config in configs if (times := self._stored(config))}
        return min(stored, key=stored.__getitem__) if stored else None

    def first_that_fits(self, configs: Sequence[Config]) -> Config:
        """Return the first of these configurations that compiles, without launching any.

        Raises `LaunchError` if none does.
        """
        for config in configs:
            with self._trial(config):
                self.call.set_blocks(config)
                self.fn.warmup(*self.call.args, grid=None, **self.call.keywords(config))
                return config
        raise self._nothing_works()

    def _nothing_works(self) -> LaunchError:
        reasons = "\n".join(f"  {config}: {error}" for config, error in self.failures.items())
        return LaunchError(
            f"autotune of {self.kernel.name}: none of the configurations works:\n{reasons}",
            hint="add one with smaller blocks, or fewer stages",
        )

    @contextlib.contextmanager
    def _trial(self, config: Config) -> Iterator[None]:
        """Note that a configuration does not fit; name it in what else goes wrong with it."""
        try:
            yield
        except (Unsupported, CompileTimeAssertionFailure, MemoryError) as error:
            self.failures[config] = error
        except Exception as error:
            name_configuration(error, f"while tuning {self.kernel.name} with {config}")
            raise

    def _compiled(self, configs: Sequence[Config]) -> dict[Config, Any]:
        """Compile what can be compiled, on the executor if there is one."""
        if self.executor is not None:
            return self._compiled_on(self.executor, configs)
        if self.gpu is not None and len(configs) > 1:
            # The assembler takes longest, and it lets other threads of Python run.
            with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as threads:
                return self._compiled_on(threads, configs)
        kernels: dict[Config, Any] = {}
        for config in configs:
            with self._trial(config):
                self.call.set_blocks(config)
                kwargs = self.call.keywords(config)
                kernels[config] = _made(self.fn.warmup(*self.call.args, grid=None, **kwargs))
        return kernels

    def _compiled_on(self, executor: Executor, configs: Sequence[Config]) -> dict[Config, Any]:
        kernels: dict[Config, Any] = {}
        started: dict[Config, Callable[[], Any]] = {}
        for config in configs:
            with self._trial(config):
                self.call.set_blocks(config)
                kwargs = self.call.keywords(config)
                started[config] = self.fn.begin_compile(executor, *self.call.args, **kwargs)
        for config, finish in started.items():
            with self._trial(config):
                kernels[config] = _made(finish())
        return kernels

    def _twin(self, config: Config, kernels: Mapping[Config, Any]) -> Config | None:
        """Return a configuration already timed that does the very same on this target."""
        for other in self.times:
            if (
                other in kernels
                and other not in self.failures
                and kernels[other].code is kernels[config].code
                and other.kwargs == config.kwargs
                and other.pre_hook == config.pre_hook
            ):
                return other
        return None

    def _timed(self, config: Config, saved: Snapshot) -> Times | None:
        arguments = self.call.arguments(config)

        def launch() -> None:
            if config.pre_hook is not None:
                config.pre_hook(arguments)
            with self.hooks.around_trial(arguments):
                self.fn.run(*self.call.args, grid=self.call.grid, **self.call.keywords(config))

        saved.restore()
        times: Times | None = None
        with self._trial(config):
            times = self._measured(launch)
        return times  # noqa: RET504 - the block above may be left early

    def _measured(self, launch: Callable[[], None]) -> Times:
        times: Any = self.do_bench(launch, quantiles=_QUANTILES)
        return list(times) if isinstance(times, Sequence) else [times] * len(_QUANTILES)

    # ---- results on disk: an entry for each configuration, whatever the others are

    def _entry_name(self, config: Config) -> str | None:
        if self.key is None or config.pre_hook is not None:
            return None
        settings = [item for pair in sorted(config.all_kwargs().items()) for item in pair]
        parts = [_text(value) for value in (*self.key, *settings)]
        if None in parts:
            return None
        facts = [*self._machine(), self.kernel.cache_key, *map(str, parts)]
        return cache.entry_name(self.kernel.name, f"tuning-{cache.digest(facts)}")

    def _machine(self) -> tuple[str, str]:
        """What the times depend on besides the kernel."""
        if self.gpu is None:
            return fingerprint.build_fingerprint(), f"threads={pool.get_num_threads()}"
        return fingerprint.gpu_build_fingerprint(), cuda.device(self.gpu).description

    def _stored(self, config: Config) -> Times | None:
        name = self._entry_name(config)
        entry = cache.read_entry(name) if name is not None else None
        return None if entry is None else list(entry.header["milliseconds"])

    def _store(self, config: Config, times: Times | None) -> None:
        name = self._entry_name(config)
        if name is not None and times is not None:
            cache.write_entry(name, {"config": str(config), "milliseconds": times})


def name_configuration(error: Exception, text: str) -> None:
    """Say in an error which configuration it is about."""
    if isinstance(error, TilewrightError):
        error.message += f"\n  {text}"
    else:
        error.add_note(text)


def _made(kernel: Any) -> Any:
    if kernel is None:
        raise Unsupported(
            "`jit_cache_hook` refuses to have it compiled",
            hint="let the hook return False for kernels that are tuned",
        )
    return kernel


def _gpus(value: Any) -> Iterator[int]:
    """The GPUs of the arrays in an argument."""
    if type(value) is tuple:
        for item in value:
            yield from _gpus(item)
    elif isinstance(value, TensorDescriptor):
        yield from _gpus(value.base)
    elif hasattr(value, "dtype") or hasattr(value, "__dlpack__"):
        view = view_array(value, "array")
        if view is not None and view.gpu is not None:
            yield view.gpu


def _text(value: Any) -> str | None:
    # A dtype of NumPy or PyTorch is known by its name.
    is_dtype = type(value).__module__.partition(".")[0] in {"numpy", "torch"}
    return str(value) if is_dtype else constant_text(value)
