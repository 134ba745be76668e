"""Each instruction against NumPy; all of them against an assembler, and a device."""

import numpy as np
import pytest
from ptx_device import Device
from ptx_instruction_set import all_snippets
from ptx_snippets import assemble, inputs_of, module, run

from tilewright.emulator import Emulator

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
