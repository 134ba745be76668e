"""What the time loops of recurrent layers have in common: each is one kernel.

A program works on `ROWS` sequences. It has either all hidden units, in blocks of `UNITS`, whose
weights it reads again at each step; or, on a GPU, one block of them, whose weights stay on the
multiprocessor (`CHUNKS`). Then the programs of the same sequences exchange what they have computed
through memory, and wait for each other after each step, so all of them must run at the same time.

Of each direction there is a *page* for each point in time, one more than there are steps: a step
reads the page before it and writes the one behind. For the reverse direction these are the other
way round, and steps go from the last one on. A sequence shorter than others keeps its state.
"""

# The constants of kernels are plain values.
# mypy: disable-error-code="attr-defined, arg-type, call-arg, valid-type, assignment"

from dataclasses import dataclass

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.rows import accumulator

__all__ = [
    "Tiles",
    "columns_of_gates",
    "gates_of",
    "load_four",
    "meet",
    "moment",
    "own_part",
    "product",
    "store_four",
    "tanh",
    "weights_of",
]


@dataclass(frozen=True)
class Tiles:
    """How a program works: see the head of this file.

    Products are of `DEPTH` numbers at a time, in each of `SPLIT` parts, whose sums are added.
    """

    ROWS: int
    UNITS: int
    DEPTH: int
    CHUNKS: tuple[int, ...]  # where the parts of weights that stay begin
    SPLIT: int
    PRECISION: str


@tw.aggregate
class Weights:
    """A matrix of `sizes` (depth, width), of which some columns are kept, if there are chunks."""

    weight_ptr: tl.tensor
    kept: tl.tuple
    sizes: tl.tuple
    TILES: tl.constexpr


@tw.jit
def tanh(x):
    """Return the hyperbolic tangent."""
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@tw.jit
def halves(x):
    """Return the left and the right half of a matrix."""
    rows: tl.constexpr = x.shape[0]
    columns: tl.constexpr = x.shape[1] // 2
    return tl.split(tl.permute(tl.reshape(x, (rows, 2, columns)), (0, 2, 1)))


@tw.jit
def meet(counter_ptr, step, TILES: tl.constexpr):
    """Wait until all programs that share the same sequences have come here in this step."""
    if len(TILES.CHUNKS) > 0:
        counter_ptr += tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        tl.debug_barrier()
        tl.atomic_add(counter_ptr, 1, sem="release")
        while tl.atomic_add(counter_ptr, 0, sem="acquire") < tl.num_programs(0) * (step + 1):
            pass
        tl.debug_barrier()


@tw.aggregate
class Part:
    """What a program works on: sequences, how long they are, and the units to start with."""

    row: tl.tensor
    is_row: tl.tensor
    length: tl.tensor
    start: tl.tensor
    stride: tl.tensor  # from a block of units to the next one of this program
    direction: tl.tensor


@tw.jit
def own_part(lengths_ptr, batch, TILES: tl.constexpr):
    """Return what this program works on."""
    stride, direction = tl.num_programs(0) * TILES.UNITS, tl.program_id(2)
    start = tl.program_id(0) * TILES.UNITS
    row = tl.program_id(1) * TILES.ROWS + tl.arange(0, TILES.ROWS)[:, None]
    is_row = row < batch
    length = tl.load(lengths_ptr + row, is_row, 0)
    return Part(row, is_row, length, start, stride, direction)


@tw.jit
def moment(part, step, sizes):
    """Return the page of a step, the one behind it, where sequences are then, and which go on.

    Pages are those of all directions.
    """
    steps, batch, _, directions = sizes
    t = step + part.direction * (steps - 1 - 2 * step)
    page = (part.direction * (steps + 1) + t).to(tl.int64)
    before, behind = page + part.direction, page + 1 - part.direction
    is_active = part.is_row & (t < part.length)
    place = (t * batch + part.row).to(tl.int64) * directions + part.direction
    return before, behind, place, is_active


@tw.jit
def columns_of_gates(first, hidden, GATES: tl.constexpr, TILES: tl.constexpr):
    """Return the columns of a block of units, gate after gate, and which of them there are."""
    at = tl.arange(0, GATES * TILES.UNITS)[None, :]
    unit = first + at % TILES.UNITS
    return at // TILES.UNITS * hidden + unit, unit < hidden


@tw.jit
def depths(first, TILES: tl.constexpr):
    """Return numbers along the depth, from `first` on: (parts, 1, depth), or (1, depth)."""
    k = first + tl.arange(0, TILES.DEPTH)[None, :]
    if TILES.SPLIT == 1:
        return k
    return k[None, :, :] + tl.arange(0, TILES.SPLIT)[:, None, None] * TILES.DEPTH


