"""`@autotune`: the fastest of several configurations, found by trying them.

Tuning is never visible in the results. What the kernel writes is saved before the trials and put
back after them, so the launch that follows finds its arrays as the caller left them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright import env
from tilewright.errors import CompileError, LaunchError, Unsupported
from tilewright.locks import Lock
from tilewright.runtime.benchmark import do_bench as measure
from tilewright.runtime.config import Config
from tilewright.runtime.dispatch import Grid
from tilewright.runtime.heuristics import DecoratedKernel, kernel_below
from tilewright.runtime.hooks import hooks
from tilewright.runtime.options import DEFAULTS
from tilewright.runtime.progress import Progress
from tilewright.runtime.readable import ReadableErrors
from tilewright.runtime.report import tell
from tilewright.runtime.tensor_descriptor import TensorDescriptor
from tilewright.runtime.trials import Call, TrialHooks, Trials, name_configuration
from tilewright.spelling import did_you_mean

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Autotuner", "autotune", "tuning"]

_tuning: ContextVar[bool] = ContextVar("tuning", default=False)


@contextmanager
def tuning() -> Iterator[None]:
    """Tune inside: kernels with a `default` configuration try all of them, as others always do.

    What is found is kept on disk, so that later launches, of other processes too, start with it.
    `TILEWRIGHT_TUNE=1` in the environment says the same for a whole program.

    >>> import tilewright
    >>> with tilewright.tuning():
    ...     pass  # launches
    """
    token = _tuning.set(True)
    try:
        yield
    finally:
        _tuning.reset(token)


Default = Config | Callable[[dict[str, Any]], Config]


class Autotuner(DecoratedKernel):
    """A kernel that picks its configuration; see `autotune`.

    `cache` has the chosen configuration of each key, `best_config` that of the last launch,
    `configs_timings` the times of the last tuning and `bench_time` how long it took (seconds).
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the signature is Triton's, for classes derived from it
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
        executor: Executor | None = None,
        default: Default | None = None,
    ) -> None:
        self.fn = fn
        self.base_fn = kernel_below("autotune", fn)
        self.arg_names = list(arg_names)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        self.pre_hook, self.user_defined_pre_hook = pre_hook, pre_hook is not None
        self.post_hook, self.user_defined_post_hook = post_hook, post_hook is not None
        pruning = dict(prune_configs_by or {})
        self.early_config_prune = pruning.get("early_config_prune")
        self.perf_model = pruning.get("perf_model")
        self.configs_top_k = pruning.get("top_k", 1.0)
        self.use_cuda_graph = use_cuda_graph
        self.do_bench = _timer(do_bench, warmup, rep)
        self.default = default
        self.cache_results = cache_results or default is not None or env.cache_autotuning()
        self.cache: dict[tuple[Any, ...], Config] = {}
        self._untuned: dict[tuple[Any, ...], Config] = {}
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, list[float]] = {}
        self.bench_time = 0.0
        self.nargs: dict[str, Any] = {}
        self._executor = executor
        self._lock = Lock()
        self._require_parameters({*self.keys, *self.reset_to_zero, *self.restore_value})
        for config in self.configs:
            self._require_parameters(config.kwargs.keys() - DEFAULTS.keys(), f" ({config})")

    @property
    def hooks(self) -> TrialHooks:
        """What happens around launches; derived classes may have set other functions."""
        arrays = tuple(self.reset_to_zero), tuple(self.restore_value)
        return TrialHooks(*arrays, self.pre_hook, self.post_hook)

    def _require_parameters(self, names: AbstractSet[str], place: str = "") -> None:
        for name in sorted(names - {*self.arg_names}):
            close = did_you_mean(name, self.arg_names)
            raise LaunchError(
                f"autotune of {self.base_fn.name}: `{name}` is no parameter of the kernel{place}",
                hint=close or f"the parameters are {', '.join(f'`{n}`' for n in self.arg_names)}",
            )

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        return partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Grid, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the best configuration for these arguments, after tuning if need be."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        __tracebackhide__ = True
        with ReadableErrors():
            call = self._call(args, kwargs, grid)
            self.nargs = call.named
            config = self._chosen(call)
            self.best_config = config
            chosen = config.all_kwargs()
            arguments = {**call.named, **chosen}
            if len(arguments) < len(call.named) + len(chosen):
                self._check_call(call, config)
            self._prepare(arguments, config)
            try:
                return self.fn.run(*args, grid=grid, **kwargs, **chosen)
            except (CompileError, Unsupported) as error:
                name_configuration(error, f"with the configuration {config}")
                raise

    def interpret(self, *args: Any, grid: Grid, **kwargs: Any) -> None:
        """Run the body as ordinary Python with the first configuration; stderr tells which."""
        call = self._call(args, kwargs, grid)
        self._check_call(call)
        config = self._untried(call)[0]
        tell(f"[tilewright] {self.base_fn.name} as Python, with the first configuration: {config}")
        self._prepare(call.arguments(config), config)
        self.fn.debug[grid](*args, **kwargs, **config.all_kwargs())

    def _prepare(self, arguments: dict[str, Any], config: Config) -> None:
        self.hooks.reset(arguments)
        if config.pre_hook is not None:
            config.pre_hook(arguments)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> list[Any]:
        """Compile for every configuration without launching; return the kernels."""
        call = self._call(args, kwargs, grid)
        self._check_call(call)
        kernels = []
        for config in self._pruned(call):
            call.set_blocks(config)
            try:
                kernels.append(self.fn.warmup(*args, grid=grid, **call.keywords(config)))
            except (CompileError, Unsupported) as error:
                name_configuration(error, f"with the configuration {config}")
                raise
        return kernels

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Call:
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        if len(named) < len(args) + len(kwargs):
            self.base_fn.binder.bind(*args, **kwargs)  # it says what is too many
        return Call(args, kwargs, grid, named)

    def _chosen(self, call: Call) -> Config:
        if self.base_fn.emulation is not None:
            return self._first_that_fits(call)
        key = self._key(call)
        try:
            config = self.cache.get(key)
        except TypeError:
            raise LaunchError(
                f"autotune of {self.base_fn.name}: the key is not hashable: {key}",
                hint="name parameters that are numbers, texts or types in `key=`",
            ) from None
        if config is not None:
            return config
        if self.default is not None and not (_tuning.get() or env.tune()):
            return self._untuned.get(key) or self._stored_or_default(call, key)
        with self._lock:
            config = self.cache.get(key) or self._tuned(call, key)
            self.cache[key] = config
        return config

    def _stored_or_default(self, call: Call, key: tuple[Any, ...]) -> Config:
        """Return what an earlier tuning found, or the default: nothing is tried."""
        self._check_call(call)
        with self._lock:
            if key not in self._untuned:
                stored = self._trials(call, key).best_stored(self._pruned(call))
                self._untuned[key] = stored or self._untried(call)[0]
            return self._untuned[key]

    def _trials(self, call: Call, key: tuple[Any, ...] | None) -> Trials:
        kept = key if self.cache_results else None
        return Trials(self.fn, self.base_fn, call, self.hooks, self.do_bench, self._executor, kept)

    def _first_that_fits(self, call: Call) -> Config:
        """Return the first configuration that an emulated GPU has room for: times say nothing."""
        self._check_call(call)
        return self._trials(call, None).first_that_fits(self._untried(call))

    def _key(self, call: Call) -> tuple[Any, ...]:
        named = call.named
        # A descriptor is of the type of its array, and on its device.
        values = [v.base if type(v) is TensorDescriptor else v for v in named.values()]
        arrays = [value for value in values if hasattr(value, "dtype")]
        # What is best on one device says nothing about another.
        place = getattr(arrays[0], "device", "cpu") if arrays else "cpu"
        elsewhere = () if place == "cpu" else (place,)
        dtypes = (array.dtype for array in arrays)
        return (*(named[name] for name in self.keys if name in named), *dtypes, *elsewhere)

    def _tuned(self, call: Call, key: tuple[Any, ...]) -> Config:
        self._check_call(call)
        configs = self._pruned(call)
        if len(configs) == 1 or self.base_fn.is_interpreted:
            return configs[0]
        trials = self._trials(call, key)
        with Progress(self.base_fn.name, len(configs)) as progress:
            best = trials.best(configs, progress)
        self.bench_time = progress.seconds
        self.configs_timings = trials.times
        if hooks.autotuning_listener is not None:
            hooks.autotuning_listener(
                fn=self.base_fn,
                key=key,
                best_config=best,
                configs_timings=trials.times,
                duration=progress.seconds,
                cache_hit=trials.all_stored,
            )
        return best

    def _untried(self, call: Call) -> list[Config]:
        """Return the configurations in the order in which they are taken without a trial."""
        if self.default is None:
            return self._pruned(call)
        default = self.default(call.named) if callable(self.default) else self.default
        return [default, *self._pruned(call)]

    @property
    def computed(self) -> frozenset[str]:
        return super().computed.union(*(config.kwargs for config in self.configs))

    def _check_call(self, call: Call, *others: Config) -> None:
        """Raise `LaunchError` for what is given here and by the configurations, or not at all."""
        for config in (*self.configs, *others):
            if conflicts := sorted(config.all_kwargs().keys() & call.named.keys()):
                raise LaunchError(
                    f"autotune of {self.base_fn.name}: `{conflicts[0]}` is given in the call, and "
                    "by the configurations",
                    hint="leave it out of the call",
                )
        values, _ = self.base_fn.binder.bind(*call.args, **call.kwargs)
        self.base_fn.require_arguments(values, self.computed)

    def _pruned(self, call: Call) -> list[Config]:
        configs = list(self.configs)
        if self.early_config_prune is not None:
            configs = list(self.early_config_prune(configs, call.named, **call.kwargs))
            if not configs:
                raise LaunchError(
                    f"autotune of {self.base_fn.name}: `early_config_prune` left no configuration",
                    hint="let it return the least demanding one where none fits",
                )
        model, top_k = self.perf_model, self.configs_top_k
        if model is None:
            return configs
        count = top_k if isinstance(top_k, int) else int(len(self.configs) * top_k)
        estimates = {config: model(**call.arguments(config)) for config in configs}
        return sorted(configs, key=estimates.__getitem__)[: max(1, count)]


