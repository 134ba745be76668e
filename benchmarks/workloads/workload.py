"""What a row of the table needs: a problem, how a system solves it, and what is right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import torch

from benchmarks.systems import System

Tensors: TypeAlias = tuple[Any, ...]
Config: TypeAlias = Mapping[str, Any]

HOPPER = 9  # the major number of its compute capability
# Units by how much a second they are.
UNITS = {"GB/s": 1e9, "TFLOP/s": 1e12}


class Workload(ABC):
    """A problem of one size.

    Subclasses are frozen dataclasses of its sizes. `make` must not look at the values of tensors:
    on the device "meta", where there are none, it tells what to compile. `amount` is in bytes or
    floating-point operations. `configs` are tried for each system; the first is the one whose
    compile time counts. They are made for Hopper; `smaller_configs` go before them on GPUs whose
    products take their operands from the registers that sums are in.
    """

    unit: ClassVar[str] = "GB/s"
    tolerance: ClassVar[float] = 0.0
    configs: Sequence[Config]
    smaller_configs: Sequence[Config] = ()
    library_name: ClassVar[str] = "torch"

    def configs_on(self, capability: tuple[int, int]) -> Sequence[Config]:
        """The configurations to try on a GPU of this compute capability."""
        return self.configs if capability[0] == HOPPER else (*self.smaller_configs, *self.configs)

    @property
    @abstractmethod
    def amount(self) -> float: ...

    @abstractmethod
    def inputs(self, device: str) -> Tensors:
        """Random inputs."""

    @abstractmethod
    def outputs(self, inputs: Tensors) -> Tensors:
        """What `launch` writes to."""

    @abstractmethod
    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        """Solve the problem with the kernels of a system."""

    @abstractmethod
    def reference(self, inputs: Tensors) -> Tensors:
        """The right results, in higher precision; of the part that `sample` takes, if it does."""

    def sample(self, outputs: Tensors) -> Tensors:
        """The part of the results that is checked: all of them, if that is affordable."""
        return outputs

    def library(self, inputs: Tensors) -> Callable[[], Any] | None:
        """A function that solves it with torch, where that has one."""
        return None

    def error(self, outputs: Tensors, right: Tensors) -> float:
        """The largest difference from the right results, beside a value and the size of all."""
        return max(map(relative_error, self.sample(outputs), right))


def relative_error(found: Any, right: Any) -> float:
    right = right.double()
    difference = (found.double() - right).abs()
    scale = right.abs() + right.square().mean().sqrt()
    worst = torch.where(difference == 0, 0.0, difference / scale).max().item()
    return float("inf") if worst != worst else worst  # noqa: PLR0124 - NaN is as wrong as can be


def random(*shape: int, device: str, dtype: Any = None) -> Any:
    """Normally distributed numbers."""
    found = torch.randn(shape, device=device, dtype=torch.float32)
    return found if dtype is None else found.to(dtype)
