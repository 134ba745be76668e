"""Branches, loops and jumps: the traced kernel, the eager one and Python agree."""

# The kernels show every construct, good style or not.
# ruff: noqa: B007, B905, F821, PIE808, PLW0120, RET508, SIM102, SIM108

import inspect
from itertools import product

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import ir_of, kernel, returned, stored
from tilewright.frontend.function import KernelFunction
from tilewright.ir.core import Function
from tilewright.ops import For, If, While


def ops_of(function: Function, kind: type) -> list:
    return [op for op in function.body.walk() if isinstance(op, kind)]


# Each function runs as ordinary Python too, which says what is right.


def break_at(n, k):
    s = 0
    for i in range(n):
        if i == k:
            break
        s += i
    return s


def step_of_another_value(n, k):
    s = 0
    for i in range(0, n, k * k + 1):
        s += i
    return s


def continue_on_odd(n, k):
    s = 0
    for i in range(n):
        if i % 2 == 1:
            continue
        s += i * k
    return s


def break_and_continue(n, k):
    s = 0
    for i in range(n):
        if i == k:
            break
        if i % 3 == 1:
            continue
        if i > 6:
            s += 100
        s += i
    return s


def return_from_loop(n, k):
    s = 0
    for i in range(n):
        s += i
        if s > k:
            return s * 10
    return s


def return_from_nested_loops(n, k):
    s = 0
    for i in range(n):
        for j in range(n):
            s += j
            if i * j == k:
                return s + 1000
        s += 1
    return s


def break_inner_only(n, k):
    s = 0
    for i in range(n):
        for j in range(n):
            if j > i:
                break
            s += j
        if s > k:
            break
    return s


def while_loop(n, k):
    s = 0
    while n > 0:
        s += n
        n -= k
    return s


def while_break(n, k):
    s = 0
    while n > 0:
        n -= 1
        if n == k:
            break
        if n % 2 == 0:
            continue
        s += n
    return s + n


def while_true(n, k):
    i = 0
    while True:
        i += 1
        if i > n:
            break
        if i == k:
            return -i
    return i


def while_true_return(n, k):
    i = k
    while True:
        i += 2
        if i > n:
            return i


def while_walrus(n, k):
    s = 0
    while (m := n - s) > k:
        s += m // 2 + 1
        if s > 20:
            break
    return s


def while_walrus_carried(n, k):
    s = 0
    while (n := n - k) > 0:
        if n == 3:
            continue
        s += n
    return s * 100 + n


def while_short_circuit(n, k):
    s = 0
    i = 0
    while i < n and s < k:
        s += i
        i += 1
    return s


def early_return(n, k):
    if n < k:
        return 1
    m = n - k
    if m > 3:
        return m
    return m + 100


def elif_chain(n, k):
    if n == 0:
        r = 10
    elif n < k:
        r = 20
    elif n == k:
        return 5
    else:
        r = 30
        r += n
    return r


def return_in_one_arm_of_many(n, k):
    x = 0
    if n > 3:
        if k > 3:
            return 99
        x = 1
    else:
        x = 2
    return x + n


def nested_jump_in_branch(n, k):
    s = 0
    for i in range(n):
        if i > 2:
            if i == k:
                break
            else:
                s += 10
        else:
            if i == k:
                continue
            s += 1
        s += 100
    return s


def both_arms_jump(n, k):
    s = 0
    for i in range(n):
        s += 1
        if i == k:
            s += 50
            break
        else:
            s += 7
            continue
    return s


def loop_that_always_leaves(n, k):
    s = 0
    for i in range(n):
        s += k
        break
    return s


def loop_that_always_returns(n, k):
    for _ in range(n):
        return k
    return -1


def last_values_at_break(n, k):
    a = 0
    b = 1
    for i in range(n):
        if a > k:
            b = i
            break
        a, b = b, a + b
    return a * 1000 + b


def return_after_loop_in_branch(n, k):
    if n > 2:
        for i in range(n):
            if i == k:
                return i
        s = 40
    else:
        s = 50
    return s + k


def ternary(n, k):
    return n if n > k else (k * 2 if k > 5 else -1)


def swap(n, k):
    for _ in range(3):
        n, k = k, n + 1
    return n * 100 + k


