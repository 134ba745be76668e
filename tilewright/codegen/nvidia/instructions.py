"""PTX instructions, as LLVM's intrinsics where there are any and as inline assembly elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.code import Code
from tilewright.codegen.nvidia.asynchronous import AsynchronousInstructions
from tilewright.target import NvidiaTarget

__all__ = ["ATTRIBUTES", "PtxMachine"]

_EVERY_LANE = "i32 -1"
_CONSTRAINTS = {8: "h", 16: "h", 32: "r", 64: "l"}
_READS, _WRITES, _PURE, _TOGETHER = "#1", "#2", "#3", "#4"  # see `ATTRIBUTES`
ATTRIBUTES = """\
attributes #1 = { nounwind memory(read) }
attributes #2 = { nounwind }
attributes #3 = { nounwind memory(none) }
attributes #4 = { nounwind convergent memory(none) }
attributes #5 = { nounwind convergent }
"""


class PtxMachine(AsynchronousInstructions):
    """Writes instructions for one NVIDIA architecture."""

    def __init__(self, code: Code, target: NvidiaTarget) -> None:
        self.code, self.target = code, target
        self.warp_size = target.warp_size
        self.shared_limit = target.shared_bytes
        self.has_stmatrix = target.has_stmatrix
        self.has_ldmatrix = True
        self.has_copies = target.compute_capability >= (8, 0)

    # -- places -----------------------------------------------------------------------------------

    def thread_number(self) -> str:
        return self._special("tid.x")

    def program_number(self, axis: int) -> str:
        return self._special(f"ctaid.{'xyz'[axis]}")

    def program_count(self, axis: int) -> str:
        return self._special(f"nctaid.{'xyz'[axis]}")

    def _special(self, name: str) -> str:
        return self.code.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}", "", 0)

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

    # -- memory -----------------------------------------------------------------------------------

    def masked_load(
        self, address: str, flag: str, word_bits: int, others: Sequence[str]
    ) -> list[str]:
        count = len(others)
        registers = ", ".join(f"${i}" for i in range(count))
        vector = f"v{count}." if count > 1 else ""
        target = f"{{{registers}}}" if count > 1 else registers
        text = f"@${2 * count} ld.global.{vector}b{word_bits} {target}, [${2 * count + 1}];"
        kind = _CONSTRAINTS[word_bits]
        # LLVM's alias analysis believes assembly to access memory only if it says so here too.
        ties = [str(i) for i in range(count)]
        constraints = [*([f"={kind}"] * count), *ties, "b", "l", "~{memory}"]
        inputs = self._inputs(word_bits, others)
        arguments = [*inputs, f"i1 {flag}", f"ptr addrspace(1) {address}"]
        words = self._assembly(text, constraints, arguments, _held(word_bits), count, _READS)
        if word_bits == 8:
            return [self.code.assign(f"trunc i16 {word} to i8") for word in words]
        return words

    def masked_store(self, address: str, flag: str, word_bits: int, words: Sequence[str]) -> None:
        self._masked_store("global", "ptr addrspace(1)", address, flag, word_bits, words)

    def masked_shared_store(
        self, address: str, flag: str, word_bits: int, words: Sequence[str]
    ) -> None:
        self._masked_store("shared", "ptr addrspace(3)", address, flag, word_bits, words)

    def _masked_store(
        self, space: str, pointer: str, address: str, flag: str, bits: int, words: Sequence[str]
    ) -> None:
        count = len(words)
        registers = ", ".join(f"${i + 2}" for i in range(count))
        vector = f"v{count}." if count > 1 else ""
        source = f"{{{registers}}}" if count > 1 else registers
        text = f"@$0 st.{space}.{vector}b{bits} [$1], {source};"
        where = "r" if space == "shared" else "l"
        constraints = ["b", where, *([_CONSTRAINTS[bits]] * count), "~{memory}"]
        arguments = [f"i1 {flag}", f"{pointer} {address}", *self._inputs(bits, words)]
        self._assembly(text, constraints, arguments, "void", 0, _WRITES)

    def _inputs(self, bits: int, words: Sequence[str]) -> list[str]:
        """Words as operands; there are no registers of 8 bits."""
        if bits == 8:
            words = [self.code.assign(f"zext i8 {word} to i16") for word in words]
        return [f"{_held(bits)} {word}" for word in words]

    def compare_and_swap_16(self, address: str, expected: str, new: str) -> str:
        arguments = [f"ptr addrspace(1) {address}", f"i16 {expected}", f"i16 {new}"]
        constraints = ["=h", "l", "h", "h", "~{memory}"]
        text = "atom.relaxed.sys.global.cas.b16 $0, [$1], $2, $3;"
        return self._assembly(text, constraints, arguments, "i16", 1, _WRITES)[0]

    def load_matrices(self, address: str, count: int, *, transposed: bool) -> list[str]:
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{_trans(transposed)}.b16.p3"
        kind = "i32" if count == 1 else _structure("i32", count)
        whole = self.code.call(kind, name, f"ptr addrspace(3) {address}")
        return self._fields(whole, kind, count)

    def store_matrices(self, address: str, words: Sequence[str], *, transposed: bool) -> None:
        count = len(words)
        name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{count}{_trans(transposed)}.b16.p3"
        arguments = ", ".join([f"ptr addrspace(3) {address}", *(f"i32 {w}" for w in words)])
        self.code.call("void", name, arguments)

    # -- products ---------------------------------------------------------------------------------

    def operand_word(self, element: str, word: str) -> str:
        """Round an operand to what the instruction multiplies: tf32 is cut off otherwise."""
        if element != "tf32":
            return word
        text = "cvt.rna.tf32.f32 $0, $1;"
        return self._assembly(text, ["=r", "r"], [f"i32 {word}"], "i32", 1, _PURE)[0]

    def multiply_add(
        self, element: str, a: Sequence[str], b: Sequence[str], sums: Sequence[str]
    ) -> list[str]:
        """Write one `mma.sync` of 16 rows and 8 columns."""
        names = {"i8": "s8", "u8": "u8", "fp16": "f16"}
        depth = {"tf32": 8, "i8": 32, "u8": 32}.get(element, 16)
        kind = names.get(element, element)
        result = "s32" if element in {"i8", "u8"} else "f32"
        held, letter = ("i32", "r") if result == "s32" else ("float", "f")
        d, c = (_list(start, 4) for start in (0, 10))
        text = (
            f"mma.sync.aligned.m16n8k{depth}.row.col.{result}.{kind}.{kind}.{result} "
            f"{d}, {_list(4, 4)}, {_list(8, 2)}, {c};"
        )
        constraints = [f"={letter}"] * 4 + ["r"] * 6 + [letter] * 4
        arguments = [*(f"i32 {w}" for w in (*a, *b)), *(f"{held} {s}" for s in sums)]
        return self._assembly(text, constraints, arguments, held, 4, _TOGETHER)

    # -- inline assembly --------------------------------------------------------------------------

    def _assembly(
        self,
        text: str,
        constraints: Sequence[str],
        arguments: Sequence[str],
        kind: str,
        results: int,
        attributes: str,
    ) -> list[str]:
        returned = "void" if not results else kind if results == 1 else _structure(kind, results)
        effect = "sideeffect " if attributes == _WRITES else ""
        call = (
            f'call {returned} asm {effect}"{text}", "{",".join(constraints)}"'
            f"({', '.join(arguments)}) {attributes}"
        )
        if not results:
            self.code.line(call)
            return []
        return self._fields(self.code.assign(call), returned, results)

    def _fields(self, whole: str, kind: str, count: int) -> list[str]:
        if count == 1:
            return [whole]
        return [self.code.assign(f"extractvalue {kind} {whole}, {i}") for i in range(count)]


def _held(bits: int) -> str:
    """The type of the register that holds a word."""
    return f"i{max(16, bits)}"


def _list(start: int, count: int) -> str:
    return f"{{{', '.join(f'${start + i}' for i in range(count))}}}"


def _structure(kind: str, count: int) -> str:
    return f"{{ {', '.join([kind] * count)} }}"


def _trans(transposed: bool) -> str:
    return ".trans" if transposed else ""
