"""Small kernels written by hand, against the kernel ABI of the pool."""

from tilewright.codegen.llvm import compile_to_object, host, load_object, module_header

# Every kernel reads its argument block: p0 is the first pointer in it, n1 the second slot.
KERNELS = """
define void @empty(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
  ret void
}

; p0[linear program number] += 1
define void @visit(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
  %p = load ptr, ptr %arguments
  %gx = load i32, ptr %context
  %gy.p = getelementptr i32, ptr %context, i64 1
  %gy = load i32, ptr %gy.p
  %zy = mul i32 %z, %gy
  %row = add i32 %zy, %y
  %base = mul i32 %row, %gx
  %i = add i32 %base, %x
  %i64 = zext i32 %i to i64
  %place = getelementptr i64, ptr %p, i64 %i64
  %old = atomicrmw add ptr %place, i64 1 monotonic
  ret void
}

; p0[0] counts programs; program n1 reports the error 7
define void @fail(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
entry:
  %p = load ptr, ptr %arguments
  %old = atomicrmw add ptr %p, i64 1 monotonic
  %n.p = getelementptr i64, ptr %arguments, i64 1
  %n = load i64, ptr %n.p
  %x64 = zext i32 %x to i64
  %hit = icmp eq i64 %x64, %n
  br i1 %hit, label %report, label %out
report:
  %shared.p = getelementptr i8, ptr %context, i64 24
  %shared = load ptr, ptr %shared.p
  %error = getelementptr i8, ptr %shared, i64 12
  %pair = cmpxchg ptr %error, i32 0, i32 7 monotonic monotonic
  br label %out
out:
  ret void
}

; Program p + n1 spins until program p has exchanged its lock p0[p] for 1.
define void @handshake(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
entry:
  %p = load ptr, ptr %arguments
  %n.p = getelementptr i64, ptr %arguments, i64 1
  %n = load i64, ptr %n.p
  %i = zext i32 %x to i64
  %first = icmp slt i64 %i, %n
  br i1 %first, label %give, label %take
give:
  %mine = getelementptr i32, ptr %p, i64 %i
  %old = atomicrmw xchg ptr %mine, i32 1 release
  ret void
take:
  %j = sub i64 %i, %n
  %theirs = getelementptr i32, ptr %p, i64 %j
  br label %spin
spin:
  %got = atomicrmw xchg ptr %theirs, i32 0 acquire
  %free = icmp eq i32 %got, 1
  br i1 %free, label %out, label %spin
out:
  store i32 2, ptr %theirs
  ret void
}

; All n1 programs wait for each other, as a barrier of the whole grid does.
define void @meet(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
entry:
  %p = load ptr, ptr %arguments
  %n.p = getelementptr i64, ptr %arguments, i64 1
  %n = load i64, ptr %n.p
  %old = atomicrmw add ptr %p, i64 1 seq_cst
  br label %spin
spin:
  %here = load atomic i64, ptr %p seq_cst, align 8
  %all = icmp sge i64 %here, %n
  br i1 %all, label %out, label %spin
out:
  ret void
}

; Fills n1 bytes of scratch, and stores 1 in p0[x] if it is aligned to 4096 bytes.
define void @fill_scratch(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
  %p = load ptr, ptr %arguments
  %n.p = getelementptr i64, ptr %arguments, i64 1
  %n = load i64, ptr %n.p
  %scratch.p = getelementptr i8, ptr %context, i64 16
  %scratch = load ptr, ptr %scratch.p
  call void @llvm.memset.p0.i64(ptr %scratch, i8 1, i64 %n, i1 false)
  %bits = ptrtoint ptr %scratch to i64
  %low = and i64 %bits, 4095
  %aligned = icmp eq i64 %low, 0
  %mark = zext i1 %aligned to i64
  %i = zext i32 %x to i64
  %place = getelementptr i64, ptr %p, i64 %i
  store i64 %mark, ptr %place
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; A loop without end, as kernels write it: it polls, and ends when the launch is cancelled.
define void @forever(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
entry:
  %shared.p = getelementptr i8, ptr %context, i64 24
  %shared = load ptr, ptr %shared.p
  %cancelled.p = getelementptr i8, ptr %shared, i64 8
  %poll.p = getelementptr i8, ptr %shared, i64 16
  %poll = load ptr, ptr %poll.p
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ], [ 0, %now ]
  %i1 = add i32 %i, 1
  %cancelled = load atomic i32, ptr %cancelled.p monotonic, align 4
  %end = icmp ne i32 %cancelled, 0
  %due = icmp eq i32 %i1, 1048576
  %either = or i1 %end, %due
  br i1 %either, label %which, label %loop
which:
  br i1 %end, label %out, label %now
now:
  call void %poll(ptr %context)
  br label %loop
out:
  ret void
}

; Takes a millisecond.
define void @nap(ptr %arguments, i32 %x, i32 %y, i32 %z, ptr %context) {
  %r = call i32 @usleep(i32 1000)
  ret void
}
declare i32 @usleep(i32)
"""


def load_kernels(more=""):
    """Return the loaded kernels, with more IR appended to their module."""
    return load_object(compile_to_object(module_header(host()) + KERNELS + more, host=host()))
