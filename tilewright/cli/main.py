"""Which command was asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tilewright.cli import check
from tilewright.cli.script import alias_for_files, become_program
from tilewright.errors import TilewrightError
from tilewright.tools import compile as ahead_of_time

__all__ = ["main"]

_DESCRIPTION = """\
Tools around kernels. In the files that they run `import triton` gives Tilewright.

`tilewright FILE ARGUMENTS...` and `tilewright -m MODULE ARGUMENTS...` run a program in which
`import triton` gives Tilewright; everything else is as `python` would run it.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments (default: those of the process) ask for.

    Returns its exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check.add_parser(commands)
    ahead_of_time.add_arguments(
        commands.add_parser(
            "compile",
            help="compile a kernel for C programs",
            description=ahead_of_time.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    if _is_program(given):
        return become_program(given)
    options = parser.parse_args(given)
    try:
        with alias_for_files():
            status: int = options.run(options)
        sys.stdout.flush()
    except TilewrightError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except BrokenPipeError:
        # Whoever read the output has gone; Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _is_program(given: Sequence[str]) -> bool:
    """Whether the arguments are a program to run, not a command: `-m module`, or a file."""
    if not given:
        return False
    return (given[0] == "-m" and len(given) > 1) or (
        not given[0].startswith("-") and (given[0].endswith(".py") or os.sep in given[0])
    )
