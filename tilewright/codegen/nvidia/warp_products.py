"""Products by `mma.sync`: each warp multiplies small tiles from registers.

An instruction takes whole tiles. Rows and columns that a kernel's tile lacks are copies of others,
and what is computed for them is left out; along k they are zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Code, dtype, llvm_type
from tilewright.codegen.gpu.fragments import Corner, instruction_tiles, packed
from tilewright.codegen.gpu.pairs import Pairs
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.threads import register_offset, thread_columns
from tilewright.codegen.nvidia.product_plans import WarpProduct
from tilewright.ir.core import Value

__all__ = ["MatrixMachine", "multiply_by_warps"]

_COLUMNS = 8  # of the accumulator of one instruction
# Pieces of both operands whose products count, from the smallest to the largest but one.
_SMALL_PRODUCTS = {2: ((1, 0), (0, 1)), 3: ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1))}


class MatrixMachine(Protocol):
    """Writes matrix instructions."""

    def round_to_tf32(self, word: str) -> str:
        """Round an fp32 number, to nearest; both are words."""

    def round_to_bf16(self, low: str, high: str) -> str:
        """Round two fp32 numbers to nearest even and return them as a word."""

    def multiply_add(
        self,
        elements: tuple[str, str],
        total: str,
        a: Sequence[str],
        b: Sequence[str],
        sums: Sequence[str],
    ) -> list[str]:
        """Return sums + a b for one instruction's fragments; `a` and `b` are words (or fp64).

        `elements` and `total` name the types of both operands and of the sums.
        """


def multiply_by_warps(
    puller: Puller, machine: MatrixMachine, op: ops.Dot, plan: WarpProduct
) -> list[str]:
    """Write a product and return the elements of the accumulator's registers."""
    sums = [e.text for e in puller.pull_all(op.acc, plan.accumulator)]
    with puller.lazily():
        product = _Product(puller, machine, op, plan, sums)
        if product.pieces > 1:
            product.add_pieces()
        elif 0 < op.max_num_imprecise_acc < op.a.shape[-1] and dtype(op.a.type.element).is_fp8():
            product.add_in_parts(op.max_num_imprecise_acc)
        else:
            product.add(product.steps, product.sums)
    return product.sums


