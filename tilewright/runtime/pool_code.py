"""The machine code of the thread pool, as LLVM IR: `pool.py` says what it does.

Reading order: a launch (`_LAUNCH`) puts a job on its stack, opens the *gate* to the workers
(`_WORKER`), which join it and run programs (`PROGRAMS`) until none is left to claim; the launching
thread then shuts the gate and waits only for the workers that have joined.
"""

from __future__ import annotations

import itertools
import re
import string
import sys

from tilewright.codegen.host import module_header
from tilewright.errors import Unsupported
from tilewright.runtime.pool_programs_code import PROGRAMS, SCRATCH
from tilewright.target import Host

__all__ = ["module_text"]


def module_text(host: Host) -> str:
    """Return the LLVM IR of the pool.

    Raises `Unsupported` on systems other than Linux and macOS.
    """
    if sys.platform.startswith("linux"):
        # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        constants = {"MAP_FLAGS": 0x4022, "MONOTONIC": 1, "SIGBUS": 7}
    elif sys.platform == "darwin":
        constants = {"MAP_FLAGS": 0x1042, "MONOTONIC": 6, "SIGBUS": 10}
    else:
        raise Unsupported(
            f"the CPU target does not run on {sys.platform!r}",
            hint="Linux and macOS have the POSIX threads it needs",
        )
    if host.architecture == "x86_64":
        pause = {"PAUSE": "@llvm.x86.sse2.pause()", "PAUSE_TYPE": "@llvm.x86.sse2.pause()"}
    else:
        pause = {"PAUSE": "@llvm.aarch64.hint(i32 1)", "PAUSE_TYPE": "@llvm.aarch64.hint(i32)"}
    text = string.Template(_STATE + _CLOCK + SCRATCH + PROGRAMS + _WORKER + _LAUNCH + _SETUP)
    gate = {"CLOSED": -(2**63), "CLOSED_WITH_ONE": -(2**63) + 1, "OPEN": 2**63 - 1}
    return module_header(host) + _expand_fields(text.substitute(constants, **pause, **gate))


# Fields by their order in memory. The start of a job is what kernels see as `shared`; `limit` is
# how many workers may join.
_FIELDS = {
    "job": (
        "next i64, cancelled i32, error i32, poll ptr, total i64, chunk i64, kernel ptr, "
        "arguments ptr, scratch_bytes i64, grid_x i32, grid_y i32, grid_z i32, limit i64, "
        "thread_state ptr, next_poll i64, status i32"
    ),
    "context": "grid_x i32, grid_y i32, grid_z i32, thread i32, scratch ptr, job ptr",
}


def _expand_fields(text: str) -> str:
    """Expand the three shorthands for fields, so that they are read and written by name.

    `%p = field job.total`, `%v = get job.total` and `set job.total, %v` (with `%job` in scope).
    """
    types, places = "", {}
    for struct, fields in _FIELDS.items():
        pairs = [field.split() for field in fields.split(", ")]
        types += f"%{struct} = type {{ {', '.join(kind for _, kind in pairs)} }}\n"
        for position, (name, kind) in enumerate(pairs):
            address = f"getelementptr %{struct}, ptr %{struct}, i32 0, i32 {position}"
            places[f"{struct}.{name}"] = (address, kind)
    numbers = itertools.count()

    def expand(match: re.Match[str]) -> str:
        result, operation, place, value = match.groups()
        address, kind = places[place]
        if operation == "field":
            return f"{result} = {address}"
        pointer = f"%field.{next(numbers)}"
        if operation == "get":
            return f"{pointer} = {address}\n  {result} = load {kind}, ptr {pointer}"
        return f"{pointer} = {address}\n  store {kind} {value}, ptr {pointer}"

    return types + _FIELD.sub(expand, text)


_FIELD = re.compile(r"(?:(%[\w.]+) = )?\b(field|get|set) (\w+\.\w+)(?:, (\S+))?$", re.MULTILINE)

