"""Work on the rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from benchmarks.systems import System
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import cdiv, next_power_of_2

EPS = 1e-5
CHECKED_ROWS = 64


def whole_rows(columns: int) -> Sequence[Config]:
    """A row a program, with 16, 32 or 64 elements for each thread if it is not too short."""
    block = next_power_of_2(columns)
    warps = {min(16, max(1, block // elements // 32)) for elements in (16, 32, 64)}
    return [{"BLOCK": block, "num_warps": number} for number in sorted(warps, reverse=True)]


@dataclass(frozen=True)
class Rows(Workload):
    """Work on each row of one or several matrices."""

    rows: int
    columns: int

    @property
    def configs(self) -> Sequence[Config]:
        return whole_rows(self.columns)

    def matrix(self, device: str, dtype: torch.dtype) -> Any:
        return random(self.rows, self.columns, device=device, dtype=dtype)

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.empty_like(inputs[0]),)


@dataclass(frozen=True)
class Softmax(Rows):
    """Softmax of fp16 rows."""

    tolerance: ClassVar = 2e-3

    @property
    def amount(self) -> float:
        return 4 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        return (self.matrix(device, torch.float16),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        sizes = (self.columns, self.columns)
        system.run("rows.softmax_kernel", (self.rows,), *inputs, *outputs, *sizes, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        return (torch.softmax(inputs[0].float(), 1),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(torch.softmax, inputs[0], 1)


@dataclass(frozen=True)
class RowSum(Rows):
    """The sums of fp32 rows."""

    tolerance: ClassVar = 1e-5

    @property
    def amount(self) -> float:
        return 4 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        return (self.matrix(device, torch.float32),)

    def outputs(self, inputs: Tensors) -> Tensors:
        return (torch.empty(self.rows, device=inputs[0].device),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        arguments = (*inputs, *outputs, self.columns)
        system.run("rows.row_sum_kernel", (self.rows,), *arguments, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        return (inputs[0].sum(1, dtype=torch.float64),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(torch.sum, inputs[0], 1)


@dataclass(frozen=True)
class CumSum(Rows):
    """The running sums of fp32 rows."""

    tolerance: ClassVar = 1e-5

    @property
    def amount(self) -> float:
        return 8 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        return (self.matrix(device, torch.float32),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        arguments = (*inputs, *outputs, self.columns)
        system.run("rows.cumsum_kernel", (self.rows,), *arguments, **config)

    def sample(self, outputs: Tensors) -> Tensors:
        return (outputs[0][-CHECKED_ROWS:],)

    def reference(self, inputs: Tensors) -> Tensors:
        return (inputs[0][-CHECKED_ROWS:].double().cumsum(1),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(torch.cumsum, inputs[0], 1)


@dataclass(frozen=True)
class Recurrence(Rows):
    """`y[t] = a[t] y[t - 1] + b[t]` along fp32 rows, by an associative scan."""

    tolerance: ClassVar = 1e-5

    @property
    def amount(self) -> float:
        return 12 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        factor, term = (self.matrix(device, torch.float32) for _ in range(2))
        return torch.sigmoid(factor), term

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        arguments = (*inputs, *outputs, self.columns)
        system.run("rows.recurrence_kernel", (self.rows,), *arguments, **config)

    def sample(self, outputs: Tensors) -> Tensors:
        return (outputs[0][-CHECKED_ROWS:],)

    def reference(self, inputs: Tensors) -> Tensors:
        factors, terms = (x[-CHECKED_ROWS:].double().unbind(1) for x in inputs)
        y = torch.zeros_like(terms[0])
        found = []
        for factor, term in zip(factors, terms, strict=True):
            y = y * factor + term
            found.append(y)
        return (torch.stack(found, 1),)


@dataclass(frozen=True)
class LayerNorm(Rows):
    """Layer norm of bf16 rows."""

    tolerance: ClassVar = 8e-3

    @property
    def amount(self) -> float:
        return 4 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        parameters = (random(self.columns, device=device, dtype=torch.bfloat16) for _ in range(2))
        return self.matrix(device, torch.bfloat16), *parameters

    def outputs(self, inputs: Tensors) -> Tensors:
        x = inputs[0]
        mean, rstd = (torch.empty(self.rows, device=x.device) for _ in range(2))
        return torch.empty_like(x), mean, rstd

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        arguments = (*inputs, *outputs, self.columns, EPS)
        system.run("layer_norm.layer_norm_kernel", (self.rows,), *arguments, **config)

    def reference(self, inputs: Tensors) -> Tensors:
        x, weight, bias = (array.float() for array in inputs)
        out = torch.nn.functional.layer_norm(x, (self.columns,), weight, bias, EPS)
        rstd = torch.rsqrt(x.var(1, correction=0) + EPS)
        return out, x.mean(1), rstd

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        x, weight, bias = inputs
        return partial(torch.nn.functional.layer_norm, x, (self.columns,), weight, bias, EPS)


@dataclass(frozen=True)
class LayerNormBackward(Rows):
    """The gradients of a layer norm of bf16 rows."""

    tolerance: ClassVar = 8e-3
    most_programs: ClassVar = 132 * 4

    @property
    def configs(self) -> Sequence[Config]:
        block = next_power_of_2(self.columns)
        most = min(16, max(1, block // 512))
        if block > 4096:  # one program at a time on a multiprocessor
            ahead = [(1, 3, most), (1, 4, most), (1, 4, most // 2)]
        else:
            ahead = [(2, 3, most), (1, 4, most), (1, 3, most)]
        return [
            {"BLOCK": block, "PROGRAMS": 132 * count, "STAGES": stages, "num_warps": warps}
            for count, stages, warps in (*ahead, (2, 1, most), (2, 2, most), (4, 1, most))
        ]

    @property
    def amount(self) -> float:
        return 6 * self.rows * self.columns

    def inputs(self, device: str) -> Tensors:
        x, grad = (self.matrix(device, torch.bfloat16) for _ in range(2))
        weight = random(self.columns, device=device, dtype=torch.bfloat16)
        mean = x.float().mean(1)
        rstd = torch.rsqrt(x.float().var(1, correction=0) + EPS)
        return x, weight, mean, rstd, grad

    def outputs(self, inputs: Tensors) -> Tensors:
        x, weight = inputs[:2]
        shape = (self.most_programs, self.columns)
        sums = (torch.empty(shape, device=x.device) for _ in range(2))
        return torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight), *sums

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        x_grad, weight_grad, bias_grad, weight_sums, bias_sums = outputs
        programs = min(config["PROGRAMS"], self.rows)
        system.run(
            "layer_norm.layer_norm_backward_kernel",
            (programs,),
            *(*inputs, x_grad, weight_sums, bias_sums),
            *(self.rows, self.columns),
            **{**config, "PROGRAMS": programs},
        )
        system.run(
            "layer_norm.sum_partial_kernel",
            (cdiv(self.columns, 32),),
            *(weight_sums, bias_sums, weight_grad, bias_grad),
            *(programs, self.columns),
            BLOCK_M=64,
            BLOCK_N=32,
        )

    def sample(self, outputs: Tensors) -> Tensors:
        return outputs[:3]

    def reference(self, inputs: Tensors) -> Tensors:
        x, weight, mean, rstd, grad = (array.float() for array in inputs)
        normal = (x - mean[:, None]) * rstd[:, None]
        weighted = grad * weight
        level = weighted.mean(1, keepdim=True)
        along = (weighted * normal).mean(1, keepdim=True)
        x_grad = (weighted - normal * along - level) * rstd[:, None]
        sums = (array.sum(0, dtype=torch.float64) for array in (grad * normal, grad))
        return x_grad, *sums

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        x, weight, mean, rstd, grad = inputs
        shape, bias, wanted = (self.columns,), torch.zeros_like(weight), [True, True, True]
        backward = torch.ops.aten.native_layer_norm_backward
        return partial(backward, grad, x, shape, mean[:, None], rstd[:, None], weight, bias, wanted)
