"""PTX instructions, as LLVM's intrinsics where there are any and as inline assembly elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.code import Code
from tilewright.codegen.nvidia.assembly import PURE, READS, WRITES, structure
from tilewright.codegen.nvidia.asynchronous import AsynchronousInstructions
from tilewright.codegen.nvidia.atomics import AtomicInstructions
from tilewright.codegen.nvidia.diagnostics import DiagnosticInstructions
from tilewright.codegen.nvidia.matrix import MatrixInstructions
from tilewright.codegen.nvidia.user_assembly import UserAssembly
from tilewright.ops import HardwareRegister
from tilewright.target import NvidiaTarget

__all__ = ["PtxMachine"]

# What a load or a store says of the caches.
_HINTS = {
    "": "", ".ca": ".ca", ".cg": ".cg", ".cs": ".cs", ".cv": ".cv", ".wb": ".wb", ".wt": ".wt",
    "evict_first": ".L1::evict_first", "evict_last": ".L1::evict_last",
    "evict_normal": ".L1::evict_normal",
}  # fmt: skip
# Of these the second-level cache is told by an operand.
_POLICIES = frozenset({"evict_first", "evict_last"})
_PAIRS = {"fp16": ("<2 x half>", "v2f16"), "bf16": ("<2 x bfloat>", "v2bf16")}
_EVERY_LANE = "i32 -1"
_CONSTRAINTS = {8: "h", 16: "h", 32: "r", 64: "l"}


class PtxMachine(
    AtomicInstructions,
    MatrixInstructions,
    UserAssembly,
    AsynchronousInstructions,
    DiagnosticInstructions,
):
    """Writes instructions for one NVIDIA architecture."""

    def __init__(self, code: Code, target: NvidiaTarget, scratch_limit: int) -> None:
        self.code, self.target = code, target
        self.warp_size = target.warp_size
        self.shared_limit, self.scratch_limit = target.shared_bytes, scratch_limit
        self.has_matrix_stores = target.has_stmatrix
        self.has_matrix_loads = True  # from sm_75 on
        self.has_copies = target.compute_capability >= (8, 0)
        self.has_policies = self.has_copies
        self.pair_types = frozenset(_PAIRS if self.has_copies else {"fp16"})

    # -- places -----------------------------------------------------------------------------------

    def thread_number(self) -> str:
        return self._special("tid.x")

    def thread_number_anew(self) -> str:
        return self.assembly("mov.u32 $0, %tid.x;", ["=r"], [], "i32", 1, WRITES)[0]

    def program_number(self, axis: int) -> str:
        return self._special(f"ctaid.{'xyz'[axis]}")

    def program_count(self, axis: int) -> str:
        return self._special(f"nctaid.{'xyz'[axis]}")

    def _special(self, name: str) -> str:
        return self.code.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}", "", 0)

    def hardware_number(self, register: HardwareRegister) -> str:
        """Read it each time: LLVM must not take two for the same."""
        bits = 64 if register is HardwareRegister.GLOBAL_TIMER else 32
        text = f"mov.u{bits} $0, %{register};"
        constraint = f"={_CONSTRAINTS[bits]}"
        return self.assembly(text, [constraint], [], f"i{bits}", 1, WRITES)[0]

    def grid_dependency(self, *, releases: bool) -> None:
        if self.target.compute_capability >= (9, 0):  # before, launches follow each other
            name = "launch.dependents" if releases else "wait"
            self.code.call("void", f"llvm.nvvm.griddepcontrol.{name}", "")

    # -- threads together -------------------------------------------------------------------------

    def barrier(self) -> None:
        self.code.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", "i32 0")

    def warp_barrier(self) -> None:
        self.code.call("void", "llvm.nvvm.bar.warp.sync", _EVERY_LANE)

    def shuffle_xor(self, word: str, mask: int) -> str:
        return self._shuffle("bfly", word, str(mask))

    def shuffle_from(self, word: str, lane: str, level: int | None = None) -> str:
        return self._shuffle("idx", word, lane, level)

    def _shuffle(self, how: str, word: str, lane: str, level: int | None = None) -> str:
        arguments = f"{_EVERY_LANE}, i32 {word}, i32 {lane}, i32 31"
        return self.code.call("i32", f"llvm.nvvm.shfl.sync.{how}.i32", arguments, level)

    # -- two numbers at once ----------------------------------------------------------------------

    def multiply_add_pairs(self, element: str, x: str, y: str, z: str) -> str:
        kind, suffix = _PAIRS[element]
        pairs = [self.code.assign(f"bitcast i32 {word} to {kind}") for word in (x, y, z)]
        arguments = ", ".join(f"{kind} {pair}" for pair in pairs)
        result = self.code.call(kind, f"llvm.fma.{suffix}", arguments)
        return self.code.assign(f"bitcast {kind} {result} to i32")

    def multiply_flushed(self, x: str, y: str) -> str:
        return self.code.call("float", "llvm.nvvm.mul.rn.ftz.f", f"float {x}, float {y}")

    def keep_and_set(self, word: str, kept: int, ones: int) -> str:
        # `ptxas` makes two instructions of an `and` and an `or` with constants.
        text = f"lop3.b32 $0, $1, {kept}, {ones}, 0xEA;"
        return self.code.assign(f'call i32 asm "{text}", "=r,r"(i32 {word})')

    # -- memory -----------------------------------------------------------------------------------

    def masked_load(
        self, address: str, flag: str, word_bits: int, others: Sequence[str], hint: str = ""
    ) -> list[str]:
        count = len(others)
        registers = ", ".join(f"${i}" for i in range(count))
        vector = f"v{count}." if count > 1 else ""
        target = f"{{{registers}}}" if count > 1 else registers
        told, policy = self._policy(hint)
        name = f"ld.global{_HINTS[hint]}{told}.{vector}b{word_bits}"
        where = [f"[${2 * count + 1}]", *(f"${2 * count + 2}" for _ in policy)]
        text = f"@${2 * count} {name} {target}, {', '.join(where)};"
        kind = _CONSTRAINTS[word_bits]
        # LLVM's alias analysis believes assembly to access memory only if it says so here too.
        ties = [str(i) for i in range(count)]
        places = ["b", "l", *("l" for _ in policy)]
        constraints = [*([f"={kind}"] * count), *ties, *places, "~{memory}"]
        inputs = self._inputs(word_bits, others)
        arguments = [*inputs, f"i1 {flag}", f"ptr addrspace(1) {address}", *policy]
        words = self.assembly(text, constraints, arguments, _held(word_bits), count, READS)
        if word_bits == 8:
            return [self.code.assign(f"trunc i16 {word} to i8") for word in words]
        return words

    def masked_store(
        self, address: str, flag: str, word_bits: int, words: Sequence[str], hint: str = ""
    ) -> None:
        told, policy = self._policy(hint)
        space = f"global{_HINTS[hint]}{told}"
        self._masked_store(space, "ptr addrspace(1)", address, flag, word_bits, words, policy)

    def _policy(self, hint: str) -> tuple[str, list[str]]:
        """What tells the second-level cache of a hint: a part of the name, and an operand."""
        if hint not in _POLICIES or not self.has_policies:
            return "", []
        text = f"createpolicy.fractional.L2::{hint}.b64 $0, 1.0;"
        return ".L2::cache_hint", [f"i64 {self.assembly(text, ['=l'], [], 'i64', 1, PURE)[0]}"]

    def masked_shared_store(
        self, address: str, flag: str, word_bits: int, words: Sequence[str]
    ) -> None:
        self._masked_store("shared", "ptr addrspace(3)", address, flag, word_bits, words)

    def _masked_store(
        self, space: str, pointer: str, address: str, flag: str, bits: int, words: Sequence[str],
        policy: Sequence[str] = (),
    ) -> None:  # fmt: skip
        count = len(words)
        registers = ", ".join(f"${i + 2}" for i in range(count))
        vector = f"v{count}." if count > 1 else ""
        source = f"{{{registers}}}" if count > 1 else registers
        values = [source, *(f"${count + 2}" for _ in policy)]
        text = f"@$0 st.{space}.{vector}b{bits} [$1], {', '.join(values)};"
        where = "r" if space == "shared" else "l"
        kinds = [*([_CONSTRAINTS[bits]] * count), *("l" for _ in policy)]
        constraints = ["b", where, *kinds, "~{memory}"]
        arguments = [f"i1 {flag}", f"{pointer} {address}", *self._inputs(bits, words), *policy]
        self.assembly(text, constraints, arguments, "void", 0, WRITES)

    def _inputs(self, bits: int, words: Sequence[str]) -> list[str]:
        """Words as operands; there are no registers of 8 bits."""
        if bits == 8:
            words = [self.code.assign(f"zext i8 {word} to i16") for word in words]
        return [f"{_held(bits)} {word}" for word in words]

    def load_matrices(self, address: str, count: int, *, transposed: bool) -> list[str]:
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{_trans(transposed)}.b16.p3"
        kind = "i32" if count == 1 else structure("i32", count)
        whole = self.code.call(kind, name, f"ptr addrspace(3) {address}")
        return self.fields(whole, kind, count)

    def store_matrices(self, address: str, words: Sequence[str], *, transposed: bool) -> None:
        count = len(words)
        name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{count}{_trans(transposed)}.b16.p3"
        arguments = ", ".join([f"ptr addrspace(3) {address}", *(f"i32 {w}" for w in words)])
        self.code.call("void", name, arguments)


def _held(bits: int) -> str:
    """The type of the register that holds a word."""
    return f"i{max(16, bits)}"


def _trans(transposed: bool) -> str:
    return ".trans" if transposed else ""
