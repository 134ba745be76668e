"""Aggregates: classes of values that kernels make, hand around, and take apart again."""

import importlib.util

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError


@tw.constexpr_function
def doubled(n):
    return 2 * n


@tw.aggregate
class Interval:
    low: tl.tensor
    high: tl.tensor
    scale: tl.constexpr = 1

    @tw.jit
    def width(self):
        return (self.high - self.low) * self.scale

    @tw.jit
    def wider(self, by):
        return Interval(self.low - by, self.high + by, self.scale)

    @tw.constexpr_function
    def scaled(self, n):
        return self.scale * n

    def middle(self):
        return (self.low + self.high) / 2


@tw.aggregate
class Tile:
    """A tile of an array, with a constructor that computes."""

    pointers: tl.tensor
    mask: tl.tensor
    size: tl.constexpr
    bounds: Interval

    def __init__(self, base, start, n, size):
        offsets = start + tl.arange(0, size)
        self.pointers = base + offsets
        self.mask = offsets < n
        self.size = tl.constexpr(size)
        self.bounds = Interval(start, start + size)

    @tw.jit
    def load(self):
        return tl.load(self.pointers, mask=self.mask, other=0)

    @tw.jit
    def moved(self):
        return tl.aggregate_replace(self, pointers=self.pointers + self.size)


@tw.aggregate
class Named(Interval):
    kind: tl.constexpr = "closed"

    @tw.jit
    def width(self):
        return (self.high - self.low) * self.scale + (1 if self.kind == "closed" else 0)


@tw.jit
def methods(out_ptr, low, high):
    interval = Interval(low, high, 3)
    tl.store(out_ptr, interval.width())
    tl.store(out_ptr + 1, interval.wider(2).width())
    tl.store(out_ptr + 2, interval.scaled(5))
    tl.store(out_ptr + 3, interval.middle())
    tl.store(out_ptr + 4, Interval.width(interval) + Named(low, high, scale=2).width())
    tl.store(out_ptr + 5, Named(low, high, 2, "open").width())


def test_methods_and_defaults(launch):
    out = np.zeros(6, np.float32)
    launch(methods, (1,), out, 4, 10)
    assert out.tolist() == [18, 30, 15, 7, 18 + 13, 12]


@tw.jit
def in_a_loop(x_ptr, out_ptr, n, steps, SIZE: tl.constexpr):
    tile = Tile(x_ptr, tl.program_id(0) * SIZE, n, SIZE)
    total = tl.zeros((SIZE,), tl.int32)
    for i in range(steps):
        total += tile.load()
        if i % 2 == 0:
            tile = tile.moved()
    tl.store(out_ptr + tl.arange(0, SIZE), total)
    tl.store(out_ptr + SIZE, tile.bounds.width())


def test_loops_and_branches_hand_them_on(launch):
    x, out = np.arange(64, dtype=np.int32), np.zeros(17, np.int32)
    launch(in_a_loop, (1,), x, out, 64, 4, SIZE=16)
    starts = [0, 16, 16, 32]
    expected = sum(x[s : s + 16] for s in starts)
    assert out[:16].tolist() == expected.tolist()
    assert out[16] == 16


@tw.jit
def picks(x, y, flag):
    if flag > 0:  # noqa: SIM108 - a branch, whose arms are joined
        result = Interval(x, y)
    else:
        result = Interval(y, x)
    return result


@tw.jit
def from_a_function(out_ptr, x, y, flag):
    interval = picks(x, y, flag)
    tl.store(out_ptr, interval.low)
    tl.store(out_ptr + 1, interval.high)


@pytest.mark.parametrize("flag", [0, 2])
def test_functions_return_them(launch, flag):
    out = np.zeros(2, np.int32)
    launch(from_a_function, (1,), out, 7, 5, flag)
    assert out.tolist() == ([7, 5] if flag else [5, 7])


@tw.aggregate
class Incomplete:
    x: tl.tensor
    y: tl.tensor

    def __init__(self, x):
        self.x = x


