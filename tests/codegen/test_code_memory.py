"""Memory for machine code: shared pages, their release, threads and forks."""

import ctypes
import gc
import mmap
import os
import sys
import threading
import weakref

import pytest

from tilewright.codegen import code_memory
from tilewright.codegen.code_memory import place
from tilewright.codegen.llvm import host

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or host().architecture != "x86_64",
    reason="the pieces of code are for x86-64, and pages are shared on Linux",
)


def returns(number, padding=0):
    """`mov eax, number; ret` for x86-64."""
    return b"\xb8" + number.to_bytes(4, "little") + b"\xc3" + b"\xcc" * padding


def put(code, data_size=0, alignment=1):
    return place(len(code), data_size, alignment, lambda base: code)


def call(base):
    return ctypes.CFUNCTYPE(ctypes.c_int32)(base)()


@pytest.fixture(autouse=True)
def fresh_page(monkeypatch):
    monkeypatch.setattr(code_memory._State, "page", None)


def test_small_pieces_share_a_page_and_keep_it():
    placed = [put(returns(i)) for i in range(40)]
    pages = {base // mmap.PAGESIZE for base, _ in placed}
    assert len(pages) == 1
    assert all(base % 64 == 0 for base, _ in placed)
    assert [call(base) for base, _ in placed] == list(range(40))
    last, page = placed[-1]
    del placed
    gc.collect()
    assert call(last) == 39
    assert len(page) == mmap.PAGESIZE


def test_a_full_page_is_followed_by_another():
    placed = [put(returns(i, padding=1500)) for i in range(7)]
    assert len({base // mmap.PAGESIZE for base, _ in placed}) == 4
    assert [call(base) for base, _ in placed] == list(range(7))


def test_a_page_goes_with_its_last_piece():
    _, first = put(returns(1))
    _, second = put(returns(2))
    assert first is second
    watched = weakref.ref(first)
    code_memory._State.page = None
    del first
    gc.collect()
    assert watched() is not None
    del second
    gc.collect()
    assert watched() is None


def test_large_pieces_and_variables_have_pages_of_their_own():
    _, small = put(returns(1))
    for code, data_size in ((returns(2, padding=10_000), 0), (returns(3), 100)):
        base, memory = put(code, data_size)
        assert memory is not small
        assert base % mmap.PAGESIZE == 0
        assert call(base) == code[1]
    variables = (ctypes.c_int8 * 100).from_address(base + mmap.PAGESIZE)
    variables[99] = 7
    assert list(variables) == [0] * 99 + [7]


def test_alignment_within_a_page():
    put(returns(1))
    assert put(returns(2), alignment=512)[0] % 512 == 0


def test_code_runs_while_more_is_placed_beside_it():
    base, page = put(returns(7))
    function = ctypes.CFUNCTYPE(ctypes.c_int32)(base)
    stop = threading.Event()
    wrong = []

    def run():
        while not stop.is_set():
            wrong.extend(value for value in (function() for _ in range(100)) if value != 7)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        placed = [put(returns(i)) for i in range(2000)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert [call(base) for base, _ in placed] == list(range(2000))
    assert page is not None


def test_a_refusal_of_the_system_is_an_error(monkeypatch):
    class NoExecution:
        def __getattr__(self, name):
            return getattr(system, name)

        def mprotect(self, *_):
            return -1

    system = code_memory._system()
    monkeypatch.setattr(code_memory, "_system", NoExecution)
    with pytest.raises(OSError, match="mprotect"):
        put(returns(1))
    with pytest.raises(OSError, match="mprotect"):
        put(returns(1, padding=5000))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_parent_and_child_do_not_share_what_they_place():
    before = put(returns(1))
    child = os.fork()
    if child == 0:
        placed = [put(returns(i)) for i in range(50)]
        good = [call(base) for base, _ in placed] == list(range(50)) and call(before[0]) == 1
        os._exit(0 if good else 1)
    placed = [put(returns(100 + i)) for i in range(50)]
    assert os.waitpid(child, 0)[1] == 0
    assert [call(base) for base, _ in placed] == list(range(100, 150))
