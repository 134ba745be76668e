"""The line that tells how far a tuning is."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Self

from tilewright import env
from tilewright.runtime.report import tell

__all__ = ["Progress"]

# A tuning that is over sooner does not need to explain itself.
_QUIET_SECONDS = 2.0


class Progress:
    """Shows what a tuning that takes longer than 2 s is at, and what it found, on stderr.

    On a terminal that is one line that changes, for each configuration; at the end there is a line
    with the fastest, anywhere. With `TILEWRIGHT_PRINT_AUTOTUNING=1` each configuration has a line.
    """

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._started = time.perf_counter()
        self._width = 0
        self._fastest = (math.inf, "")
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        if self._width:
            self._rewrite("")
        if error is None and self.seconds > _QUIET_SECONDS:
            milliseconds, config = self._fastest
            tell(
                f"[tilewright] tuned {self._name}: {self._total} configurations in "
                f"{self.seconds:.1f} s, the fastest: {config}: {milliseconds:.4g} ms"
            )

    def show(self, config: str, milliseconds: float) -> None:
        """Tell of one configuration and its time."""
        self._done += 1
        self._fastest = min(self._fastest, (milliseconds, config))
        text = (
            f"[tilewright] tuning {self._name} {self._done}/{self._total}: "
            f"{config}: {milliseconds:.4g} ms"
        )
        if env.print_autotuning():
            tell(text)
        elif time.perf_counter() - self._started > _QUIET_SECONDS and sys.stderr.isatty():
            self._rewrite(text)

    def _rewrite(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self._width)}\r{text}")
        sys.stderr.flush()
        self._width = len(text)
