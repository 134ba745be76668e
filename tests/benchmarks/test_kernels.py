"""The kernels of the benchmarks compute what they should, on small problems."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")

from benchmarks.systems import TILEWRIGHT, System  # noqa: E402 - torch decides whether this runs
from benchmarks.workloads.attention import Attention  # noqa: E402
from benchmarks.workloads.matmul import DescriptorMatmul  # noqa: E402
from benchmarks.workloads.table import all_rows  # noqa: E402

HAS_DESCRIPTORS = importlib.util.find_spec("tilewright.tools") is not None
SMALL = {row.small: row.name for row in all_rows()}


def check(system, workload):
    torch.manual_seed(0)
    inputs = workload.inputs("cpu")
    right = workload.reference(inputs)
    for config in workload.configs:
        outputs = workload.outputs(inputs)
        workload.launch(system, config, inputs, outputs)
        assert workload.error(outputs, right) <= workload.tolerance, config


def needs_descriptors(workload):
    is_attention = isinstance(workload, Attention) and not workload.has_pointers
    return is_attention or isinstance(workload, DescriptorMatmul)


@pytest.mark.parametrize("workload", SMALL, ids=SMALL.values())
def test_compiled(workload):
    if not HAS_DESCRIPTORS and needs_descriptors(workload):
        pytest.skip("there are no tensor descriptors")
    check(System(TILEWRIGHT), workload)
