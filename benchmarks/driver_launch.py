"""How long the driver alone takes to launch a kernel: what no launcher can go below."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tilewright.codegen import llvm
from tilewright.codegen.host import module_header
from tilewright.runtime.host import host, load_object

__all__ = ["driver_launches", "repeated"]

_REPEATED = """
define i32 @repeated(ptr %launch, ptr %function, ptr %places, i64 %count) {
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %i.next, %again ]
  %status = call i32 %launch(ptr %function, i32 1, i32 1, i32 1, i32 128, i32 1, i32 1, i32 0,
                             ptr null, ptr %places, ptr null)
  %i.next = add i64 %i, 1
  %is.fine = icmp eq i32 %status, 0
  %is.more = icmp ult i64 %i.next, %count
  %goes.on = and i1 %is.fine, %is.more
  br i1 %goes.on, label %again, label %end
end:
  ret i32 %status
}
"""


def driver_launches(kernel: Any) -> Callable[[int], None]:
    """Return a function that starts one block of a compiled kernel so many times.

    It calls `cuLaunchKernel` from machine code and passes zeros for the kernel's parameters, so the
    kernel must not use them.
    """
    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    return repeated(launch.value or 0, kernel.code.function.address, kernel.asm["ptx"])


def repeated(launch: int, function: int, ptx: str) -> Callable[[int], None]:
    """Return what calls the function at `launch` like `cuLaunchKernel`, for the entry of `ptx`."""
    count = ptx.count("\t.param ")
    values = (ctypes.c_uint64 * max(1, count))()
    first = ctypes.addressof(values)
    places = (ctypes.c_void_p * max(1, count))(*(first + 8 * i for i in range(count)))
    text = module_header(host()) + _REPEATED
    loaded = load_object(llvm.compile_to_object(text, host=host(), level=1))
    # With the GIL, as launches from Python begin.
    kind = ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    call = kind(loaded.address("repeated"))

    def run(times: int, _kept: Any = (loaded, values)) -> None:
        status = call(launch, function, ctypes.addressof(places), times)
        if status:
            raise RuntimeError(f"cuLaunchKernel answers {status}")

    return run
