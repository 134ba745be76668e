"""LSTM and GRU layers beside cuDNN's, and linear recurrences."""

from __future__ import annotations

import functools

import torch

from benchmarks.library_rows.row import (
    COPY,
    EAGER,
    LIBRARY,
    OURS,
    LibraryRow,
    Sides,
    backward_of,
)
from tilewright import kernels

STEPS, BATCH = 512, 64
KINDS = {"LSTM": (kernels.LSTM, torch.nn.LSTM, 4), "GRU": (kernels.GRU, torch.nn.GRU, 3)}


def rows(device: str) -> list[LibraryRow]:
    on_gpu = device == "cuda"
    sizes = (256, 512, 1024) if on_gpu else (128,)
    steps, batch = (STEPS, BATCH) if on_gpu else (32, 16)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    return [
        LibraryRow(
            f"{kind}{' backward' if is_backward else ''} T{steps} B{batch} H{hidden}",
            4 * KINDS[kind][2] * hidden * hidden * steps * batch * (2 if is_backward else 1),
            "TFLOP/s",
            functools.partial(layer, kind, steps, batch, hidden, dtype, is_backward),
            {LIBRARY: 1.0} if on_gpu else {},
            tolerance=5e-2,  # states of 16 bits are rounded at each step
        )
        for kind in KINDS
        for hidden in sizes
        for is_backward in (False, True)
    ] + [
        LibraryRow(
            f"linear recurrence fp32 {shape}",
            12 * shape[0] * shape[1] * shape[2],
            "GB/s",
            functools.partial(recurrence, shape),
            {EAGER: 2.0, COPY: 0.7} if on_gpu else {EAGER: 1.0},
        )
        for shape in ([(8, 4096, 2048)] if on_gpu else [(4, 256, 512)])
    ]


def layer(
    kind: str,
    steps: int,
    batch: int,
    hidden: int,
    dtype: torch.dtype,
    is_backward: bool,
    device: str,
) -> Sides:
    ours, theirs, _ = KINDS[kind]
    module = ours(hidden, hidden, dtype=dtype, device=device)
    other = theirs(hidden, hidden, dtype=dtype, device=device)
    other.load_state_dict(module.state_dict())
    x = torch.randn((steps, batch, hidden), dtype=dtype, device=device, requires_grad=is_backward)
    if not is_backward:
        return {
            OURS: torch.no_grad()(lambda: module(x)[0]),
            LIBRARY: torch.no_grad()(lambda: other(x)[0]),
        }
    dy = torch.randn_like(x)
    return {
        OURS: backward_of(lambda x, *_: module(x)[0], [x, *module.parameters()], dy),
        LIBRARY: backward_of(lambda x, *_: other(x)[0], [x, *other.parameters()], dy),
    }


def recurrence(shape: tuple[int, int, int], device: str) -> Sides:
    a, b = torch.rand(shape, device=device), torch.randn(shape, device=device)

    def by_doubling() -> torch.Tensor:
        """log(T) steps over the whole arrays."""
        kept, h, distance = a, b, 1
        while distance < shape[1]:
            h = torch.cat(
                [h[:, :distance], h[:, distance:] + kept[:, distance:] * h[:, :-distance]], 1
            )
            kept = torch.cat([kept[:, :distance], kept[:, distance:] * kept[:, :-distance]], 1)
            distance *= 2
        return h

    return {OURS: lambda: kernels.linear_recurrence(a, b), EAGER: by_doubling}
