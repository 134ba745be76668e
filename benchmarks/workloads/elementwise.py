"""Work on each element, and moves of elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from benchmarks.systems import System
from benchmarks.workloads.philox import uniform
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import cdiv

VECTOR_CONFIGS = (
    {"BLOCK": 1024, "num_warps": 4},
    {"BLOCK": 2048, "num_warps": 4},
    {"BLOCK": 4096, "num_warps": 8},
)


@dataclass(frozen=True)
class Add(Workload):
    """The sum of two fp32 vectors."""

    size: int
    configs: ClassVar = VECTOR_CONFIGS

    @property
    def amount(self) -> float:
        return 12 * self.size

    def inputs(self, device: str) -> Tensors:
        return random(self.size, device=device), random(self.size, device=device)

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.empty_like(inputs[0]),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        grid = (cdiv(self.size, config["BLOCK"]),)
        system.run("elementwise.add_kernel", grid, *inputs, *outputs, self.size, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        return (inputs[0] + inputs[1],)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(torch.add, *inputs)


@dataclass(frozen=True)
class BiasGeluResidual(Workload):
    """`gelu(x + bias) + residual` in bf16."""

    rows: int
    columns: int
    tolerance: ClassVar = 8e-3
    configs: ClassVar = (
        {"BLOCK": 2048, "num_warps": 4},
        {"BLOCK": 1024, "num_warps": 4},
        {"BLOCK": 4096, "num_warps": 8},
    )

    @property
    def amount(self) -> float:
        return 6 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        make = partial(random, device=device, dtype=torch.bfloat16)
        return make(self.rows, self.columns), make(self.columns), make(self.rows, self.columns)

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.empty_like(inputs[0]),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        kernel = "elementwise.bias_gelu_residual_kernel"
        grid = (self.rows, cdiv(self.columns, config["BLOCK"]))
        system.run(kernel, grid, *inputs, *outputs, self.columns, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        return (bias_gelu_residual(*(x.float() for x in inputs)),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(bias_gelu_residual, *inputs)


def bias_gelu_residual(x: Any, bias: Any, residual: Any) -> Any:
    return torch.nn.functional.gelu(x + bias, approximate="tanh") + residual


@dataclass(frozen=True)
class Dropout(Workload):
    """Dropout of fp32 elements by `rand`."""

    size: int
    tolerance: ClassVar = 1e-6
    configs: ClassVar = VECTOR_CONFIGS
    rate: ClassVar = 0.25
    seed: ClassVar = 20_261_130
    checked: ClassVar = 1 << 20

    @property
    def amount(self) -> float:
        return 8 * self.size

    def inputs(self, device: str) -> Tensors:
        return (random(self.size, device=device),)

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.empty_like(inputs[0]),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        settings = (self.size, self.rate, self.seed)
        grid = (cdiv(self.size, config["BLOCK"]),)
        system.run("elementwise.dropout_kernel", grid, *inputs, *outputs, *settings, **config)

    def sample(self, outputs: Tensors) -> Tensors:
        """The last elements: their numbers are the largest."""
        return (outputs[0][-self.checked :],)

    def reference(self, inputs: Tensors) -> Tensors:
        x = inputs[0][-self.checked :]
        offsets = torch.arange(self.size - len(x), self.size, device=x.device)
        kept = x.double() / (1 - self.rate)
        return (torch.where(uniform(self.seed, offsets) > self.rate, kept, 0.0),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(torch.nn.functional.dropout, *inputs, p=self.rate)


@dataclass(frozen=True)
class GatherRows(Workload):
    """Rows of a bf16 table, in an order of chance."""

    rows: int
    columns: int
    configs: ClassVar = (
        {"BLOCK": 8, "num_warps": 4},
        {"BLOCK": 16, "num_warps": 4},
        {"BLOCK": 32, "num_warps": 4},
    )

    @property
    def amount(self) -> float:
        return 4 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        index = torch.randint(0, self.rows, (self.rows,), device=device, dtype=torch.int32)
        return random(self.rows, self.columns, device=device, dtype=torch.bfloat16), index

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.empty_like(inputs[0]),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        grid = (cdiv(self.rows, config["BLOCK"]),)
        arguments = (*inputs, *outputs, self.rows)
        kernel = "movement.gather_rows_kernel"
        system.run(kernel, grid, *arguments, COLUMNS=self.columns, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        table, index = inputs
        return (table[index.long()],)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        table, index = inputs
        return partial(torch.index_select, table, 0, index)


@dataclass(frozen=True)
class Transpose(Workload):
    """A copy of an fp16 matrix with its axes exchanged."""

    rows: int
    columns: int
    configs: ClassVar = (
        {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4},
        {"BLOCK_M": 64, "BLOCK_N": 128, "num_warps": 4},
        {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8},
        {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8},
    )

    @property
    def amount(self) -> float:
        return 4 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        return (random(self.rows, self.columns, device=device, dtype=torch.float16),)

    def outputs(self, inputs: Tensors) -> Tensors:
        (x,) = inputs
        return (torch.empty(self.columns, self.rows, device=x.device, dtype=x.dtype),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        grid = (cdiv(self.rows, config["BLOCK_M"]), cdiv(self.columns, config["BLOCK_N"]))
        sizes = (self.rows, self.columns)
        system.run("movement.transpose_kernel", grid, *inputs, *outputs, *sizes, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        return (inputs[0].T,)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return inputs[0].T.contiguous


@dataclass(frozen=True)
class Histogram(Workload):
    """How often each of 256 numbers is there."""

    size: int
    bins: ClassVar = 256
    configs: ClassVar = (
        {"BLOCK": 4096, "PROGRAMS": 132 * 8, "num_warps": 4},
        {"BLOCK": 2048, "PROGRAMS": 132 * 16, "num_warps": 4},
        {"BLOCK": 8192, "PROGRAMS": 132 * 4, "num_warps": 8},
        {"BLOCK": 1024, "PROGRAMS": 132 * 16, "num_warps": 4},
    )

    @property
    def amount(self) -> float:
        return 4 * self.size

    def inputs(self, device: str) -> Tensors:
        return (torch.randint(0, self.bins, (self.size,), device=device, dtype=torch.int32),)

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.zeros(self.bins, device=inputs[0].device, dtype=torch.int32),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        outputs[0].zero_()
        grid = (min(config["PROGRAMS"], cdiv(self.size, config["BLOCK"])),)
        arguments = (*inputs, *outputs, self.size)
        system.run("counting.histogram_kernel", grid, *arguments, BINS=self.bins, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        return (torch.bincount(inputs[0], minlength=self.bins),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(torch.bincount, inputs[0], minlength=self.bins)
