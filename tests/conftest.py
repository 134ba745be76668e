"""What all tests share: golden texts, a cache of their own, and launches in both executors."""

import difflib
import gc
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest

import tilewright as tw
from tests.executors import EMULATED, GPU, DeviceCopies, on_gpu
from tilewright.errors import TilewrightError
from tilewright.runtime import cuda

SEPARATOR = "-----\n"
# For `make check`: in per cent of the random examples of each property of the library.
hypothesis.settings.register_profile(
    "few", max_examples=hypothesis.settings.default.max_examples // 3
)


def pytest_addoption(parser):
    parser.addoption(
        "--bless", action="store_true", help="write what the code gives now into the golden files"
    )


@pytest.fixture
def golden(request) -> Callable[[Path, Callable[[str], str]], None]:
    """Compare the second part of a golden file with what a function makes of the first.

    The parts are separated by a line `-----`. With `--bless` the second part is written anew.
    """

    def check(path: Path, transform: Callable[[str], str]) -> None:
        before, _, expected = path.read_text(encoding="utf-8").partition(SEPARATOR)
        actual = transform(before)
        if actual == expected:
            return
        if request.config.getoption("--bless"):
            path.write_text(before + SEPARATOR + actual, encoding="utf-8")
            return
        lines = difflib.unified_diff(
            expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm=""
        )
        pytest.fail("\n".join([f"{path.name} (renew with --bless)", *lines]), pytrace=False)

    return check


def pytest_collection_finish():
    """Leave what is there for good, PyTorch and all tests, out of each later collection."""
    gc.collect()
    gc.freeze()


# Where the tests marked `gpu` begin, in their order: Triton itself, which PyTorch imports where it
# is installed, must not be there before the alias; then what the other tests rely on.
GPU_FIRST = ["tests/inductor", "tests/packages", "tests/runtime", "tests/emulator"]


def pytest_collection_modifyitems(items):
    """Let tests on a GPU begin with those that must be first."""

    def place(item):
        if item.get_closest_marker("gpu") is None:
            return len(GPU_FIRST)
        folders = (item.nodeid.startswith(f"{folder}/") for folder in GPU_FIRST)
        return next((number for number, is_there in enumerate(folders) if is_there), len(GPU_FIRST))

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory, request):
    """Keep compiled kernels apart from those of whoever runs the tests; workers share them."""
    directory = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        directory = directory.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(directory / "kernels"))
        yield


def pytest_generate_tests(metafunc):
    """Give tests that launch kernels their executors; emulated GPUs are a part of the sweep."""
    names = {"launch": ["eager", "cpu"], "launched_on": ["cpu"]}
    name = next((name for name in names if name in metafunc.fixturenames), None)
    if name is None:
        return
    executors = names[name]
    if metafunc.definition.get_closest_marker("cpu_only") is None:
        executors += [pytest.param(target, marks=pytest.mark.slow) for target in EMULATED]
        # What launches NumPy arrays by itself launches on the CPU.
        if name == "launch" and metafunc.definition.get_closest_marker("numpy_only") is None:
            executors.append(pytest.param(GPU, marks=pytest.mark.gpu))
    metafunc.parametrize(name, executors, indirect=True)


@contextmanager
def _launched_on(executor):
    if executor == GPU:
        try:
            cuda.device(0)
        except TilewrightError as error:
            pytest.skip(str(error))
        with on_gpu():
            yield
    elif executor in EMULATED:
        with tw.emulate(executor, races=True):
            yield
    else:
        yield


@pytest.fixture
def launched_on(request):
    """Launches inside run on the CPU, or on an emulated GPU that looks for races."""
    with _launched_on(request.param):
        yield request.param


def _launch_on_gpu(kernel, grid, args, named):
    copies = DeviceCopies()
    args = [copies.of(value) for value in args]
    named = {name: copies.of(value) for name, value in named.items()}
    try:
        return kernel[grid](*args, **named)
    finally:
        copies.bring_back()


@pytest.fixture
def launch(request):
    """`launch(kernel, grid, *arguments, **named)`, the body as Python or compiled.

    On a real GPU NumPy arrays are copied there, and back when the launch is done.
    """

    def run(kernel, grid, *args, **named):
        if request.param == GPU:
            return _launch_on_gpu(kernel, grid, args, named)
        launcher = kernel.debug if run.is_eager else kernel
        return launcher[grid](*args, **named)

    run.is_eager = request.param == "eager"
    run.is_gpu = request.param in {*EMULATED, GPU}
    with _launched_on(request.param):
        yield run
