"""The launches of the benchmarks' rows, on arrays without memory, as PTX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import tilewright as tw
from benchmarks.systems import TILEWRIGHT, System
from tests.codegen.gpu import harness
from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.compile import PtxKernel, generate, prepare
from tilewright.target import NvidiaTarget
from tilewright.tools.tensor_descriptor import TensorDescriptor

__all__ = ["Call", "calls_of", "ptx_of_call"]


@dataclass
class Call:
    """A launch of a kernel."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class WithoutMemory(System):
    def descriptor(self, tensor, block):
        shape, strides = list(tensor.shape), list(tensor.stride())
        return TensorDescriptor(mock(tensor), shape, strides, list(block))


def mock(value):
    """An array to compile for, in place of one without memory."""
    if not isinstance(value, torch.Tensor):
        return value
    return tw.MockTensor(value.dtype, tuple(value.shape))


def calls_of(row, target: NvidiaTarget) -> list[Call]:
    """The launches of a row's first configuration on an architecture."""
    calls = []

    def note(kernel, grid, arguments, options):
        calls.append(Call(kernel, tuple(map(mock, arguments)), dict(options)))

    inputs = row.workload.inputs("meta")
    outputs = row.workload.outputs(inputs)
    config = row.workload.configs_on(target.compute_capability)[0]
    row.workload.launch(WithoutMemory(TILEWRIGHT, note), config, inputs, outputs)
    return calls


def ptx_of_call(call: Call, target: NvidiaTarget) -> PtxKernel:
    names = {param.name for param in call.kernel.params}
    constants = {name: value for name, value in call.options.items() if name in names}
    options = GpuOptions.among(call.options)
    function, _ = harness.lowered(call.kernel, call.arguments, constants)
    return generate(prepare(function, target, options), target, options)
