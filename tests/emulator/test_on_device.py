"""The tests of results once more, with a GPU in place of the emulator: both must pass."""

import importlib.util
import inspect
import itertools
import sys
from pathlib import Path

import pytest
from ptx_device import Device


def load(name):
    """Load a test module that stands beside this one; other folders have the same names."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"on_device_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


test_copies, test_llvm_kernels, test_matrix, test_memory, test_scheduling = map(
    load, ["test_copies", "test_llvm_kernels", "test_matrix", "test_memory", "test_scheduling"]
)

TESTS = [
    test_matrix.test_mma,
    test_matrix.test_wgmma,
    test_matrix.test_matrices_in_shared_memory,
    test_copies.test_small_copies,
    test_copies.test_small_copies_may_be_ignored_or_cut_at_the_end_of_an_array,
    test_copies.test_bulk_copies_in_and_out,
    test_copies.test_tensor_copies_swizzle,
    test_copies.test_a_box_may_reach_out_of_the_tensor,
    test_copies.test_tensors_of_all_ranks,
    test_copies.test_tensor_stores,
    test_copies.test_a_ring_of_two_buffers,
    test_copies.test_an_arrival_for_small_copies,
    test_copies.test_maps_made_on_the_device,
    test_scheduling.test_loops_of_different_length_meet_again,
    test_scheduling.test_branches_by_table,
    test_scheduling.test_a_shuffle_waits_for_lanes_that_took_another_way,
    test_scheduling.test_member_masks_of_half_a_warp,
    test_scheduling.test_named_barriers_order_producers_and_consumers,
    test_scheduling.test_reducing_barriers,
    test_scheduling.test_threads_that_ended_are_not_waited_for,
    test_scheduling.test_blocks_wait_for_each_other,
    test_scheduling.test_a_lock_inside_a_warp,
    test_scheduling.test_grids_and_blocks_of_three_dimensions,
    test_memory.test_loads_widen,
    test_memory.test_vectors_and_hints,
    test_memory.test_generic_addresses_lead_to_every_space,
    test_memory.test_variables_with_initial_values,
    test_memory.test_scalars_by_their_types,
    test_memory.test_reductions_and_swaps,
    test_memory.test_atomics_in_shared_memory_are_of_one_block,
    test_llvm_kernels.test_softmax,
    test_llvm_kernels.test_matmul,
    test_llvm_kernels.test_integers_of_odd_widths_constants_and_structs,
]


def runs(function):
    """Yield the keyword arguments of each run that the marks of a test ask for."""
    axes = []
    for mark in getattr(function, "pytestmark", []):
        names, values = mark.args
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        axes.append([dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in values])
    for choice in itertools.product(*axes):
        yield {name: value for part in choice for name, value in part.items()}


@pytest.mark.gpu
@pytest.mark.parametrize("function", TESTS, ids=lambda function: function.__name__)
def test_a_device_passes(function, monkeypatch):
    monkeypatch.setattr(inspect.getmodule(function), "Emulator", Device)
    for arguments in runs(function):
        function(**arguments)