def autotune(  # noqa: PLR0913, PLR0917 - the signature is Triton's
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
    executor: Executor | None = None,
    default: Default | None = None,
) -> Callable[[Any], Autotuner]:
    """Launch a kernel with the fastest of several configurations.

    They are tried at the first launch for each set of values of the parameters named by `key`, and
    of the element types of the arrays. Whatever the kernel writes is restored after the trials.

    Args:
        configs: What to choose from.
        key: Names of the parameters that may change which is the best.
        prune_configs_by: `early_config_prune(configs, arguments, **keywords)` returns those worth a
            trial; `perf_model(**arguments)` estimates a time, and the `top_k` best (an int, or a
            fraction of all) are tried.
        reset_to_zero: Arrays that every launch starts with at zero, the trials included.
        restore_value: Arrays that are restored after each trial launch, not only after all trials:
            for kernels whose time depends on what they overwrite.
        pre_hook: `pre_hook(arguments)` before each trial launch, in place of what the two do, and
            `pre_hook(arguments, reset_only=True)` before each other launch.
        post_hook: `post_hook(arguments, exception=None)` after each trial launch.
        warmup: Milliseconds of trial launches that are not timed.
        rep: Milliseconds of trial launches that are timed.
        use_cuda_graph: Accepted; launches are timed by the GPU's own clock in any case.
        do_bench: `do_bench(launch, quantiles=...)` returns the quantiles of the time of `launch()`.
        cache_results: Keep the times on disk, an entry for each configuration, so that the next
            process need not tune; `TILEWRIGHT_CACHE_AUTOTUNING=1` says so for all.
        executor: Where to compile, several configurations at a time.
        default: The configuration to launch with, or `default(arguments)` that returns it, until
            `tuning()` is asked for: then all are tried, and what is found is kept on disk.

    >>> import tilewright, tilewright.language as tl
    >>> @tilewright.autotune([tilewright.Config({"BLOCK": b}) for b in (256, 1024)], key=["n"])
    ... @tilewright.jit
    ... def kernel(x_ptr, n, BLOCK: tl.constexpr): ...
    """
    _require_configs(configs)
    return lambda fn: Autotuner(
        fn,
        getattr(fn, "arg_names", ()),
        configs,
        key,
        reset_to_zero,
        restore_value,
        pre_hook,
        post_hook,
        prune_configs_by,
        warmup,
        rep,
        use_cuda_graph,
        do_bench,
        cache_results,
        executor,
        default,
    )


def _require_configs(configs: Sequence[Any]) -> None:
    others = [config for config in configs if not isinstance(config, Config)]
    if others:
        shown = repr(others[0]) if isinstance(others[0], dict) else "{...}"
        raise LaunchError(
            f"autotune: a configuration is a tilewright.Config, not {others[0]!r}",
            hint=f"write `tilewright.Config({shown})`",
        )


def _timer(
    do_bench: Callable[..., Any] | None, warmup: float | None, rep: float | None
) -> Callable[..., Any]:
    """Return what takes the time of a launch."""
    if do_bench is None:
        times = (25 if warmup is None else warmup, 100 if rep is None else rep)
        return partial(measure, warmup=times[0], rep=times[1])
    if warmup is not None or rep is not None:
        warnings.warn(
            "autotune: `warmup` and `rep` have no effect beside `do_bench`",
            DeprecationWarning,
            stacklevel=4,  # beyond the class and the decorator
        )
    return do_bench
