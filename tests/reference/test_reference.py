"""The reference page is what the functions are, and every function does what the page says."""

import hashlib
import operator
import os

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.executors import EMULATED
from tests.reference.calls import CALLS, LIBDEVICE, METHODS, NOT_CALLED, OF_MACHINES
from tests.reference.page import PAGE, fixed_cells, page, types_cell
from tests.reference.running import DTYPE_NAMES, accepted, is_typed, outputs
from tilewright.frontend.function import KernelFunction
from tilewright.ir.types import DTYPES
from tilewright.ops.numerics import widen

# Where the functions of a section are, and its calls.
SECTIONS = {
    "": (tl, CALLS),
    "libdevice.": (tl.extra.libdevice, LIBDEVICE),
    "tensor_descriptor.": (tl.tensor_descriptor, METHODS),
}
ALL_CALLS = {
    prefix + name: call for prefix, (_, calls) in SECTIONS.items() for name, call in calls.items()
}
BESIDE = {f"{module}.": names for module, names in OF_MACHINES.items()}
# What only host code calls.
OF_HOSTS = {"answer_hosts"}
EVERY_TYPE = os.environ.get("EVERY_TYPE") == "1"


def chosen(*key, of):
    """Whether one of `of` cases is this one; the same ones every day."""
    return int(hashlib.sha256(repr(key).encode()).hexdigest(), 16) % of == 0


def test_every_name_is_on_the_page():
    listed = {*CALLS, *(name for names in NOT_CALLED.values() for name in names)}
    of_core = {f"core.{name}" for name in tl.core.__all__ if name not in tl.__all__}
    assert listed == {*tl.__all__, *of_core}
    assert set(LIBDEVICE) == set(tl.extra.libdevice.__all__)
    for module, names in OF_MACHINES.items():
        owner = operator.attrgetter(module)(tl)
        assert names.keys() == {n for n in owner.__all__ if callable(getattr(owner, n))} - OF_HOSTS
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}(" in text or f"`tl.{name}`" in text for name in listed)


def rows():
    """The rows of the page, by the name of the function."""
    found = {}
    prefix = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            prefix = next((p for p in [*SECTIONS, *BESIDE] if p and p[:-1] in line), "")
        if line.startswith("| `"):
            signature, *_ = line[2:].split(" | ")
            found[prefix + signature.strip("`").partition("(")[0]] = line
    return found


def test_the_page_has_the_signatures_and_docstrings(request):
    if request.config.getoption("--bless"):
        PAGE.write_text(page(), encoding="utf-8")
    shown = rows()
    beside = {prefix + name for prefix, names in BESIDE.items() for name in names}
    assert set(shown) == {*ALL_CALLS, *beside}
    for module, names in OF_MACHINES.items():
        for name, where in names.items():
            function = getattr(operator.attrgetter(module)(tl), name)
            signature, sentence = fixed_cells(name, function)
            assert shown[f"{module}.{name}"] == f"| {signature} | {sentence} | {where} |"
    for prefix, (owner, calls) in SECTIONS.items():
        for name in calls:
            value = getattr(owner, name)
            function = value.fn if isinstance(value, KernelFunction) else value
            signature, sentence = fixed_cells(name, function)
            assert f"| {signature} | {sentence}" in shown[prefix + name], "renew: pytest --bless"


SAMPLED = [pytest.param(n, marks=[] if chosen(n, of=24) else pytest.mark.slow) for n in ALL_CALLS]


@pytest.mark.parametrize("name", SAMPLED)
def test_the_page_has_the_types(name):
    assert rows()[name].endswith(f" | {types_cell(ALL_CALLS[name])} |")


def cases():
    """Calls with the types to try; what a call does not take is passed over when it is known.

    A third of them: the functions of libdevice are the same code on all GPUs, and most types are
    converted to the few that they compute on. `EVERY_TYPE=1` in the environment takes all.
    """
    for name, call in ALL_CALLS.items():
        for dtype in DTYPE_NAMES if is_typed(call) else ["i32"]:
            for executor in ("cpu", *EMULATED):
                often = executor == "cpu" or name in CALLS
                is_daily = often and chosen(name, dtype, executor, of=150)
                share = (1 if name in CALLS else 3) if executor == "cpu" else (2 if often else 6)
                if is_daily or EVERY_TYPE or chosen(executor, name, dtype, of=share):
                    marks = [] if is_daily else [pytest.mark.slow]
                    yield pytest.param(name, dtype, executor, marks=marks)


def launch_on(executor):
    def launch(kernel, grid, *args):
        if executor == "cpu":
            kernel[grid](*args, debug=True)
        elif executor == "eager":
            kernel.debug[grid](*args)
        else:
            with tw.emulate(executor, races=True):
                kernel[grid](*args, debug=True)

    return launch


@pytest.mark.parametrize(("name", "dtype", "executor"), list(cases()))
def test_every_name_on_every_type_in_every_executor(name, dtype, executor, capfd):
    call = ALL_CALLS[name]
    if dtype not in accepted(call):
        return
    expected = outputs(call, dtype, launch_on("eager"))
    got = outputs(call, dtype, launch_on(executor))
    for one, other in zip(got, expected, strict=True):
        if one.dtype.kind in "iub":
            np.testing.assert_array_equal(one, other)
            continue
        step = float(ml_dtypes.finfo(one.dtype).eps)
        a, b = one.astype(np.float64), other.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=max(8 * step, 1e-12), atol=step * 2)


def test_numbers_of_a_type_that_numpy_lacks_are_compared_as_bits():
    element = DTYPES["fp8e4b15"]
    assert element.numpy.kind == "u"
    assert widen(np.uint8([0x38]), element) > 0
