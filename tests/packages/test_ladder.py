"""Small kernels of published packages: element by element, sums, tables, images, bits.

The packages are as they come from PyPI. References are PyTorch's own functions, or those that a
package brings along. The entries are listed in `ladder.py`.
"""

import pytest

from tests.packages.ladder import F, close, torch

# Packages warn about themselves and about each other.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("on_device"),
]


@pytest.mark.ladder(1)
def test_swiglu(package):
    x, gate = torch.randn(2, 33, 100, dtype=torch.float16)
    found = package("kernels.swiglu").swiglu_triton(x, gate)
    close(found, x.float() * F.silu(gate.float()), 2e-3)


@pytest.mark.ladder(2)
def test_softmax(package):
    x = torch.randn(7, 1000)
    close(package("kernels.softmax").softmax_triton(x), x.softmax(-1), 1e-6)


@pytest.mark.ladder(3)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_silu_and_product(package, dtype):
    x = torch.randn(4, 20, 2 * 855, dtype=getattr(torch, dtype))
    found = package("conch.ops.activation.silu_and_mul").silu_and_mul(x)
    reference = package("conch.reference.activation.silu_and_mul").silu_and_mul
    close(found, reference(x), 1e-3 if dtype != "bfloat16" else 2e-2)


@pytest.mark.ladder(4)
def test_norms(package):
    x, residual = torch.randn(2, 50, 1024).half()
    weights = torch.randn(1024).half()
    ours = package("conch.ops.normalization.rms_norm")
    theirs = package("conch.reference.normalization.rms_norm")
    close(ours.rms_norm(x, weights, 1e-6), theirs.rms_norm(x, weights, 1e-6), 2e-3)
    found = ours.fused_add_rms_norm(x.clone(), residual.clone(), weights, 1e-6)
    expected = theirs.fused_add_rms_norm(x.clone(), residual.clone(), weights, 1e-6)
    for mine, other in zip(found, expected, strict=True):
        close(mine, other, 5e-3)
    ours = package("conch.ops.normalization.gemma_rms_norm").gemma_rms_norm
    theirs = package("conch.reference.normalization.gemma_rms_norm").gemma_rms_norm
    found = ours(x.clone(), weights, 1e-6, residual=None)
    close(found, theirs(x, weights, 1e-6, residual=None), 2e-3)


@pytest.mark.ladder(6)
@pytest.mark.parametrize("columns", [1000, 40_000])
def test_softmax_and_its_gradient(package, columns):
    function = package("liger_kernel.ops.softmax").LigerSoftmaxFunction
    mine, theirs = (torch.randn(3, columns).requires_grad_() for _ in range(2))
    theirs.data.copy_(mine.data)
    weights = torch.randn(3, columns)
    found, expected = function.apply(mine), theirs.softmax(-1)
    close(found, expected, 1e-6)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    close(mine.grad, theirs.grad, 1e-6)


@pytest.mark.ladder(6)
def test_rotary_embeddings(package):
    function = package("liger_kernel.ops.rope").LigerRopeFunction
    q, k = torch.randn(2, 4, 33, 64), torch.randn(2, 2, 33, 64)
    angles = torch.arange(33)[:, None] * 10_000 ** -(torch.arange(32) / 32)
    angles = torch.cat([angles, angles], -1)[None]
    cos, sin = angles.cos(), angles.sin()

    def turned(x):
        low, high = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-high, low], -1) * sin[:, None]

    expected = turned(q), turned(k)
    for found, other in zip(function.apply(q, k, cos, sin), expected, strict=True):
        close(found, other, 1e-5)


@pytest.mark.ladder(7)
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


@pytest.mark.ladder(8)
def test_flipped_images(package, as_on_a_gpu):
    module = package("triton_augment.functional")
    images = torch.rand(3, 3, 20, 31)
    found = module.horizontal_flip(images, torch.tensor([1, 0, 1], dtype=torch.bool))
    close(found[::2], images[::2].flip(-1), 0)
    close(found[1], images[1], 0)


@pytest.mark.ladder(8)
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


@pytest.mark.ladder(8)
def test_images_changed_at_once(package, as_on_a_gpu):
    module = package("triton_augment.functional")
    images = torch.rand(2, 3, 24, 30)
    flips, grey = torch.tensor([True, False]), torch.tensor([False, True])
    found = module.fused_augment(
        images, 3, 5, 16, 20,
        flip_horizontal=flips, brightness_factor=1.2, saturation_factor=0.5, grayscale=grey,
        mean=(0.5, 0.4, 0.3), std=(0.5, 0.6, 0.7),
    )  # fmt: skip
    expected = images[:, :, 3:19, 5:25].clone()
    expected[0] = expected[0].flip(-1)
    expected = (expected * 1.2).clamp(0, 1)
    grey_of = module.rgb_to_grayscale
    expected = (0.5 * expected + 0.5 * grey_of(expected, num_output_channels=3)).clamp(0, 1)
    expected[1] = grey_of(expected[1:], num_output_channels=3)
    close(found, module.normalize(expected, (0.5, 0.4, 0.3), (0.5, 0.6, 0.7)), 1e-5)


