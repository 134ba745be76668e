"""Tracebacks of errors: the user's frames, and all of them where something is to be found out."""

import traceback

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError, Config, InternalError, jit
from tilewright.runtime import jit as jit_module
from tilewright.runtime.readable import ReadableErrors


@jit
def inner(x_ptr):
    return tl.arange(0, 4) + tl.arange(0, 3)


@jit
def outer(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, inner(x_ptr))


tuned = tw.autotune([Config({"BLOCK": 4}), Config({"BLOCK": 8})], key=[])(outer)


def frames(kernel, **named):
    """The functions that the traceback of a failing launch leads through, below this one."""
    with pytest.raises(CompileError) as caught:
        kernel[(1,)](np.zeros(4, np.float32), **named)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    places = traceback.extract_tb(caught.value.__traceback__)
    return [place.name for place in places if place.filename == __file__], len(places)


def test_compiled_launches_show_the_launch():
    names, count = frames(outer, BLOCK=4)
    assert names == ["frames"]
    assert count == 2


def test_eager_launches_show_the_kernel_too():
    names, count = frames(outer.debug, BLOCK=4)
    assert names == ["frames", "outer", "inner"]
    assert count <= 5


def test_tuning_shows_the_launch():
    names, count = frames(tuned)
    assert names == ["frames"]
    assert count == 1


def test_debug_levels_keep_all_frames(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    with pytest.raises(CompileError) as caught:
        outer[(1,)](np.zeros(4, np.float32), BLOCK=4)
    assert len(traceback.extract_tb(caught.value.__traceback__)) > 10


def test_internal_errors_keep_all_frames(monkeypatch):
    def fail(*arguments):
        raise InternalError("ours")

    monkeypatch.setattr(jit_module, "specialize", fail)
    with pytest.raises(InternalError) as caught:
        outer[(1,)](np.zeros(4, np.float32), BLOCK=4)
    places = traceback.extract_tb(caught.value.__traceback__)
    assert [place.name for place in places[-3:]] == ["launch", "_launch", "fail"]


def test_other_exceptions_are_left_alone():
    with pytest.raises(ZeroDivisionError) as caught, ReadableErrors():
        _ = 1 // 0
    assert caught.value.__traceback__ is not None
    assert not caught.value.__suppress_context__
