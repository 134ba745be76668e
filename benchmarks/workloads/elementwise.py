"""Work on each element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmarks.systems import System
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import cdiv


@dataclass(frozen=True)
class Add(Workload):
    """The sum of two fp32 vectors."""

    size: int
    configs: ClassVar = (
        {"BLOCK": 1024, "num_warps": 4},
        {"BLOCK": 2048, "num_warps": 4},
        {"BLOCK": 4096, "num_warps": 8},
    )

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

    def library(self, inputs: Tensors) -> Tensors:
        return (torch.add(*inputs),)
