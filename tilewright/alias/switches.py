"""Triton's knobs, as far as Tilewright has the switch: views of the environment, where it is kept.

What is set here is seen by child processes too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from tilewright import env
from tilewright.errors import UnknownName
from tilewright.runtime.hooks import HookChain, hooks

__all__ = [
    "amd",
    "autotuning",
    "build",
    "cache",
    "compilation",
    "language",
    "nvidia",
    "proton",
    "redis",
    "runtime",
]


class Group:
    """Switches by name, each with its variable and what reads it; `scope()` restores them.

    Hooks are those of `tilewright.runtime.hooks`. A chain takes a function, or None for none.
    """

    def __init__(
        self,
        name: str,
        switches: dict[str, tuple[str, Callable[[], Any]]],
        hook_names: tuple[str, ...] = (),
    ) -> None:
        vars(self)["_name"] = name
        vars(self)["_switches"] = switches
        vars(self)["_hook_names"] = hook_names

    def __dir__(self) -> list[str]:
        return sorted([*self._switches, *self._hook_names, "scope"])

    def __getattr__(self, name: str) -> Any:
        return getattr(hooks, name) if name in self._hook_names else self._switch(name)[1]()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._hook_names:
            _set_hook(name, value)
            return
        variable, _ = self._switch(name)
        os.environ[variable] = str(int(value)) if isinstance(value, bool) else str(value)

    def __delattr__(self, name: str) -> None:
        os.environ.pop(self._switch(name)[0], None)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Put all switches and hooks of the group back at the end of a block."""
        before = {variable: os.environ.get(variable) for variable, _ in self._switches.values()}
        called = {name: _hook(name) for name in self._hook_names}
        try:
            yield
        finally:
            for variable, text in before.items():
                if text is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = text
            for name, hook in called.items():
                _set_hook(name, hook)

    def _switch(self, name: str) -> tuple[str, Callable[[], Any]]:
        if name not in self._switches:
            known = [*self._switches, *self._hook_names]
            raise UnknownName(
                f"`triton.knobs.{self._name}.{name}`: Tilewright has no such switch",
                hint=f"there are {', '.join(f'`{n}`' for n in known)}" if known else "leave it out",
            )
        found: tuple[str, Callable[[], Any]] = self._switches[name]
        return found


def _hook(name: str) -> Any:
    found = getattr(hooks, name)
    return list(found.calls) if isinstance(found, HookChain) else found


def _set_hook(name: str, value: Any) -> None:
    chain = getattr(hooks, name)
    if not isinstance(chain, HookChain):
        setattr(hooks, name, value)
    elif value is not chain:
        calls = value.calls if isinstance(value, HookChain) else value
        chain.replace(*(calls if isinstance(calls, list) else () if calls is None else (calls,)))


autotuning = Group(
    "autotuning",
    {
        "cache": ("TRITON_CACHE_AUTOTUNING", env.cache_autotuning),
        "print": ("TRITON_PRINT_AUTOTUNING", env.print_autotuning),
    },
)
cache = Group("cache", {"dir": ("TILEWRIGHT_CACHE_DIR", lambda: str(env.cache_directory()))})
nvidia = Group("nvidia", {"libdevice_path": ("TRITON_LIBDEVICE_PATH", env.libdevice_path)})
runtime = Group(
    "runtime",
    {
        "debug": ("TRITON_DEBUG", env.device_debug),
        "interpret": ("TRITON_INTERPRET", env.interpret),
    },
    hook_names=tuple(vars(hooks)),
)
# What Triton has switches for, and Tilewright has none.
amd, build, compilation, language, proton, redis = (
    Group(name, {}) for name in ("amd", "build", "compilation", "language", "proton", "redis")
)
