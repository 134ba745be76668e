"""The thread pool of the CPU target: machine code that runs the programs of a launch.

The pool is LLVM IR, compiled once in a process. Its threads are plain pthreads: they never hold
the GIL, nor touch a Python object. A launch is a *job* on the stack of the thread that launches,
which takes part in the work as thread 0. Threads claim programs in contiguous chunks from one
counter, in x-fastest order, so a program may wait for any program with a lower number. How kernels
are called is said in `tilewright.codegen.cpu.abi`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright import env
from tilewright.codegen.loading import LoadedObject
from tilewright.errors import LaunchError
from tilewright.locks import Lock
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.fingerprint import cached_object
from tilewright.runtime.host import host, load_object

if TYPE_CHECKING:
    from tilewright.codegen import llvm
    from tilewright.runtime import pool_code
else:
    llvm = Deferred("tilewright.codegen.llvm")
    pool_code = Deferred("tilewright.runtime.pool_code")

__all__ = [
    "Pool",
    "get_num_threads",
    "keep_forever",
    "pool",
    "raise_status",
    "run_packed",
    "set_num_threads",
]

_MAXIMUM_GRID = 2**31 - 1

# What a launch returns: 0, the positive code that a kernel has stored, -1 where a Python error is
# set (which ctypes raises by itself), or one of these.
_OUT_OF_MEMORY = -2
_TOO_MANY_PROGRAMS = -3


class Pool:
    """The pool of this process; use `pool()`.

    `launch_address` is the function that launchers call, with the GIL held:
    `i32 launch(ptr kernel, ptr arguments, i32 x, i32 y, i32 z, i64 scratch_bytes)`.
    """

    def __init__(self, loaded: LoadedObject) -> None:
        # The threads are in it until the very end of the process.
        keep_forever(loaded)
        self.launch_address = loaded.address("tilewright_launch")
        # PYFUNCTYPE keeps the GIL: the function gives it up, and takes it back to see signals.
        self.launch = ctypes.PYFUNCTYPE(
            ctypes.c_int32,
            *(ctypes.c_void_p, ctypes.c_void_p),
            *(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64),
        )(self.launch_address)
        self._set_threads = ctypes.PYFUNCTYPE(None, ctypes.c_int32)(
            loaded.address("tilewright_set_threads")
        )
        self._reset = ctypes.PYFUNCTYPE(None)(loaded.address("tilewright_reset"))
        ctypes.PYFUNCTYPE(None)(loaded.address("tilewright_setup"))()

    def set_threads(self, count: int) -> None:
        """Use at most `count` threads for the launches that follow."""
        self._set_threads(count)

    def forget_threads(self) -> None:
        """Start anew in the child of a fork, where the threads are gone."""
        self._reset()


def keep_forever(thing: object) -> None:
    """Keep an object until the process ends, also while Python clears its modules."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _State:
    """The one pool and the wanted number of threads."""

    lock = Lock()
    pool: Pool | None = None
    threads: int | None = None


def pool() -> Pool:
    """Return the pool of this process, made on first use.

    Raises `Unsupported` on systems other than Linux and macOS.
    """
    if _State.pool is None:
        with _State.lock:
            if _State.pool is None:
                made = Pool(_load())
                made.set_threads(get_num_threads())
                _State.pool = made
    return _State.pool


def _load() -> LoadedObject:
    machine = host()

    def make() -> bytes:
        # Optimised, it would take 100 ms instead of 10 and launch no faster.
        return llvm.compile_to_object(pool_code.module_text(machine), host=machine, level=0)

    return load_object(cached_object(f"pool;{machine.fingerprint}", make))


def set_num_threads(count: int) -> None:
    """Set how many threads a launch may use, the calling one included.

    Raises `ValueError` if `count` is less than 1.
    """
    if count < 1:
        raise ValueError(f"a launch needs at least one thread, not {count}")
    with _State.lock:
        _State.threads = count
        if _State.pool is not None:
            _State.pool.set_threads(count)


def get_num_threads() -> int:
    """Return how many threads a launch may use: by default, one for each usable core."""
    return _State.threads or env.number_of_threads() or host().cores


def run_packed(
    kernel_address: int,
    arguments: bytes | bytearray | ctypes.Array[ctypes.c_char],
    grid: tuple[int, int, int],
    scratch_bytes: int = 0,
    *,
    on_error: Callable[[int], object],
) -> None:
    """Run a kernel on a packed argument block: 8 bytes for each parameter.

    `on_error` is called with the code of a failed `device_assert`, and raises. Also raises
    `LaunchError` for a grid that is out of range, `MemoryError`, and whatever a signal handler
    raises (`KeyboardInterrupt`).
    """
    if not all(0 <= size <= _MAXIMUM_GRID for size in grid):
        raise LaunchError(
            f"the grid {grid} is out of range: each axis has 0 to 2**31 - 1 programs",
            hint="use larger blocks, or more axes",
        )
    # A copy, since `arguments` may be unaligned, or change while the GIL is released.
    block = (ctypes.c_int64 * (len(arguments) // 8 + 1))()
    ctypes.memmove(block, bytes(arguments), len(arguments))
    status = pool().launch(kernel_address, block, *grid, scratch_bytes)
    if status != 0:
        raise_status(status, on_error)


def raise_status(status: int, on_error: Callable[[int], object]) -> None:
    """Raise the error that a launch's status stands for."""
    if status == _OUT_OF_MEMORY:
        raise MemoryError("no memory for the scratch space of a kernel")
    if status == _TOO_MANY_PROGRAMS:
        raise LaunchError("the grid has 2**63 programs or more", hint="use larger blocks")
    on_error(status)


def _after_fork_in_child() -> None:
    if _State.pool is not None:
        _State.pool.forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
