"""Matrix products, and what is done to them before they are stored."""

from tilewright.kernels.matmul.dense import linear, matmul

__all__ = ["linear", "matmul"]
