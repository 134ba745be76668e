"""Public reports about caches, autotuning and compiling (triton-lang/triton, by number)."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError, LaunchError, jit

ROOT = Path(__file__).resolve().parent.parent.parent


def run_script(path, cache, *arguments, **environment):
    settings = {k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT_")}
    settings |= {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(cache), **environment}
    return subprocess.run(
        [sys.executable, str(path), *map(str, arguments)],
        env=settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# What belongs to the key of the cache.

SCRIPT = """
import sys
import numpy as np
import tilewright as tw, tilewright.language as tl
from tilewright.runtime import build

FACTOR = tl.constexpr(2)

@tw.jit
def doubled(x):
    return x * 2

@tw.jit
def tripled(x):
    return x * 3

CHOSEN = doubled

@tw.jit
def helper(x):
    return CHOSEN(x) + FACTOR

@tw.jit
def kernel(x_ptr, HELPER: tl.constexpr):
    tl.store(x_ptr, HELPER(tl.load(x_ptr)))

def refuse(*args, **named):
    raise SystemExit("compiled again")

if "must-hit" in sys.argv:
    build.compile_kernel = refuse
x = np.ones(1, np.float32)
kernel[(1,)](x, HELPER=helper)
print(int(x[0]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["0", "1"])
def test_7322_4051_a_changed_global_or_helper_is_seen(tmp_path, executor):
    script, cache = tmp_path / "kernels.py", tmp_path / "cache"

    def run(text, *arguments):
        script.write_text(text, encoding="utf-8")
        done = run_script(script, cache, *arguments, TILEWRIGHT_INTERPRET=executor)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(done.stdout)

    assert run(SCRIPT) == 4
    assert run(SCRIPT, "must-hit") == 4
    assert run(SCRIPT.replace("constexpr(2)", "constexpr(9)")) == 11
    assert run(SCRIPT.replace("x * 2", "x * 7")) == 9
    assert run(SCRIPT.replace("CHOSEN = doubled", "CHOSEN = tripled")) == 5
    # What the kernel does not depend on changes nothing: all these are still there.
    assert run(SCRIPT + "\n# a comment\nUNRELATED = 5\n", "must-hit") == 4
    assert run(SCRIPT.replace("constexpr(2)", "constexpr(9)"), "must-hit") == 11


SIZE = tl.constexpr(4)


@jit
def reads_a_global(x_ptr):
    tl.store(x_ptr + tl.arange(0, SIZE), SIZE)


def test_7322_a_global_changed_in_the_process_is_an_error(launch, monkeypatch):
    x = np.zeros(4, np.int32)
    launch(reads_a_global, (1,), x)
    monkeypatch.setitem(globals(), "SIZE", tl.constexpr(2))
    with pytest.raises(CompileError, match=r"global variable `SIZE` .* has changed"):
        launch(reads_a_global, (1,), x)
    monkeypatch.undo()
    launch(reads_a_global, (1,), x)


FACTOR = 2.0


@jit
def scaled(x):
    return x * FACTOR


@jit
def calls_what_reads_a_global(x_ptr):
    tl.store(x_ptr + tl.arange(0, 4), scaled(tl.load(x_ptr + tl.arange(0, 4))))


def test_a_global_may_change_after_an_error(launch, monkeypatch):
    x = np.ones(4, np.float32)
    with pytest.raises(CompileError, match=r"FACTOR"):
        launch(calls_what_reads_a_global, (1,), x)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3.0))
    launch(calls_what_reads_a_global, (1,), x)
    assert (x == 3).all()
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(4.0))
    with pytest.raises(CompileError, match=r"global variable `FACTOR` .* has changed"):
        launch(calls_what_reads_a_global, (1,), x)
    calls_what_reads_a_global.forget_compiled()
    scaled.forget_compiled()


WORKER = """
import errno, os, random, sys
import numpy as np
import tilewright as tw, tilewright.language as tl

@tw.jit
def kernel(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), tl.arange(0, N) * N)

rename, removed, dice = os.replace, os.rmdir, random.Random(int(sys.argv[1]))

def unreliable(call):
    def attempt(*args, **named):
        code = dice.choice([0, 0, 0, errno.EBUSY, errno.ENOENT])
        if code:
            raise OSError(code, os.strerror(code))
        return call(*args, **named)
    return attempt

os.replace, os.rename, os.rmdir = unreliable(rename), unreliable(os.rename), unreliable(removed)
for n in range(2, 10):
    x = np.zeros(n, np.int64)
    kernel[(1,)](x, N=n)
    assert x.tolist() == [i * n for i in range(n)], x
"""


