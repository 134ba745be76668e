"""Reading parts of tiles, as NumPy does."""

# The kernels show every construct, good style or not.

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import kernel, returned, run_eager, run_traced
from tilewright import jit
from tilewright.errors import CompileError, TilewrightError

X = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

KEYS = [
    "0", "-1", "1, 2", "1, -3, 3", "...", "..., 0", "0, ...", "1, ..., -2", ":, 1", ":, :, 1:3",
    "..., ::2", "..., ::-1", "::-1, 2:0:-1", "..., 1:", "..., :-1", "..., -3:100", "None, 0",
    "0, None, ..., None", ":, None, 1:, 0", "..., None", "None, ..., 1::2, None, -1", "1:, 0",
]  # fmt: skip


def kernel_of(body, *names):
    source = f"def part({', '.join(names)}):\n    {body}\n"
    namespace = {"tl": tl}
    exec(source, namespace)
    return namespace["part"], source


def traced_of(body, *names):
    function, source = kernel_of(body, *names)
    return type(kernel(function))(function, source=source)


@pytest.mark.parametrize("key", KEYS)
def test_constant_keys_select_what_they_select_in_numpy(key):
    function = traced_of(f"return tl.arange(0, 24).reshape(2, 3, 4)[{key}]", "n")
    expected = eval(f"X[{key}]")
    assert returned(function, 1) == [expected.tolist()]


@pytest.mark.parametrize("key", KEYS)
def test_compiled_kernels_select_the_same(launch, key):
    expected = eval(f"X[{key}]")
    function, source = kernel_of(
        f"x = tl.load(x_ptr + tl.arange(0, 24)).reshape(2, 3, 4)[{key}]\n"
        f"    tl.store(y_ptr + tl.arange(0, {expected.size}), x.reshape({expected.size}))",
        "x_ptr", "y_ptr",
    )  # fmt: skip
    y = np.zeros(expected.size, np.int32)
    launch(jit(function, source=source), (1,), X, y)
    assert y.tolist() == expected.reshape(-1).tolist()


@kernel
def places(i, j):
    x = tl.arange(0, 12).reshape(3, 4)
    return x[i], x[:, j], x[i, j], x[..., j][i], x[1:, j], x[None, i, ::2]


@pytest.mark.parametrize(("i", "j"), [(0, 0), (2, 3), (1, 2), (-1, -4), (-3, 1)])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_places_may_be_computed(i, j, dtype):
    x = np.arange(12).reshape(3, 4)
    expected = [x[i], x[:, j], x[i, j], x[i, j], x[1:, j], x[None, i, ::2]]
    assert returned(places, dtype(i), dtype(j)) == [v.tolist() for v in expected]


def test_unsigned_places():
    expected = [[8, 9, 10, 11], [3, 7, 11], 11, 11, [7, 11], [[8, 10]]]
    assert returned(places, np.uint8(2), np.uint32(3)) == expected


@kernel
def constant_in_a_name(n):
    i = -1
    x = tl.arange(0, 4)
    return x[i] + n


def test_a_constant_may_have_a_name():
    assert returned(constant_in_a_name, 10) == [13]


@jit
def pick(x_ptr, y_ptr, i, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(y_ptr, x[i])
    tl.store(y_ptr + 1, x[i + 1])


def test_outside_is_zero_where_it_is_not_checked():
    x, y = np.arange(1, 6, dtype=np.float32), np.full(2, 9, np.float32)
    for i, expected in [(3, [4, 5]), (4, [5, 0]), (2**31 - 2, [0, 0]), (-2, [4, 5]), (-7, [0, 0])]:
        pick[(1,)](x, y, i, N=5)
        assert y.tolist() == expected


@jit(debug=True)
def pick_checked(x_ptr, y_ptr, i):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(y_ptr, x[i])


@pytest.mark.parametrize("start", [pick_checked, pick_checked.debug], ids=["compiled", "eager"])
@pytest.mark.parametrize("place", [8, -9])
def test_outside_is_an_error_where_it_is_checked(start, place):
    x, y = np.zeros(8, np.float32), np.zeros(1, np.float32)
    with pytest.raises(TilewrightError, match="an index is outside of axis 0, which has size 8"):
        start[(1,)](x, y, place)


MISTAKES = {
    "x[4]": "the index 4 is outside of axis 0, which has size 4",
    "x[-5]": "the index -5 is outside of axis 0",
    "x[0, 0]": r"too many indices for a tile of shape \[4\]: 2",
    "n[0]": r"too many indices for a tile of shape \[\]: 1",
    "x[..., ...]": "more than one `...`",
    "x[4:]": "nothing of an axis of size 4 is left",
    "x[::0]": "the step must not be 0",
    "x[True]": "indexed by integers, slices, None and ..., got True",
    "x[1.5]": "indexed by integers",
    "x['a']": "indexed by integers",
    "x[x]": "(?s)got a tile of type|got i32",
    "x[n > 1]": "indexed by integers",
}


@pytest.mark.parametrize("expression", MISTAKES)
def test_mistakes(expression):
    function = traced_of(f"x = tl.arange(0, 4)\n    return {expression}", "n")
    for run in (run_traced, run_eager):
        with pytest.raises(CompileError, match=MISTAKES[expression]) as raised:
            run(function, 3)
        assert raised.value.location.line == 3


@kernel
def computed_slice(n):
    return tl.arange(0, 8)[n:]


def test_the_size_of_a_slice_is_known_at_compile_time():
    with pytest.raises(CompileError, match="the start must be a compile-time constant") as raised:
        run_traced(computed_slice, 3)
    assert "tl.gather(x, start + tl.arange(0, SIZE), axis=0)" in str(raised.value)
