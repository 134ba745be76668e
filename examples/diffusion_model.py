"""A small diffusion model: train it on pictures that this script draws, then let it draw.

Pictures are discs, squares, crosses and rings of 16 x 16 pixels. A small U-Net learns to tell the
noise that was added to them (Ho et al., "Denoising Diffusion Probabilistic Models", 2020);
sampling starts from noise and takes it away step by step. `--backend` chooses who computes
convolutions, norms, activations and attention: plain PyTorch or `tilewright.kernels`; the loss
curve is the same within noise.

    python -m examples.diffusion_model --compare --output results
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import torch
from torch import nn

from examples.curves import save_curves, save_pictures
from examples.functions import functions

SIDE = 16
LEVELS = 200  # of noise
SHAPES = ("disc", "square", "cross", "ring")


# ---- pictures -------------------------------------------------------------------------------


def pictures(count: int, generator: torch.Generator) -> torch.Tensor:
    """Draw random shapes: (count, 1, SIDE, SIDE), from -1 to 1, with soft edges."""
    across = torch.arange(SIDE) - (SIDE - 1) / 2
    centre = 4 * torch.rand((count, 2, 1, 1), generator=generator) - 2
    radius = 3 + 3 * torch.rand((count, 1, 1), generator=generator)
    x, y = (across - centre[:, 0]), (across[:, None] - centre[:, 1])
    distance = (x.square() + y.square()).sqrt()
    farthest = torch.maximum(x.abs().expand_as(distance), y.abs().expand_as(distance))
    nearest = torch.minimum(x.abs().expand_as(distance), y.abs().expand_as(distance))
    inside = torch.stack(
        [
            radius - distance,
            radius - farthest,
            torch.minimum(radius - farthest, 1.5 - nearest),
            1.2 - (radius - distance).abs(),
        ]
    )
    kind = torch.randint(len(SHAPES), (count,), generator=generator)
    chosen = inside[kind, torch.arange(count)]
    return (2 * torch.sigmoid(4 * chosen) - 1)[:, None]


# ---- the model ------------------------------------------------------------------------------


class Residual(nn.Module):
    """Two convolutions behind group norm and SiLU; the level of noise shifts the features."""

    def __init__(self, width_in: int, width: int, backend: str) -> None:
        super().__init__()
        self.fn = functions(backend)
        self.norms = nn.ModuleList(nn.GroupNorm(8, w) for w in (width_in, width))
        self.first = nn.Conv2d(width_in, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.level = nn.Linear(64, width)
        self.skip = nn.Conv2d(width_in, width, 1)

    def forward(self, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        h = self.convolved(self.first, self.normed(self.norms[0], x))
        h = h + self.level(level)[:, :, None, None]
        h = self.convolved(self.second, self.normed(self.norms[1], h))
        return h + self.convolved(self.skip, x)

    def normed(self, norm: nn.GroupNorm, x: torch.Tensor) -> torch.Tensor:
        return self.fn.silu(self.fn.group_norm(x, norm.num_groups, norm.weight, norm.bias))

    def convolved(self, conv: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
        return self.fn.conv2d(x, conv.weight, conv.bias, padding=conv.padding)


class Attention(nn.Module):
    """Attention of all pixels to all, with one head, beside a residual connection."""

    def __init__(self, width: int, backend: str) -> None:
        super().__init__()
        self.fn = functions(backend)
        self.norm = nn.GroupNorm(8, width)
        self.to_qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.fn.group_norm(x, self.norm.num_groups, self.norm.weight, self.norm.bias)
        pixels = normed.flatten(2).transpose(1, 2)[:, None]
        q, k, v = self.to_qkv(pixels).chunk(3, dim=-1)
        attended = self.out(self.fn.attention(q, k, v)[:, 0])
        return x + attended.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """The noise in a picture, given the picture and the level of noise."""

    def __init__(self, backend: str, width: int = 32) -> None:
        super().__init__()
        self.fn = functions(backend)
        self.start = nn.Conv2d(1, width, 3, padding=1)
        self.down = Residual(width, width, backend)
        self.smaller = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.middle = Residual(2 * width, 2 * width, backend)
        self.attention = Attention(2 * width, backend)
        self.up = Residual(3 * width, width, backend)
        self.end = nn.Conv2d(width, 1, 3, padding=1)
        nn.init.zeros_(self.end.weight)

    def forward(self, x: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        frequencies = torch.exp(torch.arange(32, device=x.device) * (-math.log(1e4) / 32))
        angles = level[:, None] * frequencies
        embedded = torch.cat([angles.sin(), angles.cos()], dim=-1)
        h = self.down(self.conv(self.start, x), embedded)
        low = self.attention(self.middle(self.conv(self.smaller, h), embedded))
        wide = low.repeat_interleave(2, dim=-1).repeat_interleave(2, dim=-2)
        return self.conv(self.end, self.up(torch.cat([h, wide], dim=1), embedded))

    def conv(self, conv: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
        return self.fn.conv2d(x, conv.weight, conv.bias, stride=conv.stride, padding=conv.padding)


# ---- diffusion ------------------------------------------------------------------------------


def kept_signal(device: str) -> torch.Tensor:
    """How much of the picture's variance is left at each level (the product of 1 - beta)."""
    steps = torch.arange(LEVELS, device=device) / LEVELS
    return torch.cos((steps + 0.01) / 1.02 * math.pi / 2).square()


def train(
    backend: str, steps: int, batch: int, device: str, seed: int = 0
) -> tuple[UNet, list[float]]:
    """Train a model; the same seed means the same model, pictures and noise for each backend."""
    torch.manual_seed(seed)
    model = UNet(backend).to(device)
    kept = kept_signal(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    began = time.perf_counter()
    for step in range(steps):
        x = pictures(batch, generator).to(device)
        noise = torch.randn(x.shape, generator=generator).to(device)
        level = torch.randint(LEVELS, (batch,), generator=generator).to(device)
        signal = kept[level][:, None, None, None]
        noisy = signal.sqrt() * x + (1 - signal).sqrt() * noise
        loss = (model(noisy, level) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0 or step == steps - 1:
            seconds = time.perf_counter() - began
            print(f"{backend}: step {step}, loss {losses[-1]:.3f}, {seconds:.0f} s", flush=True)
    return model, losses


@torch.no_grad()
def sample(model: UNet, count: int, device: str, seed: int = 0) -> torch.Tensor:
    """Draw pictures from noise, by the deterministic steps of Song et al., "DDIM", 2021."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((count, 1, SIDE, SIDE), generator=generator).to(device)
    kept = kept_signal(device)
    for level in range(LEVELS - 1, -1, -4):
        noise = model(x, torch.full((count,), level, device=device))
        clean = ((x - (1 - kept[level]).sqrt() * noise) / kept[level].sqrt()).clamp(-1, 1)
        before = kept[level - 4] if level >= 4 else torch.ones((), device=device)
        x = before.sqrt() * clean + (1 - before).sqrt() * noise
    return x


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="tilewright", choices=["tilewright", "torch"])
    parser.add_argument("--compare", action="store_true", help="train with both")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    curves = {}
    for backend in ["torch", "tilewright"] if arguments.compare else [arguments.backend]:
        model, curves[backend] = train(backend, arguments.steps, arguments.batch, arguments.device)
        drawn = sample(model, 16, arguments.device)
        save_pictures(drawn[:, 0], arguments.output / f"diffusion_model_{backend}.png")
    save_curves(curves, "mean squared error of the noise", arguments.output / "diffusion_model")


if __name__ == "__main__":
    main()
