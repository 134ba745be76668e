"""What stages draw at random, for all images of a batch: a table with a row for each image.

The numbers are Philox's, of the seed, the image and the place in the pipeline, so the same seed
gives the same table again. The distributions are those of torchvision.

Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000, for MixUp.
"""

# The constants of kernels are plain values, and their annotations name types of the language.
# mypy: disable-error-code="attr-defined, valid-type, unreachable"

import math

import tilewright as tw
import tilewright.language as tl

__all__ = ["column_of", "draw_kernel", "rounded"]


@tw.constexpr_function
def column_of(stages, index):
    """Return the first column of a stage in the table."""
    return sum(stage.columns for stage in stages[:index])


@tw.constexpr_function
def logarithms(low, high):
    """Return the logarithms of a range, between which those of its numbers are uniform."""
    return math.log(low), math.log(high)


@tw.constexpr_function
def radians(degrees):
    """Return an angle, or a number that is known, in radians."""
    return math.radians(degrees)


@tw.constexpr_function
def gamma_constants(alpha):
    """Return d and c of the method for gamma numbers of alpha + 1."""
    d = alpha + 2 / 3
    return d, 1 / (3 * math.sqrt(d))


@tw.jit
def random_numbers(seed, image, draw):
    """Return four numbers from 0 to below 1 for each image: of its `draw`-th four."""
    return tl.rand4x(seed, image + (tl.cast(draw, tl.int64) << 32))


@tw.jit
def between(u, low, high):
    """Return the number from `low` to `high` for one from 0 to 1."""
    return low + (high - low) * u


@tw.jit
def index_below(u, count):
    """Return the whole number from 0 to below `count`, a float, for one from 0 to 1."""
    return tl.minimum(tl.floor(u * count), count - 1.0)


@tw.jit
def rounded(x):
    """Return the nearest whole number, the even one of two, of fp32 numbers below 2^22."""
    return (x + 12582912.0) - 12582912.0


@tw.jit
def random_rectangle(seed, image, draw, height, width, scale: tl.constexpr, ratio: tl.constexpr):
    """Return (top, left, height, width, whether one fits) of ten random rectangles, the first."""
    LOGS: tl.constexpr = logarithms(ratio[0], ratio[1])
    zero = tl.zeros(image.shape, tl.float32)
    top, left, tall, wide, is_found = zero, zero, zero, zero, zero > 1.0
    for attempt in range(10):
        u = random_numbers(seed, image, draw + attempt)
        area = height * width * between(u[0], scale[0], scale[1])
        proportion = tl.exp(between(u[1], LOGS[0], LOGS[1]))
        h, w = rounded(tl.sqrt(area / proportion)), rounded(tl.sqrt(area * proportion))
        is_new = (h > 0.0) & (h <= height) & (w > 0.0) & (w <= width) & (is_found == 0)
        top = tl.where(is_new, index_below(u[2], height - h + 1.0), top)
        left = tl.where(is_new, index_below(u[3], width - w + 1.0), left)
        tall, wide = tl.where(is_new, h, tall), tl.where(is_new, w, wide)
        is_found = is_found | is_new
    return top, left, tall, wide, is_found


@tw.jit
def draw_resized_crop(seed, image, draw, height, width, stage: tl.constexpr):
    """Return a rectangle; if none fits, the middle, as far as its proportions allow."""
    scale: tl.constexpr = stage.scale
    ratio: tl.constexpr = stage.ratio
    top, left, h, w, is_found = random_rectangle(seed, image, draw, height, width, scale, ratio)
    middle_h, middle_w = height, width
    if width < height * ratio[0]:
        middle_h = tl.minimum(rounded(width / ratio[0]), height)
    if width > height * ratio[1]:
        middle_w = tl.minimum(rounded(height * ratio[1]), width)
    return (
        tl.where(is_found, top, tl.floor((height - middle_h) / 2.0)),
        tl.where(is_found, left, tl.floor((width - middle_w) / 2.0)),
        tl.where(is_found, h, middle_h),
        tl.where(is_found, w, middle_w),
    )


@tw.jit
def draw_erasing(seed, image, draw, height, width, stage: tl.constexpr):
    """Return a rectangle smaller than the image, or one of no size."""
    top, left, h, w, is_found = random_rectangle(
        seed, image, draw + 1, height - 1.0, width - 1.0, stage.scale, stage.ratio
    )
    is_erased = is_found & (random_numbers(seed, image, draw)[0] < stage.p)
    return top, left, tl.where(is_erased, h, 0.0), tl.where(is_erased, w, 0.0)


@tw.jit
def draw_affine(seed, image, draw, height, width, stage: tl.constexpr):
    """Return the matrix from places in the result, around its middle, to those in the image.

    It is the inverse of: shear, turn, scale, move.
    """
    low: tl.constexpr = radians(stage.turns * stage.degrees[0])
    high: tl.constexpr = radians(stage.turns * stage.degrees[1])
    u, w = random_numbers(seed, image, draw), random_numbers(seed, image, draw + 1)
    angle = between(u[0], low, high)
    shift_x, shift_y = stage.translate[0] * width, stage.translate[1] * height
    x = rounded(between(u[1], -shift_x, shift_x)) + stage.offset[0]
    y = rounded(between(u[2], -shift_y, shift_y)) + stage.offset[1]
    size = between(u[3], stage.scale[0], stage.scale[1])
    x_low: tl.constexpr = radians(stage.shear[0])
    x_high: tl.constexpr = radians(stage.shear[1])
    y_low: tl.constexpr = radians(stage.shear[2])
    y_high: tl.constexpr = radians(stage.shear[3])
    shear_x = between(w[0], x_low, x_high)
    shear_y = between(w[1], y_low, y_high)
    slope_x = tl.sin(shear_x) / tl.cos(shear_x)
    cosine, sine = tl.cos(angle - shear_y), tl.sin(angle - shear_y)
    a, c = cosine / tl.cos(shear_y), sine / tl.cos(shear_y)
    b, d = -a * slope_x - tl.sin(angle), -c * slope_x + tl.cos(angle)
    m0, m1, m3, m4 = d / size, -b / size, -c / size, a / size
    return m0, m1, -m0 * x - m1 * y, m3, m4, -m3 * x - m4 * y


