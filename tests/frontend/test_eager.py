"""Eager mode: the body runs as Python, with the types and values of the compiled kernel."""

# The kernels show every construct, good style or not.
# ruff: noqa: B007, F841, RUF034, SIM222, SIM223, T100

import bdb
import sys

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import evaluated, ir_of, kernel, returned, run_eager
from tilewright.errors import CompileError
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.context import Eager, Evaluated, activate
from tilewright.frontend.eager import run_eagerly
from tilewright.frontend.tensor import Tensor
from tilewright.interpreter import Interpreter
from tilewright.ir.types import DTYPES, PointerType, TileType
from tilewright.ops.numerics import narrow

TWO = constexpr(2)


def types_of(result):
    return [str(x.value.type) if isinstance(x, Tensor) else type(x).__name__ for x in result]


def tile_of(array, element):
    return Tensor(Evaluated(TileType(element, array.shape), array))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("i1", bool), ("u8", "u1"), ("fp16", "f2"), ("bf16", "f4"), ("fp8e4b15", "f4")],
)
def test_tiles_become_arrays(name, dtype):
    element = DTYPES[name]
    ones = narrow(np.ones(3, np.float32), element) if element.is_floating() else np.ones(3)
    tile = tile_of(ones.astype(element.numpy), element)
    values = np.asarray(tile)
    assert values.dtype == dtype
    assert values.tolist() == [1, 1, 1]
    assert np.array(tile, np.float64).dtype == np.float64


def test_pointers_show_addresses():
    tile = tile_of(np.array([16, -1]), PointerType(DTYPES["fp32"]))
    assert repr(tile) == "tensor([0x10, 0xffffffffffffffff], *fp32[2])"
    assert np.asarray(tile).tolist() == [16, 2**64 - 1]
    assert str(tile_of(np.array(16), PointerType(DTYPES["fp32"]))) == "*fp32 0x10"


def test_arrays_of_numpy_leave_operators_to_tiles():
    with activate(Eager(Interpreter())):
        tile = tile_of(np.arange(3, dtype=np.int32), DTYPES["i32"])
        assert isinstance(np.int32(2) * tile, Tensor)
        with pytest.raises(TypeError, match="ufunc"):
            np.exp(tile)


def test_values_of_a_kernel_that_is_compiled_are_no_arrays():
    @kernel
    def f(x):
        x.__array__()

    with pytest.raises(CompileError, match="an array is needed at compile time"):
        ir_of(f, 3)


def test_print_shows_values(capsys):
    @kernel
    def f(n):
        x = tl.arange(0, 4) * n
        print("x =", x, "and n =", n)
        print(f"{n:03d} {x.shape}")

    run_eager(f, 3)
    assert capsys.readouterr().out == ("x = tensor([0, 3, 6, 9], i32[4]) and n = 3\n003 (4,)\n")


