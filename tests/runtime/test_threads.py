"""What is done at a first launch is done once, whichever of many threads comes first."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime import gpu_kernels
from tilewright.runtime import codes, cuda, jit
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launcher_shared import OncePerProcess
from tilewright.runtime.trials import Trials

THREADS = 4


def at_once(work):
    """Return what `work()` returns in each of several threads that start together."""
    barrier = threading.Barrier(THREADS)

    def run():
        barrier.wait(10)
        return work()

    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result(30) for future in [pool.submit(run) for _ in range(THREADS)]]


def slow(function, calls):
    """`function`, which leaves other threads time to call it, too, and counts its calls."""

    def called(*args, **kwargs):
        calls.append(1)
        time.sleep(0.02)
        return function(*args, **kwargs)

    return called


def make_fill():
    @tw.jit
    def fill(x_ptr, VALUE: tl.constexpr):
        tl.store(x_ptr, VALUE)

    return fill


@pytest.fixture
def told():
    """The hooks around the loading of code that were called, by kind."""
    kinds = {"start": hooks.kernel_load_start_hook, "end": hooks.kernel_load_end_hook}
    seen = []
    for kind, chain in {**kinds, "unload": hooks.kernel_unload_hook}.items():
        chain.add(slow(lambda *_, kind=kind: seen.append(kind), []))
    yield seen
    for chain in (*kinds.values(), hooks.kernel_unload_hook):
        chain.replace()


def test_loading_and_unloading_are_told_once(told):
    gc.collect()  # of other tests
    told.clear()
    at_once(partial(make_fill()[(1,)], np.zeros(1, np.float32), 1.0))
    gc.collect()
    assert told == ["start", "end", "unload"]


def test_loading_on_a_gpu_is_told_once(told, arrays):
    code = gpu_kernels.make_add().warmup(*arrays, 128, grid=None).code
    assert len(set(at_once(lambda: code.function.address))) == 1
    assert told == ["start", "end"]


def test_a_hook_around_loading_may_ask_for_the_code(monkeypatch):
    entries = []
    monkeypatch.setattr(
        hooks.kernel_load_end_hook, "calls", [lambda code, *_: entries.append(code.entry)]
    )
    compiled = make_fill()[(1,)](np.zeros(1, np.float32), 1.0)
    assert entries == [compiled.code.entry]


def test_compiling_is_told_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    before, after, heard = [], [], []
    monkeypatch.setattr(hooks, "jit_cache_hook", slow(lambda **_: False, before))
    monkeypatch.setattr(hooks, "jit_post_compile_hook", slow(lambda **_: None, after))
    monkeypatch.setattr(hooks, "compilation_listener", slow(lambda **_: None, heard))
    kernel, x = make_fill(), np.zeros(1, np.float32)
    kernels = at_once(lambda: kernel[(1,)](x, 1.0))
    assert len(set(map(id, kernels))) == 1
    assert [len(calls) for calls in (before, after, heard)] == [1, 1, 1]


def test_each_configuration_is_tried_once():
    configs = [tw.Config({"VALUE": value}) for value in (1.0, 2.0, 3.0)]
    trials = []
    measure = slow(lambda launch, quantiles: [1.0] * 3, trials)
    kernel = tw.autotune(configs, key=[], do_bench=measure)(make_fill())
    at_once(lambda: kernel[(1,)](np.zeros(1, np.float32)))
    assert len(trials) == len(configs)


def test_the_disk_is_asked_once_for_the_times_of_earlier_tunings(monkeypatch):
    asked = []
    monkeypatch.setattr(Trials, "best_stored", slow(lambda self, configs: None, asked))
    config = tw.Config({"VALUE": 1.0})
    kernel = tw.autotune([config], key=[], default=config)(make_fill())
    at_once(lambda: kernel[(1,)](np.zeros(1, np.float32)))
    assert len(asked) == 1


def test_a_gpu_is_opened_once(monkeypatch, fake_driver):
    opened = []
    monkeypatch.setattr(cuda, "_open", slow(cuda._open, opened))
    assert len(set(map(id, at_once(lambda: cuda.device(0))))) == 1
    assert len(opened) == 1


def test_code_without_tensor_maps_is_compiled_once(monkeypatch, arrays):
    code = gpu_kernels.make_add().warmup(*arrays, 128, grid=None).code
    compiled = []
    monkeypatch.setattr(codes, "code_for", slow(codes.code_for, compiled))
    assert len(set(map(id, at_once(lambda: codes._without_tensor_maps(code))))) == 1
    assert len(compiled) == 1


def test_what_all_launchers_share_is_made_once():
    made = []
    once = OncePerProcess(slow(object, made))
    assert len(set(map(id, at_once(once)))) == 1
    assert len(made) == 1


@pytest.mark.parametrize("kind", ["launch hook", "hook of the kernel", "emulation"])
def test_nothing_is_added_unseen_while_a_launch_remembers_its_launcher(monkeypatch, kind):
    kernel, x, seen = make_fill(), np.zeros(1, np.float32), []
    adding = []

    def add():
        if kind == "launch hook":
            hooks.launch_enter_hook.add(seen.append)
        elif kind == "hook of the kernel":
            kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(args))
        else:
            emulation = tw.emulate("sm_80")
            seen.append(emulation)
            emulation.__enter__()

    note = jit.note_remembering

    def note_and_let_another_thread_add(noted):
        note(noted)
        adding.append(threading.Thread(target=add))
        adding[-1].start()
        adding[-1].join(0.1)  # it has to wait: all is over in this time if it need not

    monkeypatch.setattr(jit, "note_remembering", note_and_let_another_thread_add)
    try:
        kernel[(1,)](x, 1.0)
        monkeypatch.setattr(jit, "note_remembering", note)
        adding[0].join()
        launched = kernel[(1,)](x, 2.0), kernel[(1,)](x, 1.0)
        if kind == "emulation":
            assert all("ptx" in compiled.asm for compiled in launched)
        else:
            assert len(seen) == 2
    finally:
        hooks.launch_enter_hook.replace()
        if kind == "emulation":
            seen[0].__exit__(None, None, None)