@tw.jit
def draw_jitter(seed, image, draw, stage: tl.constexpr):
    """Return the places of the changes in a random order, and how much each changes."""
    u, w = random_numbers(seed, image, draw), random_numbers(seed, image, draw + 1)
    first, second, third = index_below(u[0], 4.0), index_below(u[1], 3.0), index_below(u[2], 2.0)
    second += tl.where(second >= first, 1.0, 0.0)
    lower, higher = tl.minimum(first, second), tl.maximum(first, second)
    third += tl.where(third >= lower, 1.0, 0.0)
    third += tl.where(third >= higher, 1.0, 0.0)
    CHANGES: tl.constexpr = stage.changes
    amounts = [draw_amount(w[change], CHANGES[change]) for change in (0, 1, 2, 3)]
    return (first, second, third, 6.0 - first - second - third, *amounts)


@tw.jit
def draw_amount(u, change: tl.constexpr):
    """Return how much of a change; 0 of one that is left out."""
    if change is None:
        return u * 0.0
    return between(u, change[0], change[1])


@tw.jit
def gamma_logarithm(seed, draw, side: tl.constexpr, alpha: tl.constexpr):
    """Return the logarithm of a gamma number of `alpha`, but for a summand that all sides share.

    It is the first of 16 candidates that is accepted, and 19 of 20 are.
    """
    D: tl.constexpr = gamma_constants(alpha)[0]
    C: tl.constexpr = gamma_constants(alpha)[1]
    candidate = tl.arange(0, 16)
    u = random_numbers(seed, 16 * side + candidate.to(tl.int64), draw)
    x = tl.sqrt(-2.0 * tl.log(1.0 - u[0])) * tl.cos(6.283185307179586 * u[1])
    root = 1.0 + C * x
    logarithm = 3.0 * tl.log(tl.maximum(root, 1e-9))
    bound = 0.5 * x * x + D - D * root * root * root + D * logarithm
    is_accepted = (root > 0.0) & (tl.log(1.0 - u[2]) < bound)
    first = tl.min(tl.where(is_accepted, candidate, 15))
    # A gamma number of alpha is one of alpha + 1 times u to the power of 1 / alpha.
    return tl.sum(tl.where(candidate == first, logarithm + tl.log(1.0 - u[3]) / alpha, 0.0))


@tw.jit
def draw_share(seed, draw, alpha: tl.constexpr):
    """Return a number of Beta(alpha, alpha), the same for all images."""
    one, other = gamma_logarithm(seed, draw, 0, alpha), gamma_logarithm(seed, draw, 1, alpha)
    return 1.0 / (1.0 + tl.exp(other - one))


@tw.jit
def draw_stage(seed, image, draw, height, width, stage: tl.constexpr):
    """Return the numbers of a stage, a tuple of `stage.columns`."""
    KIND: tl.constexpr = stage.kind
    if KIND in ("RandomHorizontalFlip", "RandomVerticalFlip"):
        return (tl.where(random_numbers(seed, image, draw)[0] < stage.p, 1.0, 0.0),)
    if KIND == "RandomCrop":
        u = random_numbers(seed, image, draw)
        top = index_below(u[0], height - stage.size[0] + 1.0)
        return top, index_below(u[1], width - stage.size[1] + 1.0)
    if KIND == "RandomResizedCrop":
        return draw_resized_crop(seed, image, draw, height, width, stage)
    if KIND in ("RandomAffine", "RandomRotation"):
        return draw_affine(seed, image, draw, height, width, stage)
    if KIND == "ColorJitter":
        return draw_jitter(seed, image, draw, stage)
    if KIND == "RandomErasing":
        return draw_erasing(seed, image, draw, height, width, stage)
    tl.static_assert(KIND == "MixUp")
    return (tl.zeros(image.shape, tl.float32) + draw_share(seed, draw, stage.alpha),)


@tw.jit
def draw_kernel(
    table_ptr,
    images,
    seed_ptr,
    sizes,
    STAGES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fill the rows of `BLOCK` images; `sizes` are those before each stage."""
    seed = tl.load(seed_ptr)
    image = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    COLUMNS: tl.constexpr = column_of(STAGES, len(STAGES))
    for index in tl.static_range(len(STAGES)):
        if STAGES[index].columns > 0:
            height, width = sizes[index]
            numbers = draw_stage(
                seed,
                image,
                16 * index,
                tl.cast(height, tl.float32),
                tl.cast(width, tl.float32),
                STAGES[index],
            )
            first: tl.constexpr = column_of(STAGES, index)
            for column in tl.static_range(STAGES[index].columns):
                place = table_ptr + image * COLUMNS + first + column
                tl.store(place, numbers[column], image < images)
