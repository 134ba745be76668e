"""Functions inside kernels: `lambda` and nested `def`."""

# The kernels show every construct, good style or not.
# ruff: noqa: B023, E731

import inspect
from itertools import product

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import ir_of, kernel, returned, run_eager
from tilewright import jit
from tilewright.errors import CompileError
from tilewright.frontend.function import KernelFunction

# Each function runs as ordinary Python too, which says what is right.


def lambda_of_two(n, k):
    f = lambda a, b: a * 10 + b
    return f(n, k) + f(k, b=n)


def names_around(n, k):
    f = lambda a: a + k
    k += 5
    return f(n)


def rebound_in_a_branch(n, k):
    y = 1
    f = lambda a: a + y
    if n > k:
        y = 100
    return f(n)


def rebound_in_a_loop(n, k):
    y = 0
    f = lambda a: a * 2 + y
    s = 0
    for i in range(n):
        y = i + k
        s += f(i)
    return s + y


def made_in_a_loop(n, k):
    s = 0
    for i in range(n):
        f = lambda a: a + i
        s += f(k)
    return s


def early_returns(n, k):
    def f(a, b=3):
        if a > b:
            return a
        for i in range(a):
            if i * i > b:
                return -i
        return b

    return f(n) * 100 + f(k, 5) * 10 + f(n, b=k)


def own_names(n, k):
    y = n

    def f(a):
        y = a * 2
        return y + k

    return f(k) + y


def defaults_are_taken_at_the_definition(n, k):
    def f(a, *, b=k + 1):
        return a + b

    k = 100
    return f(n) + f(n, b=k)


def any_number_of_arguments(n, k):
    def f(first, *others):
        s = first
        for x in others:
            s = s * 10 + x
        return s

    return f(n) + f(n, k) + f(n, k, *(1, 2))


def nested_twice(n, k):
    def outer(a):
        def inner(b):
            return a * b + k

        return inner(a + 1) + inner(n)

    return outer(n) + outer(k)


def functions_as_values(n, k):
    def twice(f, a):
        return f(f(a))

    s = 0
    for f in (lambda a: a + k, lambda a: a * 2):
        s += twice(f, n)
    return s


def returned_function(n, k):
    def adds(a):
        return lambda b: a + b

    return adds(n)(k) - adds(k)(2)


def chosen_function(n, k):
    f = (lambda a: a + 1) if True else (lambda a: a + 2)
    return f(n)


def stopped_by_a_constant(n, k):
    def power(x, times):
        if times == 0:
            return 1
        return x * power(x, times - 1)

    return power(n, 3) + power(k, 2)


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
def apply(f, x):
    return f(x) + 1


@kernel
def handed_to_a_kernel(n, k):
    return apply(lambda a: a * k, n) + apply(lambda a: apply(lambda b: b + a, n), k)


def test_kernels_take_nested_functions():
    assert returned(handed_to_a_kernel, 3, 5) == [16 + 10]


@kernel
def combines(k):
    x = tl.arange(0, 7) * 3 % 5
    c = 2

    def earlier(a, i, b, j):
        if a < b:
            return a, i
        return b, j

    smallest, place = tl.reduce((x, tl.arange(0, 7)), 0, earlier)
    total = tl.reduce(x, 0, lambda a, b: a + b)
    largest = tl.reduce(x, 0, lambda a, b: max(b, a))
    scanned = tl.associative_scan(x, 0, lambda a, b: a * c + b)
    return smallest, place, total + k, largest, scanned


def test_they_combine_elements():
    x = [i * 3 % 5 for i in range(7)]
    scanned = [x[0]]
    for value in x[1:]:
        scanned.append(scanned[-1] * 2 + value)
    smallest, place, total, largest, scan = returned(combines, 10)
    assert (smallest, total, largest) == (0, sum(x) + 10, max(x))
    assert x[place] == 0
    assert scan == scanned


@jit
def root_mean_square(x_ptr, y_ptr, scale, N: tl.constexpr):
    def load(first):
        return tl.load(x_ptr + first + tl.arange(0, N)) * scale

    square = lambda v: v * v
    total = tl.zeros((), tl.float32)
    for i in range(4):
        total += tl.reduce(square(load(i * N)), 0, lambda a, b: a + b)
    tl.store(y_ptr, tl.sqrt(total / (4 * N)))


def test_in_a_kernel(launch):
    x = np.arange(32, dtype=np.float32)
    y = np.zeros(1, np.float32)
    launch(root_mean_square, (1,), x, y, 0.5, N=8)
    np.testing.assert_allclose(y[0], np.sqrt(np.mean((x / 2) ** 2)), rtol=1e-6)


FACTOR = tl.constexpr(3)


@kernel
def reads_a_global(n):
    f = lambda FACTOR_: FACTOR_ * FACTOR
    return f(n)


@kernel
def hides_a_global(n):
    def f(a):
        FACTOR = 5
        return a * FACTOR

    return f(n) + FACTOR


def test_globals():
    assert returned(reads_a_global, 4) == [12]
    assert returned(hides_a_global, 4) == [23]
    assert "FACTOR" in [r.name for r in hides_a_global.references]


@kernel
def mistake_inside(n):
    def f(a):
        return a.shap

    return f(n)


@kernel
def too_many(n):
    f = lambda a: a
    return f(n, n)


@kernel
def unbound(n):
    f = lambda: y
    z = f()
    y = n
    return z


@kernel
def endless(n):
    def f(a):
        return f(a)

    return f(n)


@kernel
def decorated(n):
    @apply
    def f(a):
        return a

    return f(n)


@kernel
def takes_keywords(n):
    f = lambda **named: n
    return f()


@kernel
def makes(n):
    return lambda a: a + n


@kernel
def uses_what_was_made(n):
    return makes(n)(1)


@kernel
def combines_with_a_runtime_value(n):
    return tl.reduce(tl.arange(0, 4), 0, lambda a, b: a + b + n)


MISTAKES = [
    (mistake_inside, 2, "has no attribute `shap`"),
    (too_many, 2, "`lambda` takes 1 arguments, got 2"),
    (unbound, 1, "`y` is used before it is assigned"),
    (endless, 2, "endless recursion: f -> f"),
    (decorated, 1, "a decorator inside a kernel"),
    (takes_keywords, 1, r"takes \*\*named"),
    (makes, None, None),
    (uses_what_was_made, -5, "`makes` returns a function that was made inside it"),
    (combines_with_a_runtime_value, 1, "`n` is known only when the kernel runs"),
]


@pytest.mark.parametrize(
    ("function", "line", "text"), MISTAKES, ids=lambda x: getattr(x, "name", "")
)
def test_mistakes(function, line, text):
    if text is None:
        assert not ir_of(function, 1).body.yields
        return
    with pytest.raises(CompileError, match=text) as raised:
        ir_of(function, 1)
    assert raised.value.location.line == function.first_line + line


@pytest.mark.parametrize("function", [mistake_inside, unbound], ids=lambda f: f.name)
def test_mistakes_in_eager_mode(function):
    with pytest.raises((CompileError, AttributeError)) as raised:
        run_eager(function, 1)
    assert "shap" in str(raised.value) or raised.value.location.line == function.first_line + 1
