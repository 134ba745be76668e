"""Products by multiplying and adding, element by element: what no instruction multiplies.

Each thread sums up a block of the result. A loop goes along k in steps: it loads what the block
needs of both operands from shared memory, a step at a time, so that a thread holds little beside
its sums, however long k is. Operands that are too large for shared memory pass through it in parts
along k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from math import gcd, prod
from operator import or_

from tilewright import ops
from tilewright.codegen.code import Code, dtype, llvm_type
from tilewright.codegen.gpu.operands import (
    matrix_of,
    operand_elements,
    put_operand,
    tile_of_matrix,
)
from tilewright.codegen.gpu.products import ProductPlan
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.shared_area import LazyRegisters, SharedArea, Shift
from tilewright.codegen.gpu.shared_tile import SharedTile, TileMemory
from tilewright.codegen.gpu.threads import linear_function
from tilewright.codegen.gpu.views import cut, padded
from tilewright.codegen.wider import extended, float_of
from tilewright.ir.core import Value
from tilewright.ir.types import DType
from tilewright.layout import LinearLayout, memory_between, register_copies
from tilewright.layout.blocked import axis_names, blocked
from tilewright.layout.linear import Dimension

__all__ = ["ElementProduct", "element_product", "hold_operand", "multiply_elements"]

_VECTOR_BYTES, _WORD_BYTES = 16, 4
_LANE_COLUMNS = 8  # lanes of a warp along n, if there are as many columns
_WORDS = 3 << 14  # of the 4 << 14 of a multiprocessor


@dataclass(frozen=True)
class ElementProduct(ProductPlan):
    """A product of which each thread multiplies a block, `step` elements along k at a time.

    The operands' layouts are where a thread has what it needs for the first step: the lower bits of
    registers are those of the accumulator, the higher ones go along k.
    """

    step: int


def element_product(
    op: ops.Dot, warp_size: int, num_warps: int, *, chained: bool, deep: bool
) -> ElementProduct:
    """Return a plan in which the block of a thread has about as many rows as columns.

    As many of them are neighbours as one load brings. But the operand B of `deep` products may lie
    in shared memory as it was loaded, along k: there lanes wait for each other unless they read
    neighbouring columns. `chained` products keep whole rows in a warp, and leave neighbours to a
    thread for what reads them.
    """
    shape, k = padded(op.acc.shape), padded(op.a.shape)[-1]
    rank = len(shape)
    m, n = rank - 2, rank - 1
    sizes, lanes, warps = ([1] * rank for _ in range(3))
    for axis in range(m):
        warps[axis] = min(num_warps // prod(warps), shape[axis])
    lanes[n] = min(_LANE_COLUMNS, shape[n])
    lanes[m] = warp_size // lanes[n]
    rows, columns = (max(1, shape[axis] // lanes[axis]) for axis in (m, n))
    warps[m], warps[n] = _warps(rows, columns, num_warps // prod(warps), chained=chained)
    for axis, value in ((m, op.a), (n, op.b)):
        in_thread = max(1, shape[axis] // (lanes[axis] * warps[axis]))
        sizes[axis] = min(_VECTOR_BYTES // value.type.element.itemsize, in_thread)
    if deep and not chained:
        sizes[n] = 1
    accumulator = blocked(shape, sizes, lanes, warps, tuple(reversed(range(rank))))
    most = _WORDS // max(256, warp_size * num_warps)
    step = _step(op, accumulator, most // 2 if chained else most)
    a, b = (_operand(accumulator, axis, k, step) for axis in (n, m))
    return ElementProduct(accumulator, a, b, step)


def _warps(rows: int, columns: int, count: int, *, chained: bool) -> tuple[int, int]:
    along_m, along_n = 1, 1
    while along_m * along_n < count:
        fits_m, fits_n = rows > along_m, columns > along_n
        taller = rows // along_m >= columns // along_n
        if (fits_m and (chained or taller)) or not fits_n:
            along_m *= 2
        else:
            along_n *= 2
    return along_m, along_n


def _operand(accumulator: LinearLayout, axis: int, k: int, step: int) -> LinearLayout:
    """An operand: `step` elements along k in each thread, the other axis as in the result.

    `axis` is that of the result which the operand has not; k stands in its place.
    """
    names = axis_names(len(accumulator.outputs))
    along_k = LinearLayout.identity(step, "register", names[axis])
    beyond = LinearLayout((), (Dimension(names[axis], (k // step).bit_length() - 1),), ())
    found = accumulator.remove_output(names[axis]) * along_k * beyond
    return found.transpose_outputs(names)


def _step(op: ops.Dot, accumulator: LinearLayout, most: int) -> int:
    """How many elements along k a thread multiplies at a time, if it has room for `most` words.

    It divides the size of k, so that nothing is read that lies beyond the end.
    """
    rank = len(accumulator.outputs)
    size = accumulator.input_size("register") * op.acc.type.element.itemsize
    for_one = 0
    for axis, value in ((rank - 1, op.a), (rank - 2, op.b)):
        held = set(register_copies(accumulator.remove_output(f"dim{axis}")))
        for_one += len(held) * value.type.element.itemsize
    step = gcd(op.a.shape[-1], _VECTOR_BYTES // op.a.type.element.itemsize)
    while step > 1 and size + step * for_one > most * _WORD_BYTES:
        step //= 2
    return step


# -- operands in shared memory --------------------------------------------------------------------


@contextmanager
def hold_operand(puller: Puller, op: ops.Dot, plan: ElementProduct, value: Value) -> Iterator[None]:
    """Inside, an operand that does not change is computed, and in shared memory if it fits."""
    if puller.tile_of(value) is not None:
        yield
        return
    if _size_bytes(value) > puller.machine.scratch_limit:
        operand_elements(puller, value)
        yield
        return
    matrix, target = matrix_of(value), plan.a if value is op.a else plan.b
    with _put(puller, value, target) as tile:
        puller.shared.barrier()
        puller.tiles[matrix] = tile_of_matrix(value, tile)
        yield
        del puller.tiles[matrix]


def _size_bytes(value: Value) -> int:
    return prod(padded(value.shape)) * value.type.element.itemsize


@contextmanager
def _put(
    puller: Puller, value: Value, target: LinearLayout, axis: int = 0, start: int = 0
) -> Iterator[SharedTile]:
    """Write an operand to shared memory, and keep it there inside; others see it behind a barrier.

    It is read in the layout `target`, and written from `start` on along an axis, as far as that
    goes.
    """
    memory = _memory_for(puller, value, target)
    with puller.shared.ring(memory.size_bytes, memory.alignment) as span:
        tile = SharedTile(memory, span.address)
        put_operand(puller, value, tile, axis, start)
        puller.shared.is_written = True
        yield tile


def _memory_for(puller: Puller, value: Value, target: LinearLayout) -> TileMemory:
    """How to lay out an operand, so that neither writing nor reading it waits for banks."""
    bits = value.type.element.storage_bits
    shape = tuple(output.size for output in target.outputs)
    layout = memory_between(cut(puller.placement.of_elements(value), shape), target, bits)
    first = layout.bases("offset")[:1]
    inner = next((axis for basis in first for axis, step in enumerate(basis.values()) if step), 0)
    return TileMemory(layout, bits, inner, 0)


class _SharedOperand:
    """An operand in shared memory, of which a thread loads what it needs for any step along k.

    The layout is that of the first step, `axis` is the one along k, on which the operand begins at
    `start`.
    """

    def __init__(
        self, puller: Puller, tile: SharedTile, value: Value, layout: LinearLayout,
        axis: int, start: int,
    ) -> None:  # fmt: skip
        self.puller, self.tile, self.element = puller, tile, dtype(value.type.element)
        self.access = tile.memory.access(layout, by_matrices=False)
        self.copies = register_copies(layout)
        before, behind = [0] * axis, [0] * (len(layout.outputs) - 1 - axis)
        self._start, *self._steps = (
            tile.memory.offset_bytes(*before, k, *behind)
            for k in (start, *(1 << bit for bit in range(layout.outputs[axis].bits)))
        )

    def from_k(self, k: str, kind: str) -> _Wide:
        """Return the elements of the step from `k` on, an i32, as numbers of an LLVM type."""
        code = self.puller.code
        place = linear_function(code, k, self._steps)
        if self._start:
            place = code.assign(f"xor i32 {place}, {self._start}")
        shift = Shift(place, reduce(or_, self._steps, self._start))
        bits = self.tile.memory.element_bits
        area = SharedArea(self.puller, self.tile.start, bits, shift=shift)
        registers = LazyRegisters(area, self.access, self.copies, self.element)
        return _Wide(code, registers, self.element, kind)


class _Wide:
    """The elements of registers as numbers of the type of a product's sums."""

    def __init__(self, code: Code, registers: LazyRegisters, element: DType, kind: str) -> None:
        self.code, self.registers, self.element, self.kind = code, registers, element, kind
        self._texts: dict[str, str] = {}

    def __getitem__(self, register: int) -> str:
        text = self.registers[register].text
        if text not in self._texts:
            self._texts[text] = _widened(self.code, text, self.element, self.kind)
        return self._texts[text]


