"""Each report is tried by both executors: the kernel's body as Python, and machine code."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture(params=["eager", "cpu"])
def launch(request):
    """`launch(kernel, grid, *arguments, **named)`, eagerly or compiled."""

    def run(kernel, grid, *args, **named):
        launcher = kernel.debug if request.param == "eager" else kernel
        return launcher[grid](*args, **named)

    run.is_eager = request.param == "eager"
    return run