def static_break(n, k):
    s = 0
    for i in tl.static_range(5):
        if i == n:
            break
        if i == k:
            continue
        s += 10 + i
    return s


def static_return(n, k):
    for i in tl.static_range(4):
        if i == n:
            return i * 10
        if i == k:
            return i * 100
    return -1


def static_in_dynamic(n, k):
    s = 0
    for i in range(n):
        for j in tl.static_range(3):
            if i * j == k:
                break
            s += j + 1
        if s > 12:
            continue
        s += 1
    return s


def dynamic_in_static(n, k):
    s = 0
    for i in tl.static_range(3):
        for j in range(n):
            if j == k + i:
                break
            s += j
        else_value = s
        s = else_value + 1
    return s


def continue_in_while_with_counter(n, k):
    i = 0
    s = 0
    while i < n:
        i += 1
        if i == k:
            continue
        s += i
    return s * 100 + i


def jump_after_nested_loop(n, k):
    s = 0
    for i in range(n):
        for j in range(i):
            if j == k:
                s += 1000
                break
            s += 1
        if i == 5:
            return -s
        s += 1
    return s


def else_after_break(n, k):
    s = 0
    for i in range(n):
        if i == k:
            break
        s += i
    else:
        s = -s - 1
    while s < 4:
        s += 3
        if s == k:
            break
    else:
        s += 100
    return s


def else_without_break(n, k):
    s = k
    for i in range(n):
        s += i
    else:
        s *= 2
    return s


def else_of_inner_loop_leaves_the_outer(n, k):
    s = 0
    for i in range(n):
        for j in range(k):
            if j > i:
                break
            s += 1
        else:
            if i > 2:
                break
            continue
        s += 10
    else:
        return -s
    return s


def else_of_unrolled_loop(n, k):
    s = 0
    for i in tl.static_range(4):
        if i * n == k:
            break
        s += i
    else:
        s = 50
    return s


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


def test_cases_were_found():
    assert len(CASES) > 25


@pytest.mark.parametrize(
    ("fn", "kind", "count"),
    [
        (continue_on_odd, For, 1),
        (continue_on_odd, While, 0),
        (break_at, While, 1),
        (break_inner_only, While, 2),
        (return_from_loop, If, 2),
    ],
)
def test_loops_keep_their_form(fn, kind, count):
    assert len(ops_of(ir_of(KernelFunction(fn), 4, 2), kind)) == count


@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [
        (88, -1, -8),
        (5, 10, -3),
        (0, 10, 3),
        (10, 0, 3),
        (3, 4, 5),
        (0, 5, 0),
        (2**31 - 3, 2**31 - 1, 5),
        (-(2**31), 2**31 - 1, 2**30),
        (2**31 - 1, -(2**31), -(2**31)),
    ],
)
@pytest.mark.parametrize("leaves", [False, True])
def test_runtime_ranges(start, stop, step, leaves):
    @kernel
    def count(start, stop, step, leave, LEAVES: tl.constexpr):
        n = 0
        last = start
        for i in tl.range(start, stop, step):
            n += 1
            last = i
            if LEAVES:
                if n > leave:
                    break
        return n, last

    indices = range(start, stop, step) if step else range(0)
    expected = [len(indices), indices[-1] if indices else start]
    assert returned(count, start, stop, step, 1000, LEAVES=leaves) == expected


def test_reverse_constexpr_loop():
    @kernel
    def total(x, N: tl.constexpr):
        acc = 0
        for i in range(N, -1, -1):
            acc += tl.load(x + N - i) * (i + 1)
        return acc

    x = np.arange(16, dtype=np.int32)
    assert returned(total, x, N=15) == [int((x * np.arange(16, 0, -1)).sum())]


def test_descending_range_sums_as_python_does():
    @kernel
    def total(x, start, stop, step):
        acc = 0.0
        for i in tl.range(start, stop, step):
            acc += tl.load(x + i)
        return acc

    x = np.arange(1, 97, dtype=np.float32)
    assert returned(total, x, 88, -1, -8) == [540.0]
    assert returned(total, x, 5, 10, -3) == [0.0]


def test_index_types():
    @kernel
    def widest(n):
        r = n
        for i in range(0, n):
            r = i
        return r

    assert returned(widest, 4) == [3]
    assert returned(widest, np.int64(2**40) - np.int64(2**40) + np.int64(3)) == [2]


