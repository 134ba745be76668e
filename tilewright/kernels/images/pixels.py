"""The kernel of a pipeline: each new pixel asks the stages for it, the last one first.

A stage that changes colors asks the one before it for the same pixel, one that moves or resizes
asks for others; the first answers from memory. So no image between two stages is ever made. While
images are of uint8, each stage leaves whole numbers, as one after another would.
"""

# The constants of kernels are plain values, and their annotations name types of the language.
# mypy: disable-error-code="attr-defined, valid-type, call-arg"

import tilewright as tw
import tilewright.language as tl
from tilewright.kernels.images.color import blended, gray, hue_turned
from tilewright.kernels.images.draw import column_of, rounded
from tilewright.kernels.images.resample import filter_weight, first_tap, tap_count, window_scale

__all__ = ["MEAN_PARTS", "is_whole", "means_kernel", "pixels_kernel"]

MEAN_PARTS = 8  # the parts of an image of which sums are made for its mean
PARTS = tl.constexpr(MEAN_PARTS)


@tw.constexpr_function
def is_whole(stages, index, source_is_whole):
    """Whether the images before a stage are of whole numbers from 0 to 255."""
    return source_is_whole and not any(
        stage.kind in ("Normalize", "ToFloat") for stage in stages[:index]
    )


@tw.constexpr_function
def of_channel(value, channel):
    """Return the number for a channel, of one for all or one for each."""
    return float(value[channel] if isinstance(value, tuple) else value)


@tw.constexpr_function
def is_read(stages, index):
    """Whether pixels before a stage are read from memory, rather than computed.

    What is computed for several pixels is written once, in a loop, or code would grow with every
    stage by a factor.
    """
    moves = ("Crop", "CenterCrop", "RandomCrop", "RandomHorizontalFlip", "RandomVerticalFlip")
    return all(stage.kind in moves for stage in stages[:index])


@tw.constexpr_function
def jitters_before(stages, index):
    """Return how many stages before one need the means of images."""
    return sum(stage.needs_means for stage in stages[:index])


@tw.constexpr_function
def color_bound(is_whole):
    """Return the largest number of a channel."""
    return 255.0 if is_whole else 1.0


@tw.constexpr_function
def reciprocal(x):
    """Return 1 / x, computed once."""
    return 1.0 / x


@tw.aggregate
class Batch:
    """The images of a launch: `sizes` are (height, width) before each stage and after the last."""

    image_ptr: tl.tensor
    strides: tl.tuple  # of image, channel, row, column
    table_ptr: tl.tensor
    sums_ptr: tl.tensor
    images: tl.tensor
    sizes: tl.tuple
    STAGES: tl.constexpr
    CHANNELS: tl.constexpr  # (0, 1, ...)
    WHOLE: tl.constexpr


@tw.jit
def number(batch, n, INDEX: tl.constexpr, column):
    """Return a number that a stage has drawn for image `n`."""
    COLUMNS: tl.constexpr = column_of(batch.STAGES, len(batch.STAGES))
    FIRST: tl.constexpr = column_of(batch.STAGES, INDEX)
    return tl.load(batch.table_ptr + n * COLUMNS + FIRST + column)


@tw.jit
def pixel(batch, n, y, x, INDEX: tl.constexpr):
    """Return the channels of the pixel (y, x) of image `n` before stage `INDEX`, a tuple."""
    if INDEX == 0:
        return source_pixel(batch, n, y, x)
    KIND: tl.constexpr = batch.STAGES[INDEX - 1].kind
    if KIND in ("Resize", "RandomResizedCrop"):
        return resized_pixel(batch, n, y, x, INDEX - 1)
    if KIND in ("RandomAffine", "RandomRotation"):
        return affine_pixel(batch, n, y, x, INDEX - 1)
    if KIND == "MixUp":
        return mixed_pixel(batch, n, y, x, INDEX - 1)
    if KIND == "ColorJitter":
        v = pixel(batch, n, y, x, INDEX - 1)
        return jittered(batch, n, v, INDEX - 1, False)
    if KIND in ("ToFloat", "Normalize"):
        v = pixel(batch, n, y, x, INDEX - 1)
        return normalized(batch, v, INDEX - 1)
    if KIND in ("Erase", "RandomErasing"):
        v = pixel(batch, n, y, x, INDEX - 1)
        return erased(batch, n, y, x, v, INDEX - 1)
    y, x = moved(batch, n, y, x, INDEX - 1)
    return pixel(batch, n, y, x, INDEX - 1)


