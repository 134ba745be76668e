"""Matrix products, and what is done to them before they are stored."""

from tilewright.kernels.matmul.dense import linear, matmul
from tilewright.kernels.matmul.four_bits import pack_weight
from tilewright.kernels.matmul.grouped import grouped_mm
from tilewright.kernels.matmul.scaled import quantize_rows, scaled_mm
from tilewright.kernels.matmul.weight_only import (
    dequantize_weight,
    quantize_weight,
    quantized_linear,
)

__all__ = [
    "dequantize_weight",
    "grouped_mm",
    "linear",
    "matmul",
    "pack_weight",
    "quantize_rows",
    "quantize_weight",
    "quantized_linear",
    "scaled_mm",
]
