"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch

from benchmarks.systems import System
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import cdiv

Tile: TypeAlias = tuple[int, int, int, int]  # height, width, warps, stages

# By the name of a row: the type of the operands, that of the result, and the rounding it allows.
TYPES = {
    "bf16": (torch.bfloat16, torch.bfloat16, 5e-3),
    "fp16": (torch.float16, torch.float16, 1e-3),
    "tf32": (torch.float32, torch.float32, 2e-3),
    "int8": (torch.int8, torch.int32, 0.0),
    "fp8": (torch.float8_e4m3fn, torch.bfloat16, 5e-3),
}
# Tensor cores add the products of 32 steps along k to a sum of fp8 products at once, and cut off
# all of it 13 binary places behind the largest: up to so much of the sum is lost, always towards
# zero, so that the loss grows with k.
FP8_STEPS, FP8_LOSS = 32, 2**-13
# What the tensor cores take only with the summed axis contiguous; so it lies in memory.
TRANSPOSED = {"tf32", "int8", "fp8"}
GROUP_M = 8
MULTIPROCESSORS = 132


def operand(rows: int, columns: int, device: str, kind: str) -> Any:
    if kind == "int8":
        return torch.randint(-128, 128, (rows, columns), device=device, dtype=torch.int8)
    return random(rows, columns, device=device, dtype=TYPES[kind][0])


