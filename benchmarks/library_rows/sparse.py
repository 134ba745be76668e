"""Products of sparse matrices beside dense ones."""

from __future__ import annotations

import functools

import torch

from benchmarks.library_rows.row import EAGER, LIBRARY, OURS, LibraryRow, Sides
from tilewright import kernels


def rows(device: str) -> list[LibraryRow]:
    on_gpu = device == "cuda"
    size, block = (8192, 128) if on_gpu else (1024, 64)
    dense = {EAGER: 4.0} if on_gpu else {}
    table = [
        LibraryRow(
            f"block-sparse {kind} {size} of {block}, 90 % zeros",
            0.1 * 2 * size**3,
            "TFLOP/s",
            functools.partial(products, kind, size, block),
            dense,
        )
        for kind in ("SDD", "DSD", "DDS")
    ]
    count, width = (65536, 128) if on_gpu else (4096, 64)
    edges = 32 * count
    return [
        *table,
        LibraryRow(
            f"CSR SpMM fp32 {count}x{count}, 32 a row, x{width}",
            4 * edges * width,
            "GB/s",
            functools.partial(by_rows, count, width),
            {LIBRARY: 1.0},
        ),
        LibraryRow(
            f"2:4 linear {16}x{size}x{size}",
            1.125 * size * size,
            "GB/s",
            functools.partial(two_in_four, size),
        ),
    ]


def products(kind: str, size: int, block: int, device: str) -> Sides:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    count = size // block
    mask = torch.zeros((count, count), dtype=torch.bool)
    for row in range(count):
        mask[row, torch.randperm(count)[: max(count // 10, 1)]] = True
    mask = mask.to(device)
    sparsity = kernels.BlockSparsity(mask, block)
    a, b = (torch.randn((1, 1, size, size), dtype=dtype, device=device) for _ in range(2))
    if kind == "SDD":
        row, column = mask.nonzero().unbind(1)

        def dense_blocks() -> torch.Tensor:
            return (a @ b).view(1, count, block, count, block).transpose(2, 3)[:, row, column]

        return {OURS: lambda: kernels.sdd_matmul(a, b, sparsity), EAGER: dense_blocks}
    values = torch.randn((1, sparsity.blocks, block, block), dtype=dtype, device=device)
    full = a.new_zeros((count, count, block, block))
    full[mask] = values[0]
    full = full.transpose(1, 2).reshape(1, 1, size, size)
    if kind == "DSD":
        return {OURS: lambda: kernels.dsd_matmul(values, b, sparsity), EAGER: lambda: full @ b}
    return {OURS: lambda: kernels.dds_matmul(a, values, sparsity), EAGER: lambda: a @ full}


def by_rows(count: int, width: int, device: str) -> Sides:
    crow = torch.arange(count + 1, device=device) * 32
    column = torch.randint(0, count, (32 * count,), device=device)
    values, b = torch.randn(32 * count, device=device), torch.randn((count, width), device=device)
    matrix = torch.sparse_csr_tensor(crow, column, values, (count, count))
    return {OURS: lambda: kernels.spmm(crow, column, values, b), LIBRARY: lambda: matrix @ b}


def two_in_four(size: int, device: str) -> Sides:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    values, places = kernels.compress_semi_sparse(
        torch.randn((size, size), dtype=dtype, device=device)
    )
    weight = kernels.expand_semi_sparse(values, places)
    x = torch.randn((16, size), dtype=dtype, device=device)
    return {
        OURS: lambda: kernels.semi_sparse_linear(x, values, places),
        EAGER: lambda: torch.nn.functional.linear(x, weight),
    }
