"""Work on the rows of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmarks.systems import System
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import next_power_of_2


def whole_rows(columns: int) -> Sequence[Config]:
    """A row a program, with 32, 16 or 64 elements for each thread if it is not too short."""
    block = next_power_of_2(columns)
    warps = {min(16, max(1, block // elements // 32)) for elements in (16, 32, 64)}
    return [{"BLOCK": block, "num_warps": number} for number in sorted(warps, reverse=True)]


@dataclass(frozen=True)
class Softmax(Workload):
    """Softmax of fp16 rows."""

    rows: int
    columns: int
    tolerance: ClassVar = 2e-3  # fp16

    @property
    def configs(self) -> Sequence[Config]:
        return whole_rows(self.columns)

    @property
    def amount(self) -> float:
        return 4 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        return (random(self.rows, self.columns, device=device, dtype=torch.float16),)

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.empty_like(inputs[0]),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        sizes = (self.columns, self.columns)
        system.run("rows.softmax_kernel", (self.rows,), *inputs, *outputs, *sizes, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        return (torch.softmax(inputs[0].float(), 1),)

    def library(self, inputs: Tensors) -> Tensors:
        return (torch.softmax(inputs[0], 1),)
