"""The command `tilewright`."""

from tilewright.cli.main import main

__all__ = ["main"]
