"""The functions of libdevice on the emulated GPU, as `tests/language` has them on the CPU."""

import pytest

import tilewright
from tests.language import test_libdevice
from tests.language.conftest import machine  # noqa: F401 - every test's
from tests.language.test_libdevice import *  # noqa: F403 - collected here
from tests.language.test_libdevice_exact import *  # noqa: F403

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _on_the_gpu(monkeypatch):
    # These are loops in the language, of which a GPU fuses products and sums.
    others = test_libdevice.FUNCTIONS_OF_THE_LANGUAGE | {"jn", "yn"}
    monkeypatch.setattr(test_libdevice, "FUNCTIONS_OF_THE_LANGUAGE", others)
    with tilewright.emulate("sm_90a"):
        yield
