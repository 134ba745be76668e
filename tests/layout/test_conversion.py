"""Plans between layouts, carried out on a small machine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layout.machine import carry_out, counted_conflicts, filled
from tests.layout.strategies import onto, pairs
from tilewright.layout import Exchange, LinearLayout, Rename, Shuffles, plan_conversion
from tilewright.layout.access import Form
from tilewright.layout.blocked import blocked, slice_of
from tilewright.layout.nvidia import (
    mma_accumulator,
    mma_operand,
    wgmma_accumulator,
    wgmma_operand,
)

BITS = st.sampled_from([8, 16, 32, 64])
SETTINGS = settings(deadline=None, max_examples=40)


def check(source, target, plan):
    assert carry_out(plan, source, target) == filled(target)
    if isinstance(plan, Exchange):
        for access in (plan.stores, plan.loads):
            assert access.conflicts == counted_conflicts(access)


def checked(source, target, bits, **options):
    plan = plan_conversion(source, target, bits, **options)
    check(source, target, plan)
    return plan


@SETTINGS
@given(pairs(), BITS, st.booleans())
def test_any_pair(pair, bits, matrix):
    checked(*pair, bits, stmatrix=matrix, ldmatrix=matrix)


@SETTINGS
@given(pairs(most_warps=1), BITS, st.sampled_from([128, 512]))
def test_any_pair_in_parts(pair, bits, scratch_bytes):
    plan = checked(*pair, bits, scratch_bytes=scratch_bytes)
    if isinstance(plan, Exchange) and plan.repetitions > 1:
        whole = plan_conversion(*pair, bits)
        assert whole.area_bytes == plan.area_bytes * plan.repetitions


@SETTINGS
@given(pairs(lane_bits=3, most_warps=1, most_registers=3, copies=3), BITS)
def test_any_pair_within_a_warp(pair, bits):
    """With warps and lanes few and copies many, most plans are shuffles."""
    checked(*pair, bits)


@SETTINGS
@given(st.data(), BITS)
def test_any_pair_in_a_cluster(data, bits):
    """Blocks keep the elements they have; what each of them does differs by the block's number."""
    sizes = {"register": 3, "lane": 5, "warp": 1}
    source, target = (data.draw(onto(sizes, (2, 6), mixed=True)) for _ in range(2))
    pair = [layout * LinearLayout.identity(2, "block", "dim1") for layout in (source, target)]
    checked(*pair, bits)


@settings(deadline=None, max_examples=60)
@given(st.data(), BITS)
def test_vector_accesses_of_plain_layouts_are_free_of_conflicts(data, bits):
    """Where bases are single bits, without copies, no bank is asked twice."""
    sizes = {"register": data.draw(st.integers(0, 4)), "lane": 5, "warp": 1}
    total = sum(sizes.values())
    source, target = (data.draw(onto(sizes, (3, total - 3), mixed=False)) for _ in range(2))
    plan = checked(source, target, bits, ldmatrix=False, stmatrix=False)
    if isinstance(plan, Exchange):
        assert (plan.stores.conflicts, plan.loads.conflicts) == (0, 0)


ROWS = blocked((128, 64), (1, 8), (4, 8), (4, 1), (1, 0))
COLUMNS = blocked((128, 64), (8, 1), (16, 2), (1, 4), (0, 1))
ACCUMULATOR = wgmma_accumulator((128, 64), (4, 1), 64)


def test_equal_layouts_need_nothing():
    assert checked(ROWS, ROWS, 16) == Rename(tuple(range(64)))
    operand = wgmma_operand((64, 64), (4, 1), 16)
    assert checked(wgmma_accumulator((64, 64), (4, 1), 64), operand, 16).is_identity


def test_registers_are_renamed():
    low = LinearLayout.from_bases({"register": [(1,), (2,)], "lane": [(4,)]}, {"dim0": 8})
    high = LinearLayout.from_bases({"register": [(2,), (1,)], "lane": [(4,)]}, {"dim0": 8})
    assert checked(low, high, 32) == Rename((0, 2, 1, 3))
    twice = LinearLayout.from_bases({"register": [(0,), (2,), (1,)], "lane": [(4,)]}, {"dim0": 8})
    assert checked(low, twice, 32) == Rename((0, 0, 2, 2, 1, 1, 3, 3))
    assert checked(twice, low, 32) == Rename((0, 4, 2, 6))


def test_lanes_that_hold_copies_select_their_own():
    everywhere = LinearLayout.from_bases({"register": [(1,)], "lane": [(0,), (2,)]}, {"dim0": 4})
    once = LinearLayout.from_bases({"register": [], "lane": [(1,), (2,)]}, {"dim0": 4})
    plan = checked(everywhere, once, 32)
    assert isinstance(plan, Shuffles)
    assert plan.shuffle_count == 0
    assert len(plan.before) == 1