@tw.jit
def source_pixel(batch, n, y, x):
    """Return a pixel from memory."""
    image, channel, row, column = batch.strides
    start = batch.image_ptr + tl.cast(n, tl.int64) * image
    place = y * row + x * column
    return [tl.load(start + c * channel + place).to(tl.float32) for c in batch.CHANNELS]


@tw.jit
def moved(batch, n, y, x, INDEX: tl.constexpr):
    """Return where the pixel (y, x) of a flipped or cropped image is in the image."""
    STAGE: tl.constexpr = batch.STAGES[INDEX]
    height, width = batch.sizes[INDEX]
    if STAGE.kind == "RandomHorizontalFlip":
        return y, tl.where(number(batch, n, INDEX, 0) > 0.5, width - 1 - x, x)
    if STAGE.kind == "RandomVerticalFlip":
        return tl.where(number(batch, n, INDEX, 0) > 0.5, height - 1 - y, y), x
    if STAGE.kind == "Crop":
        return y + STAGE.top, x + STAGE.left
    if STAGE.kind == "CenterCrop":
        top = rounded((height - STAGE.size[0]) / 2.0).to(tl.int32)
        return y + top, x + rounded((width - STAGE.size[1]) / 2.0).to(tl.int32)
    tl.static_assert(STAGE.kind == "RandomCrop")
    top = number(batch, n, INDEX, 0).to(tl.int32)
    return y + top, x + number(batch, n, INDEX, 1).to(tl.int32)


@tw.jit
def window(batch, n, INDEX: tl.constexpr):
    """Return (top, left, height, width) of the part of an image that is resized."""
    if batch.STAGES[INDEX].kind == "Resize":
        return 0, 0, batch.sizes[INDEX][0], batch.sizes[INDEX][1]
    top, left = number(batch, n, INDEX, 0), number(batch, n, INDEX, 1)
    height, width = number(batch, n, INDEX, 2), number(batch, n, INDEX, 3)
    return top.to(tl.int32), left.to(tl.int32), height.to(tl.int32), width.to(tl.int32)


@tw.jit
def resized_pixel(batch, n, y, x, INDEX: tl.constexpr):
    """Return the weighted mean of pixels around where (y, x) is in the window."""
    STAGE: tl.constexpr = batch.STAGES[INDEX]
    KIND: tl.constexpr = STAGE.interpolation
    ANTIALIAS: tl.constexpr = STAGE.antialias and KIND != "nearest"
    top, left, height, width = window(batch, n, INDEX)
    new_height, new_width = batch.sizes[INDEX + 1]
    scale_y, wide_y = window_scale(height, new_height, ANTIALIAS)
    scale_x, wide_x = window_scale(width, new_width, ANTIALIAS)
    first_y, center_y, end_y = first_tap(y.to(tl.float32), scale_y, wide_y, height, KIND, ANTIALIAS)
    first_x, center_x, end_x = first_tap(x.to(tl.float32), scale_x, wide_x, width, KIND, ANTIALIAS)
    if KIND == "nearest":
        y, x = tl.minimum(first_y, height - 1), tl.minimum(first_x, width - 1)
        return pixel(batch, n, top + y, left + x, INDEX)
    taps_y, taps_x = tap_count(wide_y, KIND, ANTIALIAS), tap_count(wide_x, KIND, ANTIALIAS)
    rows = (first_y, center_y, end_y, wide_y, top, height)
    columns = (first_x, center_x, end_x, wide_x, left, width)
    total = [tl.zeros(tl.broadcast(y, x)[0].shape, tl.float32) for c in batch.CHANNELS]
    if ANTIALIAS:
        all_y, all_x = center_y * 0.0, center_x * 0.0
        for i in range(taps_y):
            all_y += filter_weight(first_y + i, center_y, end_y, wide_y, KIND, True)
        for j in range(taps_x):
            all_x += filter_weight(first_x + j, center_x, end_x, wide_x, KIND, True)
        for i in range(taps_y):
            for j in range(taps_x):
                total = added(batch, n, total, i, j, rows, columns, INDEX)
        total = [tl.fdiv(t, all_y * all_x) for t in total]
    elif is_read(batch.STAGES, INDEX):
        for i in tl.static_range(taps_y):
            for j in tl.static_range(taps_x):
                total = added(batch, n, total, i, j, rows, columns, INDEX)
    else:
        for i in range(taps_y):
            for j in range(taps_x):
                total = added(batch, n, total, i, j, rows, columns, INDEX)
    return left_whole(batch, total, INDEX)


