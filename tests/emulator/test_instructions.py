"""Each instruction against NumPy; all of them against an assembler, and a device."""

import math
from fractions import Fraction

import numpy as np
import pytest
from ptx_device import Device
from ptx_instruction_set import all_snippets
from ptx_snippets import assemble, inputs_of, module, run, snippet

from tilewright.emulator import Emulator
from tilewright.emulator.floats import fma64

SNIPPETS = all_snippets()


@pytest.fixture(scope="module")
def emulator():
    return Emulator(module(SNIPPETS))


def same(actual, expected):
    """Equal bits, or both NaN."""
    if actual.dtype.kind in "iu":
        return actual == expected
    unsigned = f"u{actual.itemsize}"
    is_nan = np.isnan(actual.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    return (actual.view(unsigned) == expected.view(unsigned)) | is_nan


@pytest.mark.parametrize(
    "number",
    [i for i, item in enumerate(SNIPPETS) if item.oracle],
    ids=[item.name for item in SNIPPETS if item.oracle],
)
def test_instruction_agrees_with_numpy(number, emulator):
    item = SNIPPETS[number]
    inputs = inputs_of(item)
    actual = run(item, inputs, emulator, f"s{number}")
    with np.errstate(all="ignore"):
        expected = np.asarray(item.oracle(*inputs)).astype(item.output)
    good = same(actual, expected)
    assert good.all(), [
        (*(x[i] for x in inputs), actual[i], expected[i]) for i in np.flatnonzero(~good)[:5]
    ]


def test_instructions_without_an_oracle_run(emulator):
    for number, item in enumerate(SNIPPETS):
        if item.oracle is None:
            run(item, inputs_of(item), emulator, f"s{number}")


def test_an_assembler_accepts_all():
    assemble(module(SNIPPETS))


@pytest.mark.gpu
def test_a_device_agrees():
    text = module(SNIPPETS)
    device, emulator = Device(text), Emulator(text)
    wrong = []
    for number, item in enumerate(SNIPPETS):
        for seed in range(4):
            inputs = inputs_of(item, seed)
            ours = run(item, inputs, emulator, f"s{number}")
            theirs = run(item, inputs, device, f"s{number}")
            good = same(ours, theirs)
            if item.ulp:
                good |= np.abs(ours.view("i4").astype("i8") - theirs.view("i4")) <= item.ulp
            wrong += [
                (item.body, *(x[i] for x in inputs), ours[i], theirs[i])
                for i in np.flatnonzero(~good)[:3]
            ]
    assert not wrong, "\n".join(map(str, wrong))


MIXED = [  # only for sm_100, so not among the others
    snippet("fma.rn.f32.f16 d, a, b, c;", "f2 f2 f4", "f4", lambda a, b, c: a.astype("f4") * b + c),
    snippet("add.rn.f32.f16 d, a, b;", "f2 f4", "f4", lambda a, b: a + b),
    snippet("sub.rn.f32.f16 d, a, b;", "f2 f4", "f4", lambda a, b: a - b),
    snippet("sub.rn.f32.bf16 d, a, b;", "bfloat16 f4", "f4", lambda a, b: a.astype("f4") - b),
]


@pytest.mark.parametrize("item", MIXED, ids=lambda item: item.name)
def test_sums_of_numbers_of_two_types(item):
    inputs = [np.linspace(-3, 5, 128).astype(kind) for kind in item.inputs]
    with np.errstate(all="ignore"):
        expected = item.oracle(*inputs)
    actual = run(item, inputs, Emulator(module([item])), "s0")
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_fused_multiply_adds_of_fp64_are_rounded_once():
    """Also where parts of the sum underflow or overflow."""
    edges = [0.0, -0.0, 1.0, 1 + 2**-52, -(2.0**-1074), 2.0**-1022, 2.0**-540, 1.5 * 2.0**1023]
    rng = np.random.default_rng(0)
    some = np.ldexp(rng.standard_normal(40), rng.integers(-1060, 1000, 40))
    x, y, z = (rng.choice(np.concatenate([edges, some, -some]), 3000) for _ in range(3))
    with np.errstate(all="ignore"):
        got = fma64(x, y, z)
    for a, b, c, value in zip(x.tolist(), y.tolist(), z.tolist(), got.tolist(), strict=True):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            wanted = float(exact) if exact else a * b + c
        except OverflowError:
            wanted = math.inf if exact > 0 else -math.inf
        assert (value, math.copysign(1, value)) == (wanted, math.copysign(1, wanted)), (a, b, c)
