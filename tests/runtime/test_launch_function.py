"""Launch functions in machine code: what is matched, what is left to Python, and references."""

import contextlib
import gc
import sys
import weakref

import pytest

from tilewright.errors import LaunchError
from tilewright.frontend.parameters import Parameter
from tilewright.runtime.dispatch import MISSING, make_binder
from tilewright.runtime.launch_function import bind_launch_function

PARAMETERS = [
    Parameter(0, "x"),
    Parameter(1, "n"),
    Parameter(2, "scale", has_default=True, default=0.5),
    Parameter(3, "BLOCK", is_keyword_only=True),
    Parameter(4, "EVEN", is_keyword_only=True, has_default=True, default=False),
]


class Kernel:
    """What a launch function sees of a kernel: `calls` are the launchers', `left` what is left."""

    def __init__(self, parameters=PARAMETERS):
        self.remembered = [None, ()]
        self.calls, self.left = [], []
        binder = make_binder("kernel", parameters)
        self.launch_function = bind_launch_function(
            *("kernel", binder.names, binder.defaults, binder.positional),
            self.remembered,
            binder.launch_function(self),
        )

    @property
    def check(self):
        return self.remembered[0]

    @property
    def recent(self):
        return self.remembered[1]

    def remember(self, *entries):
        """Let launchers answer None, or what they are given, and be tried in this order."""
        self.remembered[1] = tuple(
            (self._launcher(name, answer), options, name) for name, options, answer in entries
        )

    def _launcher(self, name, answer):
        def launcher(*values):
            self.calls.append((name, values))
            return answer(*values) if callable(answer) else answer

        return launcher

    def launch(self, grid, values, options):
        self.left.append((grid, values, options))
        return "left"


@pytest.fixture
def kernel():
    made = Kernel()
    made.remember(("plain", {}, None), ("eight", {"num_warps": 8, "num_stages": 3}, None))
    return made


def test_names_positions_and_defaults(kernel):
    launch = kernel.launch_function
    assert launch((2,), 10, 20, BLOCK=64) == "plain"
    assert launch((2, 3), 10, BLOCK=64, EVEN=True, n=5, scale=1.0) == "plain"
    assert launch((2, 3, 4), EVEN=1, BLOCK=2, n=3, x=4) == "plain"
    assert [values for _, values in kernel.calls] == [
        (2, 1, 1, 10, 20, 0.5, 64, False),
        (2, 3, 1, 10, 5, 1.0, 64, True),
        (2, 3, 4, 4, 3, 0.5, 2, 1),
    ]
    assert not kernel.left


def test_options_choose_the_launcher(kernel):
    launch = kernel.launch_function
    assert launch((1,), 1, 2, BLOCK=4, num_stages=3, num_warps=8) == "eight"
    assert launch((1,), 1, 2, num_warps=8.0, BLOCK=4, num_stages=3) == "eight"
    for options in ({"num_warps": 8}, {"num_warps": 4, "num_stages": 3}, {"maxnreg": 8, "x2": 3}):
        kernel.calls.clear()
        assert launch((1,), 1, 2, BLOCK=4, **options) == "left"
        assert kernel.left[-1] == ((1, 1, 1), (1, 2, 0.5, 4, False), options)
        assert not kernel.calls


def test_options_that_cannot_be_compared(kernel):
    class Odd:
        def __eq__(self, other):
            raise RuntimeError("never mind")

        __hash__ = None

    kernel.remember(("odd", {"num_warps": Odd()}, None))
    with pytest.raises(RuntimeError, match="never mind"):  # of the comparison in Python
        kernel.launch_function((1,), 1, 2, BLOCK=4, num_warps=8)


def test_names_that_are_other_objects(kernel):
    name = "-BLOCK".removeprefix("-")
    assert kernel.launch_function((1,), 1, 2, **{name: 4}) == "plain"
    assert kernel.calls[-1][1] == (1, 1, 1, 1, 2, 0.5, 4, False)


def test_launchers_are_tried_in_turn(kernel):
    kernel.remember(("first", {}, NotImplemented), ("second", {}, None), ("third", {}, None))
    assert kernel.launch_function((1,), 1, 2, BLOCK=4) == "second"
    assert [name for name, _ in kernel.calls] == ["first", "second"]
    kernel.remember(("first", {}, NotImplemented))
    assert kernel.launch_function((1,), 1, 2, BLOCK=4) == "left"
    kernel.remember()
    assert kernel.launch_function((7,), 1, 2, BLOCK=4) == "left"
    assert kernel.left == [((n, 1, 1), (1, 2, 0.5, 4, False), {}) for n in (1, 7)]