@pytest.mark.ladder(14)
def test_offsets_of_groups(package):
    experts = torch.randint(8, (5000,))
    found = package("moe_ops.permute_ops")._group_offsets(experts, 8)
    counts = torch.bincount(experts, minlength=8).cumsum(0)
    assert found.tolist() == [0, *counts.tolist()]


@pytest.mark.ladder(15)
def test_softmax_of_the_largest(package):
    module = package("moe_ops.fused_topk_softmax_ops")
    logits = torch.randn(300, 24)
    weights, indices = module._fused_topk_softmax_fwd(logits, 6)
    expected, places = logits.topk(6)
    assert torch.equal(indices.long(), places)
    close(weights, expected.softmax(-1), 1e-6)


@pytest.mark.ladder(19)
@pytest.mark.parametrize("boxes", [10, 400])
def test_overlapping_boxes(package, boxes):
    corners = torch.rand(boxes, 4) * 100
    corners[:, 2:] += corners[:, :2]
    scores = torch.rand(boxes)
    found = package("conch.ops.vision.nms").nms(corners, scores, 0.3)
    expected = package("conch.reference.vision.nms").nms(corners, scores, 0.3)
    assert torch.equal(found, expected)


@pytest.mark.ladder(19)
def test_points_in_voxels(package):
    ours = package("conch.ops.vision.voxelization")
    theirs = package("conch.reference.vision.voxelization")
    bound = 50.0
    points = torch.randn(3000, 4) * bound
    grid = ours.VoxelizationParameter((-bound,) * 3, (bound,) * 3, (5.0,) * 3, 4)
    filled, _, indices, counts = ours.generate_voxels(points, grid)
    x, y, z = indices[: filled[0], :3].long().T
    flat, order = ((z * grid.grid_dim[1] + y) * grid.grid_dim[0] + x).sort()
    expected_counts, _, expected = theirs.voxelization_stable(points, grid, use_triton=False)
    assert torch.equal(flat, expected.long())
    assert torch.equal(counts[: filled[0]][order], expected_counts.clamp(max=4))


@pytest.mark.ladder(19)
def test_sums_of_cells(package):
    ours = package("conch.ops.vision.bev_pool")
    theirs = package("conch.reference.vision.bev_pool")
    features = torch.randn(500, 10)
    cells = torch.stack([torch.randint(high, (500,)) for high in (4, 5, 3, 2)], 1).int()
    ranks = cells[:, 0] * 30 + cells[:, 1] * 6 + cells[:, 2] * 2 + cells[:, 3]
    ranks, order = ranks.sort(stable=True)
    features, cells = features[order], cells[order]
    starts = torch.cat([torch.ones(1).bool(), ranks[1:] != ranks[:-1]]).nonzero()[:, 0].int()
    lengths = torch.diff(starts, append=torch.tensor([500], dtype=torch.int32))
    sizes = {"batch_size": 2, "grid_cells_z": 3, "grid_cells_x": 4, "grid_cells_y": 5}
    found = ours.bev_pool(features, cells, starts, lengths, **sizes)
    close(found, theirs.bev_pool(features, cells, starts, lengths, **sizes), 1e-5)
    gradient = torch.randn(found.shape)
    found = ours.bev_pool_backward(gradient, cells, starts, lengths)
    close(found, theirs.bev_pool_backward(gradient, cells, starts, lengths, **sizes), 1e-5)


@pytest.mark.ladder(20)
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


@pytest.mark.ladder(21)
def test_belief_propagation(package, device):
    pytest.importorskip("scipy")
    checks = (torch.rand(30, 80) < 0.1).cpu().numpy().astype("uint8")
    checks[:, 0], checks[0] = 1, 1
    # The reference sends 0 where the two smallest messages are equal, the kernel their size.
    priors = (0.02 + 0.06 * torch.rand(80)).cpu().numpy()
    syndromes = (torch.rand(40, 30) < 0.3).cpu().numpy()
    mine = package("tridec.backends.bp_triton").BpTriton(checks, priors)
    found = mine.run_iterations_batch(syndromes, n_iter=3, device=device)
    theirs = package("tridec.backends.bp_numpy").BpBaseline(checks, priors)
    for row, syndrome in zip(found, syndromes, strict=True):
        expected = theirs.run_iterations(syndrome, n_iter=3)["posterior"]
        close(torch.as_tensor(row), torch.as_tensor(expected), 1e-3)


@pytest.mark.ladder(39)
@pytest.mark.parametrize("name", ["cumsum_long", "sort", "var_rows", "softmax"])
def test_kernels_that_inductor_generates(device, name, monkeypatch, tmp_path):
    # These are some of a long list, which the tests of torch.compile go through.
    sweep = pytest.importorskip("tests.inductor.sweep")
    if not pytest.importorskip("torch._inductor.runtime.triton_compat").HAS_TRITON:
        pytest.skip("PyTorch has looked for Triton before the alias was there, in another test")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with sweep.configured(), torch.device("cpu"):
        assert sweep.check(name, device) > 0
