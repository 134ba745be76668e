"""What follows a matrix product before it is stored: scales, bias, activation, residual."""

from typing import Any, NamedTuple

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.activations import value_and_slope

__all__ = ["ACTIVATIONS", "Epilogue", "finished"]

ACTIVATIONS = ("", "relu", "gelu", "gelu_tanh", "silu")


class Epilogue(NamedTuple):
    """activation(product * scales + bias) + residual; None where there is no such thing."""

    bias: Any = None  # a number for each column
    residual: Any = None
    residual_strides: Any = None  # of (batch, rows, columns)
    linear: Any = None  # where to keep what the activation is of
    row_scales: Any = None
    row_scale_stride: Any = None  # 0 for one scale
    column_scales: Any = None
    column_scale_stride: Any = None


@tw.jit
def finished(acc, epilogue, scale, batch, row, column, sizes, ACTIVATION: tl.constexpr):
    """Return what is stored of a tile of products; `row` and `column` are its numbers."""
    DTYPE: tl.constexpr = tl.float64 if acc.dtype == tl.float64 else tl.float32
    x = acc.to(DTYPE)
    if scale is not None:
        x *= scale.to(DTYPE)
    is_row = row < sizes.rows
    is_column = column < sizes.columns
    inside = is_row[:, None] & is_column[None, :]
    if epilogue.row_scales is not None:
        at = row * epilogue.row_scale_stride
        x *= tl.load(epilogue.row_scales + at, mask=is_row, other=0.0).to(DTYPE)[:, None]
    if epilogue.column_scales is not None:
        at = column * epilogue.column_scale_stride
        x *= tl.load(epilogue.column_scales + at, mask=is_column, other=0.0).to(DTYPE)[None, :]
    if epilogue.bias is not None:
        x += tl.load(epilogue.bias + column, mask=is_column, other=0.0).to(DTYPE)[None, :]
    if epilogue.linear is not None:
        corner = (batch.to(tl.int64) * sizes.rows + row[:, None]) * sizes.columns
        at = corner + column[None, :]
        tl.store(epilogue.linear + at, x.to(epilogue.linear.dtype.element_ty), mask=inside)
    if ACTIVATION != "":
        x, _ = value_and_slope(x, ACTIVATION)
    if epilogue.residual is not None:
        at_batch, at_row, at_column = epilogue.residual_strides
        corner = epilogue.residual + batch.to(tl.int64) * at_batch
        at = row.to(tl.int64)[:, None] * at_row + column.to(tl.int64)[None, :] * at_column
        x += tl.load(corner + at, mask=inside, other=0.0).to(DTYPE)
    return x
