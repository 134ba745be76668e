"""Products, losses and mixtures of experts of published packages; microscaled formats."""

import itertools
import types

import pytest

from tests.packages.ladder import F, close, torch

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("on_device"),
]


@pytest.mark.ladder(23)
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_cross_entropy(package, softcap):
    function = package("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
    logits, labels = torch.randn(50, 3000) * 3, torch.randint(3000, (50,))
    labels[7], weight = -100, torch.rand(3000)
    mine, theirs = (logits.clone().requires_grad_() for _ in range(2))
    found = function.apply(mine * 1.0, labels, weight, -100, 0.0, 0.1, "mean", softcap)[0]
    capped = theirs if softcap is None else softcap * torch.tanh(theirs / softcap)
    expected = F.cross_entropy(capped, labels, weight, ignore_index=-100, label_smoothing=0.1)
    close(found, expected, 1e-5)
    found.backward()
    expected.backward()
    close(mine.grad, theirs.grad, 1e-6)


@pytest.mark.ladder(24)
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


@pytest.mark.ladder(25)
def test_products_of_groups(package):
    module = package("moe_ops.grouped_gemm_ops")
    a, b = torch.randn(300, 64).half(), torch.randn(4, 96, 64).half()
    offsets = torch.tensor([0, 100, 100, 250, 300], dtype=torch.int32)
    found = module.gmm_try_fn(a, b, offsets, True)
    for group, (start, end) in enumerate(itertools.pairwise(offsets)):
        close(found[start:end], a[start:end].float() @ b[group].float().T, 2e-2)


@pytest.mark.ladder(26)
@pytest.mark.parametrize("kind", ["uint4b8", "uint8b128", "uint4"])
def test_products_with_packed_weights(package, kind):
    kinds = package("conch.third_party.vllm.scalar_type").scalar_types
    quantised = package("conch.third_party.vllm.quant_utils")
    product = package("conch.ops.quantization.gemm").mixed_precision_gemm
    wtype, zeros = getattr(kinds, kind), kind == "uint4"
    x, weights = (torch.rand(size).sub(0.3).half() for size in ((64, 256), (256, 128)))
    expected, packed, scales, offsets = quantised.quantize_weights(
        weights, wtype, 128, zero_points=zeros, ref_zero_points_after_scales=False
    )
    packed = quantised.pack_rows(packed, wtype.size_bits, *packed.shape)
    found = product(x, packed, scales, offsets, wtype.size_bits, wtype.bias, 128)
    close(found, x.float() @ expected.float(), 3e-2)


@pytest.fixture
def sparse(package, device, monkeypatch):
    """PyTorch's kernels for matrices of blocks, such a matrix, and where it has numbers."""
    module = package("torch.sparse._triton_ops")
    if not hasattr(module, "_bsr_softmax_kernel"):
        pytest.skip("PyTorch was imported before the alias")
    if device == "cpu":
        monkeypatch.setattr(module, "check_device", lambda *_: None)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "none", raising=False)
    kept = torch.rand(4, 8) < 0.5
    kept[:, 0] = True
    kept = kept.repeat_interleave(16, 0).repeat_interleave(16, 1)
    return module, (torch.randn(64, 128) * kept).to_sparse_bsr((16, 16)), kept


@pytest.mark.ladder(27)
def test_sparse_times_dense(sparse):
    module, matrix, _ = sparse
    other = torch.randn(128, 32)
    close(module.bsr_dense_mm(matrix, other), matrix.to_dense() @ other, 1e-4)
    start = torch.randn(64, 32)
    found = module.bsr_dense_addmm(start, matrix, other, beta=0.5, alpha=2)
    close(found, 0.5 * start + 2 * matrix.to_dense() @ other, 1e-4)


@pytest.mark.ladder(27)
def test_softmax_of_sparse_rows(sparse):
    module, matrix, kept = sparse
    expected = matrix.to_dense().masked_fill(~kept, -torch.inf).softmax(-1)
    close(module.bsr_softmax(matrix).to_dense(), expected, 1e-6)


@pytest.mark.ladder(40)
@pytest.mark.parametrize("tokens", [64, 100])
def test_mixture_of_experts_and_its_gradient(package, device, tokens):
    function = package("liger_kernel.ops.fused_moe").LigerFusedMoEFunction
    logits = torch.randn(tokens, 8)
    chosen = logits.topk(2).indices
    inputs = [
        *(torch.randn(tokens, 64), torch.randn(8, 96, 64) * 0.1, torch.randn(8, 64, 48) * 0.1),
        logits.gather(1, chosen).softmax(-1),
    ]
    mine, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    found = function.apply(*mine[:3], chosen.int(), mine[3])
    x, up, down, weights = theirs
    gates, ups = torch.einsum("td,thd->th", x.repeat_interleave(2, 0), up[chosen.flatten()]).chunk(
        2, -1
    )
    each = torch.einsum("th,tdh->td", F.silu(gates) * ups, down[chosen.flatten()])
    expected = (each.unflatten(0, (tokens, 2)) * weights[..., None]).sum(1)
    # GPUs multiply in tf32.
    close(found, expected, 1e-4 if device == "cpu" else 1e-2)
    gradient = torch.randn(tokens, 64)
    (found * gradient).sum().backward()
    (expected * gradient).sum().backward()
    for one, other in zip(mine, theirs, strict=True):
        close(one.grad, other.grad, 1e-3 if device == "cpu" else 5e-2)


