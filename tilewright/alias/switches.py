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

__all__ = ["autotuning", "cache", "nvidia", "runtime"]


class Group:
    """Switches by name, each with its variable and what reads it; `scope()` restores them.

    Programs look whether Triton's hooks are set before they launch: they are None, and cannot be
    set.
    """

    def __init__(
        self,
        name: str,
        switches: dict[str, tuple[str, Callable[[], Any]]],
        hooks: frozenset[str] = frozenset(),
    ) -> None:
        vars(self)["_name"] = name
        vars(self)["_switches"] = switches
        vars(self)["_hooks"] = hooks

    def __dir__(self) -> list[str]:
        return sorted([*self._switches, "scope"])

    def __getattr__(self, name: str) -> Any:
        return None if name in self._hooks else self._switch(name)[1]()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._hooks and value is None:
            return
        variable, _ = self._switch(name)
        os.environ[variable] = str(int(value)) if isinstance(value, bool) else str(value)

    def __delattr__(self, name: str) -> None:
        os.environ.pop(self._switch(name)[0], None)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Put all switches of the group back at the end of a block."""
        before = {variable: os.environ.get(variable) for variable, _ in self._switches.values()}
        try:
            yield
        finally:
            for variable, text in before.items():
                if text is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = text

    def _switch(self, name: str) -> tuple[str, Callable[[], Any]]:
        if name not in self._switches:
            raise UnknownName(
                f"`triton.knobs.{self._name}.{name}`: Tilewright has no such switch",
                hint=f"here there are {', '.join(f'`{switch}`' for switch in self._switches)}",
            )
        found: tuple[str, Callable[[], Any]] = self._switches[name]
        return found


autotuning = Group("autotuning", {"print": ("TRITON_PRINT_AUTOTUNING", env.print_autotuning)})
cache = Group("cache", {"dir": ("TILEWRIGHT_CACHE_DIR", lambda: str(env.cache_directory()))})
nvidia = Group("nvidia", {"libdevice_path": ("TRITON_LIBDEVICE_PATH", env.libdevice_path)})
runtime = Group(
    "runtime",
    {
        "debug": ("TRITON_DEBUG", env.device_debug),
        "interpret": ("TRITON_INTERPRET", env.interpret),
    },
    hooks=frozenset({"jit_post_compile_hook", "launch_enter_hook", "launch_exit_hook"}),
)
# Programs set it where they know of a file; nothing is linked to kernels here.
nvidia = Group(
    "nvidia",
    {"libdevice_path": ("TRITON_LIBDEVICE_PATH", lambda: os.environ.get("TRITON_LIBDEVICE_PATH"))},
)
