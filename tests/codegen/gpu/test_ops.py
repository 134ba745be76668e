"""Every op on every dtype, as `tests/codegen/test_cpu_ops.py` has them, on the emulated GPU."""

import pytest

from tests.codegen import tile_harness
from tests.codegen.gpu import harness
from tests.codegen.test_cpu_ops import (  # noqa: F401 - collected here
    test_atomic,
    test_cast,
    test_dot,
    test_dot_batched,
    test_elementwise,
    test_gather_and_histogram,
    test_reduce,
    test_reduce_pairs,
    test_select_and_hint,
    test_shapes,
    test_sort,
)
from tilewright.codegen.nvidia.compile import generate, prepare
from tilewright.passes.pipeline import optimize

pytestmark = pytest.mark.slow


def _emulated(function, arrays):
    target = harness.TARGETS["h100"]
    kernel = generate(prepare(optimize(function), target), target)
    harness.emulate(kernel, (1, 1, 1), arrays)


@pytest.fixture(autouse=True)
def _on_the_gpu(monkeypatch):
    monkeypatch.setattr(tile_harness, "compiled_run", _emulated)
    monkeypatch.setattr(tile_harness, "ulp_bound", lambda f: f.gpu_max_ulp or f.max_ulp)
