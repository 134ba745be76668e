"""The benchmarks' kernels on every architecture: ptxas takes them, without spills and warnings."""

from importlib.machinery import ModuleSpec

import pytest

from tests.codegen.gpu import harness
from tilewright.codegen.nvidia import toolkit
from tilewright.codegen.nvidia.assembler import assemble
from tilewright.codegen.nvidia.toolkit import find_ptxas

torch = pytest.importorskip("torch")

from benchmarks.gpu_costs import compiled_rows  # noqa: E402 - needs torch
from tests.codegen.gpu.benchmark_calls import calls_of, ptx_of_call  # noqa: E402 - needs torch

PTXAS = find_ptxas()
ROWS = compiled_rows()
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="there is no ptxas")

EVERYDAY = [row for row in ROWS if row.name.startswith(("softmax", "layer norm bf16", "cumsum"))]
# What ptxas lays aside there in kernels with tensor maps; nothing is spilled to it.
STACK_BYTES = {"sm_120a": 8}


def assembled(call, target):
    return assemble(ptx_of_call(call, target).ptx, target, PTXAS)


def has_products(call):
    return any(word in call.kernel.name for word in ("matmul", "attention", "decode"))


def faults_of(row, target):
    """The kernels that keep registers in memory, or that ptxas warns of; and how many there are."""
    faults, count = {}, 0
    for call in calls_of(row, target):
        found = assembled(call, target)
        count += 1
        assert not found.warnings
        if target.architecture == "sm_75" and has_products(call):
            continue  # no instruction multiplies bf16, and the tiles are large
        allowed = STACK_BYTES.get(target.architecture, 0)
        if found.spilled_bytes or found.stack_bytes > allowed:
            faults[call.kernel.name] = found
    return faults, count


@needs_ptxas
@pytest.mark.parametrize("row", EVERYDAY, ids=lambda row: row.name)
def test_on_hopper(row):
    faults, count = faults_of(row, harness.ARCHITECTURES["sm_90a"])
    assert count
    assert not faults


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("architecture", harness.ARCHITECTURES)
def test_on_every_architecture(row, architecture):
    faults, _ = faults_of(row, harness.ARCHITECTURES[architecture])
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
