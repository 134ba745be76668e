"""Kernels for C programs: `python -m tilewright.tools.compile`, also `tilewright compile`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.runtime.ahead_of_time import Artifact, compile_ahead
from tilewright.runtime.kernel_file import kernel_in_file

__all__ = ["Artifact", "add_arguments", "compile_ahead", "main"]

DESCRIPTION = """\
Compile a kernel for programs without Python: NAME.o to link, and NAME.h to include. The file is run
as a module, so that the kernel is there. The signature has an item for each parameter, separated
by commas: a type, as "*fp32" and "i32", with ":16" where 16 divides it, or a constant.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a parser take what is asked for, and run it."""
    parser.add_argument("file", type=Path, help="where the kernel is defined")
    parser.add_argument("-n", "--kernel-name", required=True, help="the name of the kernel")
    parser.add_argument("-s", "--signature", required=True, help='as "*fp32:16, i32, 1024"')
    parser.add_argument(
        "-t", "--target", action="append", help="cpu (the default), sm_90a, ...; may be repeated"
    )
    parser.add_argument("-on", "--out-name", default="", help="name of the functions and files")
    parser.add_argument("-o", "--out-path", type=Path, default=Path(), help="directory for them")
    parser.add_argument("-w", "--num-warps", type=int, default=4)
    parser.add_argument("-ns", "--num-stages", type=int, default=3)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    artifact = compile_ahead(
        kernel_in_file(options.file, options.kernel_name),
        options.signature,
        targets=options.target or ("cpu",),
        name=options.out_name,
        options={"num_warps": options.num_warps, "num_stages": options.num_stages},
    )
    for path in artifact.write(options.out_path):
        sys.stdout.write(f"{path}\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments (default: those of the process) ask for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="tilewright.tools.compile",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    try:
        return _run(parser.parse_args(arguments))
    except TilewrightError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    sys.exit(main())
