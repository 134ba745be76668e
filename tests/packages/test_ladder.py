"""Kernels of published packages against references, from simple ones to hard ones.

The packages are as they come from PyPI. References are PyTorch's own functions, or those that a
package brings along.
"""

import itertools
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="packages of kernels are on PyTorch")
F = torch.nn.functional

# Packages warn about themselves and about each other.
pytestmark = pytest.mark.filterwarnings("default")


# These ask for modules of Triton that are not there yet. Strict: it is noticed when they are.
asks_for_ragged_tma = pytest.mark.xfail(
    raises=ModuleNotFoundError, reason="triton.tools.ragged_tma"
)
asks_for_gluon = pytest.mark.xfail(raises=ModuleNotFoundError, reason="triton.experimental.gluon")


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


def close(actual, expected, tolerance):
    torch.testing.assert_close(actual.float(), expected.float(), atol=tolerance, rtol=tolerance)


def attention(q, k, v, *, causal=False, scale=None):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


# ---- cuda-triton-multiarch


def test_swiglu(package):
    x, gate = torch.randn(2, 33, 100, dtype=torch.float16)
    found = package("kernels.swiglu").swiglu_triton(x, gate)
    close(found, x.float() * F.silu(gate.float()), 2e-3)


def test_softmax(package):
    x = torch.randn(7, 1000)
    close(package("kernels.softmax").softmax_triton(x), x.softmax(-1), 1e-6)


def test_flash_attention_of_one_head(package):
    q, k, v = torch.randn(3, 256, 64, dtype=torch.float16)
    found = package("kernels.flash_attention").flash_attention_triton(q, k, v)
    close(found, attention(q.float(), k.float(), v.float()), 2e-3)


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_quantised_products(package, bits):
    module = package("kernels.quantized_matmul")
    x, weights = torch.randn(128, 256).half(), torch.randn(256, 128).half()
    if bits == 16:
        found, expected = module.matmul_fp16_triton(x, weights), x.float() @ weights.float()
    else:
        quantised = getattr(module, f"quantize_int{bits}")(weights)
        found = getattr(module, f"matmul_int{bits}_triton")(x, *quantised)
        expected = x.float() @ getattr(module, f"dequantize_int{bits}")(*quantised)
    close(found, expected, 3e-2)


# ---- small packages


def test_cross_entropy(package, as_on_a_gpu):
    module = package("crossentropy_triton.crossentropy_tl")
    logits, labels = torch.randn(2, 9, 1000), torch.randint(1000, (2, 9))
    labels[0, 3] = -100
    mine, theirs = (logits.clone().requires_grad_() for _ in range(2))
    loss = module.CrossEntropyFunction.apply(mine, labels, -100)
    expected = F.cross_entropy(theirs[:, :-1].reshape(-1, 1000), labels[:, 1:].reshape(-1))
    loss.backward()
    expected.backward()
    close(loss, expected, 1e-5)
    close(mine.grad, theirs.grad, 1e-6)


def test_flipped_images(package, as_on_a_gpu):
    module = package("triton_augment.functional")
    images = torch.rand(3, 3, 20, 31)
    found = module.horizontal_flip(images, torch.tensor([1, 0, 1], dtype=torch.bool))
    close(found[::2], images[::2].flip(-1), 0)
    close(found[1], images[1], 0)


def test_rotated_images(package, as_on_a_gpu):
    module = package("triton_augment.functional")
    images, angle = torch.rand(2, 3, 24, 24), 30.0
    found = module.affine(images, angle, [0, 0], 1.0, [0.0, 0.0], "bilinear")
    turn = torch.deg2rad(torch.tensor(angle))
    matrix = torch.tensor([[turn.cos(), turn.sin(), 0], [-turn.sin(), turn.cos(), 0]])
    for sign in (1, -1):
        matrix[0, 1] *= sign
        matrix[1, 0] *= sign
        grid = F.affine_grid(matrix.expand(2, 2, 3), images.shape, align_corners=False)
        expected = F.grid_sample(images, grid, align_corners=False)
        if torch.allclose(found, expected, atol=1e-4):
            return
    close(found, expected, 1e-4)


def test_offsets_of_groups(package):
    experts = torch.randint(8, (5000,))
    found = package("moe_ops.permute_ops")._group_offsets(experts, 8)
    counts = torch.bincount(experts, minlength=8).cumsum(0)
    assert found.tolist() == [0, *counts.tolist()]


def test_softmax_of_the_largest(package):
    module = package("moe_ops.fused_topk_softmax_ops")
    logits = torch.randn(300, 24)
    weights, indices = module._fused_topk_softmax_fwd(logits, 6)
    expected, places = logits.topk(6)
    assert torch.equal(indices.long(), places)
    close(weights, expected.softmax(-1), 1e-6)


