"""What the tests of single kernels share: PyTorch, the list of entries, comparisons, attention."""

import pytest

torch = pytest.importorskip("torch", reason="packages of kernels are on PyTorch")
F = torch.nn.functional

# Kernels of published packages, from simple ones to hard ones. The numbers are names: they have
# gaps where entries were merged.
ENTRIES = {
    1: "cuda-triton-multiarch: SwiGLU",
    2: "cuda-triton-multiarch: softmax",
    3: "conch: SiLU and product",
    4: "conch: RMS norms",
    6: "liger: softmax, rotary embeddings",
    7: "crossentropy-triton: loss and gradient",
    8: "triton-augment: flips, rotations, all in one",
    9: "causal-conv1d: states of sequences",
    14: "moe-ops: offsets of groups",
    15: "moe-ops: softmax of the largest",
    19: "conch: overlapping boxes, voxels, sums of cells",
    20: "bitsandbytes: nf4 and fp4",
    21: "tridec: belief propagation",
    23: "liger: cross entropy",
    24: "cuda-triton-multiarch: products of 16, 8 and 4 bits",
    25: "moe-ops: products of groups",
    26: "conch: products with packed weights",
    27: "torch: block-sparse times dense, softmax",
    28: "cuda-triton-multiarch: attention",
    29: "flash-attention-triton: attention and gradient",
    30: "mamba-ssm: update of a state",
    31: "mamba-ssm: scan of chunks",
    32: "fla: linear attention",
    33: "flash-attn-triton: attention by block pointers",
    34: "fla: gated linear attention, gated delta rule",
    35: "conch: attention over blocks of keys",
    37: "mlstm-kernels: chunks",
    39: "torch: kernels that Inductor generates",
    40: "liger: mixture of experts",
    41: "vllm: mixture of experts, likely tokens",
    42: "xformers: attention with keys in parts",
    43: "torchao, tokenspeed: microscaled formats, experts, products",
}


def close(actual, expected, tolerance):
    """Compare in fp32, absolutely and relatively."""
    torch.testing.assert_close(actual.float(), expected.float(), atol=tolerance, rtol=tolerance)


def attention(q, k, v, *, causal=False, scale=None):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