def _widened(code: Code, text: str, element: DType, wide: str) -> str:
    if llvm_type(element) == wide:
        return text
    if element.is_floating():
        return float_of(code, text, element)
    return extended(code, text, element, int(wide[1:]))


# -- writing ---------------------------------------------------------------------------------------


def multiply_elements(puller: Puller, op: ops.Dot, plan: ElementProduct) -> list[str]:
    """Sum up along k in the type of the accumulator; return the elements of its registers."""
    sums = [e.text for e in puller.pull_all(op.acc, plan.accumulator)]
    size, k = _size_of_parts(puller, op, plan), op.a.shape[-1]
    for start in range(0, k, size):
        with _in_shared(puller, op, plan, start, size) as (a, b):
            sums = _add_steps(puller.code, op, plan, sums, (a, b), min(size, k - start))
    return sums


def _size_of_parts(puller: Puller, op: ops.Dot, plan: ElementProduct) -> int:
    """How many elements along k of the operands are in shared memory at a time."""
    put = [_size_bytes(value) for value in (op.a, op.b) if puller.tile_of(value) is None]
    size, largest = padded(op.a.shape)[-1], max(put, default=0)
    while size > plan.step and largest > puller.machine.scratch_limit:
        size, largest = size // 2, largest // 2
    return size


