"""One stage for a whole batch, with parameters that are given: torchvision's functional names."""

from collections.abc import Sequence
from typing import Any

from tilewright.kernels.arrays import is_array
from tilewright.kernels.checks import plain
from tilewright.kernels.images.pipeline import Compose, Layout
from tilewright.kernels.images.stages import (
    ColorJitter,
    Crop,
    Erase,
    Interpolation,
    Normalize,
    RandomAffine,
    RandomHorizontalFlip,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    Stage,
)

__all__ = [
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "affine",
    "crop",
    "erase",
    "horizontal_flip",
    "normalize",
    "resize",
    "resized_crop",
    "rotate",
    "vertical_flip",
]

Fill = float | tuple[float, ...] | None


def _applied(images: Any, layout: Layout, *stages: Stage) -> Any:
    """Return the images after stages that leave nothing to chance, whatever the seed."""
    return Compose(stages, layout=layout)(images, seed=0)


def _given(numbers: Any) -> Any:
    """Return numbers of an array or a sequence as a tuple, and what else there is as it is."""
    if is_array(numbers):
        numbers = numbers.tolist()
    return tuple(numbers) if isinstance(numbers, Sequence) else numbers


def _jittered(images: Any, layout: Layout, **factor: float) -> Any:
    """Return images after the change that the factor's name tells, which errors tell, too."""
    plain("a number", **factor)
    ((name, value),) = factor.items()
    change = name.removesuffix("_factor")
    least, most = (-0.5, 0.5) if change == "hue" else (0.0, float("inf"))
    if not least <= value <= most:
        raise ValueError(f"`{name}` is {value}; a number from {least} to {most} is needed")
    return _applied(images, layout, ColorJitter(**{change: (value, value)}))


def resize(
    images: Any,
    size: int | tuple[int, int],
    interpolation: Interpolation = "bilinear",
    *,
    antialias: bool = True,
    layout: Layout = "NCHW",
) -> Any:
    """Return images of another size, as `torch.nn.functional.interpolate` makes them.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        size: Height and width of the results, or the shorter of the two: the longer one keeps its
            proportion to it, rounded down.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: Whether the filter is as wide as the pixels of the results where images shrink.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images (N, C, height, width) of the dtype of `images`. Those of uint8 are computed in fp32
        and rounded to the nearest level, as `interpolate(images.float(), ...).round()` is.

    A pixel is the weighted mean of those around (index + 0.5) * H / height - 0.5, and the same
    along the other axis.

    Source: Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981, with -0.5
    for its parameter (-0.75 without `antialias`).

    >>> import numpy as np
    >>> resize(np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4), (1, 2))
    array([[[[0.71428573, 2.2857144 ]]]], dtype=float32)
    """
    return _applied(images, layout, Resize(size, interpolation, antialias))


def crop(
    images: Any, top: int, left: int, height: int, width: int, *, layout: Layout = "NCHW"
) -> Any:
    """Return the part of each image that begins at (top, left).

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        top: The first row, from 0.
        left: The first column, from 0.
        height: The number of rows.
        width: The number of columns; a part that is not inside the images is a `ValueError`.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images (N, C, height, width) of the dtype of `images`.

    >>> import numpy as np
    >>> crop(np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3), 1, 1, 1, 2)
    array([[[[4, 5]]]], dtype=uint8)
    """
    return _applied(images, layout, Crop(top, left, height, width))


def resized_crop(
    images: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: tuple[int, int],
    interpolation: Interpolation = "bilinear",
    antialias: bool = True,
    *,
    layout: Layout = "NCHW",
) -> Any:
    """Return a part of each image, resized: `resize` of `crop`, in one pass.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        top: The first row, from 0.
        left: The first column, from 0.
        height: The number of rows.
        width: The number of columns; a part that is not inside the images is a `ValueError`.
        size: Height and width of the results.
        interpolation: As for `resize`.
        antialias: As for `resize`.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images (N, C, *size) of the dtype of `images`.

    >>> import numpy as np
    >>> resized_crop(np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3), 0, 0, 2, 2, (1, 1))
    array([[[[2]]]], dtype=uint8)
    """
    stages = [Crop(top, left, height, width), Resize(size, interpolation, antialias)]
    return _applied(images, layout, *stages)


def horizontal_flip(images: Any, *, layout: Layout = "NCHW") -> Any:
    """Return images whose left and right have changed places.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    >>> import numpy as np
    >>> horizontal_flip(np.arange(3, dtype=np.uint8).reshape(1, 1, 1, 3))
    array([[[[2, 1, 0]]]], dtype=uint8)
    """
    return _applied(images, layout, RandomHorizontalFlip(1.0))


def vertical_flip(images: Any, *, layout: Layout = "NCHW") -> Any:
    """Return images whose top and bottom have changed places.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    >>> import numpy as np
    >>> vertical_flip(np.arange(2, dtype=np.uint8).reshape(1, 1, 2, 1)).ravel()
    array([1, 0], dtype=uint8)
    """
    return _applied(images, layout, RandomVerticalFlip(1.0))


def rotate(
    images: Any,
    angle: float,
    interpolation: Interpolation = "nearest",
    *,
    fill: Fill = None,
    layout: Layout = "NCHW",
) -> Any:
    """Return images turned counter-clockwise around their middle, by degrees.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        angle: The angle in degrees.
        interpolation: "nearest" or "bilinear".
        fill: The color outside of the image, a number or one for each channel; with None it is 0,
            and edges are not softened twice.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    The pixel at (x, y) from the middle is the one at (x cos a - y sin a, x sin a + y cos a) before.

    >>> import numpy as np
    >>> rotate(np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2), 90)
    array([[[[1, 3],
             [0, 2]]]], dtype=uint8)
    """
    return _applied(images, layout, RandomRotation((angle, angle), interpolation, fill))


