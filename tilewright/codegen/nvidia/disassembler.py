"""What `nvdisasm` makes of machine code, where a toolkit is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tilewright import env
from tilewright.errors import Unsupported

__all__ = ["disassembled"]


def disassembled(cubin: bytes) -> str:
    """Return the instructions of machine code as text.

    Raises `Unsupported` where there is no `nvdisasm`, or one too old for the GPU.
    """
    found = (shutil.which("nvdisasm", path=path) for path in (None, "/usr/local/cuda/bin"))
    tool = env.disassembler() or next(filter(None, found), None)
    if tool is None:
        raise Unsupported(
            "there is no `nvdisasm` to show machine code with",
            hint='install a CUDA toolkit, or read the PTX: kernel.asm["ptx"]',
        )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "kernel.cubin")
        path.write_bytes(cubin)
        command = [tool, "-c", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise Unsupported(
            f"nvdisasm does not read the machine code: {done.stderr.strip()}",
            hint='install the toolkit of the newest driver, or read the PTX: kernel.asm["ptx"]',
        )
    return done.stdout