@tw.aggregate
class Unexpected:
    x: tl.tensor

    def __init__(self, x):
        self.x = x
        self.z = x


@tw.jit
def mistaken(x_ptr, WHAT: tl.constexpr):
    x = tl.load(x_ptr)
    interval = Interval(x, x)
    if WHAT == "constant":
        Interval(x, x, x)
    elif WHAT == "missing":
        Interval(x)
    elif WHAT == "incomplete":
        Incomplete(x)
    elif WHAT == "unexpected":
        Unexpected(x)
    elif WHAT == "type":
        Tile.moved(tl.aggregate_replace(Tile(x_ptr, x, x, 4), bounds=x))
    elif WHAT == "replace":
        tl.aggregate_replace(interval, width=x)
    elif WHAT == "no aggregate":
        tl.aggregate_replace(x, width=x)
    else:
        interval.low = x


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("constant", "the field `scale` of `Interval` is a constexpr, got i32"),
        ("missing", "missing 1 required positional argument: 'high'"),
        ("incomplete", "the constructor of `Incomplete` leaves out the field `y`"),
        ("unexpected", "`Unexpected` has no field `z`"),
        ("type", "the field `bounds` of `Tile` is a Interval, got i32"),
        ("replace", "aggregate_replace: `Interval` has no field `width`"),
        ("no aggregate", "aggregate_replace: expected an aggregate, got i32"),
    ],
)
@pytest.mark.cpu_only
def test_mistakes(launch, what, message):
    with pytest.raises((CompileError, TypeError), match=message):
        launch(mistaken, (1,), np.zeros(4, np.int32), WHAT=what)


@pytest.mark.cpu_only
def test_fields_do_not_change(launch):
    with pytest.raises(CompileError, match="cannot be assigned"):
        launch(mistaken, (1,), np.zeros(4, np.int32), WHAT="assign")


class Plain:
    pass


class Derived(Plain):
    pass


class Compiled:
    x: tl.tensor

    @tw.jit
    def __init__(self, x):
        pass


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Derived, "its base `Plain` is none"),
        (Compiled, "the constructor of `Compiled` is a kernel function"),
    ],
)
def test_classes_that_are_refused(cls, message):
    with pytest.raises(CompileError, match=message):
        tw.aggregate(cls)


MODULE = """
import tilewright as tw
import tilewright.language as tl


@tw.aggregate
class Pair:
    x: tl.tensor
    unused: tl.constexpr = 0

    def plain(self):
        return self.x * 1

    @tw.jit
    def compiled(self):
        return self.x * 2


@tw.jit
def kernel(x_ptr):
    pair = Pair(tl.load(x_ptr))
    tl.store(x_ptr, pair.plain() + pair.compiled())
"""


def key_of(text, path):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("pairs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel.cache_key


def test_what_an_aggregate_says_is_part_of_the_key(tmp_path):
    changes = [
        ("", ""),
        ("* 1", "* 3"),
        ("* 2", "* 3"),
        ("unused: tl.constexpr", "unused: tl.tensor"),
    ]
    keys = [key_of(MODULE.replace(*c), tmp_path / f"v{i}.py") for i, c in enumerate(changes)]
    again = key_of(MODULE, tmp_path / "v0.py")
    assert again == keys[0]
    assert len(set(keys)) == len(changes)


@tw.must_use_result
@tw.jit
def pure(x):
    return x + 1


@tw.must_use_result("it changes nothing")
@tw.jit
def pure_with_a_reason(x):
    return x + 1


@tw.jit
def drops(x_ptr, WHICH: tl.constexpr):
    if WHICH:
        pure(tl.load(x_ptr))
    else:
        pure_with_a_reason(tl.load(x_ptr))


def test_results_that_must_be_used():
    x = np.zeros(1, np.int32)
    with pytest.raises(CompileError, match="the result of `pure` is not used\n"):
        drops[(1,)](x, WHICH=True)
    with pytest.raises(CompileError, match="is not used: it changes nothing"):
        drops[(1,)](x, WHICH=False)
