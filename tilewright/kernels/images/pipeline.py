"""Pipelines of stages as operations on batches of images."""

from collections.abc import Sequence
from typing import Any, Literal

import tilewright as tw
from tilewright.kernels.arrays import dtype_name, empty, is_tensor, on_cpu, strides
from tilewright.kernels.checks import seed_array
from tilewright.kernels.images.draw import column_of, draw_kernel
from tilewright.kernels.images.pixels import MEAN_PARTS, is_whole, means_kernel, pixels_kernel
from tilewright.kernels.images.stages import Stage, decoded, encoded
from tilewright.kernels.operation import operation

__all__ = ["Compose"]

Layout = Literal["NCHW", "NHWC"]


class Compose:
    """A pipeline of stages that runs as one kernel: no image between two stages is made.

    The results are those of torchvision's transforms, one after another; where images are of uint8,
    every stage rounds as it does there. What is random is drawn for each image, anew at every call;
    the same seed gives the same bits. A change of contrast needs the mean of an image, for which
    the kernel runs twice.

    Args:
        stages: What is done, in that order: `RandomResizedCrop`, `ColorJitter`, `Normalize`, ...
        layout: "NCHW", or "NHWC", of the images and of the results.

    >>> import numpy as np
    >>> from tilewright.kernels.images import RandomHorizontalFlip, ToFloat
    >>> pipeline = Compose([RandomHorizontalFlip(), ToFloat()])
    >>> images = np.full((2, 3, 8, 8), 255, np.uint8)
    >>> pipeline(images, seed=1).max()
    np.float32(1.0)
    """

    def __init__(self, stages: Sequence[Stage], *, layout: Layout = "NCHW") -> None:
        if layout not in ("NCHW", "NHWC"):
            raise ValueError(f"`layout` is {layout!r}; 'NCHW' or 'NHWC' is needed")
        self.stages, self.layout = tuple(stages), layout
        for stage in self.stages:
            if not isinstance(stage, Stage):
                raise TypeError(
                    f"`stages` has {stage!r}; a stage is needed, such as RandomHorizontalFlip()"
                )
        self._text = encoded(self.stages)

    def __call__(self, images: Any, seed: Any = None, *, parameters: Any = None) -> Any:
        """Return new images.

        Args:
            images: Batch of uint8, fp16, bf16 or fp32 (from 0 to 1), of any strides; of 1 or 3
                channels, where colors change.
            seed: Of what is random: an integer, or an array of one int64 on the device of `images`;
                by default a random one, of PyTorch's generator for that device or NumPy's.
            parameters: What `self.parameters` has returned; by default that of the seed.

        Returns:
            Images of the same dtype, or fp32 where a stage makes floats of uint8; contiguous.
        """
        if parameters is None:
            parameters = self.parameters(images, seed)
        return _image_pipeline(images, parameters, self._text, self.layout)

    def parameters(self, images: Any, seed: Any = None) -> Any:
        """Return what is drawn for each image, a table of fp32: see `columns` of each stage."""
        if seed is None and not any(stage.columns for stage in self.stages):
            seed = 0  # nothing is random: the generator stays as it is
        # What is drawn depends on the shape of the images alone.
        shaped = images.detach() if is_tensor(images) else images
        return _image_parameters(shaped, seed_array(images, seed), self._text, self.layout)

    def __repr__(self) -> str:
        return f"Compose([{', '.join(map(repr, self.stages))}], layout={self.layout!r})"


def _in_order(values: Sequence[Any], layout: str) -> tuple[Any, ...]:
    """Return what there is for each dimension in the order image, channel, row, column."""
    n, *rest = values
    return (n, *rest) if layout == "NCHW" else (n, rest[2], rest[0], rest[1])


def _sizes(images: Any, stages: Sequence[Stage], layout: str) -> tuple[tuple[int, int], ...]:
    """Return (height, width) before each stage, and after the last one."""
    if images.ndim != 4:
        raise ValueError(f"`images` has {images.ndim} dimensions; 4 are needed, {layout}")
    _, _, height, width = _in_order(images.shape, layout)
    sizes = [(height, width)]
    for stage in stages:
        sizes.append(stage.output_size(*sizes[-1]))
        if 0 in sizes[-2] and 0 not in sizes[-1]:
            raise ValueError(f"{stage} is for images with pixels, not of {sizes[-2]}")
    return tuple(sizes)


