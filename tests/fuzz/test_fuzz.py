"""Random kernels: all executors leave the same bits in memory, GPUs being emulated.

`python -m tests.fuzz --count N --seed S` runs any number of them, with `--gpu` on a real GPU.
"""

import ast
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.executors import EMULATED, HostArray
from tests.fuzz import device
from tests.fuzz.arena import Arena
from tests.fuzz.differential import CPU, GPU, check
from tests.fuzz.generate import generate
from tests.fuzz.launch import Launch, load_module
from tests.fuzz.rewrites import REWRITES, function_of, launch_table
from tests.fuzz.shrink import shrink
from tests.fuzz.variants import vary
from tests.fuzz.workers import ROOT, Worker
from tilewright.errors import TilewrightError
from tilewright.runtime import cuda

CHUNK = 10


@pytest.fixture(scope="module")
def worker():
    with Worker(on=[CPU]) as process:
        yield process


@pytest.fixture(scope="module")
def emulating_worker():
    with Worker(on=EMULATED) as process:
        yield process


def check_seeds(worker, first, count):
    for seed in range(first, first + count):
        source, outcome = worker.check_seed(seed)
        if outcome.is_fault:
            if not outcome.kind.startswith("variant"):
                source = shrink(
                    source,
                    lambda text, kind=outcome.kind: worker.check(text).kind == kind,
                    attempts=60,
                )
            pytest.fail(f"seed {seed}: {outcome.kind}\n{outcome.detail}\n\n{source}", pytrace=False)


@pytest.mark.parametrize("chunk", range(3))
def test_executors_agree(worker, chunk):
    check_seeds(worker, chunk * CHUNK, CHUNK)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(3, 40))
def test_executors_agree_on_more(worker, chunk):
    check_seeds(worker, chunk * CHUNK, CHUNK)


def test_emulated_gpus_agree(emulating_worker):
    check_seeds(emulating_worker, 0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(41))
def test_emulated_gpus_agree_on_more(emulating_worker, chunk):
    check_seeds(emulating_worker, chunk * CHUNK, CHUNK)


@pytest.mark.gpu
def test_a_gpu_agrees():
    try:
        cuda.device(0)
    except TilewrightError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "tests.fuzz", "--gpu", "--count", "500", "--no-shrink"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_seed_gives_one_kernel():
    assert generate(5) == generate(5)
    assert generate(5) != generate(6)


SIMPLE = """
import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(x, y1, n):
    pid = tl.program_id(0)
    a = tl.load(x + tl.arange(0, 8))
    b = tl.sum(a, 0)
    c = a * 2
    if n > 3:
        c = c + 1
    tl.store(y1 + pid * 8 + tl.arange(0, 8), {stored})


GRID = (2, 1, 1)
ARRAYS = {{"x": ("{dtype}", 8, "{data}"), "y1": ("fp32", 16, "zeros")}}
SCALARS = {{"n": 5}}
TOLERANCES = {{}}
"""


def test_what_agrees_agrees():
    assert check(SIMPLE.format(stored="c + b", dtype="i32", data="whole")).kind == "agrees"


def test_a_race_is_no_valid_kernel():
    racing = SIMPLE.format(stored="c + b", dtype="i32", data="whole").replace("pid * 8", "pid * 7")
    outcome = check(racing)
    assert outcome.kind == "invalid"
    assert "a race between programs" in outcome.detail


def test_an_access_outside_is_no_valid_kernel():
    outside = SIMPLE.format(stored="c + b", dtype="i32", data="whole").replace("x + ", "x + 1 + ")
    outcome = check(outside)
    assert outcome.kind == "invalid"
    assert "out-of-bounds read" in outcome.detail


