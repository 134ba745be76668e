"""A small language model: train it on the pages of this repository, then let it write.

Bytes in, bytes out: three blocks of attention and SwiGLU with rotary positions. `--backend` chooses
who computes norms, attention, activations and the loss: plain PyTorch or `tilewright.kernels`; the
loss curve is the same within noise. Writing uses attention over paged keys and values.

    python -m examples.language_model --compare --output results
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from examples.curves import save_curves
from examples.functions import functions

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = 16  # keys in a block of the paged cache


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model: `width` is a multiple of `heads`, which split it."""

    vocabulary: int = 256
    width: int = 96
    heads: int = 4
    layers: int = 3
    length: int = 96

    @property
    def head(self) -> int:
        return self.width // self.heads


class Cache:
    """Keys and values of all layers in blocks, which sequences take as they grow."""

    def __init__(self, sizes: Sizes, batch: int, most: int, device: str) -> None:
        per_sequence = -(-most // BLOCK)
        shape = (sizes.layers, batch * per_sequence, BLOCK, sizes.heads, sizes.head)
        self.keys = torch.zeros(shape, device=device)
        self.values = torch.zeros(shape, device=device)
        # Blocks in a random order: nothing relies on neighbours.
        order = torch.randperm(batch * per_sequence, device=device)
        self.tables = order.view(batch, per_sequence).to(torch.int32)
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store a key and a value, (batch, heads, head), at the end of each sequence."""
        block = self.tables.gather(1, (self.lengths // BLOCK).long()[:, None])[:, 0].long()
        at = (self.lengths % BLOCK).long()
        self.keys[layer, block, at] = k
        self.values[layer, block, at] = v


class Block(nn.Module):
    """Attention and SwiGLU, each behind an RMS norm and beside a residual connection."""

    def __init__(self, sizes: Sizes, backend: str) -> None:
        super().__init__()
        self.sizes, self.fn = sizes, functions(backend)
        width, inner = sizes.width, 2 * sizes.width
        self.norm_attention = nn.Parameter(torch.ones(width))
        self.norm_mlp = nn.Parameter(torch.ones(width))
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.from_heads = nn.Linear(width, width, bias=False)
        self.to_inner = nn.Linear(width, 2 * inner, bias=False)
        self.from_inner = nn.Linear(inner, width, bias=False)

    def heads(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return q, k and v, each (batch, heads, length, head)."""
        batch, length, _ = x.shape
        qkv = self.to_qkv(self.fn.rms_norm(x, self.norm_attention))
        split = qkv.view(batch, length, 3, self.sizes.heads, self.sizes.head)
        return [part.transpose(1, 2) for part in split.unbind(2)]

    def mlp(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.to_inner(self.fn.rms_norm(x, self.norm_mlp)).chunk(2, dim=-1)
        return self.from_inner(self.fn.swiglu(gate, up))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(x)
        q, k = self.fn.rotary(q, cos, sin), self.fn.rotary(k, cos, sin)
        attended = self.fn.attention(q, k, v, is_causal=True)
        x = x + self.from_heads(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(x)

    def step(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: Cache, layer: int
    ) -> torch.Tensor:
        """As `forward`, for one new byte of each sequence; the others are in the cache."""
        q, k, v = self.heads(x)
        q, k = self.fn.rotary(q, cos, sin), self.fn.rotary(k, cos, sin)
        cache.append(layer, k[:, :, 0], v[:, :, 0])
        attended = self.fn.paged_attention(
            q[:, :, 0], cache.keys[layer], cache.values[layer], cache.tables, cache.lengths + 1
        )
        x = x + self.from_heads(attended.flatten(1)[:, None])
        return x + self.mlp(x)


class LanguageModel(nn.Module):
    """Logits of the next byte, for each byte."""

    def __init__(self, sizes: Sizes, backend: str) -> None:
        super().__init__()
        self.sizes, self.fn = sizes, functions(backend)
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes, backend) for _ in range(sizes.layers))
        self.norm = nn.Parameter(torch.ones(sizes.width))
        nn.init.normal_(self.embedding.weight, std=0.02)
        angles = (
            torch.arange(sizes.length)[:, None]
            * 1e4 ** -torch.linspace(0, 1, sizes.head // 2 + 1)[:-1]
        )
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.fn.rms_norm(x, self.norm), self.embedding.weight)

    def predict(self, text: torch.Tensor) -> torch.Tensor:
        """Return the logits of the byte behind each byte of `text`, (batch, length)."""
        x = self.embedding(text)
        length = x.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        return self.logits(x)

    def loss(self, text: torch.Tensor) -> torch.Tensor:
        """Mean negative log-likelihood of each byte of `text`, (batch, length + 1), in nats."""
        logits = self.predict(text[:, :-1]).flatten(0, 1)
        return self.fn.cross_entropy(logits, text[:, 1:].flatten())

    @torch.no_grad()
    def write(self, start: bytes, count: int, *, temperature: float = 0.7) -> bytes:
        """Continue a text, byte by byte."""
        device = self.embedding.weight.device
        written = list(start)
        cache = Cache(self.sizes, 1, self.sizes.length, str(device))
        for position in range(min(len(start) + count, self.sizes.length) - 1):
            x = self.embedding(torch.tensor([[written[position]]], device=device))
            cos, sin = self.cos[position : position + 1], self.sin[position : position + 1]
            for layer, block in enumerate(self.blocks):
                x = block.step(x, cos, sin, cache, layer)
            cache.lengths += 1
            if position + 1 == len(written):
                p = torch.softmax(self.logits(x)[0, 0] / temperature, -1)
                written.append(int(torch.multinomial(p, 1)))
        return bytes(written)


def training_text() -> torch.Tensor:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def train(
    backend: str, steps: int, batch: int, device: str, seed: int = 0
) -> tuple[LanguageModel, list[float]]:
    """Train a model; the same seed means the same model and the same batches for each backend."""
    torch.manual_seed(seed)
    sizes = Sizes()
    model = LanguageModel(sizes, backend).to(device)
    text = training_text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    began = time.perf_counter()
    for step in range(steps):
        starts = torch.randint(len(text) - sizes.length - 1, (batch,), generator=generator)
        windows = torch.stack([text[at : at + sizes.length + 1] for at in starts.tolist()])
        loss = model.loss(windows.to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 20 == 0 or step == steps - 1:
            seconds = time.perf_counter() - began
            print(f"{backend}: step {step}, loss {losses[-1]:.3f}, {seconds:.0f} s", flush=True)
    return model, losses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="tilewright", choices=["tilewright", "torch"])
    parser.add_argument("--compare", action="store_true", help="train with both")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    backends = ["torch", "tilewright"] if arguments.compare else [arguments.backend]
    curves = {}
    for backend in backends:
        model, curves[backend] = train(backend, arguments.steps, arguments.batch, arguments.device)
        print(f"{backend} writes:", model.write(b"A kernel ", 100).decode(errors="replace"))
    save_curves(curves, "loss, nats for each byte", arguments.output / "language_model")


if __name__ == "__main__":
    main()
