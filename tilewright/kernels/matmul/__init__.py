"""Matrix products, and what is done to them before they are stored."""

from tilewright.kernels.matmul.dense import linear, matmul
from tilewright.kernels.matmul.grouped import grouped_mm

__all__ = ["grouped_mm", "linear", "matmul"]