@pytest.mark.parametrize("name", ["uint32", "uint64", "int64"])
def test_the_index_has_the_common_type_of_the_bounds(name):
    @kernel
    def f(n, step, DTYPE: tl.constexpr):
        s = 0
        for i in range(n):
            tl.static_assert(i.dtype == DTYPE)
            s = s * 10 + i.to(tl.int32)
        for i in range(n, 0, step):
            tl.static_assert(i.dtype == DTYPE)
            s = s * 10 + i.to(tl.int32)
        return s

    n = getattr(np, name)(3)
    assert returned(f, n, -1, DTYPE=getattr(tl, name)) == [12321]


def test_range_takes_the_options_of_the_language():
    @kernel
    def f(n):
        s = 0
        for i in range(0, n, step=2, num_stages=2):
            s += i
        return s

    assert returned(f, 5) == [6]
    (loop,) = ops_of(ir_of(f, 5), For)
    assert loop.num_stages == 2


def test_range_options_reach_the_op():
    @kernel
    def f(n):
        s = 0
        for i in tl.range(0, n, num_stages=3, loop_unroll_factor=2, flatten=True):
            s += i
        return s

    (loop,) = ops_of(ir_of(f, 4), For)
    assert (loop.num_stages, loop.unroll, loop.flatten) == (3, 2, True)
    assert returned(f, 4) == [6]


def test_static_range_is_unrolled():
    @kernel
    def f(n):
        s = n
        for i in tl.static_range(4):
            s = s * (i + 1)
        return s

    assert not ops_of(ir_of(f, 3), For)
    assert returned(f, 3) == [72]


def test_loops_over_tuples():
    @kernel
    def f(n, t):
        s = 0
        for x in t:
            s += x
        for i, (a, b) in enumerate(zip(t, (1, 2, 3))):
            s += i * a * b
        return s

    assert returned(f, 3, (5, 7, 9)) == [21 + 7 * 2 + 2 * 9 * 3]


def test_tiles_are_carried():
    @kernel
    def f(out, x, n):
        lanes = tl.arange(0, 4)
        acc = tl.zeros([4], dtype=tl.float32)
        best = acc
        for i in range(n):
            v = tl.load(x + i * 4 + lanes)
            acc += v
            if i == 2:
                best = acc * 2
                if n > 3:
                    break
        tl.store(out + lanes, acc)
        tl.store(out + 4 + lanes, best)

    x = np.arange(16, dtype=np.float32)
    result = stored(f, np.zeros(8, np.float32), x, 4)
    acc = x.reshape(4, 4)[:3].sum(0)
    assert result.tolist() == [*acc, *(acc * 2)]


def test_stores_after_a_jump_do_not_happen():
    @kernel
    def f(out, n, k):
        for i in range(n):
            tl.store(out + i, 1)
            if i == k:
                if k > 1:
                    return
                break
            tl.store(out + i, 2)
        tl.store(out + 7, 3)

    assert stored(f, np.zeros(8, np.int32), 5, 1).tolist() == [2, 1, 0, 0, 0, 0, 0, 3]
    assert stored(f, np.zeros(8, np.int32), 5, 2).tolist() == [2, 2, 1, 0, 0, 0, 0, 0]
    assert stored(f, np.zeros(8, np.int32), 5, 9).tolist() == [2, 2, 2, 2, 2, 0, 0, 3]


def test_a_condition_is_not_asked_after_break():
    @kernel
    def f(x, n):
        i = 0
        while tl.load(x + i) >= 0:  # x[n] is out of bounds
            i += 1
            if i == n:
                break
        return i

    assert returned(f, np.arange(5, dtype=np.int32), 5) == [5]


def test_ternaries_are_lazy():
    @kernel
    def f(x, n):
        return tl.load(x + n) if n < 4 else -1

    x = np.arange(4, dtype=np.int32)
    assert returned(f, x, 2) == [2]
    assert returned(f, x, 2000) == [-1]


def test_names_bound_on_every_path():
    @kernel
    def f(n):
        if n > 3:
            y = n * 2
            z = 1.5
        elif n > 2:
            return 0.0
        else:
            y = 7
            z = 2.5
        return z * y

    assert [returned(f, n) for n in (2, 3, 5)] == [[17.5], [0.0], [15.0]]


