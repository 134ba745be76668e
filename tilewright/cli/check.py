"""`tilewright check FILE`: a program's kernels in the emulator, and what is wrong with them."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from tilewright.cli.findings import Summary, summarise
from tilewright.cli.script import output_on_stderr, run_script
from tilewright.runtime.emulated import emulate
from tilewright.target import NVIDIA_TARGETS

__all__ = ["add_parser"]

_DESCRIPTION = """\
Run a Python program with all its kernels compiled for an NVIDIA GPU and emulated, on NumPy arrays
and tensors of the CPU. What is found is shown with the line of the kernel: races in shared memory
and missing fences, accesses out of bounds, reads of shared memory that nothing has written,
assertions that fail; then what accesses to memory cost. The exit status is 1 if something is wrong,
and 2 if no kernel was launched.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parsers of `tilewright`."""
    parser = commands.add_parser(
        "check", help="look for mistakes in the kernels of a program", description=_DESCRIPTION
    )
    known = ", ".join(target.architecture for target in NVIDIA_TARGETS)
    parser.add_argument("--target", default="sm_90a", metavar="SM", help=f"one of {known}")
    for option in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
        parser.add_argument(
            f"--{option.replace('_', '-')}",
            type=int,
            help=f"in place of `{option}` in all launches",
        )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the report, and nothing else, as JSON; what the program prints goes to stderr",
    )
    parser.add_argument("file", type=Path, help="the program")
    rest = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="what the program is called with"
    )
    rest.required = False
    own = frozenset(parser._option_string_actions)  # noqa: SLF001 - argparse does not list them
    parser.set_defaults(run=_check, own=own)


def _check(options: argparse.Namespace) -> int:
    if not options.file.is_file():
        print(f"tilewright check: there is no file {options.file}", file=sys.stderr)
        return 2
    misplaced = [text for text in options.arguments if text.partition("=")[0] in options.own]
    if misplaced:
        print(
            f"tilewright check: {misplaced[0]} comes after {options.file}, and is passed to it; "
            "options of check stand before the file",
            file=sys.stderr,
        )
    names = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    chosen = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    output = output_on_stderr() if options.json else contextlib.nullcontext()
    looks_for = {"races": True, "uninitialised": True, "profile": True}
    with emulate(options.target, **looks_for, collects=True, options=chosen) as emulation, output:
        trouble = run_script(options.file, options.arguments)
    summary = summarise(emulation)
    if options.json:
        print(json.dumps({**summary.data(), "program": trouble}, indent=2))
    else:
        print(_text(summary, trouble))
    if summary.findings or trouble:
        return 1
    return 0 if summary.launches else 2


def _text(summary: Summary, trouble: str) -> str:
    parts = [str(summary)]
    if trouble:
        parts.append(f"the program failed:\n{trouble}")
    return "\n\n".join(parts)
