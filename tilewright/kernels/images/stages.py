"""The steps of a pipeline of augmentations, as they are written down: numbers, and no code.

A *stage* makes images of images. What it draws at random for an image are `columns` fp32 numbers,
which stand side by side in a table with a row for each image (`draw.py`); what it does with them is
in `pixels.py`. Names and defaults are those of torchvision's transforms.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tilewright.kernels import checks

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Crop",
    "Erase",
    "MixUp",
    "Normalize",
    "RandomAffine",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "Stage",
    "ToFloat",
    "decoded",
    "encoded",
]

Size = tuple[int, int]
Range = tuple[float, float]
Interpolation = Literal["nearest", "bilinear", "bicubic"]

_KINDS: dict[str, type["Stage"]] = {}  # by their names, all there are


@dataclass(frozen=True)
class Stage:
    """A step of a pipeline; `columns` is how many numbers it draws for each image."""

    columns: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        _KINDS[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Make tuples of lists, so that stages can be compared and hashed."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))

    def output_size(self, height: int, width: int) -> Size:
        """Return the height and width of the images it makes."""
        return height, width

    @property
    def kind(self) -> str:
        """The name under which kernels know it."""
        return type(self).__name__

    @property
    def needs_means(self) -> bool:
        """Whether the kernel has to run before, for the means of images."""
        return False

    def _choose(self, name: str, *choices: Any) -> None:
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(f"{self.kind}: `{name}` is {value!r}; one of {choices} is needed")

    def _pair(self, name: str) -> None:
        """Let one integer stand for two equal ones."""
        value = getattr(self, name)
        pair = value if isinstance(value, tuple) else (value, value)
        for each in pair:
            checks.plain("an integer", **{name: each})
        if len(pair) != 2 or min(pair) < 0:
            raise ValueError(f"{self.kind}: `{name}` is {value!r}; a height and a width are needed")
        object.__setattr__(self, name, pair)

    def _of_channels(self, name: str) -> tuple[float, ...]:
        """Return the number for all channels, or those for each; raise if they are no numbers."""
        value = getattr(self, name)
        values = value if isinstance(value, tuple) else (value,)
        if not values or not all(isinstance(each, checks.PLAIN["a number"]) for each in values):
            wanted = "a number for all channels, or one for each, is needed"
            raise TypeError(f"{self.kind}: `{name}` is {value!r}; {wanted}")
        return values

    def _angles(self, name: str) -> None:
        """Let one number stand for the angles up to it, in both directions."""
        self._spread(name, 0.0, -float("inf"), float("inf"))
        if getattr(self, name) is None:
            object.__setattr__(self, name, (0.0, 0.0))

    def _spread(self, name: str, center: float, lowest: float, highest: float) -> None:
        """Let one number stand for the range around `center`, within limits; None if it is 0."""
        value = getattr(self, name)
        if isinstance(value, int | float):
            if value < 0:
                raise ValueError(f"{self.kind}: `{name}` is {value}, and must not be negative")
            value = (max(center - value, lowest), center + value) if value else None
        if value is not None and not lowest <= value[0] <= value[1] <= highest:
            limits = f"two numbers from {lowest} to {highest}, in order, are needed"
            raise ValueError(f"{self.kind}: `{name}` is {value}; {limits}")
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Resize(Stage):
    """Images of another size.

    Args:
        size: Height and width of the results, in pixels; one number for the shorter side, to which
            the longer one keeps its proportion.
        interpolation: "nearest", "bilinear" or "bicubic" (the cubic of Keys with a = -1/2 where
            `antialias` holds, else a = -3/4).
        antialias: Whether the filter widens where images shrink, so that every pixel counts.

    >>> Resize(224).output_size(480, 640)
    (224, 298)
    >>> Resize((224, 224)).output_size(480, 640)
    (224, 224)
    """

    size: int | Size
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        shorter = self.size
        self._pair("size")
        if not isinstance(shorter, tuple):
            object.__setattr__(self, "size", shorter)
        self._choose("interpolation", "nearest", "bilinear", "bicubic")

    def output_size(self, height: int, width: int) -> Size:
        if isinstance(self.size, tuple):
            return self.size
        if height <= width:
            return self.size, self.size * width // max(height, 1)
        return self.size * height // max(width, 1), self.size


@dataclass(frozen=True)
class Crop(Stage):
    """The part of the images that begins at (`top`, `left`).

    Args:
        top, left: The first row and column that stay, in pixels.
        height, width: The size of the results; a part that is not inside is a `ValueError`.

    >>> Crop(top=2, left=0, height=4, width=8).output_size(16, 16)
    (4, 8)
    """

    top: int
    left: int
    height: int
    width: int

    def output_size(self, height: int, width: int) -> Size:
        inside = 0 <= self.top <= height - self.height and 0 <= self.left <= width - self.width
        if not inside:
            raise ValueError(f"{self} is not inside images of {height} x {width}")
        return self.height, self.width


@dataclass(frozen=True)
class CenterCrop(Stage):
    """The middle of the images.

    Args:
        size: Height and width of the results, in pixels; one number for both. Larger than the
            images is a `ValueError`.

    >>> CenterCrop(8).output_size(16, 32)
    (8, 8)
    """

    size: Size

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("size")

    def output_size(self, height: int, width: int) -> Size:
        if self.size[0] > height or self.size[1] > width:
            raise ValueError(f"{self} is larger than images of {height} x {width}")
        return self.size


@dataclass(frozen=True)
class RandomCrop(CenterCrop):
    """A part of that size, anywhere in the image: all places are equally likely.

    Args:
        size: Height and width of the results, in pixels; one number for both.

    >>> RandomCrop((8, 4)).output_size(16, 32)
    (8, 4)
    """

    columns: ClassVar[int] = 2  # top, left


@dataclass(frozen=True)
class RandomResizedCrop(Stage):
    """A part of random size and proportions, resized.

    Args:
        size: Height and width of the results, in pixels; one number for both.
        scale: The least and the largest part of the image's area that is kept.
        ratio: The least and the largest width / height of the part; its logarithm is uniform.
        interpolation: "nearest", "bilinear" or "bicubic", as for `Resize`.
        antialias: As for `Resize`.

    Source: Szegedy et al., "Going deeper with convolutions", 2015, section 6.

    >>> RandomResizedCrop(224, scale=(0.5, 1.0)).output_size(480, 640)
    (224, 224)
    """

    columns: ClassVar[int] = 4  # top, left, height, width
    size: Size
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("size")
        self._choose("interpolation", "nearest", "bilinear", "bicubic")
        _ordered(self, "scale")
        _ordered(self, "ratio")

    def output_size(self, height: int, width: int) -> Size:
        return self.size


@dataclass(frozen=True)
class RandomHorizontalFlip(Stage):
    """Left and right change places.

    Args:
        p: With which probability, from 0 to 1, for each image by itself.

    >>> RandomHorizontalFlip()
    RandomHorizontalFlip(p=0.5)
    """

    columns: ClassVar[int] = 1
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self.kind, p=self.p)


@dataclass(frozen=True)
class RandomVerticalFlip(Stage):
    """Top and bottom change places.

    Args:
        p: With which probability, from 0 to 1, for each image by itself.

    >>> RandomVerticalFlip(0.1)
    RandomVerticalFlip(p=0.1)
    """

    columns: ClassVar[int] = 1
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self.kind, p=self.p)


@dataclass(frozen=True)
class RandomAffine(Stage):
    """Turned clockwise, moved, scaled and sheared about the middle; each by a uniform number.

    Args:
        degrees: The least and the largest angle, or one number for -degrees to degrees.
        translate: How far at most, as parts of width and height, in both directions.
        scale: The least and the largest factor, above 0.
        shear: Least and largest angles in degrees along x, and then along y; one number for
            -shear to shear along x.
        interpolation: "nearest" or "bilinear".
        fill: The color outside, a number or one for each channel; with None it is 0, and edges
            are not softened twice.
        offset: Along x and y in pixels, beside what is random.

    >>> RandomAffine(10).degrees
    (-10.0, 10.0)
    """

    columns: ClassVar[int] = 6  # the matrix from places in the result to places in the image
    turns: ClassVar[float] = 1.0
    degrees: float | Range
    translate: Range = (0.0, 0.0)
    scale: Range = (1.0, 1.0)
    shear: float | tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    interpolation: Interpolation = "nearest"
    fill: float | tuple[float, ...] | None = 0.0
    offset: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._angles("degrees")
        shear = self.shear
        along_x = (-shear, shear) if isinstance(shear, int | float) else shear
        object.__setattr__(self, "shear", (*along_x, 0.0, 0.0)[:4])
        self._choose("interpolation", "nearest", "bilinear")
        _ordered(self, "scale")


@dataclass(frozen=True)
class RandomRotation(Stage):
    """Turned counter-clockwise about the middle; what was in the corners is lost.

    Args:
        degrees: The least and the largest angle, or one number for -degrees to degrees.
        interpolation: "nearest" or "bilinear".
        fill: The color outside, a number or one for each channel; None as for `RandomAffine`.

    >>> RandomRotation((0, 90)).degrees
    (0, 90)
    """

    columns: ClassVar[int] = 6
    turns: ClassVar[float] = -1.0
    translate: ClassVar[Range] = (0.0, 0.0)
    scale: ClassVar[Range] = (1.0, 1.0)
    shear: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0, 0.0)
    offset: ClassVar[Range] = (0.0, 0.0)
    degrees: float | Range
    interpolation: Interpolation = "nearest"
    fill: float | tuple[float, ...] | None = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._angles("degrees")
        self._choose("interpolation", "nearest", "bilinear")


@dataclass(frozen=True)
class ColorJitter(Stage):
    """Brightness, contrast, saturation and hue change, in a random order for each image.

    Each is blended by a uniform factor f as f * image + (1 - f) * other, where other is black, the
    mean of the gray image, or the gray image; the hue is turned. Results stay in range.

    Args:
        brightness, contrast, saturation: The least and the largest factor, or one number for
            1 - number to 1 + number; None changes nothing.
        hue: Two numbers from -1/2 to 1/2, parts of a full turn, or one number for -hue to hue.

    >>> ColorJitter(brightness=0.25).brightness
    (0.75, 1.25)
    """

    columns: ClassVar[int] = 8  # which comes first, second, ...; and how much of each
    brightness: float | Range | None = None
    contrast: float | Range | None = None
    saturation: float | Range | None = None
    hue: float | Range | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("brightness", "contrast", "saturation"):
            self._spread(name, 1.0, 0.0, float("inf"))
        self._spread("hue", 0.0, -0.5, 0.5)

    @property
    def needs_means(self) -> bool:
        return self.contrast is not None

    @property
    def changes(self) -> tuple[Range | None, ...]:
        """The ranges in the order of their columns."""
        return self.brightness, self.contrast, self.saturation, self.hue  # type: ignore[return-value]


@dataclass(frozen=True)
class ToFloat(Stage):
    """Of uint8 images, floating-point ones: image / 255; others stay as they are.

    >>> ToFloat()
    ToFloat()
    """


@dataclass(frozen=True)
class Normalize(Stage):
    """(image - mean) / std for each channel; uint8 images are made floating-point ones first.

    Args:
        mean, std: A number for all channels, or one for each, of images from 0 to 1; `std` must not
            be 0.

    >>> Normalize([0.5], [0.25])
    Normalize(mean=(0.5,), std=(0.25,))
    """

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._of_channels("mean")
        counts = {len(numbers) for numbers in (self.mean, self.std) if isinstance(numbers, tuple)}
        if len(counts) > 1 or 0 in self._of_channels("std"):
            raise ValueError(f"{self}: a mean, and a `std` that is not 0, for each channel")


@dataclass(frozen=True)
class Erase(Stage):
    """A rectangle becomes `value`.

    Args:
        i, j: Its top and left, in pixels.
        h, w: Its height and width.
        value: A number, or one for each channel.

    >>> Erase(0, 0, 4, 4)
    Erase(i=0, j=0, h=4, w=4, value=0.0)
    """

    i: int
    j: int
    h: int
    w: int
    value: float | tuple[float, ...] = 0.0


@dataclass(frozen=True)
class RandomErasing(Stage):
    """A random rectangle becomes `value`.

    Args:
        p: With which probability, from 0 to 1, for each image by itself.
        scale: The least and the largest part of the image's area.
        ratio: The least and the largest width / height; its logarithm is uniform.
        value: A number, or one for each channel.

    Source: Zhong et al., "Random erasing data augmentation", 2017.

    >>> RandomErasing(p=0.25).p
    0.25
    """

    columns: ClassVar[int] = 4  # top, left, height, width
    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self.kind, p=self.p)
        _ordered(self, "scale")
        _ordered(self, "ratio")


@dataclass(frozen=True)
class MixUp(Stage):
    """lam * image + (1 - lam) * the image before it in the batch, for all images with one lam.

    Args:
        alpha: lam is drawn from Beta(alpha, alpha); above 0.

    Source: Zhang et al., "mixup: beyond empirical risk minimization", 2017.

    >>> MixUp(0.2)
    MixUp(alpha=0.2)
    """

    columns: ClassVar[int] = 1
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha > 0:
            raise ValueError(f"{self.kind}: `alpha` is {self.alpha!r}; it has to be above 0")


def _ordered(stage: Any, name: str) -> None:
    low, high = getattr(stage, name)
    if not 0 < low <= high:
        raise ValueError(f"{stage.kind}: `{name}` is {(low, high)}; two in order, above 0")


def encoded(stages: Sequence[Stage]) -> str:
    """Return stages as a text, which an operator of PyTorch can take.

    >>> encoded([Resize((4, 4), antialias=False)])
    '[["Resize", [[4, 4], "bilinear", false]]]'
    """
    return _json([(stage.kind, _values_of(stage)) for stage in stages])


def _values_of(stage: Stage) -> list[Any]:
    return [getattr(stage, field.name) for field in dataclasses.fields(stage)]


def _json(value: Any) -> str:
    """Return the text that `json.loads` makes `value` of.

    `json.dumps` is written in C, which `torch.compile` cannot look into; this it can.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join([_json(each) for each in value])}]"
    if isinstance(value, str):
        return f'"{value}"'
    if value is None or isinstance(value, bool):
        return {None: "null", False: "false", True: "true"}[value]
    if isinstance(value, int | np.integer):
        return f"{int(value)}"
    return f"{float(value)!r}".replace("inf", "Infinity").replace("nan", "NaN")


@functools.cache
def decoded(text: str) -> tuple[Stage, ...]:
    """Return the stages of a text.

    >>> decoded(encoded([Resize((4, 4)), ToFloat()]))
    (Resize(size=(4, 4), interpolation='bilinear', antialias=True), ToFloat())
    """
    return tuple(_KINDS[kind](*values) for kind, values in json.loads(text))
