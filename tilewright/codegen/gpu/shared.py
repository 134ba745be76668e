"""Shared memory and barriers: who has touched what since all threads last met.

Memory is given out for one exchange at a time. Two exchanges use the same bytes only with a barrier
between them, and a barrier is written only where memory that something still reads, or has
written, is needed. The same barrier orders the accesses to the user's memory: a thread must see
what another thread of the program has stored before.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright import ops
from tilewright.codegen.code import Code
from tilewright.codegen.gpu.machine import GpuMachine
from tilewright.codegen.gpu.ranges import constant_of
from tilewright.codegen.uses import pointer_root
from tilewright.errors import Location
from tilewright.ir.core import Value
from tilewright.ops.memory import AtomicKind

__all__ = ["SHARED", "Buffer", "Shared", "Span"]

SHARED = "ptr addrspace(3)"

_ALIGNMENT = 128
# Memory below this is not worth a barrier to save, nor is as little as this behind rings.
_SMALL_BYTES, _LITTLE_BYTES = 16 << 10, 1 << 10
_OFFSETS = 1 << 32


@dataclass(frozen=True)
class Span:
    """Some bytes of shared memory."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def address(self) -> str:
        """Its first byte, as an LLVM constant."""
        return f"getelementptr (i8, {SHARED} @shared, i32 {self.start})"


Copy = tuple[Value, AtomicKind | None]  # to the user's memory: where, and how it is combined


class _Access(NamedTuple):
    """An access to the user's memory; writes that combine alike need no order among themselves.

    Asynchronous ones, by copies, see what threads have written before a fence.
    """

    pointer: Value
    writes: bool
    combines: AtomicKind | None = None
    is_asynchronous: bool = False
    block: ops.DescriptorOp | None = None  # what accesses only a block of an array

    def commutes(self, other: _Access, *, same_time: bool = True) -> bool:
        """Whether two accesses need no order."""
        if not (self.writes or other.writes):
            return True
        alike = self.combines is not None and self.combines is other.combines
        if alike or _apart(self.pointer, other.pointer, same_time=same_time):
            return True
        if not same_time or self.block is None or other.block is None:
            return False
        return _blocks_apart(self.block, other.block)

    def is_fenced_from(self, write: _Access) -> bool:
        """Whether this has to come behind a fence, where a thread's write came before."""
        return self.is_asynchronous and not _apart(self.pointer, write.pointer, same_time=False)


@dataclass
class _Pending:
    """What has been touched since the last barrier."""

    spans: list[Span] = field(default_factory=list)
    accesses: list[_Access] = field(default_factory=list)
    copies: list[_Access] = field(default_factory=list)  # they run on, whatever barriers there are
    unfenced: list[_Access] = field(default_factory=list)  # writes since the last fence, as well

    def joined(self, other: _Pending) -> _Pending:
        return _Pending(
            list(dict.fromkeys([*self.spans, *other.spans])),
            list(dict.fromkeys([*self.accesses, *other.accesses])),
            list(dict.fromkeys([*self.copies, *other.copies])),
            list(dict.fromkeys([*self.unfenced, *other.unfenced])),
        )


@dataclass(frozen=True)
class Buffer:
    """Shared memory that was given out, and the place in the source that asked for it."""

    span: Span
    location: Location | None

    def __str__(self) -> str:
        place = self.location
        if place is None:
            return f"{self.span.size} bytes"
        text = linecache.getline(place.file, place.line).strip()
        return f"{self.span.size} bytes at {place.file}:{place.line}: {text}"


