"""Compile in a forked child: LLVM ends the process on what it cannot select."""

import faulthandler
import os
import sys
import tempfile
import traceback

from tilewright.codegen.llvm import compile_to_object, host
from tilewright.target import Host


def check_in_fork(text: str, *, level: int = 3, machine: Host | None = None) -> str | None:
    """Return None where the module compiles, else what the child wrote to stderr."""
    machine = machine or host()
    with tempfile.TemporaryFile() as report:
        child = os.fork()
        if child == 0:
            faulthandler.disable()
            os.dup2(report.fileno(), sys.__stderr__.fileno())
            status = 1
            try:
                compile_to_object(text, host=machine, level=level)
                status = 0
            except BaseException:  # noqa: BLE001 - whatever it was, the parent reports it
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return None
        report.seek(0)
        return report.read().decode(errors="replace") or f"wait status {status}"
