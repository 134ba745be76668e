"""Every op on every dtype as in `test_ops.py`, on other architectures: assembled, and emulated.

One of each kind: sm_80 and sm_86 lie between sm_75 and sm_89, and sm_100a has what sm_120a has.
`test_assembles.py` compiles whole kernels for all seven.
"""

import pytest

from tests.codegen import tile_harness
from tests.codegen.gpu import harness
from tests.codegen.gpu.test_ops import *  # noqa: F403 - collected here
from tilewright.codegen.nvidia.assembler import assemble
from tilewright.codegen.nvidia.compile import generate, prepare
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.passes.pipeline import optimize

pytestmark: list[pytest.MarkDecorator] = []  # `conftest.py` leaves a sample for every day


@pytest.fixture(autouse=True, params=["sm_75", "sm_89", "sm_120a"])
def _on_each_architecture(request, monkeypatch):
    target = harness.ARCHITECTURES[request.param]
    ptxas = find_ptxas()

    def run(function, arrays):
        kernel = generate(prepare(optimize(function), target), target)
        if ptxas is not None:
            assemble(kernel.ptx, target, ptxas)
        harness.emulate(kernel, (1, 1, 1), arrays)

    monkeypatch.setattr(tile_harness, "compiled_run", run)
    monkeypatch.setattr(tile_harness, "ulp_bound", lambda f: f.gpu_max_ulp or f.max_ulp)