class Shared:
    """Gives out shared memory and writes barriers.

    `location` is the place in the source of what is being written. `too_much` are the buffers that
    were in use when most memory was, if there is not as much.
    """

    def __init__(self, code: Code, machine: GpuMachine) -> None:
        self.code, self.machine = code, machine
        self.size_bytes = 0
        self.location: Location | None = None
        self.too_much: tuple[Buffer, ...] = ()
        self._buffers: dict[Span, Buffer] = {}
        self._pending = _Pending()
        self.is_written = False  # whether threads may have written to it themselves
        self._held: list[Span] = []
        self._rings: list[Span] = []
        self.writes_by_copies = False  # whether copies to the user's memory may still run
        self.reads_by_copies: list[Span] = []  # what such copies may still read
        self._copies_before = False  # whether copies of an earlier iteration may still read
        self._seen: list[_Access] = []  # those of the open loops

    # -- shared memory ----------------------------------------------------------------------------

    @contextmanager
    def at(self, location: Location | None) -> Iterator[None]:
        """Let what is reserved inside be for this place in the source."""
        outer, self.location = self.location, location or self.location
        yield
        self.location = outer

    def reserve(self, size: int, alignment: int = _ALIGNMENT) -> Span:
        """Return bytes that nobody uses any more, in use until the next barrier."""
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        if self._copies_before:
            self.let_copies_read()
            self.barrier()
        limit = min(self._worth_a_barrier(size), self.machine.shared_limit)
        span = _first_gap(size, alignment, self._taken())
        if span.end > limit:
            behind = _first_gap(size, alignment, [*self._held, *self._rings])
            if behind.end < span.end:
                self.let_copies_read()
                self.barrier()
                span = behind
        self._buffers[span] = Buffer(span, self.location)
        if span.end > max(self.machine.shared_limit, self.size_bytes):
            used = dict.fromkeys([*self._taken(), span])
            self.too_much = tuple(self._buffers[other] for other in used)
        self._pending.spans.append(span)
        self.size_bytes = max(self.size_bytes, span.end)
        self.is_written = True
        return span

    def _worth_a_barrier(self, size: int) -> int:
        """From where on a barrier is written rather than to use more memory."""
        behind_rings = max((ring.end for ring in self._rings), default=0) + _LITTLE_BYTES
        return max(self.size_bytes, 2 * size, _SMALL_BYTES, behind_rings)

    def _taken(self) -> list[Span]:
        """What is in use, or kept for a loop."""
        return [*self._pending.spans, *self._rings, *self.reads_by_copies]

    @contextmanager
    def ring(self, size: int, alignment: int) -> Iterator[Span]:
        """Keep bytes for a loop inside, whose code orders the accesses to them itself."""
        written = self.is_written
        span = self.reserve(size, alignment)
        self.is_written = written
        self._pending.spans.remove(span)
        self._rings.append(span)
        yield span
        self._rings.remove(span)
        self._pending.spans.append(span)

    @contextmanager
    def held(self, span: Span) -> Iterator[None]:
        """Keep a span in use inside, whatever barriers there are; it is read there."""
        self.hold(span)
        yield
        self.release(span)

    def hold(self, span: Span) -> None:
        """Keep a span in use until it is released: at once, as another one may need a barrier."""
        assert span in self._pending.spans, "a barrier has given this memory to others"
        self._held.append(span)

    def release(self, span: Span) -> None:
        """Let a span be given out again, behind another barrier."""
        self._held.remove(span)

    def barrier(self) -> None:
        """Let all threads meet."""
        self.machine.barrier()
        self._pending = _Pending(
            list(self._held), copies=self._pending.copies, unfenced=self._pending.unfenced
        )

    def let_copies_read(self) -> None:
        """Wait until copies to the user's memory have read shared memory, where some may run."""
        if self.reads_by_copies or self._copies_before:
            self.machine.wait_for_stores(only_reads=True)
        self.reads_by_copies, self._copies_before = [], False

    # -- the user's memory ------------------------------------------------------------------------

    def before_access(self, pointer: Value, *, writes: bool, is_asynchronous: bool = False) -> None:
        """Order an access behind those before it that may be to the same addresses.

        What is asynchronous is a copy to shared memory, which is waited for where it is read.
        """
        access = _Access(pointer, writes, is_asynchronous=is_asynchronous)
        self._order(access)
        self._pending.accesses.append(access)
        if writes:
            self._pending.unfenced.append(access)

    def before_copy(self, op: ops.DescriptorOp, combines: AtomicKind | None) -> None:
        """Order the copy of an op to the user's memory behind the copies before it.

        It is ordered behind other accesses by the barrier that comes before any copy, as what it
        reads in shared memory has been written by all threads, and by a fence where it writes what
        threads have written.
        """
        access = _Access(op.base, True, combines, is_asynchronous=True, block=op)
        self._fence_behind_writes([access])
        if not all(access.commutes(other) for other in self._pending.copies):
            self._finish_copies()
        self._pending.copies.append(access)
        self.writes_by_copies = True

    def copy_reads(self, span: Span) -> None:
        """Keep a span until a copy that has been started has read it, across barriers.

        Behind the wait for that there is a barrier, before the span is used again: so threads may
        read it, too.
        """
        self.reads_by_copies.append(span)
        self._pending.spans.remove(span)

    def _order(self, access: _Access) -> None:
        self._fence_behind_writes([access])
        if not all(access.commutes(o) for o in (*self._pending.accesses, *self._pending.copies)):
            self._finish_copies()
            self.barrier()
        self._seen.append(access)

    def _fence_behind_writes(self, accesses: Iterable[_Access]) -> None:
        """Let copies see what threads have written to the user's memory, where they may ask."""
        written = self._pending.unfenced
        if any(access.is_fenced_from(write) for access in accesses for write in written):
            self.machine.fence_async_proxy(everywhere=True)
            self._pending.unfenced = []

    def publish(self) -> None:
        """Let what the threads have read and written come before what follows."""
        if self._pending.accesses or self._pending.copies:
            self._finish_copies()
            self.barrier()

    def _finish_copies(self) -> None:
        """Let copies to the user's memory arrive, where some may still run."""
        if self.writes_by_copies:
            self.machine.wait_for_stores(only_reads=False)
        self._pending.copies = []

    # -- control flow -----------------------------------------------------------------------------

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Write a loop inside; its body may run once, many times or never."""
        before, outer, reads = self._pending, self._seen, [*self.reads_by_copies]
        self._pending, self._seen = before.joined(_Pending()), []
        earlier = self._copies_before
        yield
        self._pending = before.joined(self._pending)
        self._seen = outer + self._seen
        self.reads_by_copies = list(dict.fromkeys([*reads, *self.reads_by_copies]))
        self._copies_before |= earlier

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Write what touches no memory inside: threads need not meet there, and do not."""
        before, written = self._pending, self.is_written
        self._pending = _Pending()
        yield
        self._pending, self.is_written = before, written

    def begin_iteration(self, copies: Iterable[Copy]) -> None:
        """Begin the body of the loop, which copies to the user's memory: where, and how combined.

        The copies of the iteration before may still run, and read, and threads have written to
        shared memory.
        """
        self.is_written = True
        for pointer, combines in copies:
            self._pending.copies.append(_Access(pointer, True, combines, is_asynchronous=True))
            self.writes_by_copies = self._copies_before = True

    def end_iteration(self, copies: Sequence[Copy], *, meets: bool = False) -> None:
        """End the body of the loop: what it touched may be touched again by the next iteration.

        With `copies`, threads meet there before they use shared memory, with `meets` before they
        use anything.
        """
        started = [_Access(place, True, kind, is_asynchronous=True) for place, kind in copies]
        self._fence_behind_writes([*self._seen, *started])
        used = self._pending.spans and not copies
        if not meets and (used or _conflict(self._seen)):
            self.barrier()

    @contextmanager
    def branched(self) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        """Write a branch inside, each arm inside what is handed out."""
        before, reads, earlier = self._pending, [*self.reads_by_copies], self._copies_before
        ends = [before]
        read = [*reads]

        @contextmanager
        def arm() -> Iterator[None]:
            self._pending = before.joined(_Pending())
            self.reads_by_copies, self._copies_before = [*reads], earlier
            yield
            ends.append(self._pending)
            read.extend(self.reads_by_copies)

        yield arm
        for end in ends:
            self._pending = self._pending.joined(end)
        self.reads_by_copies, self._copies_before = list(dict.fromkeys(read)), earlier