@tw.jit
def weight_tile(weight_ptr, first, column, is_column, sizes, TILES: tl.constexpr):
    """Load some columns of rows from `first` on."""
    depth, width = sizes
    k = depths(first, TILES)
    if TILES.SPLIT == 1:
        k = tl.trans(k)
        return tl.load(weight_ptr + k * width + column, (k < depth) & is_column, 0.0)
    k = tl.permute(k, (0, 2, 1))
    ptrs = weight_ptr + k * width + column[None, :, :]
    return tl.load(ptrs, (k < depth) & is_column[None, :, :], 0.0)


@tw.jit
def weights_of(weight_ptr, column, is_column, sizes, TILES: tl.constexpr):
    """Return weights, of which those columns are loaded now if they are to be kept."""
    kept = [
        weight_tile(weight_ptr, chunk, column, is_column, sizes, TILES) for chunk in TILES.CHUNKS
    ]
    return Weights(weight_ptr, kept, sizes, TILES)


@tw.jit
def input_tile(from_ptrs, is_row, first, depth, TILES: tl.constexpr):
    """Load rows of what weights are multiplied with."""
    k = depths(first, TILES)
    if TILES.SPLIT == 1:
        return tl.load(from_ptrs + k, is_row & (k < depth), 0.0)
    return tl.load(from_ptrs[None, :, :] + k, is_row[None, :, :] & (k < depth), 0.0)


@tw.jit
def product(weights, acc, from_ptrs, is_row, column, is_column):
    """Add rows of numbers, times columns of the weights, to `acc`."""
    TILES: tl.constexpr = weights.TILES
    depth, _ = weights.sizes
    if TILES.SPLIT == 1:
        total = acc
    else:
        total = tl.zeros((TILES.SPLIT, acc.shape[0], acc.shape[1]), acc.dtype)
    if len(TILES.CHUNKS) > 0:
        for chunk in tl.static_range(len(TILES.CHUNKS)):
            x = input_tile(from_ptrs, is_row, TILES.CHUNKS[chunk], depth, TILES)
            total = multiplied(x, weights.kept[chunk], total, TILES)
    else:
        for first in range(0, depth, TILES.DEPTH):
            x = input_tile(from_ptrs, is_row, first, depth, TILES)
            w = weight_tile(weights.weight_ptr, first, column, is_column, weights.sizes, TILES)
            total = multiplied(x, w, total, TILES)
    return total if TILES.SPLIT == 1 else acc + tl.sum(total, axis=0)


@tw.jit
def gates_of(weights, gates_ptr, from_ptrs, is_row, is_active, first, hidden, GATES: tl.constexpr):
    """Return two or four gates of a block of units, before their activations.

    Weights that stay are those of all gates, in one product; else each gate has its own, so that
    nothing has to be taken apart.
    """
    TILES: tl.constexpr = weights.TILES
    DTYPE: tl.constexpr = accumulator(gates_ptr.dtype.element_ty)
    if len(TILES.CHUNKS) > 0:
        column, is_column = columns_of_gates(first, hidden, GATES, TILES)
        acc = tl.load(gates_ptr + column, is_active & is_column, 0.0).to(DTYPE)
        left, right = halves(product(weights, acc, from_ptrs, is_row, column, is_column))
        if GATES == 2:
            return left, right
        return halves(left) + halves(right)
    unit = first + tl.arange(0, TILES.UNITS)[None, :]
    numbers: tl.constexpr = (0, 1) if GATES == 2 else (0, 1, 2, 3)
    return [
        product(
            weights,
            tl.load(gates_ptr + n * hidden + unit, is_active & (unit < hidden), 0.0).to(DTYPE),
            from_ptrs,
            is_row,
            n * hidden + unit,
            unit < hidden,
        )
        for n in numbers
    ]


@tw.jit
def multiplied(x, w, acc, TILES: tl.constexpr):
    """Return x @ w + acc, in the precision of the layer."""
    return tl.dot(x, w, acc, input_precision=TILES.PRECISION, out_dtype=acc.dtype)


@tw.jit
def store_four(ptrs, distance, x0, x1, x2, x3, mask):
    """Store four tiles, `distance` apart."""
    tl.store(ptrs, x0, mask)
    tl.store(ptrs + distance, x1, mask)
    tl.store(ptrs + 2 * distance, x2, mask)
    tl.store(ptrs + 3 * distance, x3, mask)


@tw.jit
def load_four(ptrs, distance, mask, DTYPE: tl.constexpr):
    """Load four tiles, `distance` apart."""
    return [tl.load(ptrs + n * distance, mask, 0.0).to(DTYPE) for n in (0, 1, 2, 3)]
