"""What the lowering for GPUs asks of an architecture: the instructions it has to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["CopyMachine", "GpuMachine"]


class GpuMachine(Protocol):
    """Writes instructions. Words are i32 values unless said otherwise; addresses are pointers.

    `shared_limit` is the shared memory of a block, `scratch_limit` how much of it a tile takes
    that is moved between threads.
    The flags say whether a warp moves matrices to and from there together. `pair_types` are the
    types of which there is arithmetic on two numbers in a word.
    """

    warp_size: int
    shared_limit: int
    scratch_limit: int
    has_matrix_stores: bool
    has_matrix_loads: bool
    pair_types: frozenset[str]

    def thread_number(self) -> str:
        """Return the number of the thread in its block."""

    def thread_number_anew(self) -> str:
        """Read the number of the thread here: what is computed with it is computed behind this."""

    def program_number(self, axis: int) -> str:
        """Return the place of the block in the grid."""

    def program_count(self, axis: int) -> str:
        """Return the extent of the grid."""

    def barrier(self) -> None:
        """Wait for all threads of the block, and see what they have written."""

    def warp_barrier(self) -> None:
        """Wait for all threads of the warp, and see what they have written."""

    def shuffle_xor(self, word: str, mask: int) -> str:
        """Return the word of the lane whose number differs by `mask`."""

    def shuffle_from(self, word: str, lane: str, level: int | None = None) -> str:
        """Return the word of another lane."""

    def multiply_add_pairs(self, element: str, x: str, y: str, z: str) -> str:
        """Return x * y + z of words of two numbers of one of `pair_types`, each rounded once."""

    def multiply_flushed(self, x: str, y: str) -> str:
        """Return x * y of fp32, or 0 where that is subnormal."""

    def keep_and_set(self, word: str, kept: int, ones: int) -> str:
        """Return a word's bits in `kept`, and the bits `ones`."""

    def masked_load(
        self, address: str, flag: str, word_bits: int, others: Sequence[str], hint: str = ""
    ) -> list[str]:
        """Load consecutive words where the flag holds; elsewhere they are `others`.

        `hint` is the cache modifier or the eviction policy of the language.
        """

    def masked_store(
        self, address: str, flag: str, word_bits: int, words: Sequence[str], hint: str = ""
    ) -> None:
        """Store consecutive words where the flag holds."""

    def masked_shared_store(
        self, address: str, flag: str, word_bits: int, words: Sequence[str]
    ) -> None:
        """Store consecutive words to shared memory where the flag holds."""

    def wait_for_stores(self, *, only_reads: bool) -> None:
        """Wait until this thread's copies have read shared memory, or have been written, too."""

    def fence_async_proxy(self, *, everywhere: bool = False) -> None:
        """Let what this thread has written to shared memory be seen by what is asynchronous.

        `everywhere` means the user's memory, too.
        """

    def load_matrices(self, address: str, count: int, *, transposed: bool) -> list[str]:
        """Load 8x8 matrices of 16 bits from shared memory, a word of each to a lane."""

    def store_matrices(self, address: str, words: Sequence[str], *, transposed: bool) -> None:
        """Store 8x8 matrices of 16 bits to shared memory, a word of each from a lane."""


class CopyMachine(GpuMachine, Protocol):
    """Writes copies that run on while the thread goes ahead, where `has_copies`."""

    has_copies: bool

    def copy_to_shared(self, to: str, origin: str, size_bytes: int, flag: str | None) -> None:
        """Start a copy from the user's memory; zeros arrive where the flag does not hold."""

    def copy_by_one(
        self, to: str, origin: str, size_bytes: int, flag: str | None, thread: str
    ) -> None:
        """Start a copy as `copy_to_shared` does, by the thread where `thread` holds."""

    def commit_copies(self) -> None:
        """End a group of copies."""

    def wait_for_copies(self, running: int) -> None:
        """Wait until at most so many groups of this thread's copies have not arrived."""