def test_variants_are_other_kernels_with_the_same_results():
    source = SIMPLE.format(stored="c + b", dtype="i32", data="whole")
    for seed in range(5):
        varied = vary(source, seed)
        assert "never < 0" in varied
        assert check(varied, like=source).kind == "agrees"
    other = source.replace("c = a * 2", "c = a * 3")
    assert check(varied, like=other).kind == "interpreter differs"


LOOPS = """
from typing import NamedTuple

import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(y1, n, m, COUNT: tl.constexpr):
    pid = tl.program_id(0)
    a = tl.arange(0, 8) + pid
    for i in range(m, n, 2):
        a = a * i + tl.sum(a, 0)
    while tl.condition(n < COUNT, disable_licm=True):
        n = n + 1
        a ^= n
    if n > 3:
        a += 1
    inner = lambda b: b + a
    c = inner(pid)
    tl.store(y1 + pid * 8 + tl.arange(0, 8), c)


GRID = (2, 1, 1)
ARRAYS = {"y1": ("i32", 16, "zeros")}
SCALARS = {"n": 9, "m": 2, "COUNT": 12}
TOLERANCES = {}
"""


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda f: f.__name__)
def test_each_rewrite_changes_the_text_and_keeps_the_results(rewrite):
    module = ast.parse(LOOPS)
    rewrite(module, random.Random(1))
    launch_table(module, "SCALARS").keys.append(ast.Constant("never"))
    launch_table(module, "SCALARS").values.append(ast.Constant(5))
    function_of(module).args.args.append(ast.arg("never"))
    text = ast.unparse(ast.fix_missing_locations(module))
    assert text.replace(", never", "").replace(", 'never': 5", "") != ast.unparse(ast.parse(LOOPS))
    assert check(text, on=[CPU], like=LOOPS).kind == "agrees"


def test_calls_of_inner_functions_stay_behind_what_these_read():
    for seed in range(20):
        varied = vary(LOOPS, seed)
        assert check(varied, on=[], like=LOOPS).kind == "agrees", varied


def test_shrinking_keeps_what_fails():
    source = SIMPLE.format(stored="tl.sort(c) + b", dtype="i32", data="whole")
    small = shrink(source, lambda text: "tl.sort" in text and "tl.store" in text)
    assert "tl.sort" in small
    assert "tl.load" not in small
    assert "if n" not in small
    ast.parse(small)


def test_a_worker_survives_what_ends_its_process():
    deadly = "import os\nos.kill(os.getpid(), 9)\n"
    with Worker() as worker:
        assert worker.check(deadly).kind == "ends the process (-9)"
        assert worker.check(SIMPLE.format(stored="c", dtype="i32", data="small")).kind == "agrees"


@pytest.mark.parametrize(("place", "kind"), [("pid * 8", "agrees"), ("pid * 8 - 1", "GPU differs")])
def test_arrays_on_a_gpu_are_copies_of_the_arena(monkeypatch, place, kind):
    monkeypatch.setattr(device, "DeviceArray", HostArray)
    source = SIMPLE.format(stored="c + b", dtype="i32", data="whole")
    launch_on_gpu = Launch.run_on_gpu

    def run(launch, arena):
        with monkeypatch.context() as patch:
            patch.setattr(launch, "kernel", other.kernel)
            launch_on_gpu(launch, arena)

    with tempfile.TemporaryDirectory() as folder:
        other = load_module(source.replace("pid * 8", place), Path(folder))
        monkeypatch.setattr(Launch, "run_on_gpu", run)
        assert check(source, on=[GPU]).kind == kind


def test_what_is_written_beside_arrays_is_found():
    arena = Arena({"x": np.zeros(5, np.int32), "y": np.zeros(3, np.int8)})
    image = arena.image()
    arena.take(image)
    assert arena.overrun() == ""
    image[arena.start_of("y") + (-1 if arena.start_of("y") % 4096 else 3)] = 0
    arena.take(image)
    assert arena.overrun() == "y"
    image[:] = arena.image()
    image[0] = 0
    arena.take(image)
    assert arena.overrun()