class Recorder(bdb.Bdb):
    """Notes where a debugger would stop, and what it would see."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self.names = []

    def user_line(self, frame):
        if frame.f_code.co_filename == __file__:
            self.lines.append(frame.f_lineno)
            self.names.append(dict(frame.f_locals))
        self.set_step()


def test_debuggers_see_the_users_lines_and_names():
    @kernel
    def f(n):
        total = 0
        for i in range(n):
            total += i
        if total > 2:
            total = -total
        return total

    recorder = Recorder()
    values = {"n": evaluated(3)}
    recorder.runcall(run_eagerly, f, values, Interpreter())
    first = f.first_line
    seen = [line - first for line in recorder.lines if line >= first]
    assert [line for i, line in enumerate(seen) if i == 0 or seen[i - 1] != line][1:] == [
        1, 2, 3, 2, 3, 2, 3, 2, 4, 5, 6,
    ]  # fmt: skip
    assert str(recorder.names[-1]["total"]) == "-3"


def test_breakpoint(monkeypatch):
    seen = []

    def hook():
        frame = sys._getframe(1)
        seen.append((frame.f_lineno, str(frame.f_locals["x"]), frame.f_code.co_filename))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    @kernel
    def f(n):
        x = n + 1
        breakpoint()
        return x

    run_eager(f, 3)
    assert seen == [(f.first_line + 2, "4", __file__)]


def test_a_debugger_sees_the_module_and_the_closure(monkeypatch):
    captured = tl.constexpr(3)
    seen = []

    def hook():
        frame = sys._getframe(1)
        seen.append(eval("pytest, captured, x", frame.f_globals, frame.f_locals))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    @kernel
    def f(n):
        x = n + captured
        breakpoint()
        return x

    run_eager(f, 3)
    run_eager(f, 4)
    assert [(module, constant.value, int(str(x))) for module, constant, x in seen] == [
        (pytest, 3, 6),
        (pytest, 3, 7),
    ]


def test_a_traceback_shows_the_kernel():
    @kernel
    def inner(x):
        return x.missing

    @kernel
    def f(x):
        y = x + 1
        return inner(y)

    with pytest.raises(AttributeError) as raised:
        run_eager(f, 3)
    lines = [(entry.path.name, entry.lineno + 1) for entry in raised.traceback]
    assert (__file__.rpartition("/")[2], f.first_line + 2) in lines
    assert lines[-1] == (__file__.rpartition("/")[2], inner.first_line + 1)


# Types: what compiling decides by looking at the code, eager mode decides alike.


def test_ints_become_int32():
    @kernel
    def f(p, n, C: tl.constexpr):
        x = tl.load(p)
        a = 3
        b: tl.constexpr = 3
        (c, d) = (3, 2.5)
        a += 1
        return x + 3, x + a, x + b, x + c, x + C, x * d, x + TWO, x + n

    x = np.array([5], np.int8)
    result = run_eager(f, x, 4, C=9)
    assert types_of(result) == ["i8", "i32", "i8", "i32", "i8", "fp32", "i8", "i32"]
    returned(f, x, 4, C=9)


def test_constants_decay_in_loops_and_branches():
    @kernel
    def f(p, n, a: tl.constexpr, b: tl.constexpr, c: tl.constexpr, d: tl.constexpr):
        x = tl.load(p)
        for i in range(n):
            a = a + 1
        if n > 100:
            b = b + 1
        while n > 100:
            c = c + 1
            n = n - 1
        if b is None:
            d = 5
        return x + a, x + b, x + c, x + d

    x = np.array([5], np.int8)
    assert types_of(run_eager(f, x, 0, a=1, b=1, c=1, d=1)) == ["i32", "i32", "i32", "i8"]
    assert returned(f, x, 0, a=1, b=1, c=1, d=1) == [6] * 4
    assert returned(f, x, 2, a=1, b=1, c=1, d=1) == [8, 6, 6, 6]


def test_constants_decay_in_results():
    @kernel
    def pick(n):
        if n > 3:
            return 1
        return 2

    @kernel
    def fold(n: tl.constexpr):
        if n > 3:
            return 1
        return 2

    @kernel
    def choose(n):
        return 1 if n > 3 else 2

    @kernel
    def f(p, n):
        x = tl.load(p)
        return x + pick(n), x + fold(2), x + choose(n), x + (1 if n > 3 else 1)

    x = np.array([5], np.int8)
    assert types_of(run_eager(f, x, 4)) == ["i32", "i8", "i32", "i32"]
    assert returned(f, x, 4) == [6, 7, 6, 6]


def test_values_that_stay():
    @kernel
    def f(n):
        nothing = None
        dtype = tl.float16
        word = "add"
        function = tl.zeros
        pair = (1, 2)
        return nothing is None, dtype, word + "!", function([pair[1]], dtype), pair, [1, 2]

    result = run_eager(f, 1)
    assert result[:3] == (True, DTYPES["fp16"], "add!")
    assert (result[3].shape, result[4:]) == ((2,), ((1, 2), (1, 2)))


def test_loop_indices():
    @kernel
    def f(n):
        a = b = c = 0.0
        for i in range(n):
            a = i
        for i in tl.range(0, 4):
            b = i
        for i in tl.static_range(2):
            c: tl.constexpr = i
        return a, b, c

    with pytest.raises(CompileError, match="`a` changes its type"):
        returned(f, 3)
    assert types_of(run_eager(f, 3)) == ["i32", "i32", "int"]


def test_logic_does_not_short_circuit_on_tensors():
    @kernel
    def called(p):
        tl.store(p, tl.load(p) + 1)
        return True

    @kernel
    def f(p, n):
        a = n > 100 and called(p)
        b = n < 100 or called(p)
        c = False and called(p)
        d = True or called(p)
        return tl.load(p), a, b, c, d

    assert returned(f, np.zeros(1, np.int32), 1) == [2, False, True, False, True]


def test_comparison_chains_evaluate_once():
    @kernel
    def counted(p):
        tl.store(p, tl.load(p) + 1)
        return tl.load(p)

    @kernel
    def f(p, n):
        inside = 0 < counted(p) < n
        return inside, tl.load(p)

    assert returned(f, np.zeros(1, np.int32), 5) == [True, 1]


def test_walrus_and_comprehensions():
    @kernel
    def f(n, t):
        total = 0
        if (m := n * 2) > 4:
            total = m
        doubled = [x * 2 for x in t if x is not None]
        return total + sum(doubled) + max(*doubled, m)

    assert returned(f, 3, (1, 2)) == [6 + 6 + 6]


def test_unpacking():
    @kernel
    def f(n):
        a, (b, [c, d]) = n, (2, (n + 1, 4))
        a, b = b, a
        return a, b, c, d

    assert returned(f, 7) == [2, 7, 8, 4]

    @kernel
    def wrong(n):
        a, b = (n, n, n)

    with pytest.raises(CompileError, match="cannot unpack 3 values into 2 names") as raised:
        run_eager(wrong, 1)
    assert raised.value.location.line == wrong.first_line + 1


def test_keyword_and_variadic_parameters():
    @kernel
    def f(*values, scale=2, **_):
        pass

    @kernel
    def g(first, /, second, *values, scale=2):
        return (first + sum(values)) * scale + second

    @kernel
    def h(n):
        return g(n, 1), g(n, second=2, scale=3), g(n, 1, 2, n)

    assert returned(h, 5) == [11, 17, 25]
    with pytest.raises(CompileError, match="must be known by name"):
        run_eager(f, 1)


def test_reductions_in_eager_mode():
    @kernel
    def add(a, b):
        return a + b

    @kernel
    def f(n):
        return tl.reduce(tl.arange(0, 8) * n, 0, add)

    assert returned(f, 3) == [84]


def test_globals_are_read_anew():
    size = constexpr(3)

    @kernel
    def f(n):
        return n + size

    assert str(run_eager(f, 1)) == "4"
    size = constexpr(5)
    assert str(run_eager(f, 1)) == "6"


def test_programs_of_a_grid():
    @kernel
    def f(out):
        pid = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
        tl.store(out + pid, pid)

    out = np.full(6, -1, np.int32)
    run_eager(f, out, grid=(3, 2, 1))
    assert out.tolist() == [0, 1, 2, 3, 4, 5]
