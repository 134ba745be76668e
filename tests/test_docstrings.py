"""The examples in the documentation of functions and classes run, and give what they show.

Those of the language are what a kernel computes: they run in eager mode, where `x_ptr` points to
the fp32 numbers 0, ..., 7. The examples of `tilewright.layout` are run by its own tests.
"""

import builtins
import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.language.eager import pointer
from tilewright.frontend.context import Eager, activate
from tilewright.frontend.function import KernelFunction
from tilewright.interpreter import Interpreter

LANGUAGE = "tilewright.language"


def examples_of(module):
    """Every documented name of a module that has examples."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    yield from (test for test in finder.find(module) if test.examples)
    for name, value in vars(module).items():
        if isinstance(value, KernelFunction) and value.fn.__module__ == module.__name__:
            found = finder.find(value.fn, f"{module.__name__}.{name}", module=module)
            yield from (test for test in found if test.examples)


def all_examples():
    for info in pkgutil.walk_packages(tilewright.__path__, "tilewright."):
        if not info.name.startswith("tilewright.layout"):
            for test in examples_of(importlib.import_module(info.name)):
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("example", list(all_examples()))
def test_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    report = []
    runner = doctest.DocTestRunner(verbose=False)
    if example.name.startswith(LANGUAGE):
        memory = np.arange(8, dtype=np.float32)
        example.globs |= {"tl": tl, "x_ptr": pointer(memory)}
        with activate(Eager(Interpreter())):
            runner.run(example, out=report.append)
    else:
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


def public_functions():
    return [
        pytest.param(name, id=name)
        for name in tl.__all__
        if callable(getattr(tl, name))
        and not name.startswith("_")
        and getattr(tl, name) is not getattr(builtins, name, None)
    ]


@pytest.mark.parametrize("name", public_functions())
def test_the_language_is_documented(name):
    value = getattr(tl, name)
    text = value.fn.__doc__ if isinstance(value, KernelFunction) else value.__doc__
    assert text, name
    assert text.split("\n\n")[0].rstrip().endswith("."), "begin with one sentence"