def test_products_of_groups(package):
    module = package("moe_ops.grouped_gemm_ops")
    a, b = torch.randn(300, 64).half(), torch.randn(4, 96, 64).half()
    offsets = torch.tensor([0, 100, 100, 250, 300], dtype=torch.int32)
    found = module.gmm_try_fn(a, b, offsets, True)
    for group, (start, end) in enumerate(itertools.pairwise(offsets)):
        close(found[start:end], a[start:end].float() @ b[group].float().T, 2e-2)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_four_bits(package, kind):
    module = package("bitsandbytes.backends.triton.kernels_4bit")
    x, size = torch.randn(64 * 40), 64
    blocks = x.numel() // (2 * size)
    absmax, packed = torch.empty(2 * blocks), torch.empty(x.numel() // 2, 1, dtype=torch.uint8)
    module.quantize_4bit_blockwise_triton(x, size, kind, blocks, absmax, x.numel(), packed)
    close(absmax, x.view(-1, size).abs().amax(1), 0)
    out = torch.empty_like(x)
    dequantise = module.dequantize_4bit_impl
    dequantise(packed, absmax, size, kind, x.dtype, out)
    assert (out - x).abs().max() < 0.5
    assert F.cosine_similarity(out, x, dim=0) > 0.98


def test_belief_propagation(package):
    pytest.importorskip("scipy")
    rng = torch.Generator().manual_seed(1)
    checks = (torch.rand(30, 80, generator=rng) < 0.1).numpy().astype("uint8")
    checks[:, 0], checks[0] = 1, 1
    # The reference sends 0 where the two smallest messages are equal, the kernel their size.
    priors = (0.02 + 0.06 * torch.rand(80, generator=rng)).numpy()
    syndromes = (torch.rand(40, 30, generator=rng) < 0.3).numpy()
    mine = package("tridec.backends.bp_triton").BpTriton(checks, priors)
    found = mine.run_iterations_batch(syndromes, n_iter=3, device="cpu")
    theirs = package("tridec.backends.bp_numpy").BpBaseline(checks, priors)
    expected = [theirs.run_iterations(s, n_iter=3)["posterior"] for s in syndromes]
    close(torch.tensor(found), torch.tensor(np.array(expected)), 1e-3)


# ---- attention


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_block_pointers(package, monkeypatch, causal):
    # The package imports a module that newer Tritons lack, and uses nothing of it.
    absent = "triton.tools.experimental_descriptor"
    monkeypatch.setitem(sys.modules, absent, types.ModuleType(absent))
    module = package("flash_attn_triton.triton_kernel.attention_kernel")
    monkeypatch.setattr(module._attn_fwd, "configs", module._attn_fwd.configs[:1])
    mine = [torch.randn(1, 2, 256, 64).half().mul(0.5).requires_grad_() for _ in range(3)]
    theirs = [x.detach().float().requires_grad_() for x in mine]
    weights = torch.randn(1, 2, 256, 64)
    out = module.attention(*mine, causal, 0.5)
    expected = attention(*theirs, causal=causal, scale=0.5)
    close(out, expected, 1e-2)
    if causal:
        (out.float() * weights).sum().backward()
        (expected * weights).sum().backward()
        for x, y in zip(mine, theirs, strict=True):
            close(x.grad, y.grad, 4e-2)


def test_attention_made_in_a_closure(package, as_on_a_gpu):
    module = package("flash_attention_triton.flash_attention_2")
    mine = [torch.randn(1, 2, 128, 64).half().requires_grad_() for _ in range(3)]
    theirs = [x.detach().float().requires_grad_() for x in mine]
    weights = torch.randn(1, 2, 128, 64)
    triton = sys.modules["triton"]
    names = {"BLOCK_Q_ROWS_SIZE": 64, "BLOCK_KV_COLS_SIZE": 64}
    hook = module.init_to_zero_v2("DQ")
    configs = [
        triton.Config({**names, "SEQUENCE_PARALLEL": parallel}, num_warps=4, pre_hook=hook)
        for parallel in (False, True)
    ]
    config = module.KernelsConfigV2(64, 64, 16, 128, 32, 4, 8, 1, configs)
    out = module.FlashAttentionV2Function.apply(*mine, None, config)
    expected = attention(*theirs, causal=True)
    close(out, expected, 1e-2)
    (out.float() * weights).sum().backward()
    (expected * weights).sum().backward()
    for x, y in zip(mine, theirs, strict=True):
        close(x.grad, y.grad, 3e-2)


# ---- recurrent layers


def test_linear_attention(package, as_on_a_gpu):
    fused = package("fla.ops.linear_attn.fused_recurrent").fused_recurrent_linear_attn
    naive = package("fla.ops.linear_attn.naive").naive_recurrent_linear_attn
    q, k, v = torch.randn(3, 2, 33, 3, 32)
    found, _ = fused(q, k, v, normalize=False)
    expected, _ = naive(q, k, v, normalize=False)
    close(found, expected, 1e-4)


def test_gated_linear_attention(package, as_on_a_gpu):
    chunked = package("fla.ops.gla.chunk").chunk_gla
    naive = package("fla.ops.gla.naive").naive_recurrent_gla
    q, k, v = torch.randn(3, 1, 100, 2, 32)
    gates = F.logsigmoid(torch.randn(1, 100, 2, 32)) / 16
    found, _ = chunked(q, k, v, gates)
    close(found, naive(q, k, v, gates)[0], 1e-2)


def test_gated_delta_rule(package, as_on_a_gpu):
    chunked = package("fla.ops.gated_delta_rule.chunk").chunk_gated_delta_rule
    naive = package("fla.ops.gated_delta_rule.naive").naive_recurrent_gated_delta_rule
    q, k = F.normalize(torch.randn(2, 1, 128, 2, 32), dim=-1)
    v, beta = torch.randn(1, 128, 2, 32), torch.rand(1, 128, 2)
    gates = F.logsigmoid(torch.randn(1, 128, 2))
    found, _ = chunked(q, k, v, g=gates, beta=beta)
    expected = naive(q, k, v, beta=beta, g=gates)[0]
    close(found, expected, 1e-2)


def test_mlstm(package, as_on_a_gpu):
    chunked = package("mlstm_kernels.torch.chunkwise.triton_xl_chunk.fw").mlstm_chunkwise_fw
    native = package("mlstm_kernels.torch.chunkwise.native.fw").mlstm_chunkwise_fw
    q, k, v = torch.randn(3, 1, 2, 128, 64)
    i, f = torch.randn(2, 1, 2, 128)
    found = chunked(q, k, v, i, f + 3, chunk_size=64)[0]
    expected = native(q, k, v, i, f + 3, chunk_size=64)[0]
    close(found, expected, 1e-2)


def test_states_of_convolutions(source, as_on_a_gpu):
    module = source("causal_conv1d-1.7.0", "causal_conv1d.causal_conv1d_varlen")
    x, ends = torch.randn(40, 50), torch.tensor([0, 7, 9, 40], dtype=torch.int32)
    found = module.causal_conv1d_varlen_states(x, ends, 5)
    close(found, module.causal_conv1d_varlen_states_ref(x, ends, 5), 0)


def test_update_of_a_state(source, as_on_a_gpu):
    module = source("mamba_ssm-2.3.2.post1", "mamba_ssm.ops.triton.selective_state_update")
    state, x, dt = torch.randn(2, 3, 40, 16), torch.randn(2, 3, 40), torch.randn(2, 3, 40)
    a, b, c = -torch.rand(3, 40, 16), torch.randn(2, 1, 16), torch.randn(2, 1, 16)
    others = (torch.randn(3, 40), torch.randn(2, 3, 40), torch.randn(3, 40))
    states = state.clone(), state.clone()
    found = module.selective_state_update(states[0], x, dt, a, b, c, *others, dt_softplus=True)
    expected = module.selective_state_update_ref(
        *(states[1], x, dt, a, b, c), *others, dt_softplus=True
    )
    close(found, expected, 1e-4)
    close(states[0], states[1], 1e-4)


def test_scan_of_chunks(source, as_on_a_gpu):
    pytest.importorskip("einops")
    distribution, place = "mamba_ssm-2.3.2.post1", "mamba_ssm.ops.triton"
    cumsum = source(distribution, f"{place}.ssd_chunk_state")
    products = source(distribution, f"{place}.ssd_bmm")
    passing = source(distribution, f"{place}.ssd_state_passing")
    scan = source(distribution, f"{place}.ssd_chunk_scan")
    for kernel in (
        *(cumsum._chunk_cumsum_fwd_kernel, cumsum._chunk_state_fwd_kernel),
        *(products._bmm_chunk_fwd_kernel, scan._chunk_scan_fwd_kernel),
    ):
        kernel.configs = kernel.configs[-1:]
    length, heads, dim, states, chunk = 128, 2, 32, 16, 64
    x, dt = torch.randn(1, length, heads, dim), torch.rand(1, length, heads)
    a, b, c = -torch.rand(heads), *torch.randn(2, 1, length, 1, states)
    sums, steps = cumsum._chunk_cumsum_fwd(dt, a, chunk)
    of_chunks = cumsum._chunk_state_fwd(b, x, steps, sums, states_in_fp32=True)
    close(of_chunks, cumsum.chunk_state_ref(b, x, steps, sums), 1e-3)
    flat = of_chunks.flatten(-2)
    before, _ = passing._state_passing_fwd(flat, sums[:, :, :, -1])
    before = before.unflatten(-1, (dim, states))
    cb = products._bmm_chunk_fwd(c, b, chunk)
    found = scan._chunk_scan_fwd(cb, x, steps, sums, c, before)[0]
    close(found, scan.chunk_scan_ref(b, c, x, steps, sums, before), 1e-3)


# ---- sparse and quantised products


def test_sparse_times_dense(package, monkeypatch):
    module = package("torch.sparse._triton_ops")
    if not hasattr(module, "_bsr_softmax_kernel"):
        pytest.skip("PyTorch was imported before the alias")
    monkeypatch.setattr(module, "check_device", lambda *_: None)
    dense = torch.randn(64, 128) * (torch.rand(4, 8) < 0.5).repeat_interleave(
        16, 0
    ).repeat_interleave(16, 1)
    sparse, other = dense.to_sparse_bsr((16, 16)), torch.randn(128, 32)
    found = module.bsr_dense_mm(sparse, other)
    close(found, dense @ other, 1e-4)


@asks_for_ragged_tma
def test_largest_experts(package):
    module = package("triton_kernels.topk")
    x = torch.randn(65, 128).half()
    found, expected = module.topk(x, 4), module.topk_torch(x, 4)
    assert torch.equal(found.indx.int(), expected.indx.int())
    close(found.vals, expected.vals, 1e-3)


@asks_for_ragged_tma
def test_masked_sums(package):
    module = package("triton_kernels.reduce")
    x, mask = torch.randn(7, 33, 64), torch.rand(7, 33, 64) < 0.5
    found, _ = module.reduce(x, dim=0, mask=mask, x_flex=None, y_flex=None)
    expected, _ = module.reduce_torch(x, dim=0, mask=mask, x_flex=None, y_flex=None)
    close(found, expected, 1e-5)


@asks_for_ragged_tma
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "uint8"])
def test_microscaling_formats(package, dtype):
    module = package("triton_kernels.numerics_details.mxfp")
    x = torch.randn(64, 256)
    kind = getattr(torch, dtype)
    values, scales = module.downcast_to_mxfp(x, kind, axis=-1)
    expected, expected_scales = module.downcast_to_mxfp_torch(x, kind, axis=-1)
    assert torch.equal(scales, expected_scales)
    assert torch.equal(values.view(torch.uint8), expected.view(torch.uint8))
    found = module.upcast_from_mxfp(values, scales, torch.float32, axis=-1)
    close(found, module.upcast_from_mxfp_torch(values, scales, torch.float32, axis=-1), 0)


