"""The benchmarks' kernels on every architecture: ptxas takes them, without spills and warnings."""

from importlib.machinery import ModuleSpec

import pytest

from tests.codegen.gpu import harness
from tilewright.codegen.nvidia import toolkit
from tilewright.codegen.nvidia.assembler import assemble
from tilewright.codegen.nvidia.toolkit import find_ptxas

torch = pytest.importorskip("torch")

from benchmarks.workloads.table import all_rows  # noqa: E402 - needs torch
from tests.codegen.gpu.benchmark_calls import calls_of, ptx_of_call  # noqa: E402 - needs torch

PTXAS = find_ptxas()
ROWS = {row.name: row for row in all_rows()}


def kinds():
    """The names of rows, without those that differ from one before only by their sizes."""
    found = {}
    for name, row in ROWS.items():
        words = (word for word in name.split() if not word[0].isdigit())
        found.setdefault((type(row.workload), *words), name)
    return list(found.values())


needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="there is no ptxas")

EVERYDAY = [
    ("softmax fp16 65536x1024", "sm_90a"),
    ("layer norm bf16 16384x4096", "sm_90a"),
    ("cumsum fp32 32768x4096", "sm_90a"),
    ("matmul bf16 persistent 8192", "sm_120a"),
    ("matmul bf16 pointers 8192", "sm_75"),  # no instruction multiplies bf16 there
    ("attention bf16 pointers 4096 d64", "sm_75"),
]


def assembled(call, target):
    return assemble(ptx_of_call(call, target).ptx, target, PTXAS)


def faults_of(row, target):
    """The kernels that keep registers in memory, or that ptxas warns of; and how many there are."""
    faults, count = {}, 0
    for call in calls_of(row, target):
        found = assembled(call, target)
        count += 1
        assert not found.warnings
        if found.spilled_bytes or found.stack_bytes:
            faults[call.kernel.name] = found
    return faults, count


@needs_ptxas
@pytest.mark.parametrize(("row", "architecture"), EVERYDAY)
def test_rows_of_each_day(row, architecture):
    faults, count = faults_of(ROWS[row], harness.ARCHITECTURES[architecture])
    assert count
    assert not faults


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("row", kinds())
@pytest.mark.parametrize("architecture", harness.ARCHITECTURES)
def test_on_every_architecture(row, architecture):
    faults, _ = faults_of(ROWS[row], harness.ARCHITECTURES[architecture])
    assert not faults


def test_the_assembler_of_a_package_is_found(tmp_path, monkeypatch):
    place = tmp_path / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
    place.parent.mkdir(parents=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = ModuleSpec("nvidia", None)
    spec.submodule_search_locations = [str(tmp_path / "nvidia")]
    monkeypatch.setattr(toolkit.importlib.util, "find_spec", lambda _: spec)
    # A toolkit in its usual place comes first.
    assert find_ptxas() in {str(place), "/usr/local/cuda/bin/ptxas"}