def test_a_register_bit_and_a_lane_bit_change_places():
    """Half of the registers stay, the others cross in a butterfly: n / 2 shuffles."""
    source = blocked((1, 256), (1, 8), (1, 32), (1, 1), (1, 0))
    target = source.reshape_inputs({"a": 4, "x": 2, "b": 4, "y": 2, "c": 4})
    target = target.transpose_inputs(["a", "y", "b", "x", "c"])
    target = target.reshape_inputs({"register": 8, "lane": 32, "warp": 1})
    plan = checked(source, target, 32)
    assert isinstance(plan, Shuffles)
    assert plan.is_butterfly
    assert plan.shuffle_count == 4
    assert {t.lane for t in plan.transfers if plan.crosses(t)} == {4}
    assert checked(source, target, 16).shuffle_count == 2
    assert checked(source, target, 64).shuffle_count == 8


def test_a_permutation_of_lanes_is_one_shuffle_per_word():
    source = blocked((32, 2), (1, 2), (32, 1), (1, 1), (1, 0))
    (register, *lanes) = source.columns
    plan = checked(
        source, LinearLayout(source.inputs, source.outputs, (register, *lanes[::-1])), 16
    )
    assert isinstance(plan, Shuffles)
    assert not plan.is_butterfly
    assert plan.shuffle_count == 1


def widths(plan):
    return [
        (access.form, access.lane_bytes, access.conflicts) for access in (plan.stores, plan.loads)
    ]


def test_forms_of_exchanges():
    vector, matrix = (Form.VECTOR, 16, 0), (Form.MATRIX, 16, 0)
    transposed = (Form.TRANSPOSED, 16, 0)
    operand = mma_operand((128, 64), 0, (4, 1), 16)
    assert widths(checked(ROWS, operand, 16)) == [vector, matrix]
    assert widths(checked(ACCUMULATOR, ROWS, 16, ldmatrix=False)) == [matrix, vector]
    assert widths(checked(ROWS, COLUMNS, 16)) == [vector, transposed]
    assert widths(
        checked(ACCUMULATOR, blocked((128, 64), (1, 4), (2, 16), (4, 1), (1, 0)), 32)
    ) == [
        vector,
        vector,
    ]
    narrow = checked(ROWS, operand, 16, ldmatrix=False, stmatrix=False)
    assert [form for form, _, _ in widths(narrow)] == [Form.VECTOR, Form.VECTOR]
    assert [conflicts for _, _, conflicts in widths(narrow)] == [0, 0]


def test_an_exchange_within_warps_has_memory_for_each():
    source = mma_accumulator((64, 64), (4, 1))
    target = LinearLayout.from_bases(
        {
            "register": [(0, 1), (0, 2), (0, 4), (0, 8), (8, 0)],
            "lane": [(0, 16), (0, 32), (1, 0), (2, 0), (4, 0)],
            "warp": [(16, 0), (32, 0)],
        },
        {"dim0": 64, "dim1": 64},
    )
    plan = checked(source, target, 32)
    assert isinstance(plan, Exchange)
    assert plan.is_warp_private
    assert plan.area_bytes == 16 * 64 * 4


def test_rows_to_a_slice():
    """A row vector meets the layout of an accumulator without its columns, and back."""
    flat = blocked((128,), (1,), (32,), (4,), (0,))
    rows = slice_of(ACCUMULATOR, 1)
    for pair in ((flat, rows), (rows, flat)):
        checked(*pair, 32)


def test_parts_fit_the_scratch_memory():
    target = blocked((128, 64), (1, 4), (2, 16), (4, 1), (1, 0))
    plan = checked(ACCUMULATOR, target, 32, scratch_bytes=16384)
    assert plan.area_bytes == 16384
    assert plan.repetitions == 2


def test_plans_are_kept():
    assert plan_conversion(ROWS, COLUMNS, 16) is plan_conversion(ROWS, COLUMNS, 16)


def test_what_is_refused():
    with pytest.raises(ValueError, match="different sizes"):
        plan_conversion(ROWS, blocked((64, 128), (1, 8), (4, 8), (4, 1), (1, 0)), 16)
    with pytest.raises(ValueError, match="numbers of indices of warp"):
        plan_conversion(ROWS, blocked((128, 64), (1, 8), (4, 8), (2, 1), (1, 0)), 16)
    with pytest.raises(ValueError, match="elements of 1 bits are widened first"):
        plan_conversion(ROWS, COLUMNS, 1)
    one = ROWS * LinearLayout.identity(2, "block", "dim0")
    other = ROWS * LinearLayout.identity(2, "block", "dim1")
    other = other.reshape_outputs({"dim0": 256, "dim1": 64})
    with pytest.raises(ValueError, match="between the blocks of a cluster"):
        plan_conversion(one, other, 16)