# ---- serving


@asks_for_gluon
def test_likely_tokens(package, as_on_a_gpu, monkeypatch):
    module = package("vllm.v1.sample.ops.topk_topp_triton")
    # Asks the platform, which has no answer for CPUs.
    monkeypatch.setattr(module, "num_compute_units", lambda _: 4)
    logits = torch.randn(5, 1000)
    k, p = torch.tensor([1, 5, 50, 1000, 20]), torch.tensor([1.0, 0.9, 0.5, 0.3, 0.8])
    found = module.apply_top_k_top_p_triton(logits.clone(), k, p)
    for row, values in enumerate(logits):
        kept = values >= values.topk(int(k[row])).values[-1]
        sorted_, places = values.masked_fill(~kept, -torch.inf).sort()
        kept[places[sorted_.softmax(0).cumsum(0) <= 1 - p[row]]] = False
        assert torch.equal(found[row].isfinite(), kept), row


def test_split_attention(package, as_on_a_gpu, monkeypatch):
    # Another package of that name may be installed, which is not what this one looks for.
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    absent = "triton.tools.experimental_descriptor"
    monkeypatch.setitem(sys.modules, absent, types.ModuleType(absent))
    fmha = package("xformers.ops.fmha")
    operator = package("xformers.ops.fmha.triton_splitk").FwOp
    q, k, v = torch.randn(2, 1, 4, 64).half(), *torch.randn(2, 2, 200, 4, 64).half()
    found, _ = operator.apply(fmha.Inputs(q, k, v), needs_gradient=False)
    expected = attention(*(x.float().transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    close(found, expected, 2e-3)
