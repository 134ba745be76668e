"""Images between their pixels: filters along one axis, as PyTorch's interpolation has them."""

# The constants of kernels are plain values.
# mypy: disable-error-code="assignment"

import tilewright as tw
import tilewright.language as tl

__all__ = ["filter_weight", "first_tap", "tap_count", "window_scale"]


@tw.jit
def triangle(x):
    """Return the weight of a pixel at the distance `x` in linear interpolation."""
    return tl.maximum(1.0 - tl.abs(x), 0.0)


@tw.jit
def cubic(x, a: tl.constexpr):
    """Return the weight in cubic interpolation, after Keys."""
    x = tl.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = ((x - 5.0) * x + 8.0) * x * a - 4.0 * a
    return tl.where(x < 1.0, near, tl.where(x < 2.0, far, 0.0))


@tw.jit
def window_scale(size, count, ANTIALIAS: tl.constexpr):
    """Return how many pixels of the window there are for each new one, and the filter's width."""
    scale = tl.cast(size, tl.float32) / tl.cast(count, tl.float32)
    if ANTIALIAS:
        return scale, tl.maximum(scale, 1.0)
    return scale, scale * 0.0 + 1.0


@tw.jit
def tap_count(width, KIND: tl.constexpr, ANTIALIAS: tl.constexpr):
    """Return how many pixels along one axis make a new one: a constant without `ANTIALIAS`."""
    if KIND == "nearest":
        return 1
    if ANTIALIAS:
        reach: tl.constexpr = 1.0 if KIND == "bilinear" else 2.0
        return (2.0 * reach * width).to(tl.int32) + 2
    taps: tl.constexpr = 2 if KIND == "bilinear" else 4
    return taps


@tw.jit
def first_tap(index, scale, width, size, KIND: tl.constexpr, ANTIALIAS: tl.constexpr):
    """Return (the first pixel, the center among pixels, the pixel behind the last one)."""
    if KIND == "nearest":
        place = tl.floor(index * scale)
        return place.to(tl.int32), place, size
    if ANTIALIAS:
        reach: tl.constexpr = 1.0 if KIND == "bilinear" else 2.0
        center = (index + 0.5) * scale
        first = tl.maximum((center - reach * width + 0.5).to(tl.int32), 0)
        end = tl.minimum((center + reach * width + 0.5).to(tl.int32), size)
        return first, center - 0.5, end
    center = (index + 0.5) * scale - 0.5
    if KIND == "bilinear":
        center = tl.maximum(center, 0.0)
        return tl.floor(center).to(tl.int32), center, size
    return tl.floor(center).to(tl.int32) - 1, center, size


@tw.jit
def filter_weight(tap, center, end, width, KIND: tl.constexpr, ANTIALIAS: tl.constexpr):
    """Return the weight of pixel `tap`, not normalized with `ANTIALIAS`."""
    if KIND == "nearest":
        return center * 0.0 + 1.0
    distance = tap.to(tl.float32) - center
    if ANTIALIAS:
        distance = tl.fdiv(distance, width)
    if KIND == "bilinear":
        weight = triangle(distance)
    else:
        weight = cubic(distance, -0.5 if ANTIALIAS else -0.75)
    return tl.where(tap < end, weight, 0.0) if ANTIALIAS else weight
