"""Kernels of published packages, imported under the alias and launched on tensors of the CPU.

`make test-packages` installs the packages; where one is missing, its tests are skipped and say so.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path

import pytest

from tilewright import alias


@pytest.fixture(autouse=True)
def under_the_alias():
    """Packages find Tilewright where they import `triton`."""
    alias.install()
    yield
    alias.uninstall()


@pytest.fixture
def package():
    """`package(module)` imports a module of a package, or skips the test."""

    def load(name):
        top = name.partition(".")[0]
        if importlib.util.find_spec(top) is None:
            pytest.skip(f"{top} is not installed: make test-packages installs it")
        return importlib.import_module(name)

    return load


@pytest.fixture
def source(monkeypatch):
    """`source(distribution, module)` imports a module from an unpacked source distribution.

    The packages above it are left empty: their `__init__` loads extensions compiled for CUDA.
    `tools/package_suites.py` unpacks them into the directory that `PACKAGE_SOURCES` names.
    """

    def load(distribution, name):
        pytest.importorskip("torch")
        folder = Path(os.environ.get("PACKAGE_SOURCES", ".")) / distribution
        if not folder.is_dir():
            pytest.skip(f"{distribution} is not unpacked in PACKAGE_SOURCES")
        parts = name.split(".")
        for end in range(1, len(parts)):
            above = types.ModuleType(".".join(parts[:end]))
            above.__path__ = [str(folder.joinpath(*parts[:end]))]
            monkeypatch.setitem(sys.modules, above.__name__, above)
        return importlib.import_module(name)

    return load


class _Device(contextlib.nullcontext):
    """What stands for `torch.cuda.device(...)`: there is nothing to switch to."""

    def __init__(self, *_):
        super().__init__()


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Host code that insists on CUDA is told that its tensors are there.

    It asserts `tensor.is_cuda`, enters `torch.cuda.device(...)`, counts the drivers that are active
    and chooses by the compute capability: 9.0, for which packages are tuned most. Kernels run where
    the tensors really are.
    """
    torch = importlib.import_module("torch")
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
    monkeypatch.setattr(torch.cuda, "device", _Device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    backends = importlib.import_module("triton.backends").backends
    monkeypatch.setattr(backends["nvidia"].driver, "is_active", lambda: True)
    driver = importlib.import_module("triton.runtime").driver
    driver.set_active(backends["cpu"].driver())
    yield
    driver.reset_active()
