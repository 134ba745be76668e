"""What `benchmarks/library.py` measures, a file for each family of operations."""

from benchmarks.library_rows import (
    attention,
    images,
    layers,
    matmul,
    norms,
    quantized,
    recurrent,
    softmax,
    sparse,
    sparse_attention,
)
from benchmarks.library_rows.row import LibraryRow

__all__ = ["LibraryRow", "all_rows"]


def all_rows(device: str) -> list[LibraryRow]:
    """The rows for "cuda" or "cpu", in the order of the table."""
    families = (
        *(softmax, norms, layers, images, attention, matmul, quantized, recurrent),
        *(sparse, sparse_attention),
    )
    return [row for family in families for row in family.rows(device)]