_STATE = """
%time = type { i64, i64 }
; A thread's scratch: the mapping, its size, the first byte after the lower guard, usable bytes.
%scratch = type { ptr, i64, ptr, i64 }

@mutex = internal global [128 x i8] zeroinitializer, align 64
@wake = internal global [128 x i8] zeroinitializer, align 64
@done = internal global [128 x i8] zeroinitializer, align 64
@idle = internal global [128 x i8] zeroinitializer, align 64
; How many workers are in the job; the sign bit is set while nobody may join.
@gate = internal global i64 $CLOSED, align 64
@generation = internal global i64 0, align 64
@current = internal global ptr null
@sleepers = internal global i64 0, align 64
@started = internal global i32 0
@threads = internal global i32 1
; One job at a time uses the workers. `owner` tells a launch from inside a signal handler of the
; launching thread, which must not wait for itself.
@busy = internal global i32 0, align 64
@owner = internal global i64 0
@waiters = internal global i32 0
@key = internal global i64 0

declare void $PAUSE_TYPE
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_destroy(ptr)
declare i64 @pthread_self()
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @clock_gettime(i32, ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @mprotect(ptr, i64, i32)
declare i32 @munmap(ptr, i64)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)
"""

# Python sees signals every 50 ms. A thread that waits spins 30 us before it sleeps, which is
# about what a wake-up costs.
_CLOCK = """
define internal i64 @now() {
  %t = alloca %time
  call i32 @clock_gettime(i32 $MONOTONIC, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr %time, ptr %t, i32 0, i32 1
  %n = load i64, ptr %np
  %s9 = mul i64 %s, 1000000000
  %r = add i64 %s9, %n
  ret i64 %r
}

; Waits for a condition with the mutex held, for 50 ms at most.
define internal void @wait_briefly(ptr %condition) {
  %t = alloca %time
  call i32 @clock_gettime(i32 0, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr %time, ptr %t, i32 0, i32 1
  %n = load i64, ptr %np
  %later = add i64 %n, 50000000
  %over = icmp sge i64 %later, 1000000000
  %carry = zext i1 %over to i64
  %carry.ns = mul i64 %carry, 1000000000
  %s2 = add i64 %s, %carry
  %n2 = sub i64 %later, %carry.ns
  store i64 %s2, ptr %t
  store i64 %n2, ptr %np
  call i32 @pthread_cond_timedwait(ptr %condition, ptr @mutex, ptr %t)
  ret void
}

; Spins until the value at an address has changed: true, or false after 30 us.
define internal i1 @spin_while_equal(ptr %address, i64 %value) {
entry:
  %start = call i64 @now()
  br label %outer
outer:
  br label %inner
inner:
  %i = phi i32 [ 0, %outer ], [ %i1, %again ]
  %v = load atomic i64, ptr %address acquire, align 8
  %same = icmp eq i64 %v, %value
  br i1 %same, label %again, label %changed
again:
  call void $PAUSE
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, 32
  br i1 %more, label %inner, label %check
check:
  %t = call i64 @now()
  %spent = sub i64 %t, %start
  %early = icmp slt i64 %spent, 30000
  br i1 %early, label %outer, label %late
changed:
  ret i1 true
late:
  ret i1 false
}

; Lets Python run its signal handlers, on the launching thread; the job is cancelled if one raises.
define internal void @check_signals(ptr %job) {
entry:
  %status.p = field job.status
  %status = load i32, ptr %status.p
  %pending = icmp ne i32 %status, 0
  br i1 %pending, label %out, label %check
check:
  %thread.p = field job.thread_state
  %thread = load ptr, ptr %thread.p
  call void @PyEval_RestoreThread(ptr %thread)
  %raised = call i32 @PyErr_CheckSignals()
  %saved = call ptr @PyEval_SaveThread()
  store ptr %saved, ptr %thread.p
  %t = call i64 @now()
  %next = add i64 %t, 50000000
  set job.next_poll, %next
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %out, label %cancel
cancel:
  store i32 -1, ptr %status.p
  %cancelled.p = field job.cancelled
  store atomic i32 1, ptr %cancelled.p release, align 4
  br label %out
out:
  ret void
}

; What kernels may call: cheap unless 50 ms have passed on the launching thread.
define internal void @poll(ptr %context) {
entry:
  %index = get context.thread
  %launching = icmp eq i32 %index, 0
  br i1 %launching, label %look, label %out
look:
  %job = get context.job
  %next = get job.next_poll
  %t = call i64 @now()
  %due = icmp sge i64 %t, %next
  br i1 %due, label %check, label %out
check:
  call void @check_signals(ptr %job)
  br label %out
out:
  ret void
}
"""