@contextmanager
def _in_shared(
    puller: Puller, op: ops.Dot, plan: ElementProduct, start: int, size: int
) -> Iterator[tuple[_SharedOperand, ...]]:
    """Inside, `size` elements along k of both operands, from `start` on, lie in shared memory."""
    found, is_put, last = [], False, op.a.type.rank - 1
    with ExitStack() as stack:
        for value, layout, axis in ((op.a, plan.a, last), (op.b, plan.b, last - 1)):
            tile = puller.tile_of(value)
            if tile is not None:
                found.append(_SharedOperand(puller, tile, value, layout, axis, start))
                continue
            shape = [output.size for output in layout.outputs]
            shape[axis] = size
            part = cut(layout, tuple(shape))
            tile = stack.enter_context(_put(puller, value, part, axis, start))
            found.append(_SharedOperand(puller, tile, value, part, axis, 0))
            is_put = True
        if is_put:
            puller.shared.barrier()
        yield tuple(found)


def _add_steps(
    code: Code, op: ops.Dot, plan: ElementProduct, sums: Sequence[str],
    operands: tuple[_SharedOperand, ...], size: int,
) -> list[str]:  # fmt: skip
    """Return sums to which the products of `size` elements along k are added, in a loop."""
    kind = llvm_type(op.acc.type.element)
    slots = [code.alloca(kind) for _ in sums]
    for text, slot in zip(sums, slots, strict=True):
        code.line(f"store {kind} {text}, ptr {slot}")
    with code.counted_loop("0", str(size), str(plan.step)) as k:
        found = [code.assign(f"load {kind}, ptr {slot}") for slot in slots]
        a, b = (operand.from_k(k, kind) for operand in operands)
        for place in range(plan.step * len(found)):
            number = place % len(found)
            found[number] = _multiply_add(code, kind, a[place], b[place], found[number])
        for text, slot in zip(found, slots, strict=True):
            code.line(f"store {kind} {text}, ptr {slot}")
    return [code.assign(f"load {kind}, ptr {slot}") for slot in slots]


def _multiply_add(code: Code, kind: str, x: str, y: str, total: str) -> str:
    if kind in {"float", "double"}:
        suffix = "f32" if kind == "float" else "f64"
        return code.call(kind, f"llvm.fma.{suffix}", f"{kind} {x}, {kind} {y}, {kind} {total}")
    product = code.assign(f"mul {kind} {x}, {y}")
    return code.assign(f"add {kind} {product}, {total}")
