"""`python -m triton.tools.compile`: a kernel as C source, with its machine code for one GPU."""

import argparse
import sys
from pathlib import Path

from tilewright.alias.ahead_of_time import compile_kernel, target_of
from tilewright.errors import TilewrightError
from tilewright.runtime.kernel_file import kernel_in_file

__all__ = ["main"]

DESCRIPTION = """\
Write NAME.HASH_SUFFIX.c and .h: a function in C that starts a kernel, and its code for one GPU.
The signature has an item for each parameter, separated by commas: a type, as "*fp32" and "i32",
with ":16" where 16 divides it and ":1" where it is 1, or a constant. `python -m triton.tools.link`
makes a function of several such kernels. `tilewright compile` writes an object for any number of
targets, the CPU too.
"""


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="triton.tools.compile",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, help="where the kernel is defined; the file is run")
    parser.add_argument("-n", "--kernel-name", required=True, help="the name of the kernel")
    parser.add_argument("-t", "--target", help="as cuda:90:32; without it this machine's GPU")
    parser.add_argument("-w", "--num-warps", type=int, default=1)
    parser.add_argument("-ns", "--num-stages", type=int, default=3)
    parser.add_argument("-on", "--out-name", default="", help="the name of the function in C")
    parser.add_argument("-o", "--out-path", type=Path, help="what the names of files begin with")
    parser.add_argument("-s", "--signature", required=True, help='as "*fp32:16, i32, 1024"')
    parser.add_argument("-g", "--grid", required=True, help='in C: "(n + 1023) / 1024, 1, 1"')
    options = parser.parse_args()
    grid = options.grid.split(",")
    if len(grid) != 3:
        parser.error(f"the grid has three items, not {options.grid!r}")
    try:
        _, files = compile_kernel(
            kernel_in_file(options.path, options.kernel_name),
            options.signature,
            grid,
            target=target_of(options.target),
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            out_name=options.out_name,
            out_path=options.out_path,
        )
    except TilewrightError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    for file in files:
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