@tw.jit
def added(batch, n, total, i, j, rows, columns, INDEX: tl.constexpr):
    """Add the pixels that are number `i` and `j` along the axes to weighted sums."""
    STAGE: tl.constexpr = batch.STAGES[INDEX]
    first_y, center_y, end_y, wide_y, top, height = rows
    first_x, center_x, end_x, wide_x, left, width = columns
    KIND: tl.constexpr = STAGE.interpolation
    y, x = first_y + i, first_x + j
    weight_y = filter_weight(y, center_y, end_y, wide_y, KIND, STAGE.antialias)
    weight_x = filter_weight(x, center_x, end_x, wide_x, KIND, STAGE.antialias)
    y, x = tl.minimum(tl.maximum(y, 0), height - 1), tl.minimum(tl.maximum(x, 0), width - 1)
    v = pixel(batch, n, top + y, left + x, INDEX)
    return [total[c] + weight_y * weight_x * v[c] for c in batch.CHANNELS]


@tw.jit
def left_whole(batch, v, INDEX: tl.constexpr):
    """Round the channels that a stage makes, if those before it are whole numbers."""
    if is_whole(batch.STAGES, INDEX, batch.WHOLE):
        return [tl.minimum(tl.maximum(rounded(c), 0.0), 255.0) for c in v]
    return v


@tw.jit
def affine_pixel(batch, n, y, x, INDEX: tl.constexpr):
    """Return the pixel at the place that the drawn matrix has for (y, x), or the color outside."""
    STAGE: tl.constexpr = batch.STAGES[INDEX]
    height, width = batch.sizes[INDEX]
    middle_y, middle_x = (height - 1) * 0.5, (width - 1) * 0.5
    y, x = y.to(tl.float32) - middle_y, x.to(tl.float32) - middle_x
    m0, m1, m2 = (
        number(batch, n, INDEX, 0),
        number(batch, n, INDEX, 1),
        number(batch, n, INDEX, 2),
    )
    m3, m4, m5 = (
        number(batch, n, INDEX, 3),
        number(batch, n, INDEX, 4),
        number(batch, n, INDEX, 5),
    )
    place_x, place_y = m0 * x + m1 * y + m2 + middle_x, m3 * x + m4 * y + m5 + middle_y
    if STAGE.interpolation == "nearest":
        v, inside = pixel_inside(batch, n, rounded(place_y), rounded(place_x), INDEX)
        if STAGE.fill is None:
            return v
        return [v[c] + (1.0 - inside) * of_channel(STAGE.fill, c) for c in batch.CHANNELS]
    total = [tl.zeros(place_y.shape, tl.float32) for c in batch.CHANNELS]
    all_inside = tl.zeros(place_y.shape, tl.float32)
    if is_read(batch.STAGES, INDEX):
        for tap in tl.static_range(4):
            total, all_inside = added_inside(
                batch, n, total, all_inside, place_y, place_x, tap, INDEX
            )
    else:
        for tap in range(4):
            total, all_inside = added_inside(
                batch, n, total, all_inside, place_y, place_x, tap, INDEX
            )
    if STAGE.fill is not None:
        total = [
            (total[c] - of_channel(STAGE.fill, c)) * all_inside + of_channel(STAGE.fill, c)
            for c in batch.CHANNELS
        ]
    return left_whole(batch, total, INDEX)