VLLM = "vllm-0.33.0"
# Gluon, which is imported beside kernels that use nothing of it, and what only its wheels have.
ABSENT = (
    *("triton.experimental", "triton.experimental.gluon", "triton.experimental.gluon.language"),
    *("vllm._C_stable_libtorch", "vllm._qutlass_C"),
)


@pytest.mark.ladder(43)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("kind", ["float16", "float8_e4m3fn", "float4"])
def test_products_of_slices(package, device, as_on_a_gpu, monkeypatch, persistent, ragged, kind):
    product = package("triton_kernels.matmul")
    flags = package("triton_kernels.matmul_details.opt_flags")
    formats = package("triton_kernels.numerics_details.mxfp")
    slices = package("triton_kernels.tensor_details.ragged_tensor")
    if device == "cpu":
        target = package("triton_kernels.target_info")
        monkeypatch.setattr(target, "num_sms", lambda: 4)
    rows, depth, columns = 90, 256, 96
    sizes = [40, 0, 50] if ragged else [rows]
    x, weights = torch.randn(rows, depth).half(), torch.randn(len(sizes), depth, columns).half()
    config = product.PrecisionConfig()
    if kind == "float16":
        exact = weights.float()
    else:
        narrow = torch.uint8 if kind == "float4" else getattr(torch, kind)
        codes, scales = formats.downcast_to_mxfp_torch(weights.mT.contiguous(), narrow, axis=-1)
        exact = formats.upcast_from_mxfp_torch(codes, scales, torch.float32, axis=-1).mT
        weights = codes.mT
        config = product.PrecisionConfig(b_mx_scale=scales.mT.contiguous(), b_microblock_size=32)
    metadata = None
    if ragged:
        metadata = slices.make_ragged_tensor_metadata(torch.tensor(sizes, dtype=torch.int32), rows)
    bias = torch.randn(len(sizes), columns)
    chosen = flags.OptFlags(
        block_m=32, block_n=32, block_k=64, num_warps=4, num_stages=2, group_m=4, xcd_swizzle=1,
        w_cache_modifier=None, split_k=1, is_persistent=persistent, idle_sms=0, epilogue_subtile=1,
        arch=None, occupancy_target=1,
        target_kernel_kwargs={"maxnreg": None, "FLATTEN_LOOPS": True},
    )  # fmt: skip
    with flags.scoped_opt_flags(chosen):
        found = product.matmul(x, weights, bias, metadata, precision_config=config)
    start = 0
    for number, size in enumerate(sizes):
        part = slice(start, start + size)
        close(found.view(rows, columns)[part], x[part].float() @ exact[number] + bias[number], 3e-2)
        start += size


