"""How a kernel is called, and what it finds in memory: between generated kernels and the pool.

    void kernel(ptr arguments, i32 x, i32 y, i32 z, ptr context)
    context = { i32 grid_x, i32 grid_y, i32 grid_z, i32 thread, ptr scratch, ptr shared }
    shared  = { i64 next_program, i32 cancelled, i32 error, ptr poll, ... }

`arguments` has 8 bytes for each parameter. `scratch` belongs to the thread, is 4096-byte aligned
and lies between unmapped pages. A kernel reports a failed assertion by a compare-and-exchange of
`error` from 0 to a positive code; programs that have not started then never do. Loops without a
known end read `cancelled` and `error`, as one word, and return early where they are not 0; and
they call `void poll(ptr context)` every so often: on the launching thread it lets Python see
signals, elsewhere it does nothing.
"""

from __future__ import annotations

__all__ = [
    "CONTEXT_SCRATCH_OFFSET",
    "CONTEXT_SHARED_OFFSET",
    "POLL_INTERVAL",
    "SHARED_CANCELLED_OFFSET",
    "SHARED_ERROR_OFFSET",
    "SHARED_POLL_OFFSET",
]

# In bytes.
CONTEXT_SCRATCH_OFFSET = 16
CONTEXT_SHARED_OFFSET = 24
SHARED_CANCELLED_OFFSET = 8
SHARED_ERROR_OFFSET = 12
SHARED_POLL_OFFSET = 16

# In iterations.
POLL_INTERVAL = 1 << 20
