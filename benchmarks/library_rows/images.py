"""Augmentation of images: a whole pipeline, beside the same steps in PyTorch."""

from __future__ import annotations

import functools

import torch

from benchmarks.library_rows.row import COMPILED, EAGER, OURS, LibraryRow, Sides, compiled
from tilewright.kernels import images

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZE = 224
PIPELINE = images.Compose(
    [
        images.RandomResizedCrop(SIZE, antialias=False),
        images.RandomHorizontalFlip(),
        images.ColorJitter(0.4, 0.4, 0.4, 0.1),
        images.Normalize(MEAN, STD),
        images.RandomErasing(0.25),
    ]
)


def rows(device: str) -> list[LibraryRow]:
    count = 256 if device == "cuda" else 16
    goals = {EAGER: 5.0} if device == "cuda" else {EAGER: 3.0}
    return [
        LibraryRow(
            f"augmentation uint8 {count}x3x256x256",
            3 * count * (256 * 256 + 4 * SIZE * SIZE),
            "GB/s",
            functools.partial(pipeline, count),
            goals,
            tolerance=5e-2,  # a level of a pixel here and there
        )
    ]


def pipeline(count: int, device: str) -> Sides:
    x = torch.rand((count, 3, 256, 256), device=device).mul(255).to(torch.uint8)
    # PyTorch's sequence has one set of parameters for a batch; ours has one for each image.
    table = PIPELINE.parameters(x, 1)[:1].expand(count, -1).contiguous()
    numbers = table[0].tolist()

    def ours() -> torch.Tensor:
        PIPELINE.parameters(x, 1)
        return PIPELINE(x, parameters=table)

    with_inductor = compiled(by_pytorch)
    return {
        OURS: ours,
        EAGER: lambda: by_pytorch(x, numbers),
        COMPILED: lambda: with_inductor(x, numbers),
    }


def by_pytorch(x: torch.Tensor, numbers: list[float]) -> torch.Tensor:
    """The steps one after another, on tensors of uint8 as far as torchvision has them so."""
    top, left, height, width = map(int, numbers[:4])
    x = x[..., top : top + height, left : left + width].float()
    x = torch.nn.functional.interpolate(x, (SIZE, SIZE), mode="bilinear").round().to(torch.uint8)
    if numbers[4]:
        x = x.flip(-1)
    for which in map(int, numbers[5:9]):
        amount = numbers[9 + which]
        if which == 0:
            x = blend(x, 0.0, amount)
        elif which == 1:
            x = blend(x, gray(x).mean((2, 3), keepdim=True), amount)
        elif which == 2:
            x = blend(x, gray(x), amount)
        else:
            x = turned(x, amount)
    mean, std = (torch.tensor(t, device=x.device).view(3, 1, 1) for t in (MEAN, STD))
    y = (x.float() / 255 - mean) / std
    top, left, height, width = map(int, numbers[13:17])
    y[..., top : top + height, left : left + width] = 0.0
    return y


def blend(x: torch.Tensor, other: torch.Tensor | float, ratio: float) -> torch.Tensor:
    return x.mul(ratio).add(other * (1 - ratio)).clamp(0, 255).to(torch.uint8)


def gray(x: torch.Tensor) -> torch.Tensor:
    r, g, b = x.float().unbind(1)
    return (0.2989 * r + 0.587 * g + 0.114 * b).floor().unsqueeze(1)


def turned(x: torch.Tensor, turn: float) -> torch.Tensor:
    """The hue, by way of HSV."""
    y = x.float() / 255
    r, g, b = y.unbind(1)
    low, value = torch.aminmax(y, dim=1)
    spread = value - low
    divisor = torch.where(spread == 0, 1.0, spread)
    s = spread / torch.where(spread == 0, 1.0, value)
    rc, gc, bc = (value - r) / divisor, (value - g) / divisor, (value - b) / divisor
    h = torch.where(value == r, bc - gc, torch.where(value == g, 2 + rc - bc, 4 + gc - rc))
    h = ((h / 6 + 1).fmod(1) + turn) % 1
    i = (h * 6).floor()
    f = h * 6 - i
    p, q, t = ((value * (1 - s * k)).clamp(0, 1) for k in (1.0, f, 1 - f))
    choice = (i.to(torch.int64) % 6).unsqueeze(1)
    channels = [(value, q, p, p, t, value), (t, value, value, q, p, p), (p, p, t, value, value, q)]
    picked = [torch.stack(c, 1).gather(1, choice) for c in channels]
    return (torch.cat(picked, 1) * (256 - 1e-3)).to(torch.uint8)