class _Product:
    """One product while it is being written."""

    def __init__(
        self,
        puller: Puller,
        machine: MatrixMachine,
        op: ops.Dot,
        plan: WarpProduct,
        sums: list[str],
    ) -> None:
        self.code, self.machine, self.plan = puller.code, machine, plan
        names = (plan.element, plan.element)
        if plan.element.startswith("fp8"):
            names = (dtype(op.a.type.element).short_name, dtype(op.b.type.element).short_name)
        self.elements = names
        whole = plan.whole
        self.pieces = whole.pieces
        self.a = _Operand(puller, machine, op.a, plan, is_left=True)
        self.b = _Operand(puller, machine, op.b, plan, is_left=False)
        self.tiles = instruction_tiles(whole.accumulator, (whole.rows, _COLUMNS))
        self.steps = range(0, op.a.shape[-1], plan.depth)
        self.total, self.sums = dtype(op.acc.type.element).short_name, sums

    def add(
        self, steps: Iterable[int], sums: list[str], pieces: Sequence[tuple[int, int]] = ((0, 0),)
    ) -> None:
        """Add to `sums`: all tiles for a step along k, before the next step."""
        for k in steps:
            for corner, registers in self.tiles.items():
                *batch, row, column = corner
                for left, right in pieces:
                    before = [sums[r] for r in registers]
                    a = self.a.words((*batch, row, k))[left]
                    b = self.b.words((*batch, k, column))[right]
                    new = self.machine.multiply_add(self.elements, self.total, a, b, before)
                    for register, text in zip(registers, new, strict=True):
                        sums[register] = text

    def add_in_parts(self, length: int) -> None:
        """Add up to `length` products by the instruction, and those sums in fp32."""
        count = max(1, length // self.plan.depth)
        for first in range(0, len(self.steps), count):
            part = self._zeros()
            self.add(self.steps[first : first + count], part)
            self._add_up(part)

    def add_pieces(self) -> None:
        """Add the products of the largest pieces, and those of others with sums of their own.

        Where a number is infinite its small pieces are not numbers, and its large one says it all.
        """
        small = self._zeros()
        for k in self.steps:
            self.add([k], small, _SMALL_PRODUCTS[self.pieces])
            self.add([k], self.sums)
        self._add_up([_finite(self.code, text) for text in small])

    def _zeros(self) -> list[str]:
        return ["0.0"] * len(self.sums)

    def _add_up(self, others: Sequence[str]) -> None:
        for register, text in enumerate(others):
            total = f"fadd float {self.sums[register]}, {text}"
            self.sums[register] = self.code.assign(total)


def _finite(code: Code, text: str) -> str:
    size = code.call("float", "llvm.fabs.f32", f"float {text}")
    flag = code.assign(f"fcmp olt float {size}, 0x7FF0000000000000")
    return code.assign(f"select i1 {flag}, float {text}, float 0.0")


class _Operand:
    """The words of an operand for each instruction, written when they are first asked for."""

    def __init__(
        self,
        puller: Puller,
        machine: MatrixMachine,
        value: Value,
        plan: WarpProduct,
        *,
        is_left: bool,
    ) -> None:
        self.puller, self.machine, self.value, self.plan = puller, machine, value, plan
        whole = plan.whole
        self.pieces = whole.pieces
        self.held, self.whole = (plan.a, whole.a) if is_left else (plan.b, whole.b)
        self.k_axis = len(value.shape) - (1 if is_left else 2)
        self.kind = dtype(value.type.element)
        tile = (whole.rows, plan.depth) if is_left else (plan.depth, _COLUMNS)
        self.pairs = Pairs(puller)
        self._tiles = instruction_tiles(self.whole, tile)
        self._words: dict[Corner, list[list[str]]] = {}

    def words(self, corner: Corner) -> list[list[str]]:
        """Return the words of each piece of a tile."""
        if corner not in self._words:
            registers = self._tiles[corner]
            if self._is_of_pairs():
                self._words[corner] = [self.pairs.words(self.value, self.held, registers)]
            else:
                self._words[corner] = self._pieces([self._element(r) for r in registers])
        return self._words[corner]

    def _is_of_pairs(self) -> bool:
        """Whether a word is two elements, and none is beyond the end along k."""
        whole_size = self.whole.output_size(f"dim{self.k_axis}")
        return self.kind.primitive_bitwidth == 16 and whole_size == self.value.shape[self.k_axis]

    def _element(self, register: int) -> str:
        """Return an element, 0 beyond the end along k."""
        size = self.value.shape[self.k_axis]
        first = register_offset(self.whole, self.k_axis, register)
        if first >= size:
            return "zeroinitializer"
        text = self.puller.pull(self.value, self.held, register).text
        if first + sum(thread_columns(self.whole, self.k_axis)) < size:
            return text
        code, kind = self.puller.code, llvm_type(self.kind)
        where = self.puller.threads.coordinate(self.whole, self.k_axis, register)
        flag = code.assign(f"icmp ult i32 {where.text}, {size}")
        return code.assign(f"select i1 {flag}, {kind} {text}, {kind} zeroinitializer")

    def _pieces(self, texts: list[str]) -> list[list[str]]:
        element = self.plan.element
        if element == "fp64":
            return [texts]
        if element == "tf32":
            return _tf32_pieces(self.puller.code, self.machine, texts, self.pieces)
        if self.kind.short_name == "fp32":
            return _bf16_pieces(self.puller.code, self.machine, texts, self.pieces)
        return [packed(self.puller.code, texts, self.kind)]


def _tf32_pieces(
    code: Code, machine: MatrixMachine, texts: Sequence[str], count: int
) -> list[list[str]]:
    """Return numbers as sums of tf32 numbers: each is what is left, rounded."""
    pieces: list[list[str]] = [[] for _ in range(count)]
    for text in texts:
        rest = text
        for number, piece in enumerate(pieces):
            if number:
                kept = code.assign(f"and i32 {pieces[number - 1][-1]}, {-1 << 13}")
                before = code.assign(f"bitcast i32 {kept} to float")
                rest = code.assign(f"fsub float {rest}, {before}")
            piece.append(machine.round_to_tf32(code.assign(f"bitcast float {rest} to i32")))
    return pieces


def _bf16_pieces(
    code: Code, machine: MatrixMachine, texts: Sequence[str], count: int
) -> list[list[str]]:
    """Return numbers as sums of bf16 numbers, two to a word."""
    pieces: list[list[str]] = [[] for _ in range(count)]
    for first in range(0, len(texts), 2):
        low, high = texts[first : first + 2]
        for number, piece in enumerate(pieces):
            if number:
                word = pieces[number - 1][-1]
                lower = code.assign(f"shl i32 {word}, 16")
                upper = code.assign(f"and i32 {word}, {-1 << 16}")
                low = _less(code, low, lower)
                high = _less(code, high, upper)
            piece.append(machine.round_to_bf16(low, high))
    return pieces


def _less(code: Code, text: str, bits: str) -> str:
    return code.assign(f"fsub float {text}, {code.assign(f'bitcast i32 {bits} to float')}")