def _check(images: Any, stages: Sequence[Stage], layout: str) -> None:
    name = dtype_name(images)
    if name not in ("uint8", "float16", "bfloat16", "float32"):
        raise TypeError(f"`images` is of {name}; uint8, float16, bfloat16 or float32 is needed")
    channels = _in_order(images.shape, layout)[1]
    for stage in stages:
        if stage.kind == "ColorJitter" and channels not in (1, 3):
            raise ValueError(f"`images` has {channels} channels; ColorJitter needs 1 or 3")
        for field in ("mean", "std", "fill", "value"):
            value = getattr(stage, field, None)
            if isinstance(value, tuple) and len(value) != channels:
                raise ValueError(f"{stage} is not for images of {channels} channels")


def _allocate_parameters(images: Any, seed: Any, text: str, layout: str) -> Any:
    stages = decoded(text)
    return empty((images.shape[0], column_of(stages, len(stages))), images, "float32")


@operation(
    "image_parameters(Tensor images, Tensor seed, str stages, str layout) -> Tensor",
    allocate=_allocate_parameters,
)
def _image_parameters(table: Any, images: Any, seed: Any, text: str, layout: str) -> None:
    stages = decoded(text)
    count, columns = table.shape
    if count * columns == 0:
        return
    block = 128
    draw_kernel[(tw.cdiv(count, block),)](
        table,
        count,
        seed,
        _sizes(images, stages, layout),
        STAGES=stages,
        BLOCK=block,
        num_warps=4,
    )


def _allocate(images: Any, parameters: Any, text: str, layout: str) -> Any:
    stages = decoded(text)
    _check(images, stages, layout)
    height, width = _sizes(images, stages, layout)[-1]
    count, channels, _, _ = _in_order(images.shape, layout)
    whole = dtype_name(images) == "uint8"
    becomes_float = whole and not is_whole(stages, len(stages), whole)
    shape = (
        (count, channels, height, width) if layout == "NCHW" else (count, height, width, channels)
    )
    return empty(shape, images, "float32" if becomes_float else None)


@operation(
    "image_pipeline(Tensor images, Tensor parameters, str stages, str layout) -> Tensor",
    allocate=_allocate,
)
def _image_pipeline(out: Any, images: Any, parameters: Any, text: str, layout: str) -> None:
    if 0 in out.shape:
        return
    stages, sizes = decoded(text), _sizes(images, decoded(text), layout)
    count, channels, _, _ = _in_order(images.shape, layout)
    constants = {
        "STAGES": stages,
        "CHANNELS": tuple(range(channels)),
        "WHOLE": dtype_name(images) == "uint8",
    }
    source = (images, _in_order(strides(images), layout))
    jitters = [index for index, stage in enumerate(stages) if stage.needs_means]
    sums = empty((max(len(jitters), 1), count, MEAN_PARTS), images, "float32")
    for index in jitters:
        rows, columns = _tile(images, sizes[index][1])
        means_kernel[(MEAN_PARTS, count)](
            *source,
            parameters,
            sums,
            count,
            sizes,
            INDEX=index,
            ROWS=rows,
            COLUMNS=columns,
            num_warps=8,
            **constants,
        )
    height, width = sizes[-1]
    rows, columns = _tile(images, width)
    pixels_kernel[(tw.cdiv(height, rows) * tw.cdiv(width, columns), count)](
        *source,
        out,
        _in_order(strides(out), layout),
        parameters,
        sums,
        count,
        sizes,
        ROWS=rows,
        COLUMNS=columns,
        num_warps=4,
        **constants,
    )


def _tile(images: Any, width: int) -> tuple[int, int]:
    """Return the rows and columns of a program's tile of images of that width."""
    columns = min(tw.next_power_of_2(width), 256 if on_cpu(images) else 128)
    return max((1024 if on_cpu(images) else 256) // columns, 1), columns
