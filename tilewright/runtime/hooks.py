"""Functions of the user's that are called around launches and compiling.

`hooks.launch_enter_hook.add(f)` and the like; where none is set, launches do not come past here.
Under the alias the same object is `triton.knobs.runtime`'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.runtime.remembered import forget_launchers

__all__ = [
    "CompileTimes", "HookChain", "Hooks", "KernelInfo", "LazyDict", "hooks", "launch_facts",
]  # fmt: skip

Hook = Callable[..., Any]


class LazyDict:
    """What the hooks around a launch are given: `get()` returns it as a dictionary.

    What `add` has put off is computed then, and only then.

    >>> facts = LazyDict({"name": "kernel"})
    >>> facts.add(lambda n: {"flops": 2 * n}, (8,))
    >>> facts.get()
    {'name': 'kernel', 'flops': 16}
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = []

    def add(self, describe: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> None:
        """Have `describe(*arguments)` called, and its items added, when the rest is asked for."""
        self.extras.append((describe, arguments))

    def get(self) -> dict[str, Any]:
        """Return all that is known."""
        for describe, arguments in self.extras:
            self.data = {**self.data, **describe(*arguments)}
        self.extras.clear()
        return self.data


def launch_facts(
    function: Any, metadata: Any, entry: Any, grid: Any, stream: int, values: Sequence[Any]
) -> LazyDict:
    """Return what hooks are told about a launch; `values` are those of all parameters."""
    facts = LazyDict({"name": function.name, "function": entry, "stream": stream})
    describe = getattr(function, "launch_metadata", None)  # not where it came without its body
    if describe is not None:
        facts.add(describe, (grid, metadata, dict(zip(function.arg_names, values, strict=False))))
    return facts


class HookChain:
    """Functions that are called one after the other; false while there are none.

    >>> seen = []
    >>> chain = HookChain()
    >>> chain.add(seen.append)
    >>> chain(1)
    >>> chain.remove(seen.append)
    >>> seen, bool(chain)
    ([1], False)
    """

    def __init__(self, reversed: bool = False) -> None:
        self.calls: list[Hook] = []
        self.reversed = reversed

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for call in self.calls[::-1] if self.reversed else self.calls:
            call(*args, **kwargs)

    def add(self, hook: Hook) -> None:
        """Call `hook` too, from the next launch on; once, however often it is added."""
        if hook not in self.calls:
            self.replace(*self.calls, hook)

    def remove(self, hook: Hook) -> None:
        """Call `hook` no longer; one that is not there is let pass."""
        self.replace(*(call for call in self.calls if call != hook))

    def replace(self, *hooks: Hook) -> None:
        """Call just these."""
        self.calls = list(hooks)
        forget_launchers()


@dataclass(frozen=True)
class CompileTimes:
    """How long compiling took, in microseconds.

    `ir_initialization` is the way to tile IR, `lowering_stages` has each later stage by its name,
    and `store_results` is the rest.
    """

    ir_initialization: int
    lowering_stages: list[tuple[str, int]]
    store_results: int

    @property
    def total_lowering(self) -> int:
        """The time of all stages together."""
        return sum(time for _, time in self.lowering_stages)

    @property
    def total(self) -> int:
        """The time of everything."""
        return self.ir_initialization + self.total_lowering + self.store_results


class KernelInfo(NamedTuple):
    """The kernel that a hook around compiling is told about."""

    module: str
    name: str
    jit_function: Any


class Hooks:
    """All hooks there are.

    `launch_enter_hook` and `launch_exit_hook` are called with a `LazyDict` around each launch: its
    `name`, `function` and `stream`, and what `@jit(launch_metadata=...)` adds. `jit_cache_hook` is
    called before a kernel is compiled for a call, and `jit_post_compile_hook` after it, with the
    keywords `key`, `repr`, `fn`, `compile`, `is_manual_warmup` and `already_compiled`; a true value
    from the first leaves the launch out. `kernel_load_start_hook` and `kernel_load_end_hook` are
    called around the loading of code, with the module, the entry (both None before), the name, the
    files it is kept in, and the hash; `kernel_unload_hook` with the same when nothing needs the
    code any more, the module excepted, which is None.

    `compilation_listener` is called with the keywords `src`, `metadata`, `metadata_group`, `times`
    (`CompileTimes`) and `cache_hit` when code has been compiled, or found in the disk cache;
    `autotuning_listener` with `fn`, `key`, `best_config`, `configs_timings`, `duration` (seconds)
    and `cache_hit` when a configuration has been chosen by trials, or by the times of earlier ones.
    """

    def __init__(self) -> None:
        self.launch_enter_hook = HookChain()
        self.launch_exit_hook = HookChain(reversed=True)
        self.kernel_load_start_hook = HookChain()
        self.kernel_load_end_hook = HookChain(reversed=True)
        self.kernel_unload_hook = HookChain()
        self.compilation_listener: Hook | None = None
        self.autotuning_listener: Hook | None = None
        self.jit_cache_hook: Hook | None = None
        self.jit_post_compile_hook: Hook | None = None

    @property
    def surround_launches(self) -> bool:
        """Whether there is something to call around each launch."""
        return bool(self.launch_enter_hook or self.launch_exit_hook)

    @property
    def surround_loading(self) -> bool:
        """Whether there is something to call around the loading of code."""
        return bool(self.kernel_load_start_hook or self.kernel_load_end_hook)

    @property
    def surround_compiling(self) -> bool:
        """Whether there is something to call before or after compiling."""
        return self.jit_cache_hook is not None or self.jit_post_compile_hook is not None

    @contextlib.contextmanager
    def around_launch(self, describe: Callable[[], LazyDict]) -> Iterator[None]:
        """Surround a launch with its hooks; `describe()` returns what they are told."""
        if not self.surround_launches:
            yield
            return
        facts = describe()
        self.launch_enter_hook(facts)
        yield
        self.launch_exit_hook(facts)


hooks = Hooks()