# `generation` and `sleepers` are a Dekker pair (both sides write one, then read the other, all
# sequentially consistent), so a launch takes the mutex only where somebody sleeps.
_WORKER = """
define internal void @block_signals() {
  %set = alloca [128 x i8], align 16
  call i32 @sigfillset(ptr %set)
  call i32 @sigdelset(ptr %set, i32 4)       ; SIGILL
  call i32 @sigdelset(ptr %set, i32 5)       ; SIGTRAP
  call i32 @sigdelset(ptr %set, i32 6)       ; SIGABRT
  call i32 @sigdelset(ptr %set, i32 $SIGBUS)
  call i32 @sigdelset(ptr %set, i32 8)       ; SIGFPE
  call i32 @sigdelset(ptr %set, i32 11)      ; SIGSEGV
  call i32 @pthread_sigmask(i32 2, ptr %set, ptr null)
  ret void
}

; Blocks until there is a job after the generation `seen`; returns the generation.
define internal i64 @await_job(i64 %seen) {
entry:
  %changed = call i1 @spin_while_equal(ptr @generation, i64 %seen)
  br i1 %changed, label %out, label %sleep
sleep:
  call i32 @pthread_mutex_lock(ptr @mutex)
  atomicrmw add ptr @sleepers, i64 1 seq_cst
  br label %test
test:
  %g = load atomic i64, ptr @generation seq_cst, align 8
  %same = icmp eq i64 %g, %seen
  br i1 %same, label %wait, label %rise
wait:
  call i32 @pthread_cond_wait(ptr @wake, ptr @mutex)
  br label %test
rise:
  atomicrmw sub ptr @sleepers, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %out
out:
  %r = load atomic i64, ptr @generation acquire, align 8
  ret i64 %r
}

define internal ptr @worker(ptr %argument) {
entry:
  %number = ptrtoint ptr %argument to i64
  %index = trunc i64 %number to i32
  call void @block_signals()
  br label %next
next:
  ; No generation is -1: a new thread looks at once for the job that it was started for.
  %seen = phi i64 [ -1, %entry ], [ %generation, %leave ], [ %generation, %signal ]
  %generation = call i64 @await_job(i64 %seen)
  %before = atomicrmw add ptr @gate, i64 1 acq_rel
  %shut = icmp slt i64 %before, 0
  br i1 %shut, label %leave, label %count
count:
  ; Having joined, the job cannot end before this thread leaves.
  %job = load ptr, ptr @current
  %limit = get job.limit
  %room = icmp slt i64 %before, %limit
  br i1 %room, label %work, label %leave
work:
  call void @run_programs(ptr %job, i32 %index)
  br label %leave
leave:
  %was = atomicrmw sub ptr @gate, i64 1 acq_rel
  %last = icmp eq i64 %was, $CLOSED_WITH_ONE
  br i1 %last, label %signal, label %next
signal:
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_cond_signal(ptr @done)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %next
}

; Starts workers until there are `wanted`, or the system refuses.
define internal void @start_workers(i32 %wanted) {
entry:
  %attributes = alloca [128 x i8], align 16
  %thread = alloca i64
  %enough = load i32, ptr @started
  %none = icmp sge i32 %enough, %wanted
  br i1 %none, label %out, label %prepare
prepare:
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 8388608)
  br label %start
start:
  %n = load i32, ptr @started
  %index = add i32 %n, 1
  %index.64 = zext i32 %index to i64
  %argument = inttoptr i64 %index.64 to ptr
  %refused = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %refused, 0
  br i1 %ok, label %count, label %finish
count:
  store i32 %index, ptr @started
  %more = icmp slt i32 %index, %wanted
  br i1 %more, label %start, label %finish
finish:
  call i32 @pthread_attr_destroy(ptr %attributes)
  br label %out
out:
  ret void
}
"""

