"""A child that is forked while another thread of its parent holds locks."""

import os
import signal
import threading
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.locks import Lock
from tilewright.runtime import jit
from tilewright.runtime.hooks import hooks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def succeeds_in_child(work):
    """Whether `work()` is true in a forked child, within half a minute."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@contextmanager
def another_thread(run):
    """While inside, another thread is in `run(pause)`, where it has called `pause()`."""
    is_there, is_done = threading.Event(), threading.Event()

    def pause():
        is_there.set()
        is_done.wait()

    thread = threading.Thread(target=run, args=[pause])
    thread.start()
    is_there.wait()
    yield
    is_done.set()
    thread.join()


def test_a_lock_is_free_in_the_child():
    lock = Lock()

    def hold(pause):
        with lock:
            pause()

    def take():
        with lock, lock:
            return True

    with another_thread(hold):
        assert succeeds_in_child(take)
    assert take()


def test_the_thread_that_forks_gives_back_what_it_held():
    with ExitStack() as held:
        held.enter_context(Lock())
        assert succeeds_in_child(lambda: held.close() is None)


@tw.jit
def twice(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(x_ptr + tl.arange(0, N), 2 * x)


def launched(kernel=twice):
    x = np.ones(8, np.float32)
    kernel[(1,)](x, N=8)
    return (x == 2).all()


def test_a_kernel_that_another_thread_compiles_is_compiled_in_the_child(monkeypatch):
    def compile_slowly(pause):
        monkeypatch.setattr(hooks, "jit_cache_hook", lambda **_: pause())
        launched()

    def forget_hook_and_launch():
        monkeypatch.setattr(hooks, "jit_cache_hook", None)
        return launched()

    with another_thread(compile_slowly):
        assert succeeds_in_child(forget_hook_and_launch)
    assert launched()


@tw.jit
def plus_one(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), 1 + tl.load(x_ptr + tl.arange(0, N)))


@tw.jit
def thrice(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), 3 * tl.load(x_ptr + tl.arange(0, N)))


def test_what_another_thread_finds_out_about_a_kernel_is_found_out_in_the_child(monkeypatch):
    """Functions have cached properties, of which Python 3.11 computes one at a time."""
    make_binder, x = jit.make_binder, np.ones(8, np.float32)

    def launch_slowly(pause):
        def make_slowly(*arguments):
            pause()
            return make_binder(*arguments)

        monkeypatch.setattr(jit, "make_binder", make_slowly)
        thrice[(1,)](x, N=8)

    def launch_another():
        monkeypatch.setattr(jit, "make_binder", make_binder)
        return launched(plus_one)

    with another_thread(launch_slowly):
        assert succeeds_in_child(launch_another)
    assert (x == 3).all()
