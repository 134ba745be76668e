"""Which command was asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tilewright.cli import check
from tilewright.errors import TilewrightError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments (default: those of the process) ask for.

    Returns its exit status.
    """
    parser = argparse.ArgumentParser(prog="tilewright", description="Tools around kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except TilewrightError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except BrokenPipeError:
        # Whoever read the output has gone; Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status
