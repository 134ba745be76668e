"""Products in 8 and 4 bits, of rows in groups, and attention to a paged cache."""

from __future__ import annotations

import itertools
import random
from functools import partial

import torch

from benchmarks.library_rows.row import COPY, EAGER, LIBRARY, OURS, LibraryRow, Sides
from tilewright import kernels

GROUPS = 64
PAGE = 16
ZERO_POINTS = "int4 zero points"


def rows(device: str) -> list[LibraryRow]:
    """Eager is PyTorch's own scaled or grouped product; for four bits, that of a bf16 weight."""
    if device == "cpu":
        return []
    return [
        *(
            scaled(size, "float8_e4m3fn", is_by_row)
            for size, is_by_row in ((8192, False), (4096, True))
        ),
        scaled(4096, "int8", True),
        LibraryRow(
            "scaled mm fp8 4096, scales of blocks",
            2 * 4096**3,
            "TFLOP/s",
            partial(block_scaled, 4096),
        ),
        LibraryRow(
            f"grouped mm bf16 {GROUPS} groups",
            2 * 16384 * 4096 * 4096,
            "TFLOP/s",
            partial(grouped, 16384, 4096),
            {EAGER: 1.0, LIBRARY: 0.8},
        ),
        *(
            LibraryRow(
                f"linear {kind} M={count} 8192",
                2 * count * 8192**2,
                "TFLOP/s",
                partial(four_bits, count, 8192, kind),
                {EAGER: 2.0} if kind.startswith("int4") and count <= 16 else {},
                tolerance=4e-2,
            )
            for kind, count in (
                *(("int4", count) for count in (1, 16, 4096)),
                *((ZERO_POINTS, count) for count in (1, 16)),
                ("nf4", 16),
            )
        ),
        *(paged(sequences, length) for sequences, length in ((64, 4096), (4, 16384))),
    ]


def scaled(size: int, kind: str, is_by_row: bool) -> LibraryRow:
    name = {"float8_e4m3fn": "fp8", "int8": "int8"}[kind]
    goals = {EAGER: 1.0} if kind != "int8" else {}
    return LibraryRow(
        f"scaled mm {name} {size}{', scales of rows' if is_by_row else ''}",
        2 * size**3,
        "TFLOP/s",
        partial(scaled_sides, size, kind, is_by_row),
        goals,
    )


def scaled_sides(size: int, kind: str, is_by_row: bool, device: str) -> Sides:
    (a, a_scales), (b, b_scales) = (
        kernels.quantize_rows(torch.randn(size, size, device=device), kind) for _ in range(2)
    )
    if not is_by_row:
        a_scales, b_scales = a_scales[0], b_scales[0]
    b_scales = b_scales.mT if is_by_row else b_scales
    transposed_scales = b_scales.contiguous()

    def eager() -> torch.Tensor:
        if kind == "int8":
            product = torch._int_mm(a, b.T) * a_scales  # noqa: SLF001 - the public name of it
            return (product * b_scales).bfloat16()
        return torch._scaled_mm(  # noqa: SLF001 - as above
            a,
            b.T,
            a_scales,
            transposed_scales,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )

    return {OURS: lambda: kernels.scaled_mm(a, b.T, a_scales, b_scales), EAGER: eager}


def block_scaled(size: int, device: str) -> Sides:
    a, a_scales = kernels.quantize_rows(torch.randn(size, size, device=device), group=128)
    b, _ = kernels.quantize_rows(torch.randn(size, size, device=device), group=128)
    b_scales = torch.rand(size // 128, size // 128, device=device)
    return {OURS: lambda: kernels.scaled_mm(a, b.T, a_scales, b_scales)}


def grouped(count: int, size: int, device: str) -> Sides:
    """The library is one dense product of as many operations."""
    shares = random.Random(0)
    weights = [shares.expovariate(1) for _ in range(GROUPS)]
    ends = [round(count * total / sum(weights)) for total in itertools.accumulate(weights)]
    offs = torch.tensor(ends, dtype=torch.int32, device=device)
    x = torch.randn(count, size, dtype=torch.bfloat16, device=device)
    weight = torch.randn(GROUPS, size, size, dtype=torch.bfloat16, device=device)
    own = weight[0]

    def eager() -> torch.Tensor:
        return torch._grouped_mm(x, weight, offs=offs)  # noqa: SLF001 - its name

    expected = eager()

    def dense() -> torch.Tensor:
        _ = x @ own
        return expected  # only the time is asked for

    return {
        OURS: lambda: kernels.grouped_mm(x, weight, offs=offs),
        EAGER: eager,
        LIBRARY: dense,
    }


def four_bits(count: int, size: int, kind: str, device: str) -> Sides:
    weight = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    has_zero_points, kind = kind == ZERO_POINTS, kind.partition(" ")[0]
    group = 128 if kind == "int4" else 64
    packed, scales, *zeros = kernels.quantize_weight(
        weight, kind, group, zero_points=has_zero_points
    )
    options = {"kind": kind, "zero_points": zeros[0] if zeros else None}
    whole = kernels.dequantize_weight(packed, scales, **options)
    x = torch.randn(count, size, dtype=torch.bfloat16, device=device)
    return {
        OURS: lambda: kernels.quantized_linear(x, packed, scales, **options),
        EAGER: lambda: torch.nn.functional.linear(x, whole),
    }


def paged(sequences: int, length: int) -> LibraryRow:
    key_heads, head = 8, 128
    return LibraryRow(
        f"paged attention {sequences} x {length}",
        4 * sequences * length * key_heads * head,
        "GB/s",
        partial(paged_sides, sequences, length, key_heads, head),
        {COPY: 0.8},
    )


def paged_sides(sequences: int, length: int, key_heads: int, head: int, device: str) -> Sides:
    """Eager attends to caches that are in one piece already."""
    options = {"dtype": torch.bfloat16, "device": device}
    pages = sequences * length // PAGE
    keys, values = (torch.randn(pages, PAGE, key_heads, head, **options) for _ in range(2))
    table = torch.randperm(pages, device=device, dtype=torch.int32).view(sequences, -1)
    lengths = torch.full((sequences,), length, dtype=torch.int32, device=device)
    query = torch.randn(sequences, 4 * key_heads, head, **options)
    k, v = (x[table.long()].flatten(1, 2).transpose(1, 2).contiguous() for x in (keys, values))

    def eager() -> torch.Tensor:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query[:, :, None], k, v, enable_gqa=True)[:, :, 0]

    return {
        OURS: lambda: kernels.paged_attention(query, keys, values, table, lengths),
        EAGER: eager,
    }
