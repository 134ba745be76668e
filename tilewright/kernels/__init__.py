"""The library: operations of neural networks, on PyTorch tensors and NumPy arrays.

Every operation is written in the language, by its public names. On tensors it is an operator of
PyTorch that autograd, `torch.compile`, CUDA graphs and autocast know; on NumPy arrays it is a
function on the CPU. Kernels start with a configuration that suits most machines; inside
`tilewright.tuning()` they look for the best one, and keep it on disk.
"""

from tilewright.kernels import images
from tilewright.kernels.activations import geglu, gelu, relu, silu, swiglu
from tilewright.kernels.attention import (
    attention,
    block_sparse_attention,
    decode_attention,
    paged_attention,
    varlen_attention,
)
from tilewright.kernels.block_sparse import BlockSparsity, dds_matmul, dsd_matmul, sdd_matmul
from tilewright.kernels.block_sparse_softmax import block_sparse_softmax
from tilewright.kernels.channel_norms import batch_norm, group_norm, instance_norm
from tilewright.kernels.convolution import causal_conv1d, conv1d, conv2d
from tilewright.kernels.cross_entropy import cross_entropy
from tilewright.kernels.cumsum import cumsum
from tilewright.kernels.dropout import dropout
from tilewright.kernels.embedding import embedding
from tilewright.kernels.histogram import histc
from tilewright.kernels.linear_algebra import cholesky, solve_triangular
from tilewright.kernels.linear_cross_entropy import linear_cross_entropy
from tilewright.kernels.matmul import (
    dequantize_weight,
    grouped_mm,
    linear,
    matmul,
    pack_weight,
    quantize_rows,
    quantize_weight,
    quantized_linear,
    scaled_mm,
)
from tilewright.kernels.norms import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from tilewright.kernels.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)
from tilewright.kernels.recurrence import linear_recurrence
from tilewright.kernels.recurrent import gru, lstm
from tilewright.kernels.recurrent_modules import GRU, LSTM
from tilewright.kernels.rotary import rotary_embedding
from tilewright.kernels.segments import segment_reduce
from tilewright.kernels.semi_sparse import (
    compress_semi_sparse,
    expand_semi_sparse,
    semi_sparse_linear,
)
from tilewright.kernels.softmax import log_softmax, softmax
from tilewright.kernels.sparse_rows import coo_to_csr, sddmm, spmm
from tilewright.kernels.topk import topk

__all__ = [
    "GRU",
    "LSTM",
    "BlockSparsity",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "add_layer_norm",
    "add_rms_norm",
    "attention",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "block_sparse_attention",
    "block_sparse_softmax",
    "causal_conv1d",
    "cholesky",
    "compress_semi_sparse",
    "conv1d",
    "conv2d",
    "coo_to_csr",
    "cross_entropy",
    "cumsum",
    "dds_matmul",
    "decode_attention",
    "dequantize_weight",
    "dropout",
    "dsd_matmul",
    "embedding",
    "expand_semi_sparse",
    "geglu",
    "gelu",
    "group_norm",
    "grouped_mm",
    "gru",
    "histc",
    "images",
    "instance_norm",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "linear_recurrence",
    "log_softmax",
    "lstm",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "pack_weight",
    "paged_attention",
    "quantize_rows",
    "quantize_weight",
    "quantized_linear",
    "relu",
    "rms_norm",
    "rotary_embedding",
    "scaled_mm",
    "sdd_matmul",
    "sddmm",
    "segment_reduce",
    "semi_sparse_linear",
    "silu",
    "softmax",
    "solve_triangular",
    "spmm",
    "swiglu",
    "topk",
    "varlen_attention",
]


def __dir__() -> list[str]:
    return sorted(__all__)
