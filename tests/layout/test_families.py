"""The families against the index formulas of the PTX ISA, written out place by place."""

import doctest
import importlib
import itertools
import pkgutil

import pytest

import tilewright.layout
from tests.layout.machine import element, sites_of
from tilewright.layout import LinearLayout, bank_conflicts
from tilewright.layout.amd import mfma_accumulator, wmma_accumulator
from tilewright.layout.blocked import blocked, slice_of
from tilewright.layout.nvidia import (
    mma_accumulator,
    mma_operand,
    wgmma_accumulator,
    wgmma_operand,
)
from tilewright.layout.shared import nvmma_alignment, nvmma_shared, swizzled


def check(layout, formula):
    """`formula(register, lane, warp)` gives (row, column) at every place."""
    for lane, warp, _ in sites_of(layout):
        for register in range(layout.input_size("register")):
            found = element(layout, register, (lane, warp, 0))
            assert found == formula(register, lane, warp), (register, lane, warp)


@pytest.mark.parametrize(
    "module", [m.name for m in pkgutil.iter_modules(tilewright.layout.__path__)]
)
def test_examples_in_the_documentation(module):
    found = importlib.import_module(f"tilewright.layout.{module}")
    assert doctest.testmod(found).failed == 0


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("shape", [(16, 32), (8, 8), (64, 16), (2, 4)])
def test_blocked(order, shape):
    size, threads, warps = (2, 2), (4, 2), (1, 2)
    layout = blocked(shape, size, threads, warps, order)

    def split(index, sizes):
        parts = {}
        for axis in order:
            parts[axis], index = index % sizes[axis], index // sizes[axis]
        return parts, index

    def formula(register, lane, warp):
        (r, more), (l, _), (w, _) = split(register, size), split(lane, threads), split(warp, warps)
        tile = [size[a] * threads[a] * warps[a] for a in (0, 1)]
        repeats = [max(1, shape[a] // tile[a]) for a in (0, 1)]
        again, _ = split(more, repeats)
        return tuple(
            (r[a] + size[a] * (l[a] + threads[a] * w[a]) + tile[a] * again[a]) % shape[a]
            for a in (0, 1)
        )

    check(layout, formula)
    assert layout.is_surjective


def test_slice_is_the_tile_without_an_axis():
    parent = mma_accumulator((32, 16), (2, 2))
    rows = slice_of(parent, 1)
    assert rows.input_size("register") == 2
    for lane, warp in itertools.product(range(32), range(4)):
        held = {rows(register=r, lane=lane, warp=warp)["dim0"] for r in range(2)}
        assert held == {parent(register=r, lane=lane, warp=warp)["dim0"] for r in range(4)}
    assert slice_of(parent, 0).output_names == ("dim0",)


def test_mma_accumulator():
    check(
        mma_accumulator((32, 32), (2, 2)),
        lambda i, l, w: (
            16 * (w // 2) + l // 4 + 8 * (i // 2 % 2),
            8 * (w % 2) + 2 * (l % 4) + i % 2 + 16 * (i // 4),
        ),
    )
    check(
        mma_accumulator((8, 8), (1, 1), instruction_rows=8),
        lambda i, l, _: (l // 4, 2 * (l % 4) + i),
    )


# PTX ISA, "Matrix Fragments for mma": groupID = lane / 4, threadID_in_group = lane % 4.
OPERANDS = {
    # m16n8k16, 16 bits: A row g (i < 2 or 4 <= i < 6) else g + 8; column 2 t + i mod 2 (+ 8)
    (0, 16): lambda i, g, t: (g if i % 4 < 2 else g + 8, 2 * t + (i & 1) + (8 if i >= 4 else 0)),
    (1, 16): lambda i, g, t: (2 * t + (i & 1) + (8 if i >= 2 else 0), g),
    # m16n8k8, tf32
    (0, 32): lambda i, g, t: (g if i in {0, 2} else g + 8, t if i < 2 else t + 4),
    (1, 32): lambda i, g, t: (t if i == 0 else t + 4, g),
    # m16n8k32, 8 bits
    (0, 8): lambda i, g, t: (
        g if i < 4 or 8 <= i < 12 else g + 8,
        4 * t + (i & 3) + (16 if i >= 8 else 0),
    ),
    (1, 8): lambda i, g, t: (4 * t + (i & 3) + (16 if i >= 4 else 0), g),
    # m8n8k4, fp64
    (0, 64): lambda i, g, t: (g, t),
    (1, 64): lambda i, g, t: (t, g),
}
SHAPES = {64: (8, 8, 4), 32: (16, 8, 8), 16: (16, 8, 16), 8: (16, 8, 32)}


@pytest.mark.parametrize(("index", "bits"), OPERANDS)
def test_mma_operands(index, bits):
    m, n, k = SHAPES[bits]
    formula = OPERANDS[index, bits]
    shape = (m, k) if index == 0 else (k, n)
    check(mma_operand(shape, index, (1, 1), bits), lambda i, l, _: formula(i, l // 4, l % 4))


def test_mma_operands_of_several_warps():
    single = mma_operand((16, 16), 0, (1, 1), 16)
    several = mma_operand((64, 32), 0, (2, 2), 16)
    for register, lane, warp in itertools.product(range(8), range(32), range(4)):
        row, column = element(single, register, (lane, 0, 0))
        assert element(several, register, (lane, warp, 0)) == (row + 16 * (warp // 2), column)
    assert several.free_masks() == {"register": 0, "lane": 0, "warp": 1}
    wide = mma_operand((16, 64), 0, (1, 1), 16, packed=4)
    assert [element(wide, r, (1, 0, 0)) for r in range(4)] == [(0, 4), (0, 5), (0, 6), (0, 7)]


@pytest.mark.parametrize(("shape", "columns"), [((64, 16), 16), ((128, 64), 64), ((64, 256), 256)])
def test_wgmma_accumulator(shape, columns):
    per_row_block = columns // 2
    check(
        wgmma_accumulator(shape, (4, 1), columns),
        lambda i, l, w: (
            16 * w + l // 4 + 8 * (i // 2 % 2) + 64 * (i // per_row_block),
            8 * (i % per_row_block // 4) + 2 * (l % 4) + i % 2,
        ),
    )


def test_wgmma_accumulator_of_two_warpgroups():
    side_by_side = wgmma_accumulator((64, 32), (4, 2), 16)
    assert element(side_by_side, 0, (0, 4, 0)) == (0, 16)
    below = wgmma_accumulator((128, 16), (8, 1), 16)
    assert element(below, 0, (0, 4, 0)) == (64, 0)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_wgmma_operand(bits):
    depth = 256 // bits
    formula = OPERANDS[0, bits]

    def expected(i, lane, warp):
        row, column = formula(i, lane // 4, lane % 4)
        return 16 * warp + row, column

    check(wgmma_operand((64, depth), (4, 1), bits), expected)


def test_wgmma_needs_warpgroups():
    with pytest.raises(ValueError, match="four warps along m, not 2"):
        wgmma_accumulator((64, 64), (2, 2), 64)


def test_amd_accumulators():
    check(mfma_accumulator((16, 16), (1, 1), 16), lambda i, l, _: (4 * (l // 16) + i, l % 16))
    check(
        mfma_accumulator((32, 32), (1, 1), 32),
        lambda i, l, _: (8 * (i // 4) + 4 * (l // 32) + i % 4, l % 32),
    )
    check(
        mfma_accumulator((16, 16), (1, 1), 16, transposed=True),
        lambda i, l, _: (l % 16, 4 * (l // 16) + i),
    )
    check(
        wmma_accumulator((16, 32), (1, 2), is_interleaved=True),
        lambda i, l, w: (2 * i + l // 16, l % 16 + 16 * w),
    )
    check(
        wmma_accumulator((16, 16), (1, 1), is_interleaved=False),
        lambda i, l, _: (i + 8 * (l // 16), l % 16),
    )
    with pytest.raises(ValueError, match="16x16 and 32x32"):
        mfma_accumulator((64, 64), (1, 1), 64)


def offsets(memory):
    inverse = memory.inverse()
    sizes = [range(d.size) for d in memory.outputs]
    return {
        place: inverse(dim0=place[0], dim1=place[1])["offset"]
        for place in itertools.product(*sizes)
    }


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_swizzled(order):
    shape, vector, per_phase, max_phase = (16, 64), 4, 2, 4
    memory = swizzled(shape, vector, per_phase, max_phase, order)
    for place, offset in offsets(memory).items():
        column, row = place[order[0]], place[order[1]]
        exchanged = column ^ vector * (row // per_phase % max_phase)
        assert offset == row * shape[order[0]] + exchanged
    assert swizzled((4, 2, 8), 1, 1, 2, (2, 1, 0))(offset=8) == {"dim0": 0, "dim1": 1, "dim2": 1}


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("transposed", [False, True])
def test_nvmma_shared(bits, swizzle, transposed):
    """The hardware's form: address bits 4 and up are xored with bits 7 and up."""
    rows, row_bytes = 16, 2 * swizzle
    shape = (rows, row_bytes * 8 // bits)
    memory = nvmma_shared(
        shape[::-1] if transposed else shape, bits, swizzle, transposed=transposed
    )
    mask = {128: 7, 64: 3, 32: 1}[swizzle]
    for place, offset in offsets(memory).items():
        row, column = place[::-1] if transposed else place
        chunk, inside = divmod(column * bits // 8, swizzle)
        address = chunk * rows * swizzle + row * swizzle + inside
        assert offset * bits // 8 == address ^ (address >> 7 & mask) << 4
    assert nvmma_alignment(swizzle) == {128: 1024, 64: 512, 32: 256}[swizzle]


def test_nvmma_shared_refuses_what_does_not_fill_the_pattern():
    with pytest.raises(ValueError, match="multiples of 64: not 8 x 32"):
        nvmma_shared((8, 32), 16, 128)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_rows_of_a_swizzled_tile_lie_in_distinct_banks(swizzle):
    """Eight rows of 16 bytes, as ldmatrix and wgmma read them."""
    memory = nvmma_shared((64, swizzle // 2), 16, swizzle)
    tile = LinearLayout.from_bases(
        {"lane": [(1, 0), (2, 0), (4, 0)]}, {"dim0": 64, "dim1": swizzle // 2}
    )
    assert bank_conflicts(tile.relative_to(memory), 16, 16) == 0
