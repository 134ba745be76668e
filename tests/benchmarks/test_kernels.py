"""The kernels of the benchmarks compute what they should, on small problems."""

import sys

import pytest

torch = pytest.importorskip("torch")

from benchmarks.gpu_costs import compiled_rows  # noqa: E402
from benchmarks.systems import KERNELS, TILEWRIGHT, TRITON, System, load  # noqa: E402 - needs torch
from benchmarks.workloads.attention import AttentionBackward  # noqa: E402
from benchmarks.workloads.philox import uniform  # noqa: E402
from benchmarks.workloads.table import all_rows  # noqa: E402
from tilewright.errors import TilewrightError  # noqa: E402

ROWS = all_rows()
SMALL = {row.small: row.name for row in ROWS}
EVERY_SMALL = pytest.mark.parametrize("workload", SMALL, ids=SMALL.values())


def check(system, workload, configs):
    torch.manual_seed(0)
    inputs = workload.inputs("cpu")
    right = workload.reference(inputs)
    for config in configs:
        outputs = workload.outputs(inputs)
        for output in outputs:
            output.zero_()
        workload.launch(system, config, inputs, outputs)
        assert workload.error(outputs, right) <= workload.tolerance, config


@EVERY_SMALL
def test_compiled(workload):
    check(System(TILEWRIGHT), workload, workload.configs[:1])


@pytest.mark.parametrize(
    "workload",
    [
        # Of atomics on tiles each one is a step of its own.
        pytest.param(
            workload, marks=pytest.mark.slow if isinstance(workload, AttentionBackward) else []
        )
        for workload in SMALL
    ],
    ids=SMALL.values(),
)
def test_interpreted(workload):
    check(System(TILEWRIGHT).interpreting(), workload, workload.configs[:1])


@pytest.mark.slow
@EVERY_SMALL
def test_every_configuration(workload):
    check(System(TILEWRIGHT), workload, workload.configs[1:])


@EVERY_SMALL
def test_a_wrong_result_is_seen(workload):
    inputs = workload.inputs("cpu")
    outputs = workload.outputs(inputs)
    for output in outputs:
        output.fill_(3)
    assert workload.error(outputs, workload.reference(inputs)) > workload.tolerance
    if outputs[0].dtype.is_floating_point:
        for output in outputs:
            output.fill_(float("nan"))
        assert workload.error(outputs, workload.reference(inputs)) == float("inf")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_problems_are_made_without_looking_at_values(row):
    inputs = row.workload.inputs("meta")
    assert all(array.device.type == "meta" for array in row.workload.outputs(inputs))
    assert row.workload.amount > 0
    assert row.workload.configs


def test_rows_have_names_of_their_own_and_floors_that_are_rows():
    names = {row.name for row in ROWS}
    assert len(names) == len(ROWS)
    assert {row.floor for row in ROWS} <= names | {""}


def test_a_kernel_file_is_loaded_for_a_system_alone():
    before = set(sys.modules)
    names = load(TILEWRIGHT, "elementwise")
    assert names["triton"].__name__ == names["tl"].__name__.partition(".")[0] == TILEWRIGHT
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] == TRITON}


class WithoutMemory(System):
    def descriptor(self, tensor, block):
        return tensor


def test_the_rows_that_are_compiled_for_their_cost_have_every_kernel():
    used = set()
    system = WithoutMemory(TILEWRIGHT, lambda kernel, *_: used.add(kernel.name))
    for row in compiled_rows():
        inputs = row.workload.inputs("meta")
        row.workload.launch(system, row.workload.configs[0], inputs, row.workload.outputs(inputs))
    names = {
        name
        for path in KERNELS.glob("[a-z]*.py")
        if path.stem != "launching"
        for name in load(TILEWRIGHT, path.stem)
        if name.endswith("_kernel")
    }
    assert used == names


def test_errors_in_a_kernel_file_name_its_lines():
    system = System(TILEWRIGHT)
    with pytest.raises(TilewrightError, match=r"elementwise\.py"):
        system.run("elementwise.add_kernel", (1,), 1.0, 2.0, 3.0, 4, BLOCK=16)


def test_uniform_numbers_are_those_of_the_first_word_of_philox():
    # Salmon et al.: the known answer for a key and a counter of zeros begins with 0x6627e8d5.
    (found,) = uniform(0, torch.zeros(1, dtype=torch.int64)).tolist()
    assert found == pytest.approx(0x6627E8D5 * 4.6566127342e-10)
