"""Activations, cross-entropy, rotary embedding, dropout, embedding, norms of channels, filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from benchmarks.library_rows.row import (
    COMPILED,
    COPY,
    EAGER,
    OURS,
    LibraryRow,
    Sides,
    backward_of,
    compiled,
)
from tilewright import kernels

F = torch.nn.functional
Function = Callable[..., Any]
GOALS = {"cuda": {EAGER: 2.0, COMPILED: 1.0, COPY: 0.85}, "cpu": {EAGER: 1.2}}
SAME_SPEED = {"cuda": {EAGER: 1.0, COMPILED: 1.0}, "cpu": {EAGER: 1.0}}


def rows(device: str) -> list[LibraryRow]:
    on_gpu = device == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    parts = (activations, cross_entropy, rotary, dropout, embedding, channel_norms, convolutions)
    return [row for part in parts for row in part(on_gpu, dtype)]


def pair_of_rows(
    name: str,
    elements: tuple[float, float],
    ours: Function,
    plain: Function,
    inputs: Callable[[str], list[Any]],
    dtype: torch.dtype,
    goals: Mapping[str, Mapping[str, float]] = GOALS,
    tolerance: float = 2e-2,
) -> list[LibraryRow]:
    """A row for the forward and one for the backward pass; each moves so many elements."""
    on_gpu = dtype == torch.bfloat16
    kind = "bf16" if on_gpu else "fp32"
    return [
        LibraryRow(
            f"{name}{way} {kind}",
            count * dtype.itemsize,
            "GB/s",
            partial(sides, ours, plain, inputs, bool(way)),
            goals["cuda" if on_gpu else "cpu"],
            tolerance,
        )
        for way, count in zip(("", " backward"), elements, strict=True)
        if count
    ]


def sides(
    ours: Function,
    plain: Function,
    make_inputs: Callable[[str], list[Any]],
    is_backward: bool,
    device: str,
) -> Sides:
    inputs = make_inputs(device)
    with_inductor = compiled(plain)
    if not is_backward:
        with torch.no_grad():
            return {
                OURS: torch.no_grad()(lambda: ours(*inputs)),
                EAGER: torch.no_grad()(lambda: plain(*inputs)),
                COMPILED: torch.no_grad()(lambda: with_inductor(*inputs)),
            }
    upstream = torch.randn_like(plain(*inputs))
    functions = {OURS: ours, EAGER: plain, COMPILED: with_inductor}
    return {name: backward_of(function, inputs, upstream) for name, function in functions.items()}


def normal(*shape: int, dtype: torch.dtype, device: str, grad: bool = True) -> Any:
    return torch.randn(shape, dtype=dtype, device=device, requires_grad=grad)


def activations(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    shape = (16384, 4096) if on_gpu else (4096, 4096)
    count = shape[0] * shape[1]

    def pair(device: str) -> list[Any]:
        return [normal(*shape, dtype=dtype, device=device) for _ in range(2)]

    def one(device: str) -> list[Any]:
        return pair(device)[:1]

    def swiglu(gate: Any, up: Any) -> Any:
        return F.silu(gate) * up

    def geglu(gate: Any, up: Any) -> Any:
        return F.gelu(gate, approximate="tanh") * up

    size = f"{shape[0]}x{shape[1]}"
    gated = (3 * count, 5 * count)
    return [
        *pair_of_rows(f"swiglu {size}", gated, kernels.swiglu, swiglu, pair, dtype),
        *pair_of_rows(
            f"geglu {size}",
            gated,
            lambda gate, up: kernels.geglu(gate, up, "tanh"),
            geglu,
            pair,
            dtype,
        ),
        # One pass in eager PyTorch, too.
        *pair_of_rows(
            f"gelu {size}",
            (2 * count, 3 * count),
            kernels.gelu,
            F.gelu,
            one,
            dtype,
            SAME_SPEED if on_gpu else GOALS,
        ),
    ]


def cross_entropy(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    made = []
    for places, classes in [(8192, 32768), (4096, 131072)] if on_gpu else [(2048, 16384)]:

        def inputs(device: str, places: int = places, classes: int = classes) -> list[Any]:
            x = normal(places, classes, dtype=dtype, device=device)
            return [x, torch.randint(0, classes, (places,), device=device)]

        count = places * classes
        name = f"cross-entropy {places}x{classes}"
        both = (kernels.cross_entropy, F.cross_entropy)
        made += pair_of_rows(name, (count, 2 * count), *both, inputs, dtype)
    return made + linear_cross_entropy(on_gpu, dtype)


def linear_cross_entropy(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    places, features, classes = (8192, 4096, 131072) if on_gpu else (512, 256, 8192)

    def sides(is_backward: bool, device: str) -> Sides:
        x = normal(places, features, dtype=dtype, device=device)
        weight = (normal(classes, features, dtype=dtype, device=device) / 64).detach()
        weight.requires_grad_()
        target = torch.randint(0, classes, (places,), device=device)

        def ours() -> Any:
            return kernels.linear_cross_entropy(x, weight, target)

        def plain() -> Any:
            return F.cross_entropy(x @ weight.T, target)

        if not is_backward:
            return {OURS: torch.no_grad()(ours), EAGER: torch.no_grad()(plain)}
        return {
            side: lambda function=function: torch.autograd.grad(function(), [x, weight])
            for side, function in ((OURS, ours), (EAGER, plain))
        }

    name = f"linear cross-entropy {places}x{features}x{classes}"
    product = 2.0 * places * features * classes
    return [
        LibraryRow(f"{name}{way}", number * product, "TFLOP/s", partial(sides, bool(way)), goals)
        # The backward pass makes the logits again: a fourth product, in memory that is no matter.
        for way, number, goals in (("", 1, {EAGER: 0.9}), (" and backward", 4, {EAGER: 0.7}))
    ]


def rotary(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    shape = (8, 32, 4096, 128) if on_gpu else (1, 16, 2048, 128)
    count = shape[0] * shape[1] * shape[2] * shape[3]

    def inputs(device: str) -> list[Any]:
        angle = torch.randn(shape[2], shape[3] // 2, device=device)
        x = normal(*shape, dtype=dtype, device=device)
        return [x, angle.cos().to(dtype), angle.sin().to(dtype)]

    def plain(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    name = f"rotary embedding {'x'.join(map(str, shape))}"
    counts = (2 * count, 2 * count)
    return pair_of_rows(name, counts, kernels.rotary_embedding, plain, inputs, dtype)


def dropout(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    count = 1 << (27 if on_gpu else 24)

    def sides(device: str) -> Sides:
        x = normal(count, dtype=dtype, device=device, grad=False)
        ours = kernels.dropout(x, 0.25, seed=1)
        kept = torch.count_nonzero(ours) / count
        assert abs(kept - 0.75) < 1e-2, "the rate is wrong"
        with_inductor = compiled(lambda x: F.dropout(x, 0.25))
        # Other random numbers, so results differ: none of them is shown.
        functions = {
            OURS: lambda: kernels.dropout(x, 0.25, seed=1),
            EAGER: lambda: F.dropout(x, 0.25),
            COMPILED: lambda: with_inductor(x),
        }
        return {name: lambda run=run: run().sum() * 0 for name, run in functions.items()}

    kind = "bf16" if on_gpu else "fp32"
    goals = SAME_SPEED["cuda" if on_gpu else "cpu"]
    amount = 2 * count * dtype.itemsize
    return [LibraryRow(f"dropout {count} {kind}, and a sum", amount, "GB/s", sides, goals)]


def embedding(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    places, table, size = (16384, 131072, 4096) if on_gpu else (2048, 8192, 512)

    def inputs(device: str) -> list[Any]:
        weight = normal(table, size, dtype=dtype, device=device)
        return [torch.randint(0, table, (places,), device=device), weight]

    counts = (2 * places * size, (places + table) * size)
    name = f"embedding {places} of {table}x{size}"
    both = (kernels.embedding, F.embedding)
    return pair_of_rows(name, counts, *both, inputs, dtype, SAME_SPEED)


def channel_norms(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    shape = (32, 256, 64, 64) if on_gpu else (8, 64, 64, 64)
    count = shape[0] * shape[1] * shape[2] * shape[3]

    def inputs(device: str) -> list[Any]:
        x = normal(*shape, dtype=dtype, device=device)
        return [x, *(normal(shape[1], dtype=dtype, device=device) for _ in range(2))]

    def of(module: Any) -> tuple[Function, Function]:
        return (
            lambda x, w, b: module.group_norm(x, 32, w, b),
            lambda x, w, b: module.batch_norm(x, None, None, w, b, training=True),
        )

    size = "x".join(map(str, shape))
    return [
        row
        for name, ours, plain in zip(("group", "batch"), of(kernels), of(F), strict=True)
        for row in pair_of_rows(
            f"{name} norm {size}",
            (2 * count, 3 * count),
            ours,
            plain,
            inputs,
            dtype,
            SAME_SPEED,
            5e-2,
        )
    ]


def convolutions(on_gpu: bool, dtype: torch.dtype) -> list[LibraryRow]:
    samples, channels, size = (32, 256, 56) if on_gpu else (2, 32, 28)

    def inputs(device: str) -> list[Any]:
        x = torch.randn(samples, channels, size, size, dtype=dtype, device=device)
        weight = torch.randn(channels, channels, 3, 3, dtype=dtype, device=device) / 48
        last = torch.channels_last
        return [y.to(memory_format=last).requires_grad_() for y in (x, weight)]

    def of(module: Any) -> Function:
        return lambda x, weight: module.conv2d(x, weight, padding=1)

    def make(is_backward: bool, device: str) -> Sides:
        made = sides(of(kernels), of(F), inputs, is_backward, device)
        return {name: run for name, run in made.items() if name != COMPILED}

    product = 2.0 * samples * size * size * channels * channels * 9
    name = f"conv2d 3x3 {samples}x{channels}x{size}x{size}"
    return [
        LibraryRow(f"{name}{way}", number * product, "TFLOP/s", partial(make, bool(way)))
        for way, number in (("", 1), (" backward", 2))
    ]
