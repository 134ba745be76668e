import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, scalar, tile
from tilewright.errors import CompileError


@pytest.fixture
def cube():
    return np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def test_reshape_and_its_kin(cube):
    x = tile(cube)
    assert np.array_equal(array(tl.reshape(x, (4, 6))), cube.reshape(4, 6))
    assert np.array_equal(array(x.reshape(4, -1)), cube.reshape(4, 6))
    assert np.array_equal(array(x.view(24)), cube.reshape(24))
    assert np.array_equal(array(tl.ravel(x)), cube.ravel())
    assert x.reshape(2, 3, 4) is x
    with pytest.raises(CompileError, match=r"reshape: \[2, 3, 4\] has 24 elements"):
        x.reshape(5, 5)
    with pytest.raises(CompileError, match="no size for -1"):
        x.reshape(5, -1)


def test_axes_come_and_go(cube):
    x = tile(cube)
    assert tl.expand_dims(x, 0).shape == (1, 2, 3, 4)
    assert tl.expand_dims(x, -1).shape == (2, 3, 4, 1)
    assert tl.expand_dims(x, (0, 2)).shape == (1, 2, 1, 3, 4)
    assert tl.unsqueeze(x, 1).shape == (2, 1, 3, 4)
    assert tl.squeeze(x[None], 0).shape == (2, 3, 4)
    with pytest.raises(CompileError, match="size 3, not 1"):
        x.squeeze(1)
    with pytest.raises(CompileError, match="no axis 4"):
        x.expand_dims(4)
    with pytest.raises(CompileError, match="named twice"):
        tl.expand_dims(x, (0, 0))


def test_axes_are_reordered(cube):
    x = tile(cube)
    assert np.array_equal(array(tl.permute(x, (2, 0, 1))), cube.transpose(2, 0, 1))
    assert np.array_equal(array(x.permute(2, 0, -2)), cube.transpose(2, 0, 1))
    assert np.array_equal(array(tl.trans(x)), cube.transpose(0, 2, 1))
    assert np.array_equal(array(tl.trans(x, 1, 0, 2)), cube.transpose(1, 0, 2))
    assert np.array_equal(array(x.T), cube.transpose(0, 2, 1))
    for call in (lambda: x.permute(0, 1), lambda: x.permute(0, 1, 1), lambda: x.permute(0, 1, 3)):
        with pytest.raises(CompileError, match="is not an order of the 3 axes"):
            call()
    with pytest.raises(CompileError, match="at least 2 axes"):
        tl.trans(tl.arange(0, 4))


def test_broadcasting():
    x = tl.arange(0, 3)
    assert tl.broadcast_to(x[:, None], (3, 2)).shape == (3, 2)
    assert tl.broadcast_to(x, 2, 3).shape == (2, 3)
    assert tl.broadcast_to(5, [4]).shape == (4,)
    assert [t.shape for t in tl.broadcast(x[:, None], x)] == [(3, 3), (3, 3)]
    with pytest.raises(CompileError, match=r"\[3\] does not broadcast to \[4\]"):
        x.broadcast_to(4)


def test_joining_and_splitting():
    a, b = tile([1, 2], "i32"), tile([3, 4], "i32")
    joined = tl.join(a, b)
    assert array(joined).tolist() == [[1, 3], [2, 4]]
    assert [array(x).tolist() for x in tl.split(joined)] == [[1, 2], [3, 4]]
    assert [int(x) for x in tl.split(a)] == [1, 2]
    assert array(tl.join(1, 2)).tolist() == [1, 2]
    assert array(tl.interleave(a, b)).tolist() == [1, 3, 2, 4]
    assert array(tl.interleave(scalar(1, "i32"), scalar(2, "i32"))).tolist() == [1, 2]
    assert array(tl.cat(a, b)).tolist() == [1, 2, 3, 4]
    assert array(tl.cat(a[:, None], b[:, None], dim=-1)).tolist() == [[1, 3], [2, 4]]
    assert array(tl.cat(a, tile([9], "i32"), can_reorder=True)).tolist() == [1, 2, 9]
    with pytest.raises(CompileError, match="cat: the types differ"):
        tl.cat(a, tile([1.0], "fp32"))


def test_flip_reverses_the_last_axis_by_default(cube):
    x = tile(cube)
    assert np.array_equal(array(tl.flip(x)), cube[..., ::-1])
    assert np.array_equal(array(x.flip(0)), cube[::-1])
    with pytest.raises(CompileError, match="expected a tile"):
        tl.flip(1 + scalar(1, "i32"))


def test_gather(cube):
    x = tile(cube[0])
    index = tile([[0, 1, 2, 0]], "i32")
    assert array(tl.gather(x, index, 0)).tolist() == [[0, 5, 10, 3]]
    assert array(x.gather(tile([[3], [0], [1]], "i32"), -1)).tolist() == [[3], [4], [9]]


def test_integers_that_differ_in_the_sign_are_joined_as_the_first():
    a, b = tile([-1], "i32"), tile([1], "u32")
    for joined in (tl.join(a, b), tl.interleave(a, b), tl.cat(a, b)):
        assert joined.dtype is tl.int32
        assert array(tl.ravel(joined)).tolist() == [-1, 1]
    assert tl.join(b, a).dtype is tl.uint32
    with pytest.raises(CompileError, match="cat: the types differ"):
        tl.cat(a, tile([1], "i64"))


def test_new_tiles():
    assert array(tl.full((2, 2), 1.5, tl.float16)).tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert tl.full((), 3, tl.int64).shape == ()
    assert array(tl.full([2], scalar(7, "i32"), tl.float32)).tolist() == [7, 7]
    assert tl.full(3, scalar(7, "i32")).dtype is tl.int32
    assert tl.full((2,), True).dtype is tl.int1
    assert array(tl.zeros([3], tl.int8)).tolist() == [0, 0, 0]
    like = tl.zeros_like(tile([[1.0, 2.0]], "fp16"))
    assert (like.shape, like.dtype) == ((1, 2), tl.float16)
    with pytest.raises(CompileError, match="must be a scalar"):
        tl.full((2,), tl.arange(0, 2), tl.int32)
    assert array(tl.full((2,), 300, tl.int8)).tolist() == [44, 44]
    assert array(tl.full((), 2**32 - 1, tl.int32)) == -1


def test_ranges_of_any_length():
    assert array(tl.arange(3, 10)).tolist() == list(range(3, 10))
    with pytest.raises(CompileError, match="the end must be above the start"):
        tl.arange(4, 4)
    with pytest.raises(CompileError, match="arange"):
        tl.arange(4, 2)
    with pytest.raises(CompileError, match="the limit is 1048576"):
        tl.arange(0, (1 << 20) + 1)


def test_what_a_tensor_says_of_itself():
    x = tile(np.zeros((2, 3)), "fp16")
    assert (x.shape, x.numel, x.dtype) == ((2, 3), 6, tl.float16)
    assert x.type.is_block()
    assert x.type.scalar is tl.float16
    assert x.type.element_ty is tl.float16
    assert scalar(1, "i32").type is tl.int32
    assert x.to(tl.float32).cast(tl.int8).dtype is tl.int8
    assert int(tile([[5]], "i32").item()) == 5


def test_swizzling_walks_groups_of_rows_down_their_columns():
    places = [
        tuple(map(int, tl.swizzle2d(scalar(i, "i32"), scalar(j, "i32"), 4, 4, 2)))
        for i in range(4)
        for j in range(4)
    ]
    order = np.empty((4, 4), int)
    for number, place in enumerate(places):
        order[place] = number
    assert order.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
