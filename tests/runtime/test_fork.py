"""A child that is forked while another thread of its parent holds locks."""

import os
import signal
import threading
from contextlib import ExitStack

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.locks import Lock
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


def test_a_lock_is_free_in_the_child():
    lock, is_held, is_done = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            is_done.wait()

    def take():
        with lock, lock:
            return True

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    assert succeeds_in_child(take)
    is_done.set()
    thread.join()
    assert take()


def test_the_thread_that_forks_gives_back_what_it_held():
    with ExitStack() as held:
        held.enter_context(Lock())
        assert succeeds_in_child(lambda: held.close() is None)


@tw.jit
def twice(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(x_ptr + tl.arange(0, N), 2 * x)


def launched():
    x = np.ones(8, np.float32)
    twice[(1,)](x, N=8)
    return (x == 2).all()


def test_a_kernel_that_another_thread_compiles_is_compiled_in_the_child(monkeypatch):
    is_compiling, is_done = threading.Event(), threading.Event()

    def wait(**_):
        is_compiling.set()
        is_done.wait()

    def forget_hook_and_launch():
        monkeypatch.setattr(hooks, "jit_cache_hook", None)
        return launched()

    monkeypatch.setattr(hooks, "jit_cache_hook", wait)
    thread = threading.Thread(target=launched)
    thread.start()
    is_compiling.wait()
    assert succeeds_in_child(forget_hook_and_launch)
    is_done.set()
    thread.join()
    assert launched()
