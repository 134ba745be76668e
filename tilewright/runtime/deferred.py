"""Modules that are imported when one of their names is first used.

Importing Tilewright must be cheap, and everything that drives LLVM is needed only once a kernel is
compiled or run.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Deferred"]


class Deferred:
    """Stands for the module `name`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
