"""Loss curves and pictures of the example models, in files."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from pathlib import Path

import torch

__all__ = ["save_curves", "save_pictures"]


def save_curves(curves: dict[str, list[float]], label: str, path: Path) -> None:
    """Write losses by step as `path`.json, and as `path`.png where matplotlib is installed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(curves), encoding="utf-8")
    try:
        import matplotlib as mpl
    except ImportError:
        print("no picture of the curves: pip install matplotlib", file=sys.stderr)
        return
    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots()
    for name, losses in curves.items():
        axes.plot(losses, label=name, linewidth=1)
    axes.set(xlabel="step", ylabel=label)
    axes.legend()
    figure.savefig(path.with_suffix(".png"), dpi=120)


def save_pictures(pictures: torch.Tensor, path: Path, scale: int = 4) -> None:
    """Write pictures (count, height, width), from -1 to 1, side by side as one PNG in grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    row = torch.cat([torch.nn.functional.pad(p, (1, 1, 1, 1), value=1.0) for p in pictures], dim=1)
    grey = ((row.clamp(-1, 1) + 1) * 127.5).to(torch.uint8).cpu()
    grey = grey.repeat_interleave(scale, dim=0).repeat_interleave(scale, dim=1)
    height, width = grey.shape
    lines = b"".join(b"\0" + bytes(line.tolist()) for line in grey)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
