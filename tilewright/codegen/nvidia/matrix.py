"""`mma.sync`, for every type and architecture (PTX ISA, "Matrix multiply-accumulate").

What is asked for are tiles of 16 rows, 8 columns and 32 bytes along k (8 rows and 4 numbers of
fp64). Turing multiplies a half or a quarter of one at once; the fragments are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.nvidia.assembly import PURE, TOGETHER, Assembly, listed
from tilewright.target import NvidiaTarget

__all__ = ["MatrixInstructions"]

_NAMES = {
    "fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp64": "f64", "i8": "s8", "u8": "u8",
    "fp8e4nv": "e4m3", "fp8e5": "e5m2",
}  # fmt: skip
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "f64": 4, "s8": 32, "u8": 32, "e4m3": 32, "e5m2": 32}
_EIGHT_BITS = frozenset({"e4m3", "e5m2"})
# Of a sum: its name in an instruction, its LLVM type and its constraint in assembly.
_SUMS = {
    "fp32": ("f32", "float", "f"),
    "fp16": ("f16", "i32", "r"),
    "fp64": ("f64", "double", "d"),
    "i32": ("s32", "i32", "r"),
}


class MatrixInstructions(Assembly):
    """Writes matrix instructions."""

    target: NvidiaTarget

    def round_to_tf32(self, word: str) -> str:
        text = "cvt.rna.tf32.f32 $0, $1;"
        return self.assembly(text, ["=r", "r"], [f"i32 {word}"], "i32", 1, PURE)[0]

    def round_to_bf16(self, low: str, high: str) -> str:
        arguments = f"float {high}, float {low}"
        pair = self.code.call("<2 x bfloat>", "llvm.nvvm.ff2bf16x2.rn", arguments)
        return self.code.assign(f"bitcast <2 x bfloat> {pair} to i32")

    def multiply_add(
        self,
        elements: tuple[str, str],
        total: str,
        a: Sequence[str],
        b: Sequence[str],
        sums: Sequence[str],
    ) -> list[str]:
        left, right = (_NAMES[name] for name in elements)
        if left in _EIGHT_BITS and self.target.unpacks_fp8_operands:
            a, b = [self._hidden(word) for word in a], [self._hidden(word) for word in b]
        held = list(sums)
        if total == "fp16":
            held = [self._halves(sums[i], sums[i + 1]) for i in (0, 2)]
        if left == "f64":
            held = self._multiply("m8n8k4", left, right, total, a, b, held)
        elif self.target.compute_capability >= (8, 0):
            shape = f"m16n8k{_DEPTHS[left]}"
            held = self._multiply(shape, left, right, total, a, b, held)
        elif left == "f16":
            for half in (0, 1):
                words = a[2 * half : 2 * half + 2], b[half : half + 1]
                held = self._multiply("m16n8k8", left, right, total, *words, held)
        else:
            for half in (0, 1):
                for rows, first in ((0, 0), (1, 2)):
                    words = a[2 * half + rows : 2 * half + rows + 1], b[half : half + 1]
                    held[first : first + 2] = self._multiply(
                        "m8n8k16", left, right, total, *words, held[first : first + 2]
                    )
        if total == "fp16":
            return [text for word in held for text in self._two_halves(word)]
        return held

    def _multiply(
        self,
        shape: str,
        left: str,
        right: str,
        total: str,
        a: Sequence[str],
        b: Sequence[str],
        sums: Sequence[str],
    ) -> list[str]:
        name, kind, letter = _SUMS[total]
        operand, register = ("double", "d") if left == "f64" else ("i32", "r")
        starts = [0, len(sums), len(sums) + len(a), len(sums) + len(a) + len(b)]
        counts = [len(sums), len(a), len(b), len(sums)]
        lists = [listed(start, count) for start, count in zip(starts, counts, strict=True)]
        text = f"mma.sync.aligned.{shape}.row.col.{name}.{left}.{right}.{name} {', '.join(lists)};"
        constraints = [
            *[f"={letter}"] * len(sums), *[register] * (len(a) + len(b)), *[letter] * len(sums)
        ]  # fmt: skip
        arguments = [*(f"{operand} {w}" for w in (*a, *b)), *(f"{kind} {s}" for s in sums)]
        return self.assembly(text, constraints, arguments, kind, len(sums), TOGETHER)

    def _hidden(self, word: str) -> str:
        """Return an operand of fp8 of which the assembler does not know that it is constant.

        Where the tensor cores take no fp8, ptxas (12.8 to 13.0) unpacks operands to fp16, and the
        upper half of a constant 0 (padding, say) to 2^-6: it encodes the half as a bit of the 0.
        """
        code = self.code
        is_constant = code.call("i1", "llvm.is.constant.i32", f"i32 {word}")
        # A grid has less than 2^31 blocks along x.
        text = "mov.u32 $0, %nctaid.x; shr.u32 $0, $0, 31;"
        (zero,) = self.assembly(text, ["=r"], [], "i32", 1, PURE)
        hidden = code.assign(f"or i32 {word}, {zero}")
        return code.assign(f"select i1 {is_constant}, i32 {hidden}, i32 {word}")

    def _halves(self, low: str, high: str) -> str:
        code = self.code
        pair = code.assign(f"insertelement <2 x half> poison, half {low}, i32 0")
        pair = code.assign(f"insertelement <2 x half> {pair}, half {high}, i32 1")
        return code.assign(f"bitcast <2 x half> {pair} to i32")

    def _two_halves(self, word: str) -> list[str]:
        pair = self.code.assign(f"bitcast i32 {word} to <2 x half>")
        return [self.code.assign(f"extractelement <2 x half> {pair}, i32 {i}") for i in (0, 1)]
