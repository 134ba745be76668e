"""Attention, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from benchmarks.systems import System
from benchmarks.workloads.workload import Config, Tensors, Workload, random
from tilewright import cdiv

LOG2_E = math.log2(math.e)
TINY = torch.finfo(torch.float32).tiny
CHECKED_HEADS = 2  # the logits of a head are large


# By the size of a head: heights, widths, warps and stages, the likeliest first.
TILES = {
    64: (
        *((128, 64, 8, 3), (128, 64, 4, 4), (128, 128, 8, 3)),
        *((128, 64, 4, 3), (128, 64, 4, 2), (128, 64, 8, 2), (128, 64, 8, 4)),
        *((128, 128, 8, 2), (64, 64, 4, 3)),
    ),
    128: (
        *((128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 8, 3)),
        *((128, 64, 8, 2), (128, 64, 8, 4), (128, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2)),
    ),
}
BACKWARD_TILES = {
    64: ((64, 128, 8, 2), (64, 64, 4, 2), (128, 128, 8, 2), (64, 128, 8, 3), (64, 64, 4, 3)),
    128: ((64, 128, 8, 2), (64, 128, 8, 3), (32, 64, 4, 3), (32, 128, 8, 3), (64, 64, 4, 2)),
}


def config_of(height: int, width: int, warps: int, stages: int) -> dict[str, Any]:
    return {"BLOCK_M": height, "BLOCK_N": width, "num_warps": warps, "num_stages": stages}


@dataclass(frozen=True)
class Attention(Workload):
    """bf16, (batch, heads, length, head), with descriptors."""

    batch: int
    heads: int
    length: int
    head: int
    is_causal: bool
    unit: ClassVar = "TFLOP/s"
    tolerance: ClassVar = 2.0**-7
    library_name: ClassVar = "cuDNN"

    @property
    def configs(self) -> Sequence[Config]:
        return [config_of(*tile) for tile in TILES[self.head]]

    @property
    def smaller_configs(self) -> Sequence[Config]:  # type: ignore[override]
        return [config_of(128, 32, 8, 3)] if self.head > 64 else ()

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
        tall, wide = (config["BLOCK_M"], self.head), (config["BLOCK_N"], self.head)
        arrays = tuple(
            system.descriptor(array.view(-1, self.head), block)
            for array, block in zip((*inputs, outputs[0]), (tall, wide, wide, tall), strict=True)
        )
        self.start(system, "attention_kernel", config, (*arrays, outputs[1]))

    def start(self, system: System, kernel: str, config: Config, arrays: Tensors) -> None:
        system.run(
            f"attention.{kernel}",
            (cdiv(self.length, config["BLOCK_M"]), self.batch * self.heads),
            *(*arrays, LOG2_E / math.sqrt(self.head), self.length),
            HEAD=self.head,
            IS_CAUSAL=self.is_causal,
            **config,
        )

    def sample(self, outputs: Tensors) -> Tensors:
        return tuple(output[0, :CHECKED_HEADS] for output in outputs)

    def reference(self, inputs: Tensors) -> Tensors:
        """The result, `lse`, and the sums of the values' sizes that bound what rounding does."""
        q, k, v = (x[0, :CHECKED_HEADS].float() for x in inputs)
        out, lse = exact_attention(q, k, torch.cat((v, v.abs()), -1), is_causal=self.is_causal)
        return *(part.contiguous() for part in out.split(self.head, -1)), lse

    def error(self, outputs: Tensors, right: Tensors) -> float:
        """The largest of three errors: that of all, that of an element, that of `lse`.

        The first is beside the size of all. An element is a weighted sum of values whose weights
        are rounded to bf16, as is the sum: both by up to 2^-8, beside the sum of the values' sizes.
        That of `lse` is how far weights computed from it are off.
        """
        (out, lse), (exact, sizes, exact_lse) = self.sample(outputs), right
        off = out.double() - exact
        parts = (off.norm() / exact.double().norm(), (off.abs() / sizes.clamp(min=TINY)).max())
        return largest(*parts, (lse - exact_lse).abs().max())

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        return partial(cudnn_attention, *inputs, is_causal=self.is_causal)


@dataclass(frozen=True)
class PointerAttention(Attention):
    """The same with pointers."""

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        self.start(system, "pointer_attention_kernel", config, (*inputs, *outputs))


def largest(*errors: Any) -> float:
    """The largest of some scalars, infinity where one is not finite."""
    found = torch.stack([error.double() for error in errors])
    return found.max().item() if found.isfinite().all() else math.inf


def cudnn_attention(q: Any, k: Any, v: Any, *, is_causal: bool) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def exact_attention(q: Any, k: Any, v: Any, *, is_causal: bool) -> tuple[Any, Any]:
    """The result, and the base-2 logarithm of the sum of the exponentials, of some heads."""
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    if is_causal:
        seen = torch.ones_like(logits[0], dtype=torch.bool).tril()
        logits = logits.masked_fill(~seen, -math.inf)
    return torch.softmax(logits, -1) @ v, torch.logsumexp(logits, -1) * LOG2_E


