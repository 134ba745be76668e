"""What is launched as `kernel[grid](...)`: kernels, and what decorators make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["KernelInterface"]


class KernelInterface:
    """Base of all that has `run(*arguments, grid=..., warmup=..., **options)`.

    A class of one's own around a kernel derives from it, defines `run`, and is then launched as
    the kernel is.
    """

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or with `warmup` only compile."""
        raise NotImplementedError(f"{type(self).__name__} defines no `run`")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)