@tw.jit
def added_inside(batch, n, total, all_inside, place_y, place_x, tap, INDEX: tl.constexpr):
    """Add one of the four pixels around a place to weighted sums of pixels, and of their number."""
    y, x = tl.floor(place_y) + tap // 2, tl.floor(place_x) + tap % 2
    v, inside = pixel_inside(batch, n, y, x, INDEX)
    weight = (1.0 - tl.abs(place_y - y)) * (1.0 - tl.abs(place_x - x))
    total = [total[c] + weight * v[c] for c in batch.CHANNELS]
    return total, all_inside + weight * inside


@tw.jit
def pixel_inside(batch, n, y, x, INDEX: tl.constexpr):
    """Return the pixel at whole numbers (y, x), 0 outside the image, and 1.0 inside it."""
    height, width = batch.sizes[INDEX]
    inside = ((y >= 0.0) & (y <= height - 1.0) & (x >= 0.0) & (x <= width - 1.0)).to(tl.float32)
    y, x = tl.minimum(tl.maximum(y, 0.0), height - 1.0), tl.minimum(tl.maximum(x, 0.0), width - 1.0)
    v = pixel(batch, n, y.to(tl.int32), x.to(tl.int32), INDEX)
    return [inside * c for c in v], inside


@tw.jit
def mixed_pixel(batch, n, y, x, INDEX: tl.constexpr):
    """Return a weighted mean of the pixels of an image and of the one before it."""
    part = number(batch, n, INDEX, 0)
    mixed = [tl.zeros(tl.broadcast(y, x)[0].shape, tl.float32) for c in batch.CHANNELS]
    for other in range(2):
        v = pixel(batch, (n + other * (batch.images - 1)) % batch.images, y, x, INDEX)
        weight = part if other == 0 else 1.0 - part
        mixed = [mixed[c] + weight * v[c] for c in batch.CHANNELS]
    return left_whole(batch, mixed, INDEX)


@tw.jit
def normalized(batch, v, INDEX: tl.constexpr):
    """Return channels from 0 to 1, or normalized ones."""
    STAGE: tl.constexpr = batch.STAGES[INDEX]
    if is_whole(batch.STAGES, INDEX, batch.WHOLE):
        v = [c * reciprocal(255.0) for c in v]
    if STAGE.kind == "Normalize":
        v = [
            (v[c] - of_channel(STAGE.mean, c)) * reciprocal(of_channel(STAGE.std, c))
            for c in batch.CHANNELS
        ]
    return v


@tw.jit
def erased(batch, n, y, x, v, INDEX: tl.constexpr):
    """Return the value of the rectangle inside it."""
    STAGE: tl.constexpr = batch.STAGES[INDEX]
    if STAGE.kind == "Erase":
        top, left, height, width = STAGE.i, STAGE.j, STAGE.h, STAGE.w
    else:
        top, left, height, width = (
            number(batch, n, INDEX, 0),
            number(batch, n, INDEX, 1),
            number(batch, n, INDEX, 2),
            number(batch, n, INDEX, 3),
        )
    inside = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
    return [tl.where(inside, of_channel(STAGE.value, c), v[c]) for c in batch.CHANNELS]


@tw.jit
def jittered(batch, n, v, INDEX: tl.constexpr, FOR_MEAN: tl.constexpr):
    """Return a pixel after the changes of color; `FOR_MEAN`: those before that of contrast."""
    CHANGES: tl.constexpr = batch.STAGES[INDEX].changes
    is_wanted = True
    for place in range(4):
        which = number(batch, n, INDEX, place)
        if FOR_MEAN:
            is_wanted = is_wanted & (which != 1.0)
        for change in tl.static_range(4):
            if CHANGES[change] is not None and not (FOR_MEAN and change == 1):  # noqa: SIM102 - known before the launch
                if is_wanted & (which == change):
                    v = changed(batch, n, v, INDEX, change)
    return v


