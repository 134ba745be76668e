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
# mypy: disable-error-code="attr-defined, arg-type"

import tilewright as tw
import tilewright.language as tl

__all__ = [
    "columns_of_gates",
    "halves",
    "meet",
    "product",
    "tanh",
    "weight_tiles",
]


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
def meet(counter_ptr, programs, step):
    """Wait until all programs of the same sequences have come here in this step."""
    tl.debug_barrier()
    tl.atomic_add(counter_ptr, 1, sem="release")
    while tl.atomic_add(counter_ptr, 0, sem="acquire") < programs * (step + 1):
        pass
    tl.debug_barrier()


@tw.jit
def weight_tile(weight_ptr, k, column, is_column, depth, width, DEPTH: tl.constexpr):
    """Load rows from `k` on of some columns of a (depth, width) matrix."""
    k += tl.arange(0, DEPTH)[:, None]
    return tl.load(weight_ptr + k * width + column, (k < depth) & is_column, 0.0)


@tw.jit
def weight_tiles(
    weight_ptr, column, is_column, depth, width, DEPTH: tl.constexpr, CHUNKS: tl.constexpr
):
    """Load all rows, in chunks, to keep them; none are kept if there are no chunks."""
    return [
        weight_tile(weight_ptr, chunk, column, is_column, depth, width, DEPTH) for chunk in CHUNKS
    ]


@tw.jit
def product(
    acc,
    from_ptrs,
    is_row,
    weight_ptr,
    kept,
    column,
    is_column,
    depth,
    width,
    DEPTH: tl.constexpr,
    CHUNKS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add rows of (depth) elements, times the columns of the weights, to `acc`."""
    along = tl.arange(0, DEPTH)[None, :]
    if len(CHUNKS) > 0:
        for chunk in tl.static_range(len(CHUNKS)):
            k = CHUNKS[chunk] + along
            x = tl.load(from_ptrs + k, is_row & (k < depth), 0.0)
            acc = tl.dot(x, kept[chunk], acc, input_precision=PRECISION, out_dtype=acc.dtype)
    else:
        for first in range(0, depth, DEPTH):
            x = tl.load(from_ptrs + first + along, is_row & (first + along < depth), 0.0)
            w = weight_tile(weight_ptr, first, column, is_column, depth, width, DEPTH)
            acc = tl.dot(x, w, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc


@tw.jit
def columns_of_gates(first, hidden, GATES: tl.constexpr, UNITS: tl.constexpr):
    """Return the columns of a block of units, gate after gate, and which of them there are."""
    at = tl.arange(0, GATES * UNITS)[None, :]
    unit = first + at % UNITS
    return at // UNITS * hidden + unit, unit < hidden
