import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, pointer, scalar, tile
from tilewright.errors import CompileError


@pytest.fixture
def memory():
    return np.arange(16, dtype=np.float32)


def test_masked_lanes_give_other_or_zero(memory):
    offsets = tl.arange(0, 8)
    pointers = pointer(memory) + 8 + offsets
    assert array(tl.load(pointers, offsets < 2)).tolist() == [8, 9, 0, 0, 0, 0, 0, 0]
    assert array(tl.load(pointers, offsets < 2, other=-1)).tolist() == [8, 9] + [-1] * 6
    assert array(tl.load(pointers, mask=False, other=7)).tolist() == [7] * 8
    assert array(tl.load(pointers, mask=True)).tolist() == list(range(8, 16))


def test_masked_sum_of_a_short_row(memory):
    offsets = tl.arange(0, 256)
    row = tl.load(pointer(memory) + offsets, offsets < 16, other=0.0)
    assert float(tl.sum(row)) == memory.sum()
    row = tl.load(pointer(memory) + offsets, offsets < 16, other=float("nan"))
    assert float(tl.max(row)) == 15


def test_pointer_and_mask_are_broadcast_against_each_other(memory):
    column = pointer(memory) + tl.arange(0, 16)[:, None]
    mask = (tl.arange(0, 4) < 3)[None, :]
    loaded = tl.load(column, mask, other=-1.0)
    assert loaded.shape == (16, 4)
    assert array(loaded)[5].tolist() == [5, 5, 5, -1]


def test_other_is_converted_to_the_memory(memory):
    integers = memory.astype(np.int32)
    loaded = tl.load(pointer(integers) + tl.arange(0, 2), tile([True, False]), other=2.9)
    assert loaded.dtype is tl.int32
    assert array(loaded).tolist() == [0, 2]


def test_literals_wrap_into_the_memory_as_casts_do():
    memory = np.zeros(4, np.uint32)
    p = pointer(memory) + tl.arange(0, 4)
    tl.store(p, -1)
    assert memory.tolist() == [0xFFFFFFFF] * 4
    assert array(tl.load(p, tl.arange(0, 4) < 0, other=-2)).tolist() == [0xFFFFFFFE] * 4
    small = np.zeros(1, np.int8)
    tl.store(pointer(small), 200)
    assert small[0] == -56


def test_bools_are_bytes():
    memory = np.array([0, 1, 1, 0], np.bool_)
    loaded = tl.load(pointer(memory) + tl.arange(0, 4))
    assert loaded.dtype is tl.int1
    tl.store(pointer(memory) + tl.arange(0, 4), tile([5, 0, 0, 1], "i32"))
    assert memory.tolist() == [True, False, False, True]


def test_stores_convert_broadcast_and_respect_the_mask(memory):
    offsets = tl.arange(0, 4)
    tl.store(pointer(memory) + offsets, 7)
    tl.store(pointer(memory) + 4 + offsets, offsets * 10, mask=offsets != 2)
    assert memory[:8].tolist() == [7, 7, 7, 7, 0, 10, 6, 30]
    tl.store(pointer(memory), scalar(2.5, "fp64"))
    assert memory[0] == 2.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, o: tl.load(p + o, other=0), "`other` needs a mask"),
        (lambda p, o: tl.load(p + o, mask=o), "load: the mask must be a bool"),
        (lambda p, o: tl.store(p + o, 1.0, mask=o), "store: the mask must be a bool"),
        (lambda p, o: tl.load(p, mask=o < 2), "the pointer is a scalar and the mask a tile"),
        (tl.store, "the pointer is a scalar and the value a tile"),
        (lambda p, o: tl.store(p + o, o[:, None]), r"does not broadcast to \[4\]"),
        (lambda p, o: tl.store(p + o, p), "is a pointer"),
        (lambda p, o: tl.load(o), "load: expected a pointer, got i32"),
        (lambda p, o: tl.store(5, o), "store: expected a pointer, got 5"),
        (lambda p, o: tl.load(p + o, cache_modifier=".xx"), "cache_modifier must be one of"),
        (lambda p, o: tl.store(p + o, o, cache_modifier=".ca"), "cache_modifier must be one of"),
        (lambda p, o: tl.load(p + o, eviction_policy="no"), "eviction_policy must be one of"),
        (lambda p, o: tl.load(p + o, boundary_check=(0,)), "for block pointers"),
        (lambda p, o: tl.load(p + o, padding_option="zero"), "for block pointers"),
        (lambda p, o: tl.atomic_add(p + o, 1, sem="weak"), "sem must be one of"),
        (lambda p, o: tl.atomic_add(p + o, 1, scope="all"), "scope must be one of"),
        (lambda p, o: tl.atomic_and(p + o, 1), "atomic_and: not defined on fp32"),
    ],
)
def test_mistakes_are_named(memory, call, message):
    with pytest.raises(CompileError, match=message):
        call(pointer(memory), tl.arange(0, 4))


