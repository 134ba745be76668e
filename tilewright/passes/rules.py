"""The form of a rule on values."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Op, Value

__all__ = ["Make", "ValueRule"]

Make = Callable[[Op], Value]
"""Simplifies a new op, appends what is left of it, and returns its value."""

ValueRule = Callable[[Op, Make], "Value | None"]
"""Returns a simpler value equal to the op, or None.

Constants stand on the right: of a commutative op, and of a comparison.
"""