def test_wrong_calls(kernel):
    with pytest.raises(LaunchError, match=r"kernel takes 5 arguments, but .* given by position"):
        kernel.launch_function((1,), 1, 2, 3, 4)
    with pytest.raises(LaunchError, match="kernel: `x` is given twice"):
        kernel.launch_function((1,), 1, x=2)
    assert not kernel.calls


def test_what_is_missing_is_told_by_python(kernel):
    kernel.remember()
    kernel.launch_function((1,), 1)
    assert kernel.left == [((1, 1, 1), (1, MISSING, 0.5, MISSING, False), {})]
    with pytest.raises(TypeError, match="grid"):
        kernel.launch_function()


# ---- the grid


def test_computed_grids(kernel):
    seen = []

    def grid(meta):
        seen.append(meta)
        return meta["n"], 2

    for n in (3, 4):
        assert kernel.launch_function(grid, 1, n, BLOCK=4, num_warps=8, num_stages=3) == "eight"
    assert [values[:3] for _, values in kernel.calls] == [(3, 2, 1), (4, 2, 1)]
    assert seen[0] == {"x": 1, "n": 3, "scale": 0.5, "BLOCK": 4, "EVEN": False}
    assert seen[0] is not seen[1]


@pytest.mark.parametrize("result", [5, [5, 1], (5, 1, 1, 1), (5,)])
def test_computed_grids_are_computed_once(kernel, result):
    computed = []

    def grid(meta):
        computed.append(meta)
        return result

    kernel.remember(("none", {}, NotImplemented))
    assert kernel.launch_function(grid, 1, 2, BLOCK=4) == "left"
    assert kernel.left == [((5, 1, 1), (1, 2, 0.5, 4, False), {})]
    assert len(computed) == 1


def test_errors_of_grid_functions(kernel):
    with pytest.raises(ZeroDivisionError):
        kernel.launch_function(lambda meta: (1 // 0,), 1, 2, BLOCK=4)
    with pytest.raises(LaunchError, match="raises KeyError: 'BLOK'"):
        kernel.launch_function(lambda meta: (meta["BLOK"],), 1, 2, BLOCK=4)
    for wrong in ((), (1, 2, 3, 4), [1.5], "text"):
        with pytest.raises(LaunchError, match="grid"):
            kernel.launch_function(lambda meta, wrong=wrong: wrong, 1, 2, BLOCK=4)


# ---- what is called before, and errors


def test_the_check_comes_first(kernel):
    order = []
    kernel.remembered[0] = lambda: order.append(len(kernel.calls))
    kernel.launch_function((1,), 1, 2, BLOCK=4)
    kernel.launch_function((1,), 1, 2, BLOCK=4)
    assert order == [0, 1]

    def refuse():
        raise LookupError("a global")

    kernel.remembered[0] = refuse
    for grid in ((1,), lambda meta: (meta["n"],)):
        with pytest.raises(LookupError, match="a global"):
            kernel.launch_function(grid, 1, 2, BLOCK=4)
    assert len(kernel.calls) == 2


def test_errors_of_launchers(kernel):
    kernel.remember(("wrong", {}, lambda *values: 1 // 0), ("next", {}, None))
    for grid in ((1,), lambda meta: (meta["n"],)):
        with pytest.raises(ZeroDivisionError):
            kernel.launch_function(grid, 1, 2, BLOCK=4)
    assert {name for name, _ in kernel.calls} == {"wrong"}


def test_launchers_may_be_forgotten_while_they_run(kernel):
    def forget(*values):
        kernel.remember()
        gc.collect()

    kernel.remember(("forgotten", {}, forget))
    assert kernel.launch_function((1,), 1, 2, BLOCK=4) == "forgotten"
    assert kernel.launch_function((1,), 1, 2, BLOCK=4) == "left"


# ---- references


def test_references(kernel):
    kernel.remember(("plain", {"num_warps": 8}, None), ("declines", {}, NotImplemented))
    launch, x, options = kernel.launch_function, object(), {"num_warps": 8}
    grids = [(1,), (1, 2, 3), lambda meta: (1, 2), lambda meta: [1], lambda meta: (meta["z"],)]

    def run():
        for grid in grids:
            for more in (options, {}):
                with contextlib.suppress(LaunchError):  # of the last grid
                    launch(grid, x, 2000, BLOCK=4, **more)
        kernel.calls.clear()
        kernel.left.clear()

    def counts():
        held = (x, None, NotImplemented, kernel.recent, kernel.recent[0][2], *grids)
        return [sys.getrefcount(value) for value in held]

    run()
    before = counts()
    for _ in range(100):
        run()
    assert all(abs(now - then) < 20 for now, then in zip(counts(), before, strict=True))


def test_nothing_is_kept_alive():
    class Kept(Kernel):
        pass

    kernel = Kept()
    kernel.remember(("plain", {}, None))
    kernel.launch_function((1,), 1, 2, BLOCK=4)
    reference = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert reference() is None
