"""The library: operations of neural networks, on PyTorch tensors and NumPy arrays.

Every operation is written in the language, by its public names. On tensors it is an operator of
PyTorch that autograd, `torch.compile`, CUDA graphs and autocast know; on NumPy arrays it is a
function on the CPU. Kernels start with a configuration that suits most machines; inside
`tilewright.tuning()` they look for the best one, and keep it on disk.
"""

from tilewright.kernels import images
from tilewright.kernels.attention import (
    attention,
    decode_attention,
    paged_attention,
    varlen_attention,
)
from tilewright.kernels.matmul import grouped_mm, linear, matmul
from tilewright.kernels.norms import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from tilewright.kernels.softmax import log_softmax, softmax

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "attention",
    "decode_attention",
    "grouped_mm",
    "images",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "paged_attention",
    "rms_norm",
    "softmax",
    "varlen_attention",
]
