"""Kernels of published packages, imported under the alias and launched on tensors of PyTorch.

`make test-packages` installs the packages; where one is missing, its tests are skipped and say so.
Each test of a kernel runs on the CPU, and on the GPU where PyTorch sees one.
"""

import contextlib
import importlib
import importlib.util
import itertools
import os
import sys
import types
from collections import Counter
from pathlib import Path

import pytest

from tilewright import alias


def pytest_generate_tests(metafunc):
    """Tests that ask for `device` run on the CPU, and on a GPU where there is one."""
    if "device" in metafunc.fixturenames:
        torch = pytest.importorskip("torch")
        gpus = [pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else []
        metafunc.parametrize("device", ["cpu", *gpus])


def pytest_collection_modifyitems(items):
    for item in items:
        for marker in item.iter_markers("ladder"):
            device = item.callspec.params["device"]
            item.user_properties.append(("ladder", (marker.args[0], device)))


def pytest_terminal_summary(terminalreporter):
    """One line for each entry of the ladder that ran: how many of its tests passed, by device."""
    outcomes: dict[tuple[int, str], Counter[str]] = {}
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            for name, entry in getattr(report, "user_properties", ()):
                if name == "ladder" and outcome in {"passed", "failed", "error", "skipped"}:
                    outcomes.setdefault(entry, Counter())[outcome] += 1
    if not outcomes:
        return
    entries = importlib.import_module("tests.packages.ladder").ENTRIES
    terminalreporter.section("ladder")
    for (number, device), counts in sorted(outcomes.items()):
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        terminalreporter.write_line(f"{number:3} {device:4} {entries[number]}: {told}")
    for device in sorted({device for _, device in outcomes}):
        good = sum(
            set(counts) == {"passed"} for (_, on), counts in outcomes.items() if on == device
        )
        terminalreporter.write_line(f"{device}: {good} of {len(entries)} entries pass")


@pytest.fixture(autouse=True)
def under_the_alias():
    """Packages find Tilewright where they import `triton`."""
    alias.install()
    yield
    alias.uninstall()


@pytest.fixture
def on_device(device):
    """Tensors are made on the device, with the same numbers each time."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    with torch.device(device):
        yield


@pytest.fixture
def package(monkeypatch):
    """`package(module)` imports a module of a package, or skips the test."""

    def load(name):
        top = name.partition(".")[0]
        if importlib.util.find_spec(top) is None:
            pytest.skip(f"{top} is not installed: make test-packages installs it")
        module = importlib.import_module(name)
        _leave_few_configs(top, monkeypatch)
        return module

    return load


@pytest.fixture
def source(monkeypatch):
    """`source(distribution, module)` imports a module from an unpacked source distribution.

    The packages above it are left empty: their `__init__` loads extensions compiled for CUDA.
    `tools/package_suites.py` unpacks them into the directory that `PACKAGE_SOURCES` names.
    """

    def load(distribution, name):
        pytest.importorskip("torch")
        folder = Path(os.environ.get("PACKAGE_SOURCES", ".")).resolve() / distribution
        if not folder.is_dir():
            pytest.skip(f"{distribution} is not unpacked in PACKAGE_SOURCES")
        parts = name.split(".")
        for end in range(1, len(parts)):
            above = types.ModuleType(".".join(parts[:end]))
            above.__path__ = [str(folder.joinpath(*parts[:end]))]
            monkeypatch.setitem(sys.modules, above.__name__, above)
        # Some ask for their own version: what the distribution says of itself is beside it.
        monkeypatch.syspath_prepend(str(folder))
        module = importlib.import_module(name)
        _leave_few_configs(parts[0], monkeypatch)
        return module

    return load


def _leave_few_configs(top, monkeypatch):
    """Kernels of a package that are tuned have two configurations to choose from: some have 40."""
    tuned = importlib.import_module("triton.runtime.autotuner").Autotuner
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == top]
    for value in itertools.chain.from_iterable(list(vars(m).values()) for m in modules):
        kernel = value
        while kernel is not None and type(kernel).__module__.startswith("tilewright."):
            if isinstance(kernel, tuned):
                monkeypatch.setattr(kernel, "configs", kernel.configs[:2])
            kernel = getattr(kernel, "fn", None)


@pytest.fixture
def without(monkeypatch):
    """`without(modules...)` puts stand-ins in place of modules that a file imports from.

    For modules that its kernels use nothing of: each of their names is a class without anything.
    """

    def stand_in(*names):
        for name in names:
            module = types.ModuleType(name)
            module.__path__ = []
            module.__getattr__ = _nothing
            monkeypatch.setitem(sys.modules, name, module)

    return stand_in


def _nothing(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


class _Device(contextlib.nullcontext):
    """What stands for `torch.cuda.device(...)`: there is nothing to switch to."""

    def __init__(self, *_):
        super().__init__()


@pytest.fixture
def as_on_a_gpu(device, monkeypatch):
    """On the CPU, host code that insists on CUDA is told that its tensors are there.

    It asserts `tensor.is_cuda`, enters `torch.cuda.device(...)`, counts the drivers that are active
    and chooses by the compute capability: 9.0, for which packages are tuned most. Kernels run where
    the tensors really are.
    """
    if device == "cuda":
        yield
        return
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