def test_const_memory_is_only_read(memory):
    p = pointer(memory, const=True)
    assert float(tl.load(p + 2)) == 2
    for write in (
        lambda: tl.store(p, 1.0),
        lambda: tl.atomic_add(p, 1.0),
        lambda: tl.atomic_cas(p, 1.0, 1.0),
    ):
        with pytest.raises(CompileError, match="declared const"):
            write()


def test_hints_are_accepted(memory):
    p = pointer(memory) + tl.arange(0, 4)
    loaded = tl.load(p, None, None, (), "", ".cg", "evict_last", True)
    tl.store(p, loaded, None, (), ".wt", "evict_first")
    assert array(loaded).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_atomics_on_every_float(dtype):
    memory = np.array([1, 2, 3], dtype)
    p = pointer(memory) + tl.arange(0, 3)
    assert array(tl.atomic_add(p, 1)).tolist() == [1, 2, 3]
    assert array(tl.atomic_max(p, 3.5)).tolist() == [2, 3, 4]
    assert array(tl.atomic_min(p, tile([0.0, 9.0, 1.0], "fp32"))).tolist() == [3.5, 3.5, 4]
    assert memory.tolist() == [0, 3.5, 1]


def test_atomics_with_duplicates_masks_and_a_scalar():
    memory = np.zeros(3, np.int32)
    places = tile([0, 1, 0, 0], "i32")
    tl.atomic_add(pointer(memory) + places, tile([1, 2, 3, 4], "i32"), mask=places == 0)
    assert memory.tolist() == [8, 0, 0]
    assert int(tl.atomic_xchg(pointer(memory), 5)) == 8
    assert int(tl.atomic_or(pointer(memory), 2)) == 5
    assert int(tl.atomic_xor(pointer(memory), 1)) == 7
    assert int(tl.atomic_and(pointer(memory), 3)) == 6
    assert memory[0] == 2


def test_compare_and_swap_on_int64_tiles():
    memory = np.ones(4, np.int64)
    old = tl.atomic_cas(pointer(memory) + tl.arange(0, 4), 1, 2)
    assert array(old).tolist() == [1] * 4
    assert memory.tolist() == [2] * 4


# Block pointers.


@pytest.fixture
def matrix():
    return np.arange(15, dtype=np.float32).reshape(3, 5)


def window(matrix, offsets, block_shape):
    rows, columns = matrix.shape
    return tl.make_block_ptr(
        pointer(matrix), (rows, columns), (columns, 1), offsets, block_shape, (1, 0)
    )


def test_a_block_pointer_loads_a_window(matrix):
    block = window(matrix, (1, 2), (2, 3))
    assert array(tl.load(block)).tolist() == matrix[1:3, 2:5].tolist()
    moved = tl.advance(block, (-1, -2))
    assert array(tl.load(moved)).tolist() == matrix[0:2, 0:3].tolist()
    assert block.dtype == pointer(matrix).dtype
    assert array(block.advance((-1, -2)).load()).tolist() == matrix[0:2, 0:3].tolist()
    moved.store(1.0)
    assert (matrix[0:2, 0:3] == 1).all()


def test_boundaries_on_both_sides(matrix):
    block = window(matrix, (-1, 3), (3, 4))
    padded = np.pad(matrix, 4)[3:6, 7:11]
    assert array(tl.load(block, boundary_check=(0, 1))).tolist() == padded.tolist()
    filled = array(tl.load(block, boundary_check=(0, 1), padding_option="nan"))
    assert np.isnan(filled).sum() == 12 - 4
    tl.store(block, tl.full((3, 4), -1.0, tl.float32), boundary_check=(0, 1))
    assert matrix[:2, 3:].tolist() == [[-1, -1], [-1, -1]]
    assert (matrix == -1).sum() == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, b: tl.load(b, mask=True), "takes no mask"),
        (lambda m, b: tl.store(b, 1.0, mask=True), "takes no mask"),
        (lambda m, b: tl.load(b, boundary_check=(2,)), "no axis 2"),
        (lambda m, b: tl.load(b, padding_option="one"), "padding_option must be one of"),
        (lambda m, b: tl.advance(b, (1,)), "expected 2 offsets, got 1"),
        (lambda m, b: tl.advance(pointer(m), (1,)), "expected a block pointer"),
        (lambda m, b: window(m, (0, 0), (2, 2, 2)), "need 3 entries"),
        (lambda m, b: tl.make_block_ptr(5, (1,), (1,), (0,), (1,), (0,)), "scalar pointer"),
        (
            lambda m, b: tl.make_block_ptr(pointer(m), (1,), (1,), (0,), (1,), (1,)),
            "not an order",
        ),
        (
            lambda m, b: tl.make_block_ptr(pointer(m), (1.0,), (1,), (0,), (1,), (0,)),
            "scalar integers",
        ),
    ],
)
def test_block_pointer_mistakes_are_named(matrix, call, message):
    with pytest.raises(CompileError, match=message):
        call(matrix, window(matrix, (0, 0), (2, 2)))


def test_nan_padding_needs_floats(matrix):
    block = window(matrix.astype(np.int32), (0, 0), (2, 2))
    with pytest.raises(CompileError, match="needs floats"):
        tl.load(block, boundary_check=(0,), padding_option="nan")
