"""A row of the table: the same work by Tilewright, by eager PyTorch, compiled, and by a library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = [
    "COMPILED",
    "COPY",
    "EAGER",
    "LIBRARY",
    "OURS",
    "LibraryRow",
    "Sides",
    "backward_of",
    "compiled",
]

OURS, EAGER, COMPILED, LIBRARY = "Tilewright", "eager", "compiled", "library"
COPY = "copy"  # as a goal: a part of the rate at which the machine copies memory

Sides = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class LibraryRow:
    """`make(device)` makes random inputs, and the sides: functions that compute the same on them.

    `amount` is the work of one run, in bytes ("GB/s") or operations ("TFLOP/s"). `goals` has, for
    another side, how many times as fast Tilewright is to be. Results may differ by `tolerance`
    times the largest number of `exact()`, a result in higher precision, if there is such a side.
    """

    name: str
    amount: float
    unit: str
    make: Callable[[str], Sides]
    goals: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 2e-2


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile` as users of PyTorch have it, without its search."""
    return torch.compile(function, dynamic=False)


def backward_of(
    function: Callable[..., Any], inputs: list[Any], upstream: Any
) -> Callable[[], Any]:
    """The backward pass alone, of a forward pass that runs once, at the first call."""
    output = functools.cache(lambda: function(*inputs))
    needed = [x for x in inputs if x.requires_grad]
    return lambda: torch.autograd.grad(output(), needed, upstream, retain_graph=True)
