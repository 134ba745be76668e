"""What is told on stderr, on request: launches, times, the text of stages."""

from __future__ import annotations

import sys

__all__ = ["tell"]


def tell(text: str) -> None:
    """Write lines to stderr."""
    sys.stderr.write(f"{text}\n")
