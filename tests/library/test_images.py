"""Augmentation of images, beside torchvision's formulas in plain PyTorch."""

import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.library.checking import compiles, examples, holds_contracts
from tilewright.kernels import images

F = torch.nn.functional


def batch(shape=(2, 3, 17, 23), dtype="uint8", device="cpu"):
    if dtype == "uint8":
        return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
    return torch.rand(shape, device=device).to(getattr(torch, dtype))


def rounded(x, like):
    return (
        x.round().clamp(0, 255).to(torch.uint8) if like.dtype == torch.uint8 else x.to(like.dtype)
    )


def assert_images(actual, expected, levels=0):
    """Equal: of uint8 within `levels`, of floats within a rounding of their numbers."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    allowed = {torch.uint8: levels, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
    difference = (actual.double() - expected.double()).abs().max().item()
    assert difference <= allowed[actual.dtype]


# ---- the references -------------------------------------------------------------------------


def resize(x, size, interpolation, antialias):
    flags = {} if interpolation == "nearest" else {"antialias": antialias}
    return rounded(F.interpolate(x.float(), size, mode=interpolation, **flags), x)


def inverse_matrix(angle, translate, scale, shear):
    """From a place in the result to one in the image, around the middle."""
    turn, (x, y) = math.radians(angle), map(math.radians, shear)
    a, c = math.cos(turn - y) / math.cos(y), math.sin(turn - y) / math.cos(y)
    b, d = -a * math.tan(x) - math.sin(turn), -c * math.tan(x) + math.cos(turn)
    forward = [
        [scale * a, scale * b, translate[0]],
        [scale * c, scale * d, translate[1]],
        [0, 0, 1],
    ]
    return torch.tensor(forward, dtype=torch.float64).inverse()[:2]


def affine(x, matrix, interpolation, fill):
    """`matrix` for each image, or for all."""
    height, width = x.shape[-2:]
    matrix = matrix.float().to(x.device).expand(len(x), 2, 3)
    half = torch.tensor([width / 2, height / 2], device=x.device)
    ys = torch.arange(height, device=x.device) - (height - 1) / 2
    xs = torch.arange(width, device=x.device) - (width - 1) / 2
    places = torch.stack([xs.expand(height, width), ys[:, None].expand(height, width)], -1)
    moved = torch.einsum("hwj,nij->nhwi", places, matrix[..., :2]) + matrix[:, None, None, :, 2]
    flags = {"mode": interpolation, "padding_mode": "zeros", "align_corners": False}
    y = F.grid_sample(x.float(), moved / half, **flags)
    if fill is not None:
        mask = F.grid_sample(torch.ones_like(x.float()), moved / half, **flags)
        if interpolation == "nearest":
            y = torch.where(mask < 0.5, torch.tensor(fill, device=x.device), y)
        else:
            y = (y - fill) * mask + fill
    return rounded(y, x)


def gray(x):
    r, g, b = x.float().unbind(-3)
    light = 0.2989 * r + 0.587 * g + 0.114 * b
    return (light.floor() if x.dtype == torch.uint8 else light).unsqueeze(-3)


def blend(x, other, ratio):
    bound = 255 if x.dtype == torch.uint8 else 1
    return (ratio * x.float() + (1 - ratio) * other).clamp(0, bound).to(x.dtype)


def brightness(x, factor):
    return blend(x, torch.zeros_like(x.float()), factor)


def contrast(x, factor):
    return blend(x, gray(x).mean((-1, -2), keepdim=True), factor)


def saturation(x, factor):
    return blend(x, gray(x), factor)


def hue(x, turn):
    whole = x.dtype == torch.uint8
    r, g, b = (x.float() / 255 if whole else x.float()).unbind(-3)
    value, low = torch.stack([r, g, b]).amax(0), torch.stack([r, g, b]).amin(0)
    spread = value - low
    divisor = torch.where(spread == 0, torch.ones_like(spread), spread)
    s = spread / torch.where(spread == 0, torch.ones_like(value), value)
    rc, gc, bc = ((value - c) / divisor for c in (r, g, b))
    h = torch.where(value == r, bc - gc, torch.where(value == g, 2 + rc - bc, 4 + gc - rc))
    h = ((h / 6 + 1).fmod(1) + turn) % 1
    i = (h * 6).floor()
    f = h * 6 - i
    p, q, t = ((value * (1 - s * k)).clamp(0, 1) for k in (torch.ones_like(f), f, 1 - f))
    sixths = [
        (value, t, p),
        (q, value, p),
        (p, value, t),
        (p, q, value),
        (t, p, value),
        (value, p, q),
    ]
    y = torch.zeros_like(x, dtype=torch.float32)
    for sector, channels in enumerate(sixths):
        y = torch.where((i % 6 == sector).unsqueeze(-3), torch.stack(channels, -3), y)
    return (y * (256 - 1e-3)).to(torch.uint8) if whole else y.to(x.dtype)


CHANGES = (brightness, contrast, saturation, hue)


def jitter(x, numbers):
    """`numbers` of one image: the order, and the amounts."""
    for which in numbers[:4].int().tolist():
        x = CHANGES[which](x, numbers[4 + which].item())
    return x


# ---- single stages --------------------------------------------------------------------------


@pytest.mark.slow
@given(
    # PyTorch repeats the first row of antialiased floats where a result is one pixel wide.
    size=st.tuples(st.integers(1, 30), st.integers(2, 30)),
    interpolation=st.sampled_from(["nearest", "bilinear", "bicubic"]),
    antialias=st.booleans(),
    dtype=st.sampled_from(["uint8", "float32"]),
)
@examples(12)
def test_sizes_and_filters(device, size, interpolation, antialias, dtype):
    x = batch(dtype=dtype, device=device)
    expected = resize(x, size, interpolation, antialias)
    # A sum in another order may fall on the other side of a half.
    assert_images(images.resize(x, size, interpolation, antialias=antialias), expected, levels=1)


def test_resize(device):
    x = batch(device=device)
    for arguments in [((9, 40), "bicubic", True), ((9, 40), "bilinear", False)]:
        *places, antialias = arguments
        actual = images.resize(x, *places, antialias=antialias)
        assert_images(actual, resize(x, *arguments), levels=1)


@pytest.mark.parametrize(("shape", "size"), [((17, 23), (6, 8)), ((23, 17), (8, 6))])
def test_one_number_is_the_shorter_side(device, shape, size):
    x = batch((2, 3, *shape), device=device)
    assert_images(images.resize(x, 6), resize(x, size, "bilinear", True), levels=1)
    assert_images(images.Compose([images.Resize(6)])(x), images.resize(x, size))


def test_resized_crop(device):
    x = batch(device=device)
    expected = resize(x[:, :, 3:13, 2:20], (8, 9), "bilinear", True)
    assert_images(images.resized_crop(x, 3, 2, 10, 18, (8, 9)), expected, levels=1)
    assert_images(images.crop(x, 3, 2, 10, 18), x[:, :, 3:13, 2:20])


def test_flips_and_erasing(device):
    x = batch(device=device)
    assert_images(images.horizontal_flip(x), x.flip(-1))
    assert_images(images.vertical_flip(x), x.flip(-2))
    expected = x.clone()
    expected[:, :, 2:6, 5:20] = torch.tensor([1, 2, 3], device=device)[:, None, None]
    assert_images(images.erase(x, 2, 5, 4, 15, (1, 2, 3)), expected)


@pytest.mark.parametrize(
    ("interpolation", "fill"),
    [
        ("nearest", 0.25),
        ("bilinear", None),
        pytest.param("nearest", None, marks=pytest.mark.slow),
        pytest.param("bilinear", 0.25, marks=pytest.mark.slow),
    ],
)
def test_affine(device, interpolation, fill):
    x = batch(dtype="float32", device=device)
    matrix = inverse_matrix(20, (3, -2), 1.3, (10, -5))
    actual = images.affine(x, 20, (3, -2), 1.3, (10, -5), interpolation, fill)
    assert_images(actual, affine(x, matrix, interpolation, fill))
    actual = images.rotate(x, 33, interpolation, fill=fill)
    matrix = inverse_matrix(-33, (0, 0), 1, (0, 0))
    assert_images(actual, affine(x, matrix, interpolation, fill))


DTYPES = ["uint8", pytest.param("float32", marks=pytest.mark.slow)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_color(device, dtype):
    x = batch(dtype=dtype, device=device)
    x[:, 1, :5] = x[:, 0, :5]  # some with two equal channels, and gray ones
    x[:, 2, :3] = x[:, 0, :3]
    pairs = [
        (images.adjust_brightness, brightness, 1.4),
        (images.adjust_contrast, contrast, 0.3),
        (images.adjust_saturation, saturation, 1.7),
        (images.adjust_hue, hue, -0.2),
    ]
    for function, reference, factor in pairs:
        assert_images(function(x, factor), reference(x, factor), levels=1)


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_normalize(device, dtype):
    x = batch(dtype=dtype, device=device)
    mean, std = (torch.tensor(t, device=device) for t in ([0.5, 0.4, 0.3], [0.5, 1.0, 0.25]))
    y = x.float() / 255 if dtype == "uint8" else x.float()
    y = (y - mean[:, None, None]) / std[:, None, None]
    expected = y if dtype == "uint8" else y.to(x.dtype)
    actual = images.normalize(x, mean.tolist(), std.tolist())
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected)
    assert torch.equal(images.normalize(x, mean, std), actual)
    same = images.normalize(x, [0.5] * 3, [0.25] * 3)
    assert torch.equal(images.normalize(x, 0.5, 0.25), same)


# ---- pipelines ------------------------------------------------------------------------------

PIPELINE = [
    images.RandomResizedCrop((12, 10)),
    images.RandomHorizontalFlip(),
    images.ColorJitter(0.4, 0.4, 0.4, 0.1),
    images.RandomRotation(30.0, "bilinear"),
    images.Normalize((0.5, 0.4, 0.3), (0.5, 1.0, 0.25)),
    images.RandomErasing(0.8, value=0.5),
    images.MixUp(0.4),
]


def one_after_another(x, table):
    """The pipeline with the numbers that have been drawn, an image and a stage at a time."""
    results = []
    for image, row in zip(x.unsqueeze(1), table.cpu(), strict=True):
        crop, flip, colors, matrix, hole, mixed = row.split([4, 1, 8, 6, 4, 1])
        top, left, height, width = crop.int().tolist()
        y = image[..., top : top + height, left : left + width]
        y = resize(y, (12, 10), "bilinear", True)
        y = y.flip(-1) if flip.item() else y
        y = affine(jitter(y, colors), matrix.view(2, 3), "bilinear", 0.0)
        y = y.float() / 255 if x.dtype == torch.uint8 else y
        mean, std = (torch.tensor(t, device=x.device) for t in ([0.5, 0.4, 0.3], [0.5, 1.0, 0.25]))
        y = (y - mean[:, None, None]) / std[:, None, None]
        top, left, height, width = hole.int().tolist()
        y[..., top : top + height, left : left + width] = 0.5
        results.append(y)
    y = torch.cat(results)
    return mixed.item() * y + (1 - mixed.item()) * y.roll(1, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pipeline_is_its_stages_one_after_another(device, dtype):
    pipeline = images.Compose(PIPELINE)
    x = batch((5, 3, 25, 31), dtype, device)
    table = pipeline.parameters(x, 7)
    expected = one_after_another(x, table)
    # A level of uint8 here and there, which a change of contrast or of saturation makes two.
    allowed = 3 * 4 / 255 if dtype == "uint8" else 1e-4
    assert (pipeline(x, 7) - expected).abs().max() < allowed
    assert (pipeline(x, 7) - expected).abs().mean() < allowed / 20


def test_layouts_and_seeds(device):
    stages = [images.RandomCrop((9, 11)), images.RandomVerticalFlip(), images.ToFloat()]
    x = batch((8, 3, 25, 31), device=device)
    expected = images.Compose(stages)(x, 7)
    other = images.Compose(stages, layout="NHWC")(x.permute(0, 2, 3, 1), 7)
    torch.testing.assert_close(other.permute(0, 3, 1, 2), expected, rtol=0, atol=0)
    again = images.Compose(stages)(x.contiguous(memory_format=torch.channels_last), 7)
    torch.testing.assert_close(again, expected, rtol=0, atol=0)
    assert not torch.equal(images.Compose(stages)(x, 8), expected)


def test_every_call_draws_anew(device):
    pipeline = images.Compose([images.RandomCrop((9, 11)), images.RandomHorizontalFlip()])
    x = batch((8, 3, 25, 31), device=device)
    first = pipeline(x)
    assert not torch.equal(pipeline(x), first)
    assert not torch.equal(pipeline.parameters(x), pipeline.parameters(x))
    assert not np.array_equal(pipeline(x.cpu().numpy()), pipeline(x.cpu().numpy()))
    torch.manual_seed(5)
    once = pipeline(x), pipeline(x)
    torch.manual_seed(5)
    again = pipeline(x), pipeline(x)
    torch.testing.assert_close(again, once, rtol=0, atol=0)
    seed = torch.tensor([7], device=device)
    torch.testing.assert_close(pipeline(x, seed), pipeline(x, 7), rtol=0, atol=0)


def test_what_is_not_random_leaves_the_generator(device):
    x = batch(device=device)
    torch.manual_seed(5)
    expected = torch.rand(3, device=device)
    torch.manual_seed(5)
    images.horizontal_flip(x)
    images.Compose([images.CenterCrop(4)])(x)
    assert torch.equal(torch.rand(3, device=device), expected)


def test_what_is_drawn_is_spread(device):
    stages = [
        images.RandomHorizontalFlip(0.3),
        images.RandomCrop((20, 20)),
        images.RandomResizedCrop((8, 8), (0.2, 0.6), (0.7, 1.4)),
        images.ColorJitter(0.5, hue=0.1),
    ]
    x = torch.zeros((4000, 1, 30, 40), dtype=torch.uint8, device=device)
    table = images.Compose(stages).parameters(x, 11)
    assert table[:, 0].mean().item() == pytest.approx(0.3, abs=0.03)
    assert set(table[:, 1].tolist()) == set(range(11))
    height, width = table[:, 5], table[:, 6]
    assert (height * width / 400).mean().item() == pytest.approx(0.4, abs=0.03)
    assert torch.equal(
        (table[:, 3] >= 0) & (table[:, 3] + height <= 20), torch.ones_like(height) > 0
    )
    assert sorted({tuple(row) for row in table[:, 7:11].int().tolist()}) == sorted(
        itertools.permutations(range(4))
    )
    assert table[:, 11].min() >= 0.5
    assert table[:, 11].max() <= 1.5


def test_images_of_proportions_that_no_part_has(device):
    pipeline = images.Compose([images.RandomResizedCrop((2, 2), (0.9, 1.0), (1.0, 1.0))])
    wide = torch.zeros((3, 1, 4, 20), device=device)
    expected = torch.tensor([[0.0, 8.0, 4.0, 4.0]], device=device).expand(3, 4)
    assert torch.equal(pipeline.parameters(wide), expected)
    tall = torch.zeros((3, 1, 20, 4), device=device)
    expected = torch.tensor([[8.0, 0.0, 4.0, 4.0]], device=device).expand(3, 4)
    assert torch.equal(pipeline.parameters(tall), expected)


def test_contracts_with_pytorch(device):
    pipeline = images.Compose([images.RandomHorizontalFlip(), images.ColorJitter(0.3, 0.3)])
    x = batch((2, 3, 5, 6), device=device)
    table = pipeline.parameters(x, 3)
    text, operators = pipeline._text, torch.ops.tilewright
    seed = torch.tensor([3], device=device)
    holds_contracts(operators.image_parameters.default, x, seed, text, "NCHW")
    holds_contracts(operators.image_pipeline.default, x, table, text, "NCHW")
    torch.compiler.reset()
    compiled = torch.compile(pipeline, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, 3), pipeline(x, 3), rtol=0, atol=0)
    assert pipeline(x[:0]).shape == (0, 3, 5, 6)


FUNCTIONS = {
    "adjust_brightness": (1.5,),
    "adjust_contrast": (0.3,),
    "adjust_hue": (0.1,),
    "adjust_saturation": (0.3,),
    "affine": (20, (1, 2), 1.2, (1, 2)),
    "crop": (1, 1, 3, 2),
    "erase": (1, 1, 2, 2, (1, 2, 3)),
    "horizontal_flip": (),
    "normalize": ([0.5, 0.4, 0.3], 0.5),
    "resize": (5,),
    "resized_crop": (1, 1, 4, 4, (2, 3)),
    "rotate": (30,),
    "vertical_flip": (),
}


EVERYDAY = {"horizontal_flip", "normalize", "resize"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in EVERYDAY else [pytest.mark.slow]) for n in FUNCTIONS],
)
def test_functions_compile(device, name):
    function, arguments = getattr(images, name), FUNCTIONS[name]
    compiles(lambda x: function(x, *arguments), batch((2, 3, 9, 8), device=device))


def test_every_function_is_compiled():
    functions = [name for name in images.__all__ if inspect.isfunction(getattr(images, name))]
    assert sorted(FUNCTIONS) == functions


def test_factors_that_change_between_compiled_calls(device):
    torch.compiler.reset()
    compiled = torch.compile(
        lambda x, factor, top: images.crop(images.adjust_brightness(x, factor), top, 0, 3, 4),
        fullgraph=True,
        backend="aot_eager",
    )
    x = batch(device=device)
    for factor, top in [(0.5, 1), (0.75, 2)]:
        expected = images.crop(images.adjust_brightness(x, factor), top, 0, 3, 4)
        assert torch.equal(compiled(x, factor, top), expected)


def test_a_pipeline_that_is_made_in_a_compiled_function(device):
    def augmented(x, seed=None):
        return images.Compose([images.RandomCrop(4), images.ColorJitter(0.4), images.ToFloat()])(
            x, seed
        )

    x = batch((6, 3, 17, 23), device=device)
    compiles(lambda x: augmented(x, 3), x)
    compiled = torch.compile(augmented, fullgraph=True, backend="aot_eager")
    first = compiled(x)
    assert not torch.equal(compiled(x), first)
    torch.manual_seed(5)
    once = compiled(x)
    torch.manual_seed(5)
    torch.testing.assert_close(compiled(x), once, rtol=0, atol=0)


def test_numpy_arrays():
    x = batch((5, 3, 25, 31))
    pipeline = images.Compose(PIPELINE)
    np.testing.assert_array_equal(pipeline(x.numpy(), 7), pipeline(x, 7).numpy())


def test_on_an_emulated_gpu():
    x = batch((2, 3, 9, 11)).numpy()
    stages = [
        images.RandomResizedCrop((6, 6)),
        images.RandomHorizontalFlip(),
        images.ColorJitter(0.4, 0.4),
        images.ToFloat(),
        images.MixUp(0.4),
    ]
    expected = images.Compose(stages)(x, 7)
    with tw.emulate("sm_90a", races=True):
        actual = images.Compose(stages)(x, 7)
    np.testing.assert_allclose(actual, expected, atol=3.01 / 255)


def test_arguments_that_cannot_be():
    x = batch()
    with pytest.raises(TypeError, match="`images` is of int64"):
        images.horizontal_flip(x.long())
    with pytest.raises(ValueError, match="`images` has 3 dimensions; 4 are needed, NCHW"):
        images.horizontal_flip(x[0])
    with pytest.raises(ValueError, match="is not inside images of 17 x 23"):
        images.crop(x, 10, 0, 8, 4)
    with pytest.raises(ValueError, match="`images` has 2 channels; ColorJitter needs 1 or 3"):
        images.adjust_hue(x[:, :2], 0.1)
    with pytest.raises(ValueError, match=r"`hue_factor` is 0\.9; a number from -0\.5 to 0\.5"):
        images.adjust_hue(x, 0.9)
    with pytest.raises(ValueError, match="`brightness_factor` is -1"):
        images.adjust_brightness(x, -1)
    with pytest.raises(ValueError, match="`interpolation` is 'area'"):
        images.resize(x, (3, 3), "area")
    with pytest.raises(ValueError, match="is not for images of 3 channels"):
        images.normalize(x, [0.5], [0.5])
    with pytest.raises(TypeError, match="Normalize: `mean` is None; a number for all channels"):
        images.normalize(x, None, 0.5)
    with pytest.raises(ValueError, match="is not for images of 3 channels"):
        images.normalize(x, 0.5, [0.5, 0.5])
    with pytest.raises(ValueError, match="a height and a width are needed"):
        images.resize(x, (3, 3, 3))
    with pytest.raises(ValueError, match=r"is for images with pixels, not of \(0, 23\)"):
        images.resize(x[:, :, :0], (3, 3))
    with pytest.raises(ValueError, match="`layout` is 'CHW'"):
        images.Compose([], layout="CHW")
    with pytest.raises(ValueError, match="RandomVerticalFlip: `p` is 2; it has to be from 0 to 1"):
        images.RandomVerticalFlip(2)
    with pytest.raises(TypeError, match="RandomErasing: `p` has to be a number"):
        images.RandomErasing("x")
    with pytest.raises(ValueError, match="MixUp: `alpha` is 0; it has to be above 0"):
        images.MixUp(0)


@pytest.mark.parametrize(
    "stage",
    [images.RandomHorizontalFlip, lambda x: x, torch.nn.ReLU()],
    ids=["class", "f", "module"],
)
def test_what_is_no_stage(stage):
    needed = r"a stage is needed, such as RandomHorizontalFlip\(\)"
    with pytest.raises(TypeError, match=needed):
        images.Compose([images.ToFloat(), stage])


def test_no_derivative(device):
    """As of every operation without one: an error in the backward pass, and no zeros."""
    x = batch(dtype="float32", device=device).requires_grad_()
    assert not images.Compose([images.RandomHorizontalFlip()]).parameters(x).requires_grad
    with pytest.raises(NotImplementedError, match="image_pipeline has no derivative"):
        images.normalize(x, 0.5, 0.25).sum().backward()


@pytest.mark.parametrize("alpha", [0.2, 1, 4.0])
def test_shares_of_mixes_are_of_the_beta_distribution(device, alpha):
    x = torch.zeros((1, 1, 1, 1), device=device)
    pipeline = images.Compose([images.MixUp(alpha)])
    shares = torch.cat([pipeline.parameters(x, seed) for seed in range(400)]).double()
    assert shares.mean().item() == pytest.approx(0.5, abs=0.06)
    assert shares.var().item() == pytest.approx(1 / (8 * alpha + 4), rel=0.2)
    middle = ((shares > 0.25) & (shares < 0.75)).double().mean().item()
    expected = {0.2: 0.1719, 1: 0.5, 4.0: 0.8589}[alpha]
    assert middle == pytest.approx(expected, abs=0.08)


def test_each_mix_has_its_own_share(device):
    x = batch(device=device)
    shares = images.Compose([images.MixUp(0.4), images.MixUp(0.4)]).parameters(x, 3)
    assert (shares == shares[0]).all()
    assert shares[0, 0] != shares[0, 1]
