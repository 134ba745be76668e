"""Names that are not there, and what is listed of those that are."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError, jit
from tilewright.errors import UnknownName

MODULES = [tw, tl, tw.testing]


@jit
def misspelt(x_ptr):
    return tl.load(x_ptr + tl.arrange(0, 4))


@jit
def of_triton(x_ptr):
    return tl.async_task([0])


def test_a_name_that_is_misspelt(launch):
    with pytest.raises(CompileError) as caught:
        launch(misspelt, (1,), np.zeros(4, np.float32))
    assert caught.value.message == "tl has no `arrange`"
    assert caught.value.hint == "did you mean `tl.arange`?"
    assert caught.value.location.line == misspelt.first_line + 1


def test_a_name_that_only_triton_has(launch):
    with pytest.raises(CompileError, match=r"`tl.async_task` of Triton is not there"):
        launch(of_triton, (1,), np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (tw, "autotunes", "tilewright has no `autotunes`\n.*`tilewright.autotune`"),
        (tw, "zzz", "tilewright has no `zzz`$"),
        (tw, "compile", r"not there yet\n.*`kernel.warmup\(...\)`"),
        (tw.runtime, "driver", r"`tilewright.runtime.driver` .* not there yet\n.*get_num_threads"),
        (tl, "async_task", r"not there yet\n.*leave it out"),
    ],
)
def test_names_outside_kernels(module, name, message):
    assert not hasattr(module, name)
    with pytest.raises(UnknownName, match=message):
        getattr(module, name)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_modules_list_their_public_names(module):
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in dir(module))


@pytest.mark.parametrize("module", MODULES[:2], ids=lambda module: module.__name__)
def test_what_is_said_to_be_absent_is(module):
    assert not set(module._ABSENT) & {*module.__all__, *vars(module)}