@pytest.mark.slow
def test_2688_11512_many_processes_and_an_unreliable_directory(tmp_path):
    script, cache = tmp_path / "worker.py", tmp_path / "cache"
    script.write_text(WORKER, encoding="utf-8")
    settings = os.environ | {"PYTHONPATH": str(ROOT), "TILEWRIGHT_CACHE_DIR": str(cache)}
    command = [sys.executable, "-W", "error", str(script)]
    workers = [
        subprocess.Popen([*command, str(i)], env=settings, stderr=subprocess.PIPE, text=True)
        for i in range(8)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, errors
    assert not [path for path in cache.iterdir() if path.suffix == ".tmp"]
    # Whatever was kept is whole: a last process, on a directory that works, agrees.
    done = run_script(script, cache, 100)
    assert done.returncode == 0, done.stderr


# Autotuning.


def make_tuned(configs, *, interpreted, **settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_INTERPRET", str(int(interpreted)))
        return tw.autotune(configs, key=[], **settings)(jit(add_one.fn))


@jit
def add_one(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask) + 1, mask)


@jit
def add_to_half(x_ptr, n, HALF: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = (offsets < n) & (offsets // (BLOCK // 2) == HALF)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask) + 1, mask)


BLOCKS = [tw.Config({"BLOCK": size}) for size in (64, 128)]


@pytest.mark.parametrize("interpreted", [False, True])
def test_6547_tuning_a_kernel_in_place(interpreted):
    kernel = make_tuned(BLOCKS, interpreted=interpreted)
    x = np.arange(200, dtype=np.float32)
    for count in (1, 2):
        kernel[lambda meta: (tw.cdiv(200, meta["BLOCK"]),)](x, 200)
        np.testing.assert_array_equal(x, np.arange(200) + count)


def test_9230_what_configurations_write_is_not_mixed():
    configs = [tw.Config({"HALF": half}) for half in (0, 1)]
    kernel = tw.autotune(configs, key=[])(jit(add_to_half.fn))
    x = np.zeros(64, np.float32)
    kernel[(1,)](x, 64, BLOCK=64)
    halves = x.reshape(2, 32)
    assert sorted([halves[0].tolist(), halves[1].tolist()]) == [[0] * 32, [1] * 32]


@pytest.mark.parametrize("interpreted", [False, True])
def test_7181_what_is_reset_for_tuning_is_reset_for_the_launch(interpreted):
    kernel = make_tuned(BLOCKS, interpreted=interpreted, reset_to_zero=["x_ptr"])
    x = np.full(200, 5, np.float32)
    kernel[lambda meta: (tw.cdiv(200, meta["BLOCK"]),)](x, 200)
    assert (x == 1).all()


# Crashes that are exceptions here.


@jit
def promises(x_ptr, N: tl.constexpr, RUN: tl.constexpr):
    offsets = tl.max_contiguous(tl.arange(0, N), RUN)
    tl.store(x_ptr + offsets, offsets)


def test_10909_a_senseless_promise(launch):
    with pytest.raises(CompileError, match="max_contiguous") as raised:
        launch(promises, (1,), np.zeros(8, np.int32), N=8, RUN=-7)
    assert raised.value.location.line == promises.first_line + 1


@jit
def ramp(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), tl.arange(0, N))


def test_2858_a_range_above_two_to_the_20(launch):
    size = 2**20
    x = np.zeros(size + 1, np.int32)
    launch(ramp, (1,), x, N=size)
    np.testing.assert_array_equal(x[:-1], np.arange(size))
    with pytest.raises(CompileError, match="has 1048577 elements, the limit is") as raised:
        launch(ramp, (1,), x, N=size + 1)
    assert raised.value.location.line == ramp.first_line + 1
    assert "loop" in raised.value.hint


EXECUTED = """
def made(x_ptr):
    tl.store(x_ptr, 7)
"""


def test_5386_a_function_made_by_exec(launch):
    namespace = {"tl": tl}
    exec(EXECUTED, namespace)
    x = np.zeros(1, np.int32)
    launch(jit(namespace["made"]), (1,), x)
    assert x[0] == 7


def test_5386_a_text_that_is_nowhere_kept(launch):
    namespace = {"tl": tl}
    exec(EXECUTED.replace("7", "8"), namespace)
    x = np.zeros(1, np.int32)
    with pytest.raises(CompileError, match="source of `made` is not available") as raised:
        launch(jit(namespace["made"]), (1,), x)
    assert "source=" in raised.value.hint
    launch(jit(source=EXECUTED.replace("7", "8"))(namespace["made"]), (1,), x)
    assert x[0] == 8


@jit
def must_be_positive(x):
    tl.device_assert(x > 0, "must be positive")
    return x


@jit(debug=True)
def checked(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(x_ptr + tl.arange(0, N), must_be_positive(x) * 2)


def test_1448_1704_assertions_in_helpers(launch):
    launch(checked, (1,), np.ones(8, np.int32), N=8)
    with pytest.raises(LaunchError, match="must be positive") as raised:
        launch(checked, (1,), np.int32([1, 2, 3, 0]), N=4)
    assert raised.value.location.line == must_be_positive.first_line + 1
    x = np.ones(8, np.int32)
    launch(checked, (1,), x, N=8)  # the next launch is a new start
    assert (x == 2).all()


# Time and number of compilations.


@jit
def wide_rows(x_ptr, y_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    offsets = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, x - tl.sum(x, 1)[:, None])


def test_8908_a_large_tile_compiles_in_a_bounded_time(launch):
    x = np.random.default_rng(0).integers(-9, 9, (4, 65536)).astype(np.float32)
    y = np.zeros_like(x)
    started = time.process_time()
    launch(wide_rows, (1,), x, y, ROWS=4, COLUMNS=65536)
    assert time.process_time() - started < 5
    np.testing.assert_array_equal(y, x - x.sum(1, keepdims=True))


@jit
def column(x_ptr, out_ptr, stride, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, N), tl.load(x_ptr + tl.arange(0, N) * stride))


def test_10872_strides_are_not_compiled_in():
    x = np.arange(4000, dtype=np.float32)
    out = np.zeros(8, np.float32)
    kernels = {column[(1,)](x, out, stride, N=8).hash for stride in (32, 64, 320)}
    assert len(kernels) == 1  # 16 divides them all
    kernels |= {column[(1,)](x, out, stride, N=8).hash for stride in (3, 5, 7, 100)}
    assert len(kernels) == 2
    assert out.tolist() == [100.0 * i for i in range(8)]
