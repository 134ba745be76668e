"""Pooling over windows of the last one or two dimensions, forward and backward."""

from typing import Any

from tilewright.kernels.arrays import converted
from tilewright.kernels.pooling_operation import Windows, adaptive, pooled

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "max_pool1d",
    "max_pool2d",
]


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the largest element of each window over the last dimension; differentiable.

    Args:
        input: Array of shape (..., length), of fp16, bf16, fp32 or fp64 and any strides.
        kernel_size: The size of a window: an integer.
        stride: The distance between windows; by default their size.
        padding: How far windows reach over each end, at most half their size.
        dilation: The distance between neighbours in a window.
        ceil_mode: Whether a window that is not whole at the end counts.
        return_indices: Whether to return, too, where the elements are.

    Returns:
        An array of the dtype of `input`; with it, if asked for, one of int64.

    >>> import numpy as np
    >>> max_pool1d(np.array([[1.0, 4.0, 2.0, 3.0]]), 2)
    array([[4., 3.]])
    """
    windows = Windows(1, kernel_size, stride, padding, dilation, ceil_mode)
    return _asked_for(pooled(input, windows, True, True, 0), return_indices)


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the largest element of each window over the last two dimensions; differentiable.

    Args:
        input: Array of shape (..., height, width), of fp16, bf16, fp32 or fp64 and any strides.
        kernel_size: The size of a window: an integer or two.
        stride: The distance between windows; by default their size.
        padding: How far windows reach over each end, at most half their size.
        dilation: The distance between neighbours in a window.
        ceil_mode: Whether a window that is not whole at the end counts.
        return_indices: Whether to return, too, where the elements are, counted by rows.

    Returns:
        An array of the dtype of `input`; with it, if asked for, one of int64.

    >>> import numpy as np
    >>> max_pool2d(np.arange(16.0).reshape(1, 4, 4), 2)
    array([[[ 5.,  7.],
            [13., 15.]]])
    """
    windows = Windows(2, kernel_size, stride, padding, dilation, ceil_mode)
    return _asked_for(pooled(input, windows, True, True, 0), return_indices)


def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """Return the mean of each window over the last dimension; differentiable.

    Args:
        input: Array of shape (..., length), of fp16, bf16, fp32 or fp64 and any strides.
        kernel_size: The size of a window: an integer.
        stride: The distance between windows; by default their size.
        padding: How far windows reach over each end, at most half their size.
        ceil_mode: Whether a window that is not whole at the end counts.
        count_include_pad: Whether the padding counts as zeros.

    Returns:
        An array of the dtype of `input`.

    >>> import numpy as np
    >>> avg_pool1d(np.array([[1.0, 4.0, 2.0, 3.0]]), 2)
    array([[2.5, 2.5]])
    """
    windows = Windows(1, kernel_size, stride, padding, 1, ceil_mode)
    return pooled(input, windows, False, count_include_pad, 0)[0]


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Return the mean of each window over the last two dimensions; differentiable.

    Args:
        input: Array of shape (..., height, width), of fp16, bf16, fp32 or fp64 and any strides.
        kernel_size: The size of a window: an integer or two.
        stride: The distance between windows; by default their size.
        padding: How far windows reach over each end, at most half their size.
        ceil_mode: Whether a window that is not whole at the end counts.
        count_include_pad: Whether the padding counts as zeros.
        divisor_override: What sums are divided by, instead of the size.

    Returns:
        An array of the dtype of `input`.

    >>> import numpy as np
    >>> avg_pool2d(np.arange(16.0).reshape(1, 4, 4), 2)
    array([[[ 2.5,  4.5],
            [10.5, 12.5]]])
    """
    windows = Windows(2, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise ValueError("`divisor_override` must not be 0")
    return pooled(input, windows, False, count_include_pad, divisor_override or 0)[0]


def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Return the largest element of each of so many parts of each row; differentiable.

    Part i of n goes from floor(i * size / n) to ceil((i + 1) * size / n).

    Args:
        input: Array of shape (..., length), of fp16, bf16, fp32 or fp64 and any strides.
        output_size: The number of parts: an integer.
        return_indices: Whether to return, too, where the elements are.

    Returns:
        An array of the dtype of `input`; with it, if asked for, one of int64.

    >>> import numpy as np
    >>> adaptive_max_pool1d(np.array([[1.0, 4.0, 2.0, 3.0]]), 2)
    array([[4., 3.]])
    """
    return _asked_for(adaptive(input, output_size, 1, True), return_indices)


def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Return the largest element of each of so many parts of each row and column; differentiable.

    Part i of n goes from floor(i * size / n) to ceil((i + 1) * size / n).

    Args:
        input: Array of shape (..., height, width), of fp16, bf16, fp32 or fp64 and any strides.
        output_size: The number of parts: an integer or two; None leaves a size as it is.
        return_indices: Whether to return, too, where the elements are, counted by rows.

    Returns:
        An array of the dtype of `input`; with it, if asked for, one of int64.

    >>> import numpy as np
    >>> adaptive_max_pool2d(np.arange(16.0).reshape(1, 4, 4), 2)
    array([[[ 5.,  7.],
            [13., 15.]]])
    """
    return _asked_for(adaptive(input, output_size, 2, True), return_indices)


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """Return the mean of each of so many parts of each row; differentiable.

    Part i of n goes from floor(i * size / n) to ceil((i + 1) * size / n).

    Args:
        input: Array of shape (..., length), of fp16, bf16, fp32 or fp64 and any strides.
        output_size: The number of parts: an integer.

    Returns:
        An array of the dtype of `input`.

    >>> import numpy as np
    >>> adaptive_avg_pool1d(np.array([[1.0, 4.0, 2.0, 3.0]]), 2)
    array([[2.5, 2.5]])
    """
    return adaptive(input, output_size, 1, False)[0]


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """Return the mean of each of so many parts of each row and column; differentiable.

    Part i of n goes from floor(i * size / n) to ceil((i + 1) * size / n).

    Args:
        input: Array of shape (..., height, width), of fp16, bf16, fp32 or fp64 and any strides.
        output_size: The number of parts: an integer or two; None leaves a size as it is.

    Returns:
        An array of the dtype of `input`.

    >>> import numpy as np
    >>> adaptive_avg_pool2d(np.arange(16.0).reshape(1, 4, 4), 2)
    array([[[ 2.5,  4.5],
            [10.5, 12.5]]])
    """
    return adaptive(input, output_size, 2, False)[0]


def _asked_for(results: tuple[Any, Any], return_indices: bool) -> Any:
    y, index = results
    return (y, converted(index, "int64")) if return_indices else y