def _first_gap(size: int, alignment: int, taken: Sequence[Span]) -> Span:
    """Return the first bytes that are not taken."""
    starts = (0, *sorted(-(-span.end // alignment) * alignment for span in taken))
    gaps = (Span(start, size) for start in starts)
    return next(gap for gap in gaps if not any(_overlap(gap, other) for other in taken))


def _overlap(a: Span, b: Span) -> bool:
    return a.start < b.end and b.start < a.end


def _apart(a: Value, b: Value, *, same_time: bool = True) -> bool:
    """Whether two accesses use the same addresses thread by thread, or different arrays."""
    if a is b and same_time and not a.shape:
        return False
    if a is b and same_time:
        return True
    roots = pointer_root(a), pointer_root(b)
    return None not in roots and roots[0] is not roots[1]


def _blocks_apart(a: ops.DescriptorOp, b: ops.DescriptorOp) -> bool:
    """Whether two blocks of one array, at the same time, have no element in common.

    Along some axis one begins where the other has ended, modulo 2^32: so far do offsets count.
    """
    if a.base is not b.base or any(x is not y for x, y in zip(a.strides, b.strides, strict=True)):
        return False
    for first, second, size, other in zip(
        a.indices, b.indices, a.block_shape, b.block_shape, strict=True
    ):
        (root, start), (other_root, other_start) = _split(first), _split(second)
        distance = (other_start - start) % _OFFSETS
        if root is other_root and size <= distance <= _OFFSETS - other:
            return True
    return False


def _split(offset: Value) -> tuple[Value | None, int]:
    """Return what an offset is the sum of: a value, and a constant."""
    total = 0
    while isinstance(offset, ops.Add):
        x, y = constant_of(offset.x), constant_of(offset.y)
        if x is None and y is None:
            break
        total += (x if y is None else y) or 0
        offset = offset.x if x is None else offset.y
    constant = constant_of(offset)
    return (offset, total) if constant is None else (None, total + constant)


def _conflict(accesses: list[_Access]) -> bool:
    """Whether an access of one iteration may meet one of another."""
    return any(
        not first.commutes(second, same_time=False) for first in accesses for second in accesses
    )
