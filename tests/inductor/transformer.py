"""A small transformer for a training step: forward, backward, and the optimiser, compiled."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its name everywhere

__all__ = ["check_training"]

VOCABULARY, WIDTH, HEADS, LENGTH, LAYERS = 96, 64, 4, 32, 4


class Layer(nn.Module):
    """Attention and a gated network behind norms."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return both, added to `x`."""
        rows, length, _ = x.shape
        heads = self.qkv(self.before(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind(0)
        scores = (q @ k.mT) * (WIDTH // HEADS) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        gate, value = self.up(self.between(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Transformer(nn.Module):
    """Guesses the next of a row of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        x = self.tokens(tokens[:, :-1]) + self.places
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), tokens[:, 1:].flatten())


def _losses(device: str, *, compiled: bool, steps: int) -> list[float]:
    torch.manual_seed(0)
    model = Transformer().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, VOCABULARY, (4, LENGTH + 1)).to(device)
    forward = torch.compile(model) if compiled else model
    step = torch.compile(optimiser.step) if compiled else optimiser.step
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = forward(tokens)
        loss.backward()
        step()
        losses.append(loss.item())
    return losses


def check_training(device: str, steps: int = 4) -> list[float]:
    """Train for some steps in eager mode and compiled; return the losses, which must be equal."""
    torch._dynamo.reset()
    expected = _losses(device, compiled=False, steps=steps)
    actual = _losses(device, compiled=True, steps=steps)
    torch.testing.assert_close(actual, expected, rtol=2e-3, atol=2e-3)
    assert expected[-1] < expected[0]
    return actual


if __name__ == "__main__":
    import sys

    from tests.inductor.sweep import configured

    with configured():
        print("losses", check_training(sys.argv[1]))