_LAUNCH = """
; Takes the workers for a job: 0, or 1 where this thread has them already (a launch from a signal
; handler), or 2 where the job was cancelled while it waited.
define internal i32 @acquire(ptr %job) {
entry:
  %self = call i64 @pthread_self()
  br label %try
try:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %mine, label %whose
mine:
  store atomic i64 %self, ptr @owner monotonic, align 8
  ret i32 0
whose:
  %owner = load atomic i64, ptr @owner monotonic, align 8
  %nested = icmp eq i64 %owner, %self
  br i1 %nested, label %alone, label %wait
alone:
  ret i32 1
wait:
  call i32 @pthread_mutex_lock(ptr @mutex)
  atomicrmw add ptr @waiters, i32 1 seq_cst
  %busy = load atomic i32, ptr @busy seq_cst, align 4
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %go, label %sleep
sleep:
  call void @wait_briefly(ptr @idle)
  br label %go
go:
  atomicrmw sub ptr @waiters, i32 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr @mutex)
  call void @check_signals(ptr %job)
  %status = get job.status
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %try, label %cancelled
cancelled:
  ret i32 2
}

define internal void @release() {
entry:
  store atomic i64 0, ptr @owner monotonic, align 8
  store atomic i32 0, ptr @busy seq_cst, align 4
  %waiters = load atomic i32, ptr @waiters seq_cst, align 4
  %none = icmp eq i32 %waiters, 0
  br i1 %none, label %out, label %tell
tell:
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_cond_signal(ptr @idle)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %out
out:
  ret void
}

; Wakes as many sleeping workers as may join.
define internal void @wake_workers(i64 %limit) {
entry:
  %sleepers = load atomic i64, ptr @sleepers seq_cst, align 8
  %none = icmp eq i64 %sleepers, 0
  br i1 %none, label %out, label %tell
tell:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %all = icmp sge i64 %limit, %sleepers
  br i1 %all, label %everyone, label %one
everyone:
  call i32 @pthread_cond_broadcast(ptr @wake)
  br label %unlock
one:
  %i = phi i64 [ 0, %tell ], [ %i1, %one ]
  call i32 @pthread_cond_signal(ptr @wake)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %limit
  br i1 %more, label %one, label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %out
out:
  ret void
}

; Waits until every worker that joined has left.
define internal void @await_workers(ptr %job) {
entry:
  br label %test
test:
  %gate = load atomic i64, ptr @gate acquire, align 8
  %empty = icmp eq i64 %gate, $CLOSED
  br i1 %empty, label %out, label %spin
spin:
  %changed = call i1 @spin_while_equal(ptr @gate, i64 %gate)
  br i1 %changed, label %test, label %sleep
sleep:
  call i32 @pthread_mutex_lock(ptr @mutex)
  %again = load atomic i64, ptr @gate acquire, align 8
  %left = icmp eq i64 %again, $CLOSED
  br i1 %left, label %unlock, label %wait
wait:
  call void @wait_briefly(ptr @done)
  br label %unlock
unlock:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  %late = load atomic i64, ptr @gate acquire, align 8
  %finished = icmp eq i64 %late, $CLOSED
  br i1 %finished, label %out, label %signals
signals:
  call void @check_signals(ptr %job)
  br label %test
out:
  ret void
}

; Runs a job on the workers and this thread.
define internal void @run_together(ptr %job) {
  store ptr %job, ptr @current
  %limit = get job.limit
  %threads = load atomic i32, ptr @threads monotonic, align 4
  %workers = sub i32 %threads, 1
  call void @start_workers(i32 %workers)
  atomicrmw and ptr @gate, i64 $OPEN acq_rel
  atomicrmw add ptr @generation, i64 1 seq_cst
  call void @wake_workers(i64 %limit)
  call void @run_programs(ptr %job, i32 0)
  ; Nothing is left to claim: a worker that has not woken up yet is not waited for.
  atomicrmw or ptr @gate, i64 $CLOSED acq_rel
  call void @await_workers(ptr %job)
  ret void
}

; Chooses how a job is shared out, and runs it. The GIL is released.
define internal void @run_job(ptr %job) {
entry:
  %total = get job.total
  %threads = load atomic i32, ptr @threads monotonic, align 4
  %one.program = icmp eq i64 %total, 1
  %one.thread = icmp eq i32 %threads, 1
  %serial = or i1 %one.program, %one.thread
  br i1 %serial, label %alone, label %share
share:
  %t = call i64 @now()
  %next = add i64 %t, 50000000
  set job.next_poll, %next
  %taken = call i32 @acquire(ptr %job)
  switch i32 %taken, label %out [ i32 0, label %together
                                  i32 1, label %alone ]
together:
  ; Eight chunks for each thread even out programs of unequal length.
  %threads.64 = zext i32 %threads to i64
  %pieces = mul i64 %threads.64, 8
  %share.0 = udiv i64 %total, %pieces
  %tiny = icmp eq i64 %share.0, 0
  %chunk = select i1 %tiny, i64 1, i64 %share.0
  set job.chunk, %chunk
  %others = sub i64 %threads.64, 1
  %rest = sub i64 %total, 1
  %few = icmp ult i64 %rest, %others
  %limit = select i1 %few, i64 %rest, i64 %others
  set job.limit, %limit
  call void @run_together(ptr %job)
  call void @release()
  br label %out
alone:
  set job.chunk, %total
  call void @run_programs(ptr %job, i32 0)
  br label %out
out:
  ret void
}

; 0, a positive code from the kernel, -1 (an exception is set), -2 (no memory), -3 (grid).
define i32 @tilewright_launch(ptr %kernel, ptr %arguments, i32 %gx, i32 %gy, i32 %gz, i64 %bytes) {
entry:
  %job = alloca %job, align 64
  %gx.64 = zext i32 %gx to i64
  %gy.64 = zext i32 %gy to i64
  %gz.64 = zext i32 %gz to i64
  %plane = mul i64 %gx.64, %gy.64
  %product = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %plane, i64 %gz.64)
  %total = extractvalue {i64, i1} %product, 0
  %wraps = extractvalue {i64, i1} %product, 1
  %negative = icmp slt i64 %total, 0
  %too.many = or i1 %wraps, %negative
  br i1 %too.many, label %refuse, label %count
refuse:
  ret i32 -3
count:
  %nothing = icmp eq i64 %total, 0
  br i1 %nothing, label %done, label %launch
done:
  ret i32 0
launch:
  store %job zeroinitializer, ptr %job
  set job.poll, @poll
  set job.total, %total
  set job.kernel, %kernel
  set job.arguments, %arguments
  set job.scratch_bytes, %bytes
  set job.grid_x, %gx
  set job.grid_y, %gy
  set job.grid_z, %gz
  %thread = call ptr @PyEval_SaveThread()
  %thread.p = field job.thread_state
  store ptr %thread, ptr %thread.p
  call void @run_job(ptr %job)
  %thread.now = load ptr, ptr %thread.p
  call void @PyEval_RestoreThread(ptr %thread.now)
  %status = get job.status
  %error = get job.error
  %fine = icmp eq i32 %status, 0
  %result = select i1 %fine, i32 %error, i32 %status
  ret i32 %result
}
"""

_SETUP = """
define void @tilewright_set_threads(i32 %count) {
  store atomic i32 %count, ptr @threads monotonic, align 4
  ret void
}

; Also run in the child of a fork, where no worker exists and a lock may be held by a thread that
; does not.
define void @tilewright_reset() {
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @wake, ptr null)
  call i32 @pthread_cond_init(ptr @done, ptr null)
  call i32 @pthread_cond_init(ptr @idle, ptr null)
  store i64 $CLOSED, ptr @gate
  store i64 0, ptr @sleepers
  store i32 0, ptr @started
  store i32 0, ptr @busy
  store i64 0, ptr @owner
  store i32 0, ptr @waiters
  ret void
}

define void @tilewright_setup() {
  call i32 @pthread_key_create(ptr @key, ptr @free_scratch)
  call void @tilewright_reset()
  ret void
}
"""
