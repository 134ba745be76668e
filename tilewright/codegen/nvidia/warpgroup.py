"""Products of warpgroups: four warps multiply 64 rows, B (and A, where it can be) in shared memory.

An operand that has been copied to shared memory is read where it lies. What has been computed is
put there first, but for A, which instructions also take from registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.fragments import Fragments, instruction_tiles
from tilewright.codegen.gpu.machine import CopyMachine
from tilewright.codegen.gpu.operands import matrix_of, put_operand, tile_of_matrix
from tilewright.codegen.gpu.placement import Placement
from tilewright.codegen.gpu.pull import Puller, Resident
from tilewright.codegen.gpu.shared import SHARED
from tilewright.codegen.gpu.shared_tile import SharedTile, TileMemory, memory_of
from tilewright.codegen.gpu.views import padded
from tilewright.codegen.nvidia.asynchronous import MatrixDescriptor
from tilewright.codegen.nvidia.product_plans import WarpgroupProduct
from tilewright.codegen.nvidia.running import PutOperand, RunningProduct, RunningProducts
from tilewright.ir.core import Value
from tilewright.layout import Rename, Shuffles, plan_conversion, register_copies

__all__ = [
    "WarpgroupMachine", "hold_in_shared", "is_read_from_registers", "multiply_by_warpgroups",
]  # fmt: skip

_ROWS = 64
_WARPS = 4
_WARP_ROWS = 16
_SWIZZLE_CODES = {128: 1, 64: 2, 32: 3}
_CORE_ROWS = 8


class WarpgroupMachine(CopyMachine, Protocol):
    """Writes products that run on while the thread goes ahead."""

    def hold_words(self, words: Sequence[str]) -> list[str]:
        """Return words in registers, those that are constants too."""

    def begin_products(self, sums: Sequence[str], kind: str) -> list[str]:
        """Let the registers that have been written be seen by products; return the sums."""

    def commit_products(self) -> None:
        """End a group of products."""

    def wait_for_products(self, running: int, sums: Sequence[str], kind: str) -> list[str]:
        """Wait until at most so many groups run on; return the sums as they are then."""

    def start_product(
        self, shape: tuple[int, int, int], element: str, a: Sequence[str] | MatrixDescriptor,
        b: MatrixDescriptor, sums: Sequence[str], *, transposed: tuple[bool, bool],
    ) -> list[str]:  # fmt: skip
        """Start a product of 64 rows, added to `sums` where there are any; return what will be."""


def is_read_from_registers(placement: Placement, op: ops.Dot) -> bool:
    """Whether an operand A has been computed, and is in a warp where its product reads it.

    If another product reads it from shared memory, this one does so, too.
    """
    return _is_in_place(placement, op) and not any(
        role == 1 or not _is_in_place(placement, other)
        for other, role in _other_readers(placement, op, op.a)
    )


def _is_in_place(placement: Placement, op: ops.Dot) -> bool:
    value = op.a
    while isinstance(value, ops.Permute | ops.Hint | ops.Reshape):
        value = value.x
    if isinstance(value, ops.Load | ops.DescriptorLoad):
        return False
    if not any(_is_product(leaf) for leaf, _ in placement.uses.leaves((op.a,))):
        return True  # it can be computed anywhere
    source, target = placement.of_elements(op.a), placement.product(op).a
    plan = plan_conversion(source, target, op.a.type.element.storage_bits)
    return isinstance(plan, Rename | Shuffles)


def _is_product(value: Value) -> bool:
    return isinstance(value, ops.Dot)


def _other_readers(
    placement: Placement, op: ops.Dot, value: Value
) -> Iterator[tuple[ops.Dot, int]]:
    """The products of the block that read the same matrix, as operand 0 or 1."""
    if value.type.element.storage_bits != 16:
        return  # they could not read it both along its rows and along its columns
    matrix = matrix_of(value)
    for other in placement.uses.block_of[op].ops:
        if isinstance(other, ops.Dot) and placement.product(other).runs_on:
            for role, operand in enumerate((other.a, other.b)):
                if matrix_of(operand) is matrix and (other is not op or operand is not value):
                    yield other, role


def _is_computed_from_tiles(puller: Puller, value: Value) -> bool:
    """Whether a tile is computed from others in shared memory: then it need not be held at once."""
    leaves = [leaf for leaf, _ in puller.uses.leaves((value,))]
    return any(leaf in puller.tiles for leaf in leaves) and not any(map(_is_product, leaves))


def multiply_by_warpgroups(
    puller: Puller,
    machine: WarpgroupMachine,
    op: ops.Dot,
    plan: WarpgroupProduct,
    *,
    running: RunningProducts | None,
) -> None:
    """Start a product, which joins those that are `running`.

    Without them it is left to the caller when its sums are there.
    """
    placement = puller.placement
    adds = not (isinstance(op.acc, ops.Full) and not op.acc.value)
    sums = [e.text if adds else "" for e in puller.pull_all(op.acc, plan.accumulator)]
    words = Fragments(puller, op.a, plan.a, (_WARP_ROWS, plan.depth))
    from_registers = is_read_from_registers(placement, op)
    streams = from_registers and _is_computed_from_tiles(puller, op.a)
    if from_registers and not streams:
        words.hold(machine.hold_words)
    values = (op.b,) if from_registers else (op.a, op.b)
    tiles, put = _operands(puller, placement, machine, op, values, running)
    b = _MatrixDescriptors(puller, tiles[-1], plan, axis=1)
    a = None if from_registers else _MatrixDescriptors(puller, tiles[0], plan, axis=0)
    kind = "float" if plan.element not in {"i8", "u8"} else "i32"
    if streams:
        _stream(machine, plan, sums, words, b, kind, adds=adds, is_behind=running is None)
    else:
        _begin(machine, plan, sums if adds else [], kind)
        for k in range(0, plan.a.output_size("dim1"), plan.depth):
            _start(machine, plan, sums, words if a is None else a, b, k, adds=adds)
        machine.commit_products()
        if running is None:
            machine.wait_for_products(1, [], kind)
    if running is not None:
        held = matrix_of(op.a) if from_registers else None
        running.start(RunningProduct(op, plan.accumulator, tuple(sums), kind, held, tuple(put)))
        return
    level = puller.code.level
    elements = tuple(Element(text, 1, level) for text in sums)
    puller.residents[op] = Resident(plan.accumulator, elements)


def _stream(
    machine: WarpgroupMachine,
    plan: WarpgroupProduct,
    sums: list[str],
    a: Fragments,
    b: _MatrixDescriptors,
    kind: str,
    *,
    adds: bool,
    is_behind: bool,
) -> None:
    """Start a product step by step: what a step reads is computed while those before it run.

    Where the product of the last iteration runs on, and this one is behind it, its registers are
    written again as soon as its own step has read them; so it has ended when the last step starts.
    """
    steps = range(0, plan.a.output_size("dim1"), plan.depth)
    for k in steps:
        if is_behind:
            machine.wait_for_products(len(steps) - 1, [], kind)
        a.hold(machine.hold_words, k)
        _begin(machine, plan, [] if k or not adds else sums, kind)
        _start(machine, plan, sums, a, b, k, adds=adds)
        if is_behind or k == steps[-1]:
            machine.commit_products()


def _begin(machine: WarpgroupMachine, plan: WarpgroupProduct, sums: list[str], kind: str) -> None:
    """Let products see what is in registers, and add to `sums`, if there are any."""
    first = sorted(set(register_copies(plan.accumulator))) if sums else []
    fenced = machine.begin_products([sums[r] for r in first], kind)
    for register, text in zip(first, fenced, strict=True):
        sums[register] = text


def _start(
    machine: WarpgroupMachine,
    plan: WarpgroupProduct,
    sums: list[str],
    a: Fragments | _MatrixDescriptors,
    b: _MatrixDescriptors,
    k: int,
    *,
    adds: bool,
) -> None:
    """Start the instructions of the step from `k` on."""
    shape = _ROWS, plan.columns, plan.depth
    transposed = isinstance(a, _MatrixDescriptors) and a.is_transposed, b.is_transposed
    tiles = instruction_tiles(plan.accumulator, (_WARP_ROWS, plan.columns))
    for (row, column), registers in tiles.items():
        before = [sums[r] for r in registers] if adds or k else []
        new = machine.start_product(
            shape, plan.element, a[row, k], b[k, column], before, transposed=transposed
        )
        for register, text in zip(registers, new, strict=True):
            sums[register] = text


# -- operands in shared memory --------------------------------------------------------------------


def _operands(
    puller: Puller,
    placement: Placement,
    machine: WarpgroupMachine,
    op: ops.Dot,
    values: Sequence[Value],
    running: RunningProducts | None,
) -> tuple[list[SharedTile], list[PutOperand]]:
    """Tiles of the operands in shared memory, and those of them that were put there."""
    tiles, put, fresh = [], [], False
    for value in values:
        tile = puller.tile_of(value)
        found = running.find_put(matrix_of(value)) if running is not None else None
        if tile is None or not tile.memory.is_operand(_depth_axis(op, value)):
            assert running is not None  # only products that are waited for give memory back
            memory = _memory_for(placement, op, value)
            span = puller.shared.reserve(memory.size_bytes, memory.alignment)
            puller.shared.hold(span)
            tile = SharedTile(memory, span.address)
            put_operand(puller, value, tile)
            others = sum(1 for _ in _other_readers(placement, op, value))
            found = running.put(matrix_of(value), tile_of_matrix(value, tile), span, 1 + others)
            fresh = True
        tiles.append(tile)
        put += [found] if found is not None else []
    if fresh:
        machine.fence_async_proxy()
        puller.shared.barrier()
    return tiles, put


def _depth_axis(op: ops.Dot, value: Value) -> int:
    return 1 if value is op.a else 0


def _memory_for(placement: Placement, op: ops.Dot, value: Value) -> TileMemory:
    """How to lay out an operand; contiguous along k where the instruction knows nothing else."""
    bits = value.type.element.storage_bits
    inner = _depth_axis(op, value)
    if bits == 16:
        inner = placement.order_of_elements(value)[0]
    shape = padded(value.shape)
    return memory_of(shape, (inner, 1 - inner), bits)


@contextmanager
def hold_in_shared(
    puller: Puller,
    placement: Placement,
    machine: WarpgroupMachine,
    op: ops.Dot,
    value: Value,
) -> Iterator[None]:
    """Inside, an operand lies in shared memory, for products to read."""
    tile = puller.tile_of(value)
    if tile is not None and tile.memory.is_operand(_depth_axis(op, value)):
        yield
        return
    memory = _memory_for(placement, op, value)
    with puller.shared.ring(memory.size_bytes, memory.alignment) as span:
        tile = SharedTile(memory, span.address)
        put_operand(puller, value, tile)
        machine.fence_async_proxy()
        puller.shared.barrier()
        puller.tiles[value] = tile
        yield
        del puller.tiles[value]


class _MatrixDescriptors:
    """Descriptors of an operand's parts, each 64 rows or the columns of an instruction.

    PTX ISA, "Matrix-descriptor format" of wgmma: the address, the leading and the stride offset, in
    16 bytes, and the swizzle. Where rows run along k, the stride goes to the next 8 rows. Where
    they run across k, it goes to the next 8 steps of k, the leading offset to the next piece of
    the row, as long as the swizzle.
    """

    def __init__(self, puller: Puller, tile: SharedTile, plan: WarpgroupProduct, axis: int) -> None:
        self.code, self.memory = puller.code, tile.memory
        self.axis = axis  # the one that is not k: 0 for A, 1 for B
        self.is_transposed = tile.memory.inner == axis
        warps_m = plan.warps[0]
        group = puller.warp_number()
        shift, count, step = (
            (2, warps_m // _WARPS, _ROWS)
            if axis == 0
            else (warps_m.bit_length() - 1, plan.warps[1], plan.columns)
        )
        lower, self.upper = self._constants()
        base = self._base(tile.start, group, shift, count, step)
        self.base = self.code.assign(f"or i32 {base}, {lower}")

    def __getitem__(self, corner: tuple[int, int]) -> MatrixDescriptor:
        return MatrixDescriptor(self.base, self.memory.offset_bytes(*corner) >> 4, self.upper)

    def _base(self, start: str, warp: str, shift: int, count: int, step: int) -> str:
        code = self.code
        address = code.assign(f"ptrtoint {SHARED} {start} to i32")
        if count > 1:
            part = code.assign(f"lshr i32 {warp}, {shift}")
            part = code.assign(f"and i32 {part}, {count - 1}")
            corner = (step, 0) if self.axis == 0 else (0, step)
            moved = code.assign(f"mul i32 {part}, {self.memory.offset_bytes(*corner)}")
            address = code.assign(f"add i32 {address}, {moved}")
        return code.assign(f"lshr i32 {address}, 4")

    def _constants(self) -> tuple[int, int]:
        """What does not depend on the address: of the lower and of the upper half."""
        memory = self.memory
        stride = _CORE_ROWS * memory.swizzle
        chunk = memory.swizzle * 8 // memory.element_bits
        leading = 16
        if self.is_transposed and memory.layout.output_size(f"dim{self.axis}") > chunk:
            leading = memory.offset_bytes(*((chunk, 0) if self.axis == 0 else (0, chunk)))
        code = _SWIZZLE_CODES[memory.swizzle]
        return (leading >> 4) << 16, code << 30 | stride >> 4
