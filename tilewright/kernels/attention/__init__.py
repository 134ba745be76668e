"""Attention: softmax of products of queries and keys, times values, in one pass."""

from tilewright.kernels.attention.block_sparse import block_sparse_attention
from tilewright.kernels.attention.decode import decode_attention, paged_attention
from tilewright.kernels.attention.dense import attention
from tilewright.kernels.attention.ragged import varlen_attention

__all__ = [
    "attention",
    "block_sparse_attention",
    "decode_attention",
    "paged_attention",
    "varlen_attention",
]
