"""What `ptxas` says of a PTX text, where a toolkit is installed; nothing needs it to run."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import InternalError
from tilewright.target import NvidiaTarget

__all__ = ["Assembled", "assemble", "find_ptxas"]


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


def find_ptxas() -> str | None:
    """Return the path of `ptxas`, if there is one: of a toolkit, or of NVIDIA's Python package."""
    found = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if found is not None:
        return found
    package = importlib.util.find_spec("nvidia")
    directories = () if package is None else package.submodule_search_locations or ()
    places = (place for directory in directories for place in Path(directory).glob("*/bin"))
    return next(filter(None, (shutil.which("ptxas", path=place) for place in places)), None)


def assemble(ptx: str, target: NvidiaTarget, ptxas: str) -> Assembled:
    """Assemble a text for its target; raise `InternalError` with ptxas' words if that fails."""
    with tempfile.TemporaryDirectory() as directory:
        source, output = Path(directory, "kernel.ptx"), Path(directory, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        command = [ptxas, f"-arch={target.architecture}", "-v", str(source), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        cubin = output.read_bytes() if done.returncode == 0 else b""
    said = done.stdout + done.stderr
    if done.returncode:
        raise InternalError(f"ptxas does not accept the generated PTX: {said.strip()}")
    return Assembled(
        ptx,
        _number(r"Used (\d+) registers", said),
        _number(r"(\d+) bytes spill stores", said) + _number(r"(\d+) bytes spill loads", said),
        _number(r"(\d+) bytes stack frame", said),
        tuple(line for line in said.splitlines() if re.search(r"C75\d\d", line)),
        cubin,
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0
