"""The thread pool: every program runs once, in an order without deadlock, and can be stopped."""

import gc
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.handwritten_kernels import load_kernels
from tilewright import env
from tilewright.codegen.cpu import abi
from tilewright.codegen.llvm import host
from tilewright.errors import LaunchError, Unsupported
from tilewright.runtime import pool as pool_module
from tilewright.runtime import pool_code
from tilewright.runtime.pool import get_num_threads, run_packed, set_num_threads

HERE = Path(__file__).parent
fork_warning = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def kernels():
    return load_kernels()


def test_the_pool_and_generated_kernels_agree_on_the_fields():
    def offsets(struct):
        offset = 0
        for field in pool_code._FIELDS[struct].split(", "):
            name, kind = field.split()
            size = 4 if kind == "i32" else 8
            offset += -offset % size
            yield name, offset
            offset += size

    context, shared = dict(offsets("context")), dict(offsets("job"))
    assert context["scratch"] == abi.CONTEXT_SCRATCH_OFFSET
    assert context["job"] == abi.CONTEXT_SHARED_OFFSET
    assert shared["cancelled"] == abi.SHARED_CANCELLED_OFFSET
    assert shared["error"] == abi.SHARED_ERROR_OFFSET == abi.SHARED_CANCELLED_OFFSET + 4
    assert shared["poll"] == abi.SHARED_POLL_OFFSET


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


class AssertionOfKernelError(Exception):
    """What `on_error` raises here."""


def fail(code):
    raise AssertionOfKernelError(code)


def run(kernels, name, grid, array, number=0, scratch_bytes=0):
    arguments = struct.pack("<qq", array.ctypes.data, number)
    run_packed(kernels.address(name), arguments, grid, scratch_bytes, on_error=fail)


@pytest.mark.parametrize(
    "grid", [(1, 1, 1), (2, 1, 1), (7, 1, 1), (1, 5, 1), (1, 1, 9), (31, 7, 3), (5000, 1, 2)]
)
def test_every_program_runs_once(kernels, threads, grid):
    visits = np.zeros(np.prod(grid), np.int64)
    for count in range(1, 4):
        run(kernels, "visit", grid, visits)
        assert (visits == count).all()


@pytest.mark.parametrize("grid", [(0, 1, 1), (3, 0, 1), (3, 1, 0)])
def test_an_empty_grid_runs_nothing(kernels, threads, grid):
    visits = np.zeros(3, np.int64)
    run(kernels, "visit", grid, visits)
    assert not visits.any()


def test_grids_out_of_range_are_refused(kernels):
    nothing = np.zeros(1, np.int64)
    for grid in [(-1, 1, 1), (1, 2**31, 1)]:
        with pytest.raises(LaunchError, match="out of range"):
            run(kernels, "empty", grid, nothing)
    with pytest.raises(LaunchError, match=r"2\*\*63"):
        run(kernels, "empty", (2**31 - 1, 2**31 - 1, 2**31 - 1), nothing)


def test_a_program_may_wait_for_a_lower_one(kernels, threads):
    locks = np.zeros(800, np.int32)
    run(kernels, "handshake", (1600, 1, 1), locks, number=800)
    assert (locks == 2).all()


def test_as_many_programs_as_threads_run_at_the_same_time(kernels, threads):
    for _ in range(20):
        here = np.zeros(1, np.int64)
        run(kernels, "meet", (threads, 1, 1), here, number=threads)
        assert here[0] == threads


@pytest.mark.parametrize("scratch_bytes", [1, 4096, 100_000, 3_000_000, 64])
def test_scratch_is_aligned_and_large_enough(kernels, threads, scratch_bytes):
    aligned = np.zeros(40, np.int64)
    run(kernels, "fill_scratch", (40, 1, 1), aligned, scratch_bytes, scratch_bytes)
    assert aligned.all()


def test_scratch_that_does_not_exist_is_a_memory_error(kernels, threads):
    for programs in (1, 40):
        with pytest.raises(MemoryError, match="scratch"):
            run(kernels, "empty", (programs, 1, 1), np.zeros(1, np.int64), scratch_bytes=2**62)
    run(kernels, "empty", (40, 1, 1), np.zeros(1, np.int64), scratch_bytes=64)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals a segmentation fault")
@fork_warning
def test_scratch_ends_at_an_unmapped_page(kernels):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        run(kernels, "fill_scratch", (1, 1, 1), np.zeros(1, np.int64), 65537, 65536)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGSEGV


def test_a_failed_assertion_stops_the_launch_and_gives_its_code(kernels, threads):
    count = np.zeros(1, np.int64)
    with pytest.raises(AssertionOfKernelError, match="7"):
        run(kernels, "fail", (100_000, 1, 1), count, number=5)
    assert 6 <= count[0] < 100_000
    run(kernels, "fail", (10, 1, 1), count, number=11)


def test_threads_that_launch_at_once_do_not_disturb_each_other(kernels, threads):
    visits = np.zeros((4, 3000), np.int64)

    def launch_many(row):
        for _ in range(50):
            run(kernels, "visit", (3000, 1, 1), row)
            run(kernels, "visit", (1, 1, 1), row)

    launching = [threading.Thread(target=launch_many, args=(row,)) for row in visits]
    for thread in launching:
        thread.start()
    for thread in launching:
        thread.join()
    assert (visits[:, 1:] == 50).all()
    assert (visits[:, 0] == 100).all()


def _visit_in_child(kernels, answer):
    visits = np.zeros(1000, np.int64)
    run(kernels, "visit", (1000, 1, 1), visits)
    answer.put(int(visits.sum()))


@fork_warning
def test_a_forked_child_has_a_pool_of_its_own(kernels, threads):
    visits = np.zeros(1000, np.int64)
    run(kernels, "visit", (1000, 1, 1), visits)
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    children = [context.Process(target=_visit_in_child, args=(kernels, answer)) for _ in range(3)]
    for child in children:
        child.start()
    assert [answer.get() for _ in children] == [1000] * 3
    for child in children:
        child.join(10)
        assert child.exitcode == 0
    run(kernels, "visit", (1000, 1, 1), visits)
    assert (visits == 2).all()


INTERRUPTED = """
    import sys
    sys.path.insert(0, {here!r})
    import struct, threading
    from handwritten_kernels import load_kernels
    from tilewright.runtime.pool import run_packed, set_num_threads
    set_num_threads({threads})
    kernels = load_kernels()
    run_packed(kernels.address("empty"), b"", (100, 1, 1), on_error=print)
    print("ready", flush=True)
    try:
        run_packed(kernels.address({kernel!r}), b"", {grid}, on_error=print)
    except KeyboardInterrupt:
        print("interrupted")
    run_packed(kernels.address("empty"), b"", (100, 1, 1), on_error=print)
    print("alive")
"""


@pytest.mark.parametrize(
    ("kernel", "grid", "threads"),
    [("forever", (1, 1, 1), 2), ("forever", (4, 1, 1), 2), ("nap", (10**6, 1, 1), 3)],
)
def test_control_c_ends_a_launch(kernel, grid, threads):
    script = INTERRUPTED.format(here=str(HERE), kernel=kernel, grid=grid, threads=threads)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": str(HERE.parent.parent)},
    ) as process:
        assert process.stdout.readline() == "ready\n"
        # The script needs a moment to get from its print into the launch.
        threading.Event().wait(0.2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    assert output == "interrupted\nalive\n"
    assert process.returncode == 0


def test_a_signal_handler_may_launch(kernels, threads):
    visits = np.zeros(100, np.int64)

    def handler(*_):
        run(kernels, "visit", (100, 1, 1), visits)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            run(kernels, "nap", (10**6, 1, 1), visits)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (visits == 1).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_launches_do_not_leak(kernels, threads):
    def resident_kilobytes():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    visits = np.zeros(16, np.int64)

    def launch(count):
        for _ in range(count):
            run(kernels, "visit", (16, 1, 1), visits, scratch_bytes=4096)

    launch(2000)
    before = resident_kilobytes()
    launch(10_000)
    assert resident_kilobytes() - before < 1000


def test_the_number_of_threads(monkeypatch):
    before = get_num_threads()
    with pytest.raises(ValueError, match="at least one"):
        set_num_threads(0)
    set_num_threads(3)
    assert get_num_threads() == 3
    set_num_threads(before)
    monkeypatch.setattr(pool_module._State, "threads", None)
    monkeypatch.setattr(env, "number_of_threads", lambda: 11)
    assert get_num_threads() == 11
    monkeypatch.setattr(env, "number_of_threads", lambda: None)
    assert get_num_threads() == host().cores


def test_other_systems_are_unsupported(monkeypatch):
    monkeypatch.setattr(pool_code.sys, "platform", "win32")
    with pytest.raises(Unsupported, match="win32"):
        pool_code.module_text(host())


def test_the_machine_code_comes_from_the_disk_cache(monkeypatch):
    asked = []

    def cache(key, make):
        asked.append(key)
        return make()

    monkeypatch.setattr(pool_module, "cached_object", cache)
    assert pool_module._load().address("tilewright_launch")
    assert host().fingerprint in asked[0]