@pytest.mark.ladder(41)
@pytest.mark.parametrize("kind", ["float16", "float8", "int8"])
def test_products_of_experts(source, without, as_on_a_gpu, kind):
    layers = "vllm.model_executor.layers.fused_moe"
    # Modules that the rest of the file asks for and its kernel does not.
    without(*ABSENT, "vllm._custom_ops")
    without(*(f"{layers}.{name}" for name in ("modular_kernel", "config", "utils")))
    module = source(VLLM, f"{layers}.fused_moe")
    tokens, experts, columns, depth, block = 50, 4, 96, 128, 16
    x, weights = torch.randn(tokens, depth).half(), torch.randn(experts, columns, depth).half()
    chosen = torch.rand(tokens, experts).topk(2).indices
    # The places of each expert's tokens, with as many that there are not as fill a block.
    places, owners = [], []
    for expert in range(experts):
        own = (chosen.flatten() == expert).nonzero()[:, 0]
        more = -len(own) % block
        places += [own, torch.full((more,), chosen.numel())]
        owners += [expert] * ((len(own) + more) // block)
    places = torch.cat(places).int()
    scales = {}
    if kind != "float16":
        largest, dtype = (448, torch.float8_e4m3fn) if kind == "float8" else (127, torch.int8)
        scales["A_scale"] = (x.float().abs().amax() / largest)[None]
        scales["B_scale"] = weights.float().abs().amax((1, 2)) / largest
        x = (x / scales["A_scale"]).float().round().to(dtype)
        weights = (weights / scales["B_scale"][:, None, None]).float().round().to(dtype)
    out = torch.zeros(tokens, 2, columns, dtype=torch.float16)
    mixed = torch.rand(tokens, 2)
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
    module.fused_moe_kernel[(len(owners) * 2,)](
        *(x, weights, out, None, scales.get("A_scale"), scales.get("B_scale"), mixed, places),
        *(torch.tensor(owners, dtype=torch.int32), torch.tensor([len(places)], dtype=torch.int32)),
        *(columns, depth, len(places), chosen.numel(), *x.stride()),
        *(weights.stride(0), weights.stride(2), weights.stride(1), *out.stride()[1:]),
        *(0, 0, int(bool(scales)), 0, 0, 0, 0, 0, 0, False),
        **dict(zip(names, (block, 64, 32, 2), strict=True)),
        SPLIT_K=1, MUL_ROUTED_WEIGHT=True, top_k=2, compute_type=module.tl.float16,
        use_fp8_w8a8=kind == "float8", use_int8_w8a8=kind == "int8", use_int8_w8a16=False,
        per_channel_quant=False, HAS_BIAS=False, SWAP_AB=False,
    )  # fmt: skip
    expected = torch.einsum("td,tknd->tkn", x.float(), weights.float()[chosen])
    if scales:
        expected *= scales["A_scale"] * scales["B_scale"][chosen][..., None]
    close(out, expected * mixed[..., None], 2e-2)


@pytest.mark.ladder(43)
@pytest.mark.parametrize("mode", ["floor", "rceil"])
@pytest.mark.parametrize("across", [0, 1])
def test_quantising_in_blocks_of_32(package, device, monkeypatch, mode, across):
    if mode == "rceil" and device == "cuda":
        pytest.skip("its inline assembly is for Blackwell")
    # The kernels are there where PyTorch sees Blackwell, and says that it can use Triton.
    needed = package("torchao.utils")
    assert package("torch.utils._triton").has_triton()
    with monkeypatch.context() as patch:
        for name in ("is_sm_at_least_100", "is_cuda_version_at_least"):
            patch.setattr(needed, name, lambda *_: True)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        module = package("torchao.prototype.mx_formats.kernels")
    reference = package("torchao.prototype.mx_formats.mx_tensor").to_mx
    scaling = package("torchao.prototype.mx_formats.config").ScaleCalculationMode(mode)
    x = torch.randn(128, 256).bfloat16() * 10
    kernel = getattr(module, f"to_mxfp8_dim{across}_kernel")
    monkeypatch.setattr(kernel, "configs", kernel.configs[:1])
    found, scales = getattr(module, f"triton_to_mxfp8_dim{across}")(x, 32, mode)
    turned = x.T.contiguous() if across else x
    expected_scales, expected = reference(turned, torch.float8_e4m3fn, 32, scaling_mode=scaling)
    expected = expected.T if across else expected
    assert torch.equal(scales.view(torch.uint8), expected_scales.view(torch.uint8))
    assert torch.equal(found.float(), expected.float())


@pytest.mark.ladder(43)
def test_largest_experts(package):
    module = package("triton_kernels.topk")
    x = torch.randn(65, 128).half()
    found, expected = module.topk(x, 4), module.topk_torch(x, 4)
    assert torch.equal(found.indx.int(), expected.indx.int())
    close(found.vals, expected.vals, 1e-3)


@pytest.mark.ladder(43)
def test_masked_sums(package):
    module = package("triton_kernels.reduce")
    x, mask = torch.randn(7, 33, 64), torch.rand(7, 33, 64) < 0.5
    found, _ = module.reduce(x, dim=0, mask=mask, x_flex=None, y_flex=None)
    expected, _ = module.reduce_torch(x, dim=0, mask=mask, x_flex=None, y_flex=None)
    close(found, expected, 1e-5)


@pytest.mark.ladder(43)
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


@pytest.fixture
def sampling(source, without, device, as_on_a_gpu, monkeypatch):
    without(*ABSENT)
    module = source(VLLM, "vllm.v1.sample.ops.topk_topp_triton")
    # Asks the platform, which has no answer for CPUs.
    monkeypatch.setattr(module, "num_compute_units", lambda _: 4)
    platform = types.SimpleNamespace(is_cuda_alike=lambda: device == "cuda")
    monkeypatch.setattr(module, "current_platform", platform)
    return module


def likely(values, k, p):
    """Which of a row's values are kept: k, and of these the largest whose probabilities make p."""
    kept = values >= values.topk(k).values[-1]
    ordered, places = values.masked_fill(~kept, -torch.inf).sort()
    kept[places[ordered.softmax(0).cumsum(0) <= 1 - p]] = False
    return kept


@pytest.mark.ladder(41)
def test_likely_tokens(sampling):
    logits = torch.randn(5, 1000)
    k, p = torch.tensor([1, 5, 50, 1000, 20]), torch.tensor([1.0, 0.9, 0.5, 0.3, 0.8])
    found = sampling.apply_top_k_top_p_triton(logits.clone(), k, p)
    for row, values in enumerate(logits):
        assert torch.equal(found[row].isfinite(), likely(values, int(k[row]), p[row])), row


@pytest.mark.ladder(41)
def test_likely_tokens_of_split_rows(sampling):
    logits, p = torch.randn(3, 5000) * 3, torch.tensor([0.9, 1.0, 0.5])
    found = logits.clone()
    sampling._apply_topp_split(found, None, p, -torch.inf, 12)
    for row, values in enumerate(logits):
        assert torch.equal(found[row].isfinite(), likely(values, 5000, p[row])), row
