"""`python -m triton.tools.link`: one function in C for several compiled variants of a kernel."""

import argparse
import sys
from pathlib import Path

from tilewright.alias.ahead_of_time import link
from tilewright.errors import TilewrightError

__all__ = ["main"]

DESCRIPTION = """\
Write OUT.c and OUT.h, of the headers that `python -m triton.tools.compile` has written for one
kernel: a function that takes the kernel for the arguments of the call.
"""


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="triton.tools.link",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("headers", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True, help="what both names begin with")
    options = parser.parse_args()
    try:
        files = link(options.headers, options.out)
    except TilewrightError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    for file in files:
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
