"""What serving a language model is made of: experts, weights of four bits, a paged cache."""

from __future__ import annotations

import itertools
import math
import random as chance
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from benchmarks.systems import System
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import cdiv

EXPERTS = 64
GROUP = 128  # numbers along k that share a scale
PAGE = 16  # tokens


@dataclass(frozen=True)
class GroupedMatmul(Workload):
    """Rows of bf16, each times the matrix of its expert; the experts have unequal shares."""

    rows: int
    n: int
    k: int
    unit: ClassVar = "TFLOP/s"
    tolerance: ClassVar = 5e-3
    library_name: ClassVar = "torch grouped"
    configs: ClassVar = tuple(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "num_warps": warps, "num_stages": stages}
        for m, n, warps, stages in (
            (128, 256, 8, 3),
            (128, 128, 4, 4),
            (128, 256, 8, 4),
            (128, 128, 8, 3),
        )
    )

    @property
    def amount(self) -> float:
        return 2 * self.rows * self.n * self.k

    def sizes(self) -> list[int]:
        """The rows of each expert: from none to about four times the mean."""
        shares = chance.Random(0)
        weights = [shares.expovariate(1) for _ in range(EXPERTS)]
        ends = [round(self.rows * total / sum(weights)) for total in itertools.accumulate(weights)]
        return [end - start for start, end in itertools.pairwise([0, *ends])]

    def inputs(self, device: str) -> Tensors:
        make = partial(random, device=device, dtype=torch.bfloat16)
        starts = [0, *itertools.accumulate(self.sizes())]
        return (
            make(self.rows, self.k),
            make(EXPERTS, self.k, self.n),
            torch.tensor(starts, device=device, dtype=torch.int32),
        )

    def outputs(self, inputs: Tensors) -> Tensors:
        x = inputs[0]
        return (torch.empty(self.rows, self.n, device=x.device, dtype=x.dtype),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        (x, weight, starts), (out,) = inputs, outputs
        most_tiles = self.rows // config["BLOCK_M"] + EXPERTS
        system.run(
            "experts.grouped_matmul_kernel",
            (cdiv(self.n, config["BLOCK_N"]), most_tiles),
            *(x, weight, out, starts, self.n, self.k),
            EXPERTS=EXPERTS,
            **config,
        )

    def reference(self, inputs: Tensors) -> Tensors:
        x, weight, _ = inputs
        parts = zip(x.split(self.sizes()), weight, strict=True)
        return (torch.cat([part.float() @ own.float() for part, own in parts]),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        x, weight, starts = inputs
        return partial(torch._grouped_mm, x, weight, offs=starts[1:])  # noqa: SLF001 - its name


@dataclass(frozen=True)
class Int4Matmul(Workload):
    """`x @ weight.T` for bf16 x and weights of four bits; few rows are limited by the memory."""

    m: int
    n: int
    k: int
    tolerance: ClassVar = 1e-2
    library_name: ClassVar = "cuBLAS, bf16 weights"

    @property
    def is_decoding(self) -> bool:
        return self.m <= 16

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "GB/s" if self.is_decoding else "TFLOP/s"

    @property
    def amount(self) -> float:
        if self.is_decoding:
            return self.n * self.k / 2 + 2 * self.n * self.k / GROUP
        return 2 * self.m * self.n * self.k

    @property
    def configs(self) -> Sequence[Config]:
        if self.is_decoding:
            tiles = ((16, 64, 4, 4), (16, 128, 4, 4), (16, 64, 4, 5), (16, 128, 8, 3))
        else:
            tiles = ((128, 128, 8, 3), (128, 128, 4, 3), (256, 128, 8, 3), (128, 128, 8, 4))
        return [
            {"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
            for m, n, warps, stages in tiles
        ]

    def inputs(self, device: str) -> Tensors:
        packed = torch.randint(0, 256, (self.n, self.k // 2), device=device, dtype=torch.uint8)
        scale = 0.5 + torch.rand(self.n, self.k // GROUP, device=device)
        x = random(self.m, self.k, device=device, dtype=torch.bfloat16)
        return x, packed, scale.to(torch.bfloat16)

    def outputs(self, inputs: Tensors) -> Tensors:
        x = inputs[0]
        return (torch.empty(self.m, self.n, device=x.device, dtype=x.dtype),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        system.run(
            "int4.int4_matmul_kernel",
            (cdiv(self.n, config["BLOCK_N"]), cdiv(self.m, config["BLOCK_M"])),
            *(*inputs, *outputs, self.m, self.n, self.k),
            GROUP=GROUP,
            **config,
        )

    def weight(self, packed: Any, scale: Any) -> Any:
        """The weights in bf16: what the kernel rounds them to."""
        halves = torch.stack([packed & 0xF, packed >> 4], dim=-1).flatten(-2).to(torch.int8) - 8
        return halves.to(torch.bfloat16) * scale.repeat_interleave(GROUP, dim=1)

    def reference(self, inputs: Tensors) -> Tensors:
        x, packed, scale = inputs
        return (x.float() @ self.weight(packed, scale).float().T,)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        x, packed, scale = inputs
        return partial(torch.matmul, x, self.weight(packed, scale).T)


@dataclass(frozen=True)
class PagedDecode(Workload):
    """Attention of a new token of each sequence to all that came before it."""

    sequences: int
    length: int
    key_heads: ClassVar = 8
    shared: ClassVar = 4  # query heads for each key head
    head: ClassVar = 128
    block_m: ClassVar = 16
    tolerance: ClassVar = 2e-2
    configs: ClassVar = tuple(
        {"SPLITS": splits, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
        for splits, n, warps, stages in (
            (2, 64, 4, 3),
            (1, 64, 4, 3),
            (2, 64, 4, 4),
            (4, 64, 4, 3),
            (4, 128, 4, 3),
            (8, 64, 2, 3),
        )
    )

    @property
    def pages(self) -> int:
        """Of a sequence."""
        return cdiv(self.length, PAGE)

    @property
    def amount(self) -> float:
        return 4 * self.sequences * self.length * self.key_heads * self.head

    def inputs(self, device: str) -> Tensors:
        make = partial(random, device=device, dtype=torch.bfloat16)
        pages = self.sequences * self.pages
        cache = (pages, PAGE, self.key_heads, self.head)
        order = torch.randperm(pages, device=device, dtype=torch.int32)
        return (
            make(self.sequences, self.key_heads * self.shared, self.head),
            make(*cache),
            make(*cache),
            order.view(self.sequences, self.pages),
            torch.full((self.sequences,), self.length, device=device, dtype=torch.int32),
        )

    def outputs(self, inputs: Tensors) -> Tensors:
        """The result, and room for the parts and their weights."""
        q = inputs[0]
        most_splits = max(config["SPLITS"] for config in self.configs)
        heads = self.sequences * self.key_heads * self.shared
        parts = torch.empty(heads * most_splits, self.head, device=q.device)
        return torch.empty_like(q), parts, torch.empty(heads * most_splits, device=q.device)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        out, parts, lse = outputs
        system.run(
            "decode.paged_decode_kernel",
            (self.sequences, self.key_heads, config["SPLITS"]),
            *(*inputs, parts, lse, math.log2(math.e) / math.sqrt(self.head), self.pages),
            KEY_HEADS=self.key_heads,
            SHARED=self.shared,
            HEAD=self.head,
            PAGE=PAGE,
            BLOCK_M=self.block_m,
            **config,
        )
        system.run(
            "decode.join_parts_kernel",
            (out.numel() // self.head,),
            *(parts, lse, out),
            HEAD=self.head,
            SPLITS=config["SPLITS"],
        )

    def sample(self, outputs: Tensors) -> Tensors:
        return (outputs[0][-1],)

    def reference(self, inputs: Tensors) -> Tensors:
        """The last sequence."""
        q, keys, values, table, _ = inputs
        own = [cache[table[-1].long()].flatten(0, 1)[: self.length] for cache in (keys, values)]
        own_keys, own_values = (array.float().transpose(0, 1) for array in own)
        queries = q[-1].float().view(self.key_heads, self.shared, self.head)
        weights = torch.softmax(queries @ own_keys.mT / math.sqrt(self.head), -1)
        return ((weights @ own_values).flatten(0, 1),)