@tw.jit
def changed(batch, n, v, INDEX: tl.constexpr, CHANGE: tl.constexpr):
    """Return a pixel after one change of its color."""
    BOUND: tl.constexpr = color_bound(is_whole(batch.STAGES, INDEX, batch.WHOLE))
    amount = number(batch, n, INDEX, 4 + CHANGE)
    if CHANGE == 0:
        return [blended(c, 0.0, amount, BOUND) for c in v]
    if CHANGE == 1:
        mean = mean_of(batch, n, INDEX)
        return [blended(c, mean, amount, BOUND) for c in v]
    if CHANGE == 2:
        light = gray(v, BOUND)
        return [blended(c, light, amount, BOUND) for c in v] if len(v) == 3 else v
    return hue_turned(v, amount, BOUND) if len(v) == 3 else v


@tw.jit
def mean_of(batch, n, INDEX: tl.constexpr):
    """Return how light image `n` is when its contrast changes."""
    height, width = batch.sizes[INDEX]
    JITTER: tl.constexpr = jitters_before(batch.STAGES, INDEX)
    parts = batch.sums_ptr + (JITTER * batch.images + n) * PARTS
    total = tl.load(parts)
    for part in tl.static_range(1, PARTS):
        total += tl.load(parts + part)
    return total / (tl.cast(height, tl.float32) * tl.cast(width, tl.float32))


@tw.jit
def means_kernel(
    image_ptr,
    strides,
    table_ptr,
    sums_ptr,
    images: tl.int32,
    sizes,
    INDEX: tl.constexpr,
    STAGES: tl.constexpr,
    CHANNELS: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sum how light the pixels of a part of an image are, before contrast changes in a stage."""
    batch = Batch(image_ptr, strides, table_ptr, sums_ptr, images, sizes, STAGES, CHANNELS, WHOLE)
    part, n = tl.program_id(0), tl.program_id(1)
    height, width = sizes[INDEX]
    across = tl.cdiv(width, COLUMNS)
    BOUND: tl.constexpr = color_bound(is_whole(STAGES, INDEX, WHOLE))
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile in range(part, across * tl.cdiv(height, ROWS), PARTS):
        y = tile // across * ROWS + tl.arange(0, ROWS)[:, None]
        x = tile % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        inside = (y < height) & (x < width)
        y, x = tl.minimum(y, height - 1), tl.minimum(x, width - 1)
        v = jittered(batch, n, pixel(batch, n, y, x, INDEX), INDEX, True)
        total += tl.where(inside, gray(v, BOUND), 0.0)
    JITTER: tl.constexpr = jitters_before(STAGES, INDEX)
    tl.store(sums_ptr + (JITTER * images + n) * PARTS + part, tl.sum(total))


@tw.jit
def pixels_kernel(
    image_ptr,
    strides,
    out_ptr,
    out_strides,
    table_ptr,
    sums_ptr,
    images: tl.int32,
    sizes,
    STAGES: tl.constexpr,
    CHANNELS: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Make a tile of `ROWS` x `COLUMNS` pixels of an image, by all stages."""
    batch = Batch(image_ptr, strides, table_ptr, sums_ptr, images, sizes, STAGES, CHANNELS, WHOLE)
    tile, n = tl.program_id(0), tl.program_id(1)
    height, width = sizes[len(STAGES)]
    across = tl.cdiv(width, COLUMNS)
    y = tile // across * ROWS + tl.arange(0, ROWS)[:, None]
    x = tile % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    # What lies beyond the last row or column is computed from the last one, and not stored.
    v = pixel(batch, n, tl.minimum(y, height - 1), tl.minimum(x, width - 1), len(STAGES))
    image, channel, row, column = out_strides
    place = out_ptr + tl.cast(n, tl.int64) * image + y * row + x * column
    inside = (y < height) & (x < width)
    for c in tl.static_range(len(CHANNELS)):
        tl.store(place + c * channel, v[c].to(out_ptr.dtype.element_ty), inside)
