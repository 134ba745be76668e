"""What `ptxas` says of a PTX text, where a toolkit is installed; nothing needs it to run."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright import env
from tilewright.errors import InternalError, Unsupported
from tilewright.target import NvidiaTarget

__all__ = ["SLOWER", "Assembled", "assemble"]

# Warnings: registers are not handed over, matrix products are serialised, and the like.
SLOWER = re.compile(r"C75\d\d")


@dataclass(frozen=True)
class Assembled:
    """A kernel's machine code, the PTX it was made of, what a thread of it takes, and warnings.

    Those are of products (C75xx): that they are serialised, and the like.
    """

    ptx: str
    registers: int
    spilled_bytes: int
    stack_bytes: int
    warnings: tuple[str, ...]
    cubin: bytes


def assemble(ptx: str, target: NvidiaTarget, ptxas: str, options: Sequence[str] = ()) -> Assembled:
    """Assemble a text for its target; raise `InternalError` with ptxas' words if that fails."""
    with tempfile.TemporaryDirectory() as directory:
        source, output = Path(directory, "kernel.ptx"), Path(directory, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [ptxas, f"-arch={target.architecture}", "-v", str(source), "-o", str(output)]
        command += options
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError as error:
            raise Unsupported(
                f"{ptxas} cannot be run: {error}",
                hint="put one that can be first on PATH, or none: the driver assembles, too",
            ) from error
        cubin = output.read_bytes() if done.returncode == 0 else b""
    said = done.stdout + done.stderr
    if env.shows_assembler():
        sys.stderr.write(said)
    if done.returncode:
        raise InternalError(f"ptxas does not accept the generated PTX: {said.strip()}")
    return Assembled(
        ptx,
        _number(r"Used (\d+) registers", said),
        _number(r"(\d+) bytes spill stores", said) + _number(r"(\d+) bytes spill loads", said),
        _number(r"(\d+) bytes stack frame", said),
        tuple(line for line in said.splitlines() if SLOWER.search(line)),
        cubin,
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0
