"""The part of the pool's LLVM IR that runs programs on one thread: its scratch, and its claims.

The shorthands `get`, `set` and `field`, and the `$NAMES`, are expanded by `pool_code.py`.
"""

from __future__ import annotations

__all__ = ["PROGRAMS", "SCRATCH"]

# 64 KB guards: a whole number of pages on every system (ARM has pages of 4, 16 and 64 KB).
SCRATCH = """
define internal void @free_scratch(ptr %block) {
entry:
  %mapping = load ptr, ptr %block
  %empty = icmp eq ptr %mapping, null
  br i1 %empty, label %out, label %unmap
unmap:
  %bytes.p = getelementptr %scratch, ptr %block, i32 0, i32 1
  %bytes = load i64, ptr %bytes.p
  call i32 @munmap(ptr %mapping, i64 %bytes)
  br label %out
out:
  call void @free(ptr %block)
  ret void
}

; The calling thread's scratch of at least `bytes` bytes, or null where there is no memory.
define internal ptr @scratch(i64 %bytes) {
entry:
  %key = load i64, ptr @key
  %block = call ptr @pthread_getspecific(i64 %key)
  %first = icmp eq ptr %block, null
  br i1 %first, label %map, label %look
look:
  %usable.p = getelementptr %scratch, ptr %block, i32 0, i32 3
  %usable = load i64, ptr %usable.p
  %enough = icmp ule i64 %bytes, %usable
  br i1 %enough, label %reuse, label %replace
reuse:
  %base.p = getelementptr %scratch, ptr %block, i32 0, i32 2
  %base = load ptr, ptr %base.p
  ret ptr %base
replace:
  call i32 @pthread_setspecific(i64 %key, ptr null)
  call void @free_scratch(ptr %block)
  br label %map
map:
  %new = call ptr @calloc(i64 1, i64 32)
  %no.block = icmp eq ptr %new, null
  br i1 %no.block, label %fail, label %reserve
reserve:
  %up = add i64 %bytes, 65535
  %size = and i64 %up, -65536
  %mapped = add i64 %size, 131072
  %p = call ptr @mmap(ptr null, i64 %mapped, i32 0, i32 $MAP_FLAGS, i32 -1, i64 0)
  %bad = icmp eq ptr %p, inttoptr (i64 -1 to ptr)
  br i1 %bad, label %give.up, label %open
open:
  store ptr %p, ptr %new
  %mapped.p = getelementptr %scratch, ptr %new, i32 0, i32 1
  store i64 %mapped, ptr %mapped.p
  %inside = getelementptr i8, ptr %p, i64 65536
  %closed = call i32 @mprotect(ptr %inside, i64 %size, i32 3)
  %opened = icmp eq i32 %closed, 0
  br i1 %opened, label %keep, label %give.up
keep:
  %inside.p = getelementptr %scratch, ptr %new, i32 0, i32 2
  store ptr %inside, ptr %inside.p
  %size.p = getelementptr %scratch, ptr %new, i32 0, i32 3
  store i64 %size, ptr %size.p
  call i32 @pthread_setspecific(i64 %key, ptr %new)
  ret ptr %inside
give.up:
  call void @free_scratch(ptr %new)
  br label %fail
fail:
  ret ptr null
}
"""

PROGRAMS = """
; Claims and runs programs until none is left, or the job is cancelled or has failed.
define internal void @run_programs(ptr %job, i32 %index) {
entry:
  %context = alloca %context, align 64
  %bytes = get job.scratch_bytes
  %none = icmp eq i64 %bytes, 0
  br i1 %none, label %begin, label %need
need:
  %got = call ptr @scratch(i64 %bytes)
  %lacks = icmp eq ptr %got, null
  br i1 %lacks, label %no.memory, label %begin
no.memory:
  ; A worker leaves its share to the others; the launching thread gives up.
  %is.worker = icmp ne i32 %index, 0
  br i1 %is.worker, label %out, label %stop
stop:
  set job.status, -2
  %cancelled.p = field job.cancelled
  store atomic i32 1, ptr %cancelled.p release, align 4
  br label %out
begin:
  %scratch = phi ptr [ null, %entry ], [ %got, %need ]
  %gx = get job.grid_x
  %gy = get job.grid_y
  %gz = get job.grid_z
  store i32 %gx, ptr %context
  set context.grid_y, %gy
  set context.grid_z, %gz
  set context.thread, %index
  set context.scratch, %scratch
  set context.job, %job
  %total = get job.total
  %chunk = get job.chunk
  %kernel = get job.kernel
  %arguments = get job.arguments
  %flags.p = field job.cancelled
  %gx64 = zext i32 %gx to i64
  %gy64 = zext i32 %gy to i64
  br label %claim
claim:
  %start = atomicrmw add ptr %job, i64 %chunk monotonic
  %left = icmp ult i64 %start, %total
  br i1 %left, label %place, label %out
place:
  %stop.at = add i64 %start, %chunk
  %past = icmp ugt i64 %stop.at, %total
  %end = select i1 %past, i64 %total, i64 %stop.at
  %x0 = urem i64 %start, %gx64
  %rows = udiv i64 %start, %gx64
  %y0 = urem i64 %rows, %gy64
  %z0 = udiv i64 %rows, %gy64
  %x0.i = trunc i64 %x0 to i32
  %y0.i = trunc i64 %y0 to i32
  %z0.i = trunc i64 %z0 to i32
  br label %program
program:
  %i = phi i64 [ %start, %place ], [ %i.next, %advance ]
  %x = phi i32 [ %x0.i, %place ], [ %x.next, %advance ]
  %y = phi i32 [ %y0.i, %place ], [ %y.next, %advance ]
  %z = phi i32 [ %z0.i, %place ], [ %z.next, %advance ]
  ; `cancelled` and `error` are neighbours.
  %flags = load atomic i64, ptr %flags.p acquire, align 8
  %go = icmp eq i64 %flags, 0
  br i1 %go, label %run, label %out
run:
  call void %kernel(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context)
  %i.next = add i64 %i, 1
  %last = icmp eq i64 %i.next, %total
  br i1 %last, label %out, label %look
look:
  call void @poll(ptr %context)
  %ended = icmp eq i64 %i.next, %end
  br i1 %ended, label %claim, label %advance
advance:
  %x.up = add i32 %x, 1
  %x.over = icmp eq i32 %x.up, %gx
  %x.next = select i1 %x.over, i32 0, i32 %x.up
  %x.carry = zext i1 %x.over to i32
  %y.up = add i32 %y, %x.carry
  %y.over = icmp eq i32 %y.up, %gy
  %y.next = select i1 %y.over, i32 0, i32 %y.up
  %y.carry = zext i1 %y.over to i32
  %z.next = add i32 %z, %y.carry
  br label %program
out:
  ret void
}
"""