@dataclass(frozen=True)
class AttentionBackward(Attention):
    """The gradients of q, k and v, with descriptors."""

    tolerance: ClassVar = 2e-2
    rows_in_block: ClassVar = 64

    @property
    def configs(self) -> Sequence[Config]:
        return [
            {**config_of(*tile), "IS_TRANSPOSED": is_transposed}
            for tile in BACKWARD_TILES[self.head]
            for is_transposed in (True, False)
        ]

    @property
    def smaller_configs(self) -> Sequence[Config]:  # type: ignore[override]
        side = 64 if self.head == 64 else 32
        return [{**config_of(side, side, 8, 2), "IS_TRANSPOSED": True}]

    @property
    def amount(self) -> float:
        return 2.5 * super().amount

    def inputs(self, device: str) -> Tensors:
        """Queries, keys, values, the result, its gradient and `lse`."""
        q, k, v = super().inputs(device)
        out, lse = super().outputs((q,))
        if device != "meta":
            self.run_forward(q, k, v, out, lse)
        return q, k, v, out, random(*self.shape, device=device, dtype=torch.bfloat16), lse

    def run_forward(self, *arrays: Any) -> None:
        """Fill in the result and `lse`, a head at a time: the logits of all would be large."""
        for heads in zip(*(array.flatten(0, 1) for array in arrays), strict=True):
            *operands, out, lse = (array[None] for array in heads)
            operands = [array.float() for array in operands]
            exact_out, exact_lse = exact_attention(*operands, is_causal=self.is_causal)
            out.copy_(exact_out)
            lse.copy_(exact_lse)

    def outputs(self, inputs: Tensors) -> Tensors:
        """The gradients, and room for what the kernels hand on."""
        q, lse = inputs[0], inputs[-1]
        grads = (torch.empty_like(q) for _ in range(3))
        return *grads, torch.empty_like(lse), torch.empty_like(q, dtype=torch.float32)

    def launch(self, system: System, config: Config, inputs: Tensors, outputs: Tensors) -> None:
        q, k, v, out, grad, lse = inputs
        q_grad, k_grad, v_grad, delta, sums = outputs
        rows, scale = lse.numel(), 1 / math.sqrt(self.head)
        is_transposed = config["IS_TRANSPOSED"]
        height, head = config["BLOCK_M"], self.head
        tall, wide, flat = (height, head), (config["BLOCK_N"], head), (1, height)
        summed = sums.view(-1, self.length if is_transposed else head)
        by_head = (lse.view(-1, self.length), delta.view(-1, self.length))
        arrays = (*(x.view(-1, head) for x in (q, k, v, grad)), summed)
        arrays = (*arrays, k_grad.view(-1, head), v_grad.view(-1, head), *by_head)
        sums_block = (head, height) if is_transposed else tall
        blocks = (tall, wide, wide, tall, sums_block, wide, wide, flat, flat)
        system.run(
            "attention_backward.prepare_kernel",
            (cdiv(rows, 64),),
            *(out, grad, delta, sums),
            HEAD=head,
            BLOCK=64,
        )
        system.run(
            "attention_backward.attention_backward_kernel",
            (cdiv(self.length, config["BLOCK_N"]), self.batch * self.heads),
            *map(system.descriptor, arrays, blocks),
            *(scale, scale * LOG2_E, self.length),
            HEAD=head,
            IS_CAUSAL=self.is_causal,
            **config,
        )
        system.run(
            "attention_backward.finish_kernel",
            (cdiv(self.length, 64), self.batch * self.heads),
            *(sums, q_grad, scale, self.length),
            HEAD=head,
            BLOCK=64,
            IS_TRANSPOSED=is_transposed,
        )

    def sample(self, outputs: Tensors) -> Tensors:
        return super().sample(outputs[:3])

    def reference(self, inputs: Tensors) -> Tensors:
        operands = [x[0, :CHECKED_HEADS].float().requires_grad_() for x in inputs[:3]]
        out, _ = exact_attention(*operands, is_causal=self.is_causal)
        grad = inputs[4][0, :CHECKED_HEADS].float()
        return torch.autograd.grad(out, operands, grad)

    def error(self, outputs: Tensors, right: Tensors) -> float:
        """The largest error of a block of rows, beside its size and that of all.

        Not that of an element: the first queries of causal attention see few keys, where what is
        left of gradients that cancel is rounding.
        """
        pairs = zip(self.sample(outputs), right, strict=True)
        return max(self.block_error(found.double(), exact.double()) for found, exact in pairs)

    def block_error(self, found: Any, exact: Any) -> float:
        blocks = exact.shape[0], -1, self.rows_in_block * self.head
        off, size = (array.reshape(blocks).square().mean(-1) for array in (found - exact, exact))
        return largest(torch.sqrt(off / size.clamp(min=size.mean().item())).max())

    def library(self, inputs: Tensors) -> Callable[[], Any]:
        operands = [x.detach().requires_grad_() for x in inputs[:3]]
        out = cudnn_attention(*operands, is_causal=self.is_causal)
        return partial(torch.autograd.grad, out, operands, inputs[4], retain_graph=True)
