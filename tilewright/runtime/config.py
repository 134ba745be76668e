"""Configurations that autotuning chooses from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Config"]


@dataclass(eq=False)
class Config:
    """One way to launch a kernel: values of its parameters, and launch options.

    `pre_hook(arguments)` is called before each launch with this configuration; `arguments` has
    every argument by name.
    """

    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    pre_hook: Callable[[dict[str, Any]], Any] | None = None
    ir_override: str | None = None

    def all_kwargs(self) -> dict[str, Any]:
        """Return the keywords of a launch with this configuration."""
        options = {
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
            "ir_override": self.ir_override,
        }
        return {**self.kwargs, **{k: v for k, v in options.items() if v is not None}}

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return self.all_kwargs() == other.all_kwargs() and self.pre_hook == other.pre_hook

    def __hash__(self) -> int:
        return hash((frozenset(self.all_kwargs().items()), self.pre_hook))
