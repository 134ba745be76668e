"""Memory for machine code, at no time both writable and executable.

A piece of code gets pages of its own, variables behind it. On Linux, small pieces without variables
share pages: the next version of a page is written aside and then moved over the old one, in one
step, so that other threads may run the code that is already there.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from tilewright.locks import Lock

__all__ = ["place"]

# Pieces start on cache lines.
_LINE = 64

_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE
_EXECUTABLE = mmap.PROT_READ | mmap.PROT_EXEC
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2
_FAILED = ctypes.c_void_p(-1).value


def place(
    code_size: int, data_size: int, alignment: int, write: Callable[[int], bytes]
) -> tuple[int, mmap.mmap]:
    """Place code, and variables from the next page on.

    `write(base)` returns the contents, for the address `base` (aligned to `alignment`, at most a
    page). Returns `base` and what keeps the memory: it is given back when that goes. Raises
    `OSError` where the system refuses.
    """
    is_small = data_size == 0 and code_size <= mmap.PAGESIZE // 2
    if is_small and sys.platform.startswith("linux"):
        with _State.lock:
            return _place_in_shared_page(code_size, max(alignment, _LINE), write)
    code_pages = _round_up(code_size, mmap.PAGESIZE)
    memory = _map(max(code_pages + data_size, mmap.PAGESIZE), _WRITABLE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    contents = write(base)
    memory[: len(contents)] = contents
    if code_pages:
        _check(_system().mprotect(base, code_pages, _EXECUTABLE))
    return base, memory


class _Page(NamedTuple):
    """A page that has room: where it lies and how much of it is taken."""

    memory: mmap.mmap
    address: int
    used: int


class _State:
    """The page that small pieces are added to."""

    lock = Lock()
    page: _Page | None = None


def _place_in_shared_page(
    size: int, alignment: int, write: Callable[[int], bytes]
) -> tuple[int, mmap.mmap]:
    page = _State.page
    start = _round_up(page.used, alignment) if page is not None else 0
    if page is None or start + size > mmap.PAGESIZE:
        memory, start = _map(mmap.PAGESIZE, _WRITABLE), 0
        page = _Page(memory, ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0)
    contents = write(page.address + start)
    _replace_page(page.address, ctypes.string_at(page.address, start) + contents)
    _State.page = page._replace(used=start + size)
    return page.address + start, page.memory


def _replace_page(address: int, contents: bytes) -> None:
    """Give a page new contents, in one step for threads that execute it."""
    system = _system()
    aside = system.mmap(None, mmap.PAGESIZE, _WRITABLE, _PRIVATE, -1, 0)
    if aside == _FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        ctypes.memmove(aside, contents, len(contents))
        _check(system.mprotect(aside, mmap.PAGESIZE, _EXECUTABLE))
        size, how = mmap.PAGESIZE, _MREMAP_MAYMOVE | _MREMAP_FIXED
        if system.mremap(aside, size, size, how, ctypes.c_void_p(address)) != address:
            raise OSError(ctypes.get_errno(), "mremap")
    except OSError:
        system.munmap(aside, mmap.PAGESIZE)
        raise


def _map(size: int, protection: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=_PRIVATE, prot=protection)


@functools.cache
def _system() -> ctypes.CDLL:
    system = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    system.mprotect.argtypes = [address, size, number]
    system.munmap.argtypes = [address, size]
    system.mmap.argtypes = [address, size, number, number, number, ctypes.c_long]
    system.mmap.restype = address
    if hasattr(system, "mremap"):
        system.mremap.argtypes = [address, size, size, number, address]
        system.mremap.restype = address
    return system


def _check(status: int) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), "mprotect")


def _round_up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment


def _after_fork_in_child() -> None:
    # Another thread may have left the page as it was.
    _State.page = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
