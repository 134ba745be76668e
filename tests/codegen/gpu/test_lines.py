"""The source lines of instructions, in the PTX and in what the emulator finds."""

import inspect
import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tilewright.emulator import EmulatorError


@tw.jit
def doubled(x):
    return x + x  # in a function


@tw.jit
def quadrupled(x):
    return doubled(doubled(x))  # a call


@tw.jit
def lines_kernel(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)  # the load
    y = quadrupled(x) * 0.5  # the outer call
    tl.store(out_ptr + i, y)  # the store


def _line(text):
    source = inspect.getsource(inspect.getmodule(_line)).splitlines()
    return next(n for n, line in enumerate(source, 1) if line.endswith(f"# {text}"))


def _ptx(**options):
    x = np.ones(256, np.float32)
    function, _ = harness.lowered(lines_kernel, [x, x], {"N": 256})
    return harness.compiled(function, harness.TARGETS["h100"], **options)


def test_instructions_name_their_line_and_the_calls_that_led_there():
    ptx = _ptx().ptx
    before = {}
    place: list[str] = []
    for line in map(str.strip, ptx.splitlines()):
        if line.startswith(".loc"):
            number = int(line.split()[2])
            place = [*place, number] if "inlined_at" in line else [number]
        elif name := re.match(
            r"(?:@\S+ )?(ld\.global|st\.global|add\.\w+\.f32|mul\.\w+\.f32)", line
        ):
            before.setdefault(name[1].split(".")[0], place)
    function, call, outer = map(_line, ("in a function", "a call", "the outer call"))
    assert before["ld"] == [_line("the load")]
    assert before["st"] == [_line("the store")]
    assert before["add"] == [outer, call, function]
    assert before["mul"] == [outer]
    assert re.search(rf'^\.file 1 ".*{__name__.rpartition(".")[2]}.py"$', ptx, re.MULTILINE)
    assert "debug" not in re.search(r"^\.target.*", ptx, re.MULTILINE)[0]


def test_the_emulator_names_the_line_of_an_access_out_of_bounds():
    kernel = _ptx()
    x, out = np.ones(256, np.float32), np.zeros(100, np.float32)
    with pytest.raises(EmulatorError, match=rf"out-of-bounds.*\n.*py:{_line('the store')}: `st"):
        harness.emulate(kernel, (1, 1, 1), [x, out])
