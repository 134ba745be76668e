"""Kernels of a user, called inside compiled functions; Inductor writes their source out again."""

import torch
import triton
import triton.language as tl
from triton.language import arange, float32, program_id
from triton.language import load as read

SCALE = tl.constexpr(3)
ROUNDS: tl.constexpr = 2


@triton.constexpr_function
def doubled(n):
    return 2 * n


@triton.jit
def helper(x, factor: tl.constexpr):
    for _ in tl.static_range(ROUNDS):
        x = x * factor
    return x


@triton.jit
def scaled_sum(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = program_id(0) * BLOCK + arange(0, BLOCK)
    inside = offsets < n
    x = read(x_ptr + offsets, mask=inside).to(float32)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, helper(x, SCALE) + doubled(BLOCK) * y, mask=inside)


@triton.jit
def add_in_place(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.atomic_add(x_ptr + offsets, y, mask=inside)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 256)], key=["n"])
@triton.jit
def tuned(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * x, mask=offsets < n)


@triton.autotune(
    [triton.Config({"TO_FIRST": chosen, "BLOCK": 64}) for chosen in (True, False, None)],
    key=["n"],
)
@triton.heuristics({"IS_WHOLE": lambda meta: meta["TO_FIRST"] is not None})
@triton.jit
def tuned_to_either(
    x_ptr, a_ptr, b_ptr, n, TO_FIRST: tl.constexpr, IS_WHOLE: tl.constexpr, BLOCK: tl.constexpr
):
    tl.static_assert(IS_WHOLE)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store((a_ptr if TO_FIRST else b_ptr) + offsets, x * x, mask=offsets < n)


def call_scaled_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    scaled_sum[(triton.cdiv(n, 128),)](x.sin(), y, out, n, BLOCK=128)
    return out.relu()


def call_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    n = x.numel()
    add_in_place[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return x * 2


def call_tuned(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x + 1, out, n)
    return out


@triton.jit
def copy_blocks(source, target, n):
    target.store([n, 0], source.load([n, 0]))
