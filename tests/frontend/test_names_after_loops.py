"""Names that a loop or a branch binds first, read after it; the index of a loop after the loop."""

# The kernels show every construct, good style or not.
# ruff: noqa: B007, PLW2901, RET508

import inspect
from itertools import product

import pytest

import tilewright.language as tl
from tests.frontend.harness import ir_of, kernel, returned, run_eager
from tilewright.errors import CompileError
from tilewright.frontend.function import KernelFunction

# Each function runs as ordinary Python too, which says what is right.


def index_after_the_loop(n, k):
    i = -1
    s = 0
    for i in range(n):
        s += k
    return s * 100 + i


def index_after_break(n, k):
    i = -1
    for i in range(0, n, 2):
        if i > k:
            break
    return i


def index_after_return(n, k):
    i = -1
    for i in range(n):
        if i * i > 20:
            return -i
        if i > k:
            continue
        k -= 1
    return i * 10 + k


def index_rebound_in_the_body(n, k):
    i = 0
    for i in range(n):
        i = i * k + 3
    return i


def index_of_a_loop_that_runs(n, k):
    for i in range(3, 10, 3):
        n += k
    return n * i


def index_falls(n, k):
    for i in range(k * 0 + 5, 0, -2):
        n += i
    for i in range(7, 0, -2):
        k += i
    return n + k * i


def first_bound_in_a_loop(n, k):
    for i in range(4):
        y = i * k
        z = y + n
    return y + z + i


def first_bound_before_break(n, k):
    for i in range(4):
        y = i * k
        if y > n:
            break
    return y * 10 + i


def first_bound_before_return(n, k):
    for i in range(4):
        y = i * k
        if y > n:
            return -i
    return y * 10 + i


def first_bound_before_continue(n, k):
    for i in range(4):
        y = i * k
        if y > n:
            continue
        n -= 1
    return y * 10 + n


def first_bound_in_while_true(n, k):
    while True:
        y = n * k
        n += 1
        if n > 5:
            break
    return y


def first_bound_in_nested_loops(n, k):
    for i in range(2):
        for j in range(3):
            y = i + j * k + n
    return y * 100 + i * 10 + j


def first_bound_and_one_arm_left(n, k):
    for i in range(5):
        if i > k:
            y = n
            break
        else:
            y = k
    return y


def first_bound_in_unrolled_loops(n, k):
    for i in tl.static_range(3):
        y = n + i
    for j in (k, n):
        pass
    return y + i * j


def one_arm_returns(n, k):
    if n > k:
        y = n
    else:
        return k
    return y * 2


CASES = [
    value
    for value in list(globals().values())
    if inspect.isfunction(value) and list(inspect.signature(value).parameters) == ["n", "k"]
]


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_agrees_with_python(fn):
    function = KernelFunction(fn)
    for n, k in product([0, 1, 2, 3, 7], [1, 2, 5]):
        assert returned(function, n, k) == [fn(n, k)], (n, k)


@kernel
def one_arm(n):
    if n > 2:
        y = 3
    return y


@kernel
def only_in_loop(n):
    for i in range(n):
        z = i
    return z


@kernel
def index_after_loop(n):
    for i in range(n):
        pass
    return i


@pytest.mark.parametrize(
    "function", [one_arm, only_in_loop, index_after_loop], ids=lambda f: f.name
)
def test_an_unbound_name_in_eager_mode(function):
    with pytest.raises(CompileError, match="is used before it is assigned") as eager:
        run_eager(function, 0)
    assert eager.value.location.line == function.first_line + 3


@kernel
def bound_in_some_iterations(n):
    for i in range(4):
        if i > n:
            z = i
    return z


@kernel
def left_before_it_is_bound(n):
    for i in range(4):
        if i > n:
            break
        z = i
    return z


@kernel
def continued_before_it_is_bound(n):
    for i in range(4):
        if i > n:
            continue
        z = i
    return z


@kernel
def endless_left_before_it_is_bound(n):
    while True:
        if n > 3:
            break
        z = n
        n += 1
    return z


@pytest.mark.parametrize(
    "function",
    [
        bound_in_some_iterations,
        left_before_it_is_bound,
        continued_before_it_is_bound,
        endless_left_before_it_is_bound,
    ],
    ids=lambda f: f.name,
)
def test_a_name_that_a_loop_may_leave_unbound(function):
    with pytest.raises(CompileError, match="`z` is only assigned in one branch") as raised:
        ir_of(function, 1)
    assert raised.value.location.excerpt().splitlines()[0].strip() == "return z"
