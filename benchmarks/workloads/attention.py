"""Attention, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from benchmarks.systems import System
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import cdiv

CHECKED_HEADS = 2  # the logits of a head are large


@dataclass(frozen=True)
class Attention(Workload):
    """bf16, (batch, heads, length, head), with descriptors or with pointers."""

    batch: int
    heads: int
    length: int
    head: int
    is_causal: bool
    has_pointers: bool = False
    unit: ClassVar = "TFLOP/s"
    tolerance: ClassVar = 1e-2
    library_name: ClassVar = "cuDNN"

    @property
    def configs(self) -> Sequence[Config]:
        tiles = {
            64: ((128, 128, 8, 3), (128, 64, 4, 4), (128, 64, 8, 3)),
            128: ((128, 128, 8, 2), (128, 64, 8, 3), (128, 128, 8, 3)),
        }
        return [
            {"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
            for m, n, warps, stages in tiles[self.head]
        ]

    @property
    def amount(self) -> float:
        share = 0.5 if self.is_causal else 1
        return 4 * share * self.batch * self.heads * self.length**2 * self.head

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch, self.heads, self.length, self.head

    def inputs(self, device: str) -> Tensors:
        return tuple(random(*self.shape, device=device, dtype=torch.bfloat16) for _ in range(3))

    def outputs(self, inputs: Tensors) -> Tensors:
        lse = torch.empty(self.shape[:3], device=inputs[0].device, dtype=torch.float32)
        return torch.empty_like(inputs[0]), lse

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        (q, k, v), (out, lse) = inputs, outputs
        kernel = "attention.pointer_attention_kernel"
        arrays: tuple[Any, ...] = (q, k, v, out)
        if not self.has_pointers:
            kernel = "attention.attention_kernel"
            tall, wide = (config["BLOCK_M"], self.head), (config["BLOCK_N"], self.head)
            arrays = tuple(
                system.descriptor(array.view(-1, self.head), block)
                for array, block in zip(arrays, (tall, wide, wide, tall), strict=True)
            )
        system.run(
            kernel,
            (cdiv(self.length, config["BLOCK_M"]), self.batch * self.heads),
            *arrays,
            lse,
            math.log2(math.e) / math.sqrt(self.head),
            self.length,
            HEAD=self.head,
            IS_CAUSAL=self.is_causal,
            **config,
        )

    def sample(self, outputs: Tensors) -> Tensors:
        return tuple(output[0, :CHECKED_HEADS] for output in outputs)

    def reference(self, inputs: Tensors) -> Tensors:
        q, k, v = (x[0, :CHECKED_HEADS].float() for x in inputs)
        logits = q @ k.mT / math.sqrt(self.head)
        if self.is_causal:
            seen = torch.ones_like(logits[0], dtype=torch.bool).tril()
            logits = logits.masked_fill(~seen, -math.inf)
        return torch.softmax(logits, -1) @ v, torch.logsumexp(logits, -1) * math.log2(math.e)

    def library(self, inputs: Tensors) -> Any:
        backend = torch.nn.attention.SDPBackend.CUDNN_ATTENTION
        with torch.nn.attention.sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                *inputs, is_causal=self.is_causal
            )
