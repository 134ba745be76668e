"""Changes of color, of one pixel: tuples of channels, from 0 to `BOUND` (255 or 1)."""

import tilewright as tw
import tilewright.language as tl

__all__ = ["blended", "gray", "hue_turned"]


@tw.jit
def gray(v, BOUND: tl.constexpr):
    """Return how light a pixel is: a whole number where the channels are."""
    if len(v) == 1:
        return v[0]
    light = 0.2989 * v[0] + 0.587 * v[1] + 0.114 * v[2]
    return tl.floor(light) if BOUND == 255.0 else light


@tw.jit
def blended(x, y, ratio, BOUND: tl.constexpr):
    """Return ratio * x + (1 - ratio) * y, within the bounds; cut to a whole number of 255."""
    z = tl.minimum(tl.maximum(ratio * x + (1.0 - ratio) * y, 0.0), BOUND)
    return tl.floor(z) if BOUND == 255.0 else z


@tw.jit
def hue_turned(v, turn, BOUND: tl.constexpr):
    """Return a pixel whose hue has been turned by a part of a whole turn, by way of HSV."""
    if BOUND == 255.0:
        r, g, b = tl.fdiv(v[0], 255.0), tl.fdiv(v[1], 255.0), tl.fdiv(v[2], 255.0)
    else:
        r, g, b = v[0], v[1], v[2]
    value = tl.maximum(tl.maximum(r, g), b)
    spread = value - tl.minimum(tl.minimum(r, g), b)
    divisor = tl.where(spread == 0.0, 1.0, spread)
    saturation = tl.fdiv(spread, tl.where(spread == 0.0, 1.0, value))
    red, green = tl.fdiv(value - r, divisor), tl.fdiv(value - g, divisor)
    blue = tl.fdiv(value - b, divisor)
    sector = tl.where(value == g, 2.0 + red - blue, 4.0 + green - red)
    sector = tl.where(value == r, blue - green, sector)
    hue = tl.fdiv(sector, 6.0) + 1.0
    hue = hue - tl.floor(hue) + turn
    sector = (hue - tl.floor(hue)) * 6.0
    whole = tl.floor(sector)
    part = sector - whole
    low = unit(value * (1.0 - saturation))
    falling = unit(value * (1.0 - saturation * part))
    rising = unit(value * (1.0 - saturation * (1.0 - part)))
    whole = tl.where(whole >= 6.0, 0.0, whole)
    new_red = by_sector(whole, value, falling, low, low, rising, value)
    new_green = by_sector(whole, rising, value, value, falling, low, low)
    new_blue = by_sector(whole, low, low, rising, value, value, falling)
    if BOUND == 255.0:
        return whole_of(new_red), whole_of(new_green), whole_of(new_blue)
    return new_red, new_green, new_blue


@tw.jit
def unit(x):
    """Return `x`, within 0 and 1."""
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@tw.jit
def whole_of(x):
    """Return the part of 256 numbers in which `x`, from 0 to 1, is."""
    return tl.floor(x * (256.0 - 1e-3))


@tw.jit
def by_sector(sector, x0, x1, x2, x3, x4, x5):
    """Return one of six values."""
    early = tl.where(sector == 0.0, x0, tl.where(sector == 1.0, x1, x2))
    late = tl.where(sector == 3.0, x3, tl.where(sector == 4.0, x4, x5))
    return tl.where(sector < 3.0, early, late)