def multiply(a: Any, b: Any, kind: str) -> Any:
    """The product by the library, of operands of two axes."""
    if kind == "int8":
        return torch._int_mm(a, b)  # noqa: SLF001 - the public name of it
    if kind == "fp8":
        one = torch.ones((), device=a.device)
        return torch._scaled_mm(  # noqa: SLF001 - the public name of it
            a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    torch.backends.cuda.matmul.allow_tf32 = True  # without a context manager: this is timed
    product = a @ b
    torch.backends.cuda.matmul.allow_tf32 = False
    return product


@dataclass(frozen=True)
class Matmul(Workload):
    """The product of an (m, k) and a (k, n) matrix; `kind` is one of `TYPES`."""

    m: int
    n: int
    k: int
    kind: str = "bf16"
    unit: ClassVar = "TFLOP/s"
    library_name: ClassVar = "cuBLAS"

    @property
    def tolerance(self) -> float:  # type: ignore[override]
        lost = self.k / FP8_STEPS * FP8_LOSS if self.kind == "fp8" else 0.0
        return TYPES[self.kind][2] + lost

    @property
    def amount(self) -> float:
        return 2 * self.m * self.n * self.k

    @property
    def block_k(self) -> int:
        """128 bytes: the width of a swizzled row of shared memory."""
        return 128 // TYPES[self.kind][0].itemsize

    @property
    def is_small(self) -> bool:
        """Whether the largest tiles would leave multiprocessors without one."""
        return self.m * self.n < MULTIPROCESSORS * 128 * 256

    @property
    def tiles(self) -> Sequence[Tile]:
        """The likeliest first."""
        if self.is_small:
            return (
                (64, 128, 4, 6),
                (64, 128, 4, 4),
                (128, 128, 8, 4),
                (128, 64, 4, 4),
                (64, 64, 4, 4),
            )
        return (128, 256, 8, 3), (128, 256, 8, 4), (256, 128, 8, 3), (128, 128, 4, 4)

    @property
    def configs(self) -> Sequence[Config]:
        return [
            {
                "BLOCK_M": m,
                "BLOCK_N": n,
                "BLOCK_K": self.block_k,
                "GROUP_M": GROUP_M,
                "num_warps": warps,
                "num_stages": stages,
            }
            for m, n, warps, stages in self.tiles
        ]

    @property
    def smaller_configs(self) -> Sequence[Config]:  # type: ignore[override]
        """Bytes that are widened first take more registers."""
        return [] if TYPES[self.kind][0].itemsize > 1 else [{**self.square, "BLOCK_K": 64}]

    @property
    def square(self) -> Config:
        """The first configuration, with tiles of half the size."""
        return {**self.configs[0], "BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8}

    def grid(self, config: Config) -> tuple[int, ...]:
        return (cdiv(self.m, config["BLOCK_M"]) * cdiv(self.n, config["BLOCK_N"]),)

    def inputs(self, device: str) -> Tensors:
        a = operand(self.m, self.k, device, self.kind)
        if self.kind in TRANSPOSED:
            return a, operand(self.n, self.k, device, self.kind).T
        return a, operand(self.k, self.n, device, self.kind)

    def outputs(self, inputs: Tensors) -> Tensors:
        a = inputs[0]
        return (torch.empty(self.m, self.n, device=a.device, dtype=TYPES[self.kind][1]),)

    def reference(self, inputs: Tensors) -> Tensors:
        a, b = inputs
        return (a.double() @ b.double(),)

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(multiply, *inputs, self.kind)


@dataclass(frozen=True)
class PointerMatmul(Matmul):
    """Operands are loaded through pointers."""

    def is_whole(self, config: Config) -> bool:
        sizes = ((self.m, "BLOCK_M"), (self.n, "BLOCK_N"), (self.k, "BLOCK_K"))
        return all(size % config[block] == 0 for size, block in sizes)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        (a, b), (c,) = inputs, outputs
        system.run(
            "matmul.matmul_kernel",
            self.grid(config),
            *(a, b, c),
            *(self.m, self.n, self.k),
            *(*a.stride(), *b.stride(), c.stride(0)),
            IS_WHOLE=self.is_whole(config),
            **config,
        )


@dataclass(frozen=True)
class OddMatmul(PointerMatmul):
    """Sizes that nothing divides: each element is loaded on its own, and masked."""

    @property
    def configs(self) -> Sequence[Config]:
        return [{**config, "BLOCK_K": 32} for config in super().configs]

    @property
    def tiles(self) -> Sequence[Tile]:
        return (128, 128, 8, 3), (128, 128, 4, 3), (128, 256, 8, 3), (64, 128, 4, 4)


@dataclass(frozen=True)
class BatchedMatmul(PointerMatmul):
    """`batch` products."""

    batch: int = 1

    @property
    def amount(self) -> float:
        return self.batch * 2 * self.m * self.n * self.k

    @property
    def tiles(self) -> Sequence[Tile]:
        return (128, 128, 4, 4), (128, 256, 8, 3), (128, 128, 8, 3), (128, 128, 4, 3)

    def inputs(self, device: str) -> Tensors:
        dtype = TYPES[self.kind][0]
        return (
            random(self.batch, self.m, self.k, device=device, dtype=dtype),
            random(self.batch, self.k, self.n, device=device, dtype=dtype),
        )

    def outputs(self, inputs: Tensors) -> Tensors:
        shape = (self.batch, self.m, self.n)
        return (torch.empty(shape, device=inputs[0].device, dtype=TYPES[self.kind][1]),)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        (a, b), (c,) = inputs, outputs
        system.run(
            "matmul.batched_matmul_kernel",
            (*self.grid(config), self.batch),
            *(a, b, c),
            *(self.m, self.n, self.k),
            *(*a.stride(), *b.stride(), *c.stride()[:2]),
            IS_WHOLE=self.is_whole(config),
            **config,
        )

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(torch.bmm, *inputs)


@dataclass(frozen=True)
class DescriptorMatmul(Matmul):
    """One tile a program."""

    @property
    def tiles(self) -> Sequence[Tile]:
        if TYPES[self.kind][1].itemsize == 4:  # a tile of the result fills half of shared memory
            return (128, 128, 8, 4), (128, 256, 8, 2), (256, 128, 8, 2), (128, 128, 4, 4)
        return super().tiles

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        self.start(system, "tile_matmul_kernel", self.grid(config), config, inputs, outputs)

    def start(
        self,
        system: System,
        kernel: str,
        grid: tuple[int, ...],
        config: Config,
        inputs: Tensors,
        outputs: Tensors,
        width: int = 0,
    ) -> None:
        """Launch on descriptors; tiles of the result are `width` wide where they are stored."""
        (a, b), (c,) = inputs, outputs
        m, n, k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
        is_transposed = self.kind in TRANSPOSED
        system.run(
            f"matmul_descriptors.{kernel}",
            grid,
            system.descriptor(a, (m, k)),
            system.descriptor(b.T, (n, k)) if is_transposed else system.descriptor(b, (k, n)),
            system.descriptor(c, (m, width or n)),
            *(self.m, self.n, self.k),
            IS_TRANSPOSED=is_transposed,
            IS_INTEGER=self.kind == "int8",
            **config,
        )


@dataclass(frozen=True)
class PersistentMatmul(DescriptorMatmul):
    """A program for each multiprocessor."""

    @property
    def tiles(self) -> Sequence[Tile]:
        if self.is_small:
            return (128, 128, 8, 4), (128, 64, 4, 4), (64, 128, 4, 6), (64, 128, 4, 4)
        first, second, *_, last = super().tiles
        return first, first, second, last

    @property
    def configs(self) -> Sequence[Config]:
        are_halves = (False, False, True, True) if self.is_small else (False, True, True, False)
        plain = zip(super().configs, are_halves, strict=True)
        return [{**config, "HALVES": is_halved} for config, is_halved in plain]

    @property
    def smaller_configs(self) -> Sequence[Config]:  # type: ignore[override]
        return [{**self.square, "HALVES": False, "num_stages": 3}]

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        programs = min(MULTIPROCESSORS, *self.grid(config))
        config = {**config, "PROGRAMS": programs}
        width = config["BLOCK_N"] // (2 if config["HALVES"] else 1)
        kernel = "persistent_matmul_kernel"
        self.start(system, kernel, (programs,), config, inputs, outputs, width)
