"""What an observer of the pipeline sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.core import Function

__all__ = ["Observer", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """One pass that has run: `before` and `after` are the same object where it changed nothing."""

    stage: str
    number: int
    name: str
    before: Function
    after: Function
    seconds: float


Observer = Callable[[Step], None]
"""Called after each pass."""
