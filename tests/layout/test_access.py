"""Accesses to a given memory, vectors of registers, and reductions, against enumeration."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layout.machine import accesses, counted_conflicts, element, filled, images, sites_of
from tests.layout.strategies import layouts, onto
from tilewright.layout import (
    LinearLayout,
    bank_conflicts,
    coalesced_elements,
    contiguous_elements,
    memory_vectors,
    plan_access,
    reduction_steps,
    register_copies,
)
from tilewright.layout.access import Form
from tilewright.layout.blocked import blocked, slice_of
from tilewright.layout.nvidia import mma_operand, wgmma_accumulator
from tilewright.layout.shared import nvmma_shared, swizzled

SETTINGS = settings(deadline=None, max_examples=30)


def check(registers, memory, access):
    """Loading through `access` gives every lane its elements; conflicts are as claimed."""
    size, held = registers.input_size("register"), images(memory, ("offset",))
    loaded = {site: [None] * size for site in sites_of(registers)}
    for instruction in accesses(access, loaded):
        for site, register, offset in instruction:
            loaded[site][register] = held[offset]
    copies = register_copies(registers)
    assert {site: [held[c] for c in copies] for site, held in loaded.items()} == filled(registers)
    assert access.conflicts == counted_conflicts(access)


@SETTINGS
@given(st.data(), st.sampled_from([8, 16, 32, 64]))
def test_any_layout_and_any_memory(data, bits):
    sizes = {"register": data.draw(st.integers(1, 4)), "lane": 5, "warp": 1}
    total = sum(sizes.values()) - 1
    rows = data.draw(st.integers(0, total))
    shape = (rows, total - rows)
    registers = data.draw(onto(sizes, shape, mixed=data.draw(st.booleans())))
    memory = data.draw(onto({"offset": total}, shape, mixed=data.draw(st.booleans())))
    check(registers, memory, plan_access(registers, memory, bits))


@pytest.mark.parametrize(
    ("registers", "memory", "bits", "form", "lane_bytes"),
    [
        (mma_operand((64, 64), 0, (4, 1), 16), nvmma_shared((64, 64), 16, 128), 16, "MATRIX", 16),
        (mma_operand((64, 64), 0, (2, 2), 8), nvmma_shared((64, 64), 8, 64), 8, "MATRIX", 16),
        (
            mma_operand((64, 64), 1, (4, 1), 16),
            nvmma_shared((64, 64), 16, 128),
            16,
            "TRANSPOSED",
            16,
        ),
        (
            mma_operand((32, 32), 1, (4, 1), 32),
            swizzled((32, 32), 4, 1, 8, (0, 1)),
            32,
            "MATRIX",
            16,
        ),
        (
            wgmma_accumulator((64, 64), (4, 1), 64),
            nvmma_shared((64, 64), 16, 128),
            16,
            "MATRIX",
            16,
        ),
        (
            blocked((64, 64), (1, 8), (4, 8), (4, 1), (1, 0)),
            nvmma_shared((64, 64), 16, 128),
            16,
            "VECTOR",
            16,
        ),
    ],
)
def test_tiles_as_they_lie_in_shared_memory(registers, memory, bits, form, lane_bytes):
    access = plan_access(registers, memory, bits)
    check(registers, memory, access)
    assert (access.form, access.lane_bytes, access.conflicts) == (Form[form], lane_bytes, 0)
    vectors = plan_access(registers, memory, bits, matrix=False)
    check(registers, memory, vectors)
    assert vectors.form is Form.VECTOR


def test_lanes_with_copies_do_not_store_matrices():
    registers = mma_operand((16, 8), 1, (1, 1), 16)
    doubled = LinearLayout.from_bases(
        {"register": [(1, 0), (8, 0)], "lane": [(2, 0), (4, 0), (0, 1), (0, 2), (0, 0)]},
        {"dim0": 16, "dim1": 4},
    )
    memory = swizzled((16, 8), 8, 1, 1, (0, 1))
    assert plan_access(registers, memory, 16, is_store=True).form is Form.MATRIX
    half = swizzled((16, 4), 8, 1, 1, (0, 1))
    assert plan_access(doubled, half, 16).form is Form.MATRIX
    assert plan_access(doubled, half, 16, is_store=True).form is Form.VECTOR


def test_memory_of_another_block_is_refused():
    registers = LinearLayout.identity(64, "lane", "dim0")
    memory = LinearLayout.identity(32, "offset", "dim0") * LinearLayout.identity(2, "block", "dim0")
    with pytest.raises(ValueError, match="another block's memory"):
        plan_access(registers, memory, 32)
    spread = LinearLayout.identity(32, "lane", "dim0") * LinearLayout.identity(2, "block", "dim0")
    assert len(plan_access(spread, memory, 32).moves) == 1


@SETTINGS
@given(layouts(("lane", "warp"), ("offset",), most=5), st.sampled_from([8, 16, 32, 64]), st.data())
def test_bank_conflicts(layout, bits, data):
    vector = data.draw(st.sampled_from([v for v in (1, 2, 4, 8, 16) if v * 8 >= bits]))
    step = vector * 8 // bits
    columns = tuple(column * step for column in layout.columns)
    layout = LinearLayout(
        layout.inputs, LinearLayout.identity(1 << 12, "x", "offset").outputs, columns
    )
    together, worst = 128 // max(vector, 4), 0
    lanes = range(layout.input_size("lane"))
    for start in range(0, len(lanes), together):
        words = {
            (layout(lane=lane)["offset"] + i) * bits // 32
            for lane in lanes[start : start + together]
            for i in range(step)
        }
        words |= {word + 1 for word in words} if bits == 64 else set()
        counts = [sum(word % 32 == bank for word in words) for bank in range(32)]
        worst = max(worst, max(counts) - 1)
    assert bank_conflicts(layout, bits, vector) == worst


@SETTINGS
@given(st.data())
def test_memory_vectors(data):
    sizes = {"register": data.draw(st.integers(0, 4)), "lane": 3, "warp": 1}
    total = sum(sizes.values())
    shape = (2, total - 2 - data.draw(st.integers(0, 1)))
    layout = data.draw(onto(sizes, shape, mixed=data.draw(st.booleans())))
    longest = contiguous_elements(layout, axis=1)
    copies = register_copies(layout)
    for elements in (1 << bit for bit in range(longest.bit_length())):
        groups = memory_vectors(layout, 1, elements)
        assert sorted(r for group in groups for r in group) == sorted(set(copies))
        for site, group in itertools.product(sites_of(layout), groups):
            row, column = element(layout, group[0], site)
            assert column % elements == 0
            found = [element(layout, register, site) for register in group]
            assert found == [(row, column + i) for i in range(elements)]
    held = {site: [element(layout, r, site) for r in set(copies)] for site in sites_of(layout)}
    for site, elements in held.items():
        assert elements == [element(layout, copies[c], site) for c in sorted(set(copies))], site
    with pytest.raises(ValueError, match="no groups of"):
        memory_vectors(layout, 1, 2 * longest)


def test_coalesced_elements():
    assert coalesced_elements(blocked((64, 64), (1, 8), (4, 8), (4, 1), (1, 0)), 1, 8) == 64
    assert coalesced_elements(blocked((64, 64), (1, 8), (32, 1), (4, 1), (1, 0)), 1, 8) == 8
    assert coalesced_elements(blocked((64, 64), (8, 1), (8, 4), (1, 4), (0, 1)), 1, 1) == 4
    assert coalesced_elements(blocked((64, 64), (8, 1), (8, 4), (1, 4), (0, 1)), 0, 4) == 4


@SETTINGS
@given(layouts(("lane", "register", "warp"), ("dim0", "dim1"), most=3), st.integers(0, 1))
def test_reductions_sum_each_line_once(layout, axis):
    """Numbers are sets of elements here, so that one counted twice is seen."""
    values = {
        (site, register): [element(layout, register, site)]
        for site in sites_of(layout)
        for register in range(layout.input_size("register"))
    }
    for step in reduction_steps(layout, axis):
        values = {
            ((lane, warp, block), r): held
            + values[(lane ^ step.lane, warp ^ step.warp, block ^ step.block), r ^ step.register]
            for ((lane, warp, block), r), held in values.items()
        }
    everything = {element(layout, register, site) for site, register in values}
    for (site, register), held in values.items():
        line = element(layout, register, site)[1 - axis]
        assert sorted(held) == sorted(e for e in everything if e[1 - axis] == line)


def test_steps_go_from_registers_to_lanes_to_warps():
    accumulator = wgmma_accumulator((128, 64), (4, 2), 32)
    along_n = reduction_steps(accumulator, axis=1)
    assert [(s.register, s.lane, s.warp) for s in along_n] == [
        (1, 0, 0),
        (4, 0, 0),
        (8, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
        (0, 0, 4),
    ]
    assert slice_of(accumulator, 1).input_size("register") == 4
