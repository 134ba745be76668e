"""Kernels that are in no file: made by `exec`, on the command line, or typed at a prompt."""

import code
import linecache
import os
import select
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompileError
from tilewright.frontend.function import KernelFunction

ROOT = Path(__file__).resolve().parent.parent.parent

EXECUTED = """
def f(x):
    return x + missing
"""

KERNELS = """
    @tw.jit
    def add_two(x):
        return x + 2

    def made(FACTOR):
        @tw.jit
        def kernel(x_ptr):
            tl.store(x_ptr, add_two(tl.load(x_ptr)) * FACTOR)
        return kernel
"""

TYPED = """
import numpy as np, tilewright as tw, tilewright.language as tl
@tw.jit
def kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 1)

x = np.zeros(1)
_ = kernel[(1,)](x), kernel.debug[(1,)](x)
print("it is", x[0])
"""


def test_the_text_is_found_where_exec_is_called():
    namespace = {}
    exec(EXECUTED, namespace)  # a variable of the module
    exec("def g(x):\n    return x", namespace)  # a constant
    indented = "\n        def h(x):\n            return x + x"
    exec(textwrap.dedent(indented), namespace)  # not the very text of the variable
    for name, expected in (("f", "x + missing"), ("g", "return x"), ("h", "x + x")):
        function = KernelFunction(namespace[name])
        assert function.src.startswith(f"def {name}(x):")
        assert function.src.rstrip().endswith(expected)
        assert linecache.getline(function.file, function.first_line).startswith("def")


def test_another_text_is_not_taken_for_it():
    namespace = {}
    exec(EXECUTED.replace("+", "-"), namespace)
    function = KernelFunction(namespace["f"])
    with pytest.raises(CompileError, match="the source of `f` is not available"):
        _ = function.src


def test_kernels_made_by_exec(launch):
    names = {"tw": tw, "tl": tl}
    exec(textwrap.dedent(KERNELS), names)
    x = np.float32([1])
    launch(names["made"](tl.constexpr(3)), (1,), x)
    assert x[0] == 9


def test_kernels_of_an_interactive_console():
    console = code.InteractiveConsole()
    for line in TYPED.splitlines():
        console.push(line)
    assert console.locals["x"] == 2


def test_kernels_of_the_command_line(tmp_path):
    command = [sys.executable, "-c", TYPED]
    done = subprocess.run(
        command, env=settings(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.stdout == "it is 2.0\n", done.stderr


def test_kernels_that_are_typed_at_a_prompt(tmp_path):
    pty = pytest.importorskip("pty")
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, [sys.executable, "-q"], settings(tmp_path))
    try:
        for line in TYPED.strip().splitlines():
            read_until(terminal, b">>> ", b"... ")
            os.write(terminal, line.encode() + b"\n")
        shown = read_until(terminal, b"it is 2.0\r\n>>> ", b"Error")
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    assert b"it is 2.0" in shown, shown.decode()


def read_until(terminal, *ends):
    """Read what is shown, until it ends in one of these; not for ever."""
    shown = b""
    while not shown.endswith(ends):
        ready, _, _ = select.select([terminal], [], [], 100)
        assert ready, shown.decode()
        shown += os.read(terminal, 4096)
    return shown


def settings(cache):
    own = {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(cache)}
    return {**os.environ, **own, "TERM": "dumb", "PYTHON_BASIC_REPL": "1"}