def affine(
    images: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
    interpolation: Interpolation = "nearest",
    fill: Fill = None,
    *,
    layout: Layout = "NCHW",
) -> Any:
    """Return images turned clockwise, moved by pixels, scaled and sheared by degrees.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        angle: The angle in degrees, around the middle.
        translate: By how many pixels images are moved to the right, and down.
        scale: The factor of their size.
        shear: The angles in degrees along the horizontal and the vertical axis.
        interpolation: "nearest" or "bilinear".
        fill: As for `rotate`.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    A pixel is the one at M^-1 of its place from the middle, where M is a move after a rotation
    after shears after the scale, as in torchvision.

    >>> import numpy as np
    >>> affine(np.arange(3, dtype=np.uint8).reshape(1, 1, 1, 3), 0, (1, 0), 1.0, (0, 0))
    array([[[[0, 0, 1]]]], dtype=uint8)
    """
    stage = RandomAffine(
        (angle, angle),
        scale=(scale, scale),
        shear=(shear[0], shear[0], shear[1], shear[1]),
        interpolation=interpolation,
        fill=fill,
        offset=(translate[0], translate[1]),
    )
    return _applied(images, layout, stage)


def adjust_brightness(images: Any, brightness_factor: float, *, layout: Layout = "NCHW") -> Any:
    """Return images `brightness_factor` times as bright.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides;
            of 1 or 3 channels.
        brightness_factor: At least 0: 0 gives black, 1 the images.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    Each channel is brightness_factor * channel, within its range.

    >>> import numpy as np
    >>> adjust_brightness(np.full((1, 1, 1, 2), 100, np.uint8), 1.5)
    array([[[[150, 150]]]], dtype=uint8)
    """
    return _jittered(images, layout, brightness_factor=brightness_factor)


def adjust_contrast(images: Any, contrast_factor: float, *, layout: Layout = "NCHW") -> Any:
    """Return images whose pixels are `contrast_factor` times as far from how light an image is.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides;
            of 1 or 3 channels.
        contrast_factor: At least 0: 0 gives one gray, 1 the images.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    Each channel is contrast_factor * channel + (1 - contrast_factor) * mean, within its range;
    `mean` is that of 0.2989 red + 0.587 green + 0.114 blue over the image.

    >>> import numpy as np
    >>> adjust_contrast(np.array([100, 200], np.uint8).reshape(1, 1, 1, 2), 0.5)
    array([[[[125, 175]]]], dtype=uint8)
    """
    return _jittered(images, layout, contrast_factor=contrast_factor)


def adjust_saturation(images: Any, saturation_factor: float, *, layout: Layout = "NCHW") -> Any:
    """Return images whose colors are `saturation_factor` times as far from gray.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides;
            of 1 or 3 channels.
        saturation_factor: At least 0: 0 gives grays, 1 the images.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    Each channel is saturation_factor * channel + (1 - saturation_factor) * gray, within its range;
    `gray` is 0.2989 red + 0.587 green + 0.114 blue of the pixel.

    >>> import numpy as np
    >>> adjust_saturation(np.array([90, 0, 0], np.uint8).reshape(1, 3, 1, 1), 0.0).ravel()
    array([26, 26, 26], dtype=uint8)
    """
    return _jittered(images, layout, saturation_factor=saturation_factor)


def adjust_hue(images: Any, hue_factor: float, *, layout: Layout = "NCHW") -> Any:
    """Return images whose hues have been turned by a part of a whole turn.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides;
            of 1 or 3 channels.
        hue_factor: From -0.5 to 0.5: how far; 0 gives the images.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    Source: Smith, "Color Gamut Transform Pairs", 1978, for hue, saturation and value.

    >>> import numpy as np
    >>> adjust_hue(np.array([90, 0, 0], np.uint8).reshape(1, 3, 1, 1), 0.5).ravel()
    array([ 0, 90, 90], dtype=uint8)
    """
    return _jittered(images, layout, hue_factor=hue_factor)


def normalize(
    images: Any,
    mean: float | Sequence[float],
    std: float | Sequence[float],
    *,
    layout: Layout = "NCHW",
) -> Any:
    """Return (images - mean) / std, by channels; those of uint8 are divided by 255 first.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        mean: A number for each channel, or one for all.
        std: A number for each channel, or one for all; not 0.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape of `images` and its dtype, fp32 where that is uint8.

    >>> import numpy as np
    >>> normalize(np.full((1, 1, 1, 1), 255, np.uint8), [0.5], [0.25]).ravel()
    array([2.], dtype=float32)
    """
    return _applied(images, layout, Normalize(_given(mean), _given(std)))


def erase(
    images: Any,
    i: int,
    j: int,
    h: int,
    w: int,
    v: float | tuple[float, ...] = 0.0,
    *,
    layout: Layout = "NCHW",
) -> Any:
    """Return images in which the rectangle of size (h, w) at (i, j) is `v`.

    Args:
        images: Batch (N, C, H, W) of uint8, or of fp16, bf16 or fp32 from 0 to 1; of any strides.
        i: The first row of the rectangle, from 0.
        j: Its first column, from 0.
        h: The number of its rows.
        w: The number of its columns; what of it is outside of the images is left out.
        v: A number, or one for each channel.
        layout: "NCHW", or "NHWC" for images (N, H, W, C) and such results.

    Returns:
        Images of the shape and dtype of `images`.

    >>> import numpy as np
    >>> erase(np.ones((1, 1, 2, 2), np.uint8), 0, 1, 2, 1, 7)
    array([[[[1, 7],
             [1, 7]]]], dtype=uint8)
    """
    return _applied(images, layout, Erase(i, j, h, w, v))