def test_a_temporary_may_change_its_type():
    @kernel
    def f(out, n):
        t = 1.5
        for i in range(n):
            t = i * 2
            tl.store(out + i, t)
            if i > 1:
                t = tl.full((), 1, tl.int64)
            else:
                t = 0.5
        for i in range(n):
            t = tl.arange(0, 2)
            tl.store(out + t, t)

    assert stored(f, np.zeros(4, np.int32), 3).tolist() == [0, 1, 4, 0]


def test_folded_branches_are_not_read():
    @kernel
    def f(n, FAST: tl.constexpr, x):
        if FAST:
            r = n + 1
        else:
            r = undefined_name(n).and_more
        if x is None:
            return r
        return r + tl.load(x)

    assert returned(f, 4, FAST=True, x=None) == [5]


def test_a_constant_decides_behind_a_runtime_value():
    @kernel
    def f(n, FAST: tl.constexpr, x):
        r = n
        if n > 3 and FAST:
            r = tl.load(x) + undefined_name
        if FAST and n > 3:
            r = undefined_name
        if n > 3 or not FAST:
            r += 1
        else:
            r = undefined_name
        tl.static_assert(not (n > 3 and n < 8 and FAST))
        return r + (undefined_name if n > 3 and FAST else 10)

    assert returned(f, 4, FAST=False, x=None) == [15]


def test_a_constant_that_decides_nothing_drops_out():
    @kernel
    def f(n, ON: tl.constexpr):
        both = n > 3 and ON
        tl.static_assert(both.dtype == tl.int1)
        number = n and ON
        tl.static_assert(number.dtype == tl.int32)
        either = 0 or n or False
        while n < 9 and ON:
            n += 2
        return both, number, either, n

    assert returned(f, 4, ON=True) == [True, 4, 4, 10]


def test_one_result_on_all_paths_stays_a_constant():
    @kernel
    def width(n):
        if n > 1:
            return 4
        return 4

    @kernel
    def f(n):
        WIDTH: tl.constexpr = width(n)
        return tl.arange(0, WIDTH)

    assert returned(f, 3) == [[0, 1, 2, 3]]


def test_recursion_through_constants():
    @kernel
    def power(x, n: tl.constexpr):
        if n == 0:
            return 1
        return x * power(x, n - 1)

    @kernel
    def f(x):
        return power(x, 5)

    assert returned(f, 3) == [243]


def test_loops_in_branches_in_loops():
    @kernel
    def f(n, k):
        s = 0
        for i in range(n):
            if i % 2 == 0:
                for j in range(k):
                    if j == i:
                        continue
                    s += j
            else:
                t = i
                while t > 0:
                    t -= 2
                    s += t
        return s

    def python(n, k):
        s = 0
        for i in range(n):
            if i % 2 == 0:
                s += sum(j for j in range(k) if j != i)
            else:
                t = i
                while t > 0:
                    t -= 2
                    s += t
        return s

    assert returned(f, 5, 4) == [python(5, 4)]


def test_constants_decay_where_a_loop_rebinds_them():
    @kernel
    def f(x, n, k):
        k8 = tl.load(x)
        first = k8 + k
        for i in range(n):
            k = k + i
        return first, k8 + k

    x = np.array([3], np.int8)
    assert returned(f, x, 2, k=1) == [4, 5]


def test_tuples_are_carried():
    @kernel
    def f(n):
        t = (0, (1, 2.5))
        for i in range(n):
            t = (t[0] + i, (t[1][0] * 2, t[1][1] + 1.0))
        if n > 2:
            t = (t[0] + 100, t[1])
        return t

    assert returned(f, 4) == [106, 16, 6.5]


def test_block_pointers_are_carried():
    @kernel
    def f(out, x, n):
        p = tl.make_block_ptr(x, (4, 8), (8, 1), (0, 0), (2, 2), (1, 0))
        acc = tl.zeros([2, 2], dtype=tl.float32)
        for i in range(n):
            acc += tl.load(p)
            p = tl.advance(p, (0, 2))
        rows = tl.arange(0, 2)
        tl.store(out + rows[:, None] * 2 + rows[None, :], acc)

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    result = stored(f, np.zeros((2, 2), np.float32), x, 3)
    assert result.tolist() == sum(x[:2, 2 * i : 2 * i + 2] for i in range(3)).tolist()
