"""Attention: softmax of products of queries and keys, times values, in one pass."""

from tilewright.kernels.attention.dense import attention
from tilewright.kernels.attention.ragged import varlen_attention

__all__ = ["attention", "varlen_attention"]
