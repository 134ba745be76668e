"""Functions of libdevice on many random numbers against mpmath, where that is installed."""

import numpy as np
import pytest

from tests.language.libdevice_cases import run

mpmath = pytest.importorskip("mpmath")

pytestmark = pytest.mark.slow

COUNT = 4000


def between(low, high):
    return lambda generator: generator.uniform(low, high, COUNT)


def of_all_sizes(low, high):
    """Magnitudes whose logarithms are uniform, of both signs."""
    return lambda generator: (
        np.exp(generator.uniform(np.log(low), np.log(high), COUNT))
        * generator.choice([-1, 1], COUNT)
    )


def cube_root(x):
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


CASES = [
    ("acos", "acos", between(-1, 1), 1.0),
    ("asin", "asin", between(-1, 1), 1.0),
    ("asinh", "asinh", of_all_sizes(1e-300, 1e300), 2.0),
    ("atan", "atan", of_all_sizes(1e-300, 1e300), 1.0),
    ("atanh", "atanh", between(-1, 1), 2.0),
    ("cbrt", cube_root, of_all_sizes(1e-320, 1e300), 1.0),
    ("cosh", "cosh", between(-710, 710), 1.0),
    ("cospi", "cospi", of_all_sizes(1e-3, 1e12), 1.0),
    ("erfc", "erfc", between(-6, 27), 2.0),
    ("exp10", lambda x: mpmath.mpf(10) ** x, between(-307, 308), 1.0),
    ("expm1", "expm1", between(-40, 700), 1.0),
    ("expm1", "expm1", between(-1, 1), 1.0),
    ("log10", "log10", lambda g: g.uniform(0.5, 2, COUNT), 1.0),
    ("log1p", "log1p", between(-1, 3), 2.0),
    ("sinh", "sinh", between(-3, 3), 1.0),
    ("sinpi", "sinpi", of_all_sizes(1e-300, 1e12), 1.0),
    ("tan", "tan", of_all_sizes(1e-300, 1e300), 1.0),
    ("tgamma", "gamma", between(-20, 170), 8.0),
]


@pytest.mark.parametrize(("name", "exact", "draw", "bound"), CASES)
def test_errors_on_random_numbers(name, exact, draw, bound):
    x = draw(np.random.default_rng(11))
    result = run(name, x, executor="cpu")
    function = getattr(mpmath, exact) if isinstance(exact, str) else exact
    with mpmath.workprec(1200 if name == "tan" else 200):
        values = [function(mpmath.mpf(v)) for v in x.tolist()]
        units = np.spacing(np.abs(np.array([float(v) for v in values])))
        errors = [
            float(abs(mpmath.mpf(got) - value) / mpmath.mpf(unit))
            for got, value, unit in zip(result.tolist(), values, units.tolist(), strict=True)
        ]
    assert max(errors) <= bound
