"""Pictures made smaller or larger: each new pixel is a weighted mean of all old ones it covers (bilinear, antialiased).

Takes: pixels (height, width, channels) of uint8 and a size. Gives: pixels of that size, in their own memory.
Promises: the same as Pillow's BILINEAR with either package: they differ by at most 2 of 255.
Not its job: decoding (pictures).

cykooz-resizer uses vector instructions: 500×375 to 224×224 takes 0.26 ms on one core, Pillow 1.3 ms
(benchmarks/images.py), which is more than decoding the JPEG. OpenCV is faster still (0.12 ms) but uses only 2×2 pixels,
so that fine patterns turn into noise, and it is 60 MB large.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from feedline.datasets import Array
from feedline.errors.missing_packages import extra

PACKAGE = "cykooz_resizer"


class _ThreadResizer(threading.local):
    """A resizer belongs to one thread: it keeps memory between pictures."""

    def __init__(self) -> None:
        self.made = made = extra(PACKAGE, "images", "resizing pictures with the package this dataset was made with")
        self.filter = made.ResizeAlg.convolution(made.FilterType.bilinear)
        self.options = made.ResizeOptions(self.filter, False)
        self.image = made.ImageData
        self.kinds = {1: made.PixelType.U8, 3: made.PixelType.U8x3}
        self.resizer = made.Resizer()


@cache
def _own() -> _ThreadResizer:
    return _ThreadResizer()


def can_vector() -> bool:
    """Is the fast package installed? Determined without importing it."""
    return find_spec(PACKAGE) is not None


def resized(pixels: Array, size: tuple[int, int], vector: bool, of: tuple[float, float] | None = None) -> Array:
    """The picture in another size (height, width). `of` is its exact size, if the last pixels are only partly covered.

    >>> resized(np.full((4, 4, 3), 7, np.uint8), (2, 3), vector=False)[0].tolist()
    [[7, 7, 7], [7, 7, 7], [7, 7, 7]]
    """
    height, width = of or pixels.shape[:2]
    if (height, width) == size:
        return pixels
    return (_by_vector if vector else _by_pillow)(pixels, size, height, width)


def _by_vector(pixels: Array, size: tuple[int, int], whole_height: float, whole_width: float) -> Array:
    own, (height, width, channels) = _own(), pixels.shape
    kind, options = own.kinds[channels], own.options
    if (whole_height, whole_width) != (height, width):
        options = own.made.ResizeOptions(own.filter, False, own.made.CropBox(0, 0, whole_width, whole_height))
    old, new = own.image(width, height, kind, pixels.tobytes()), own.image(size[1], size[0], kind)
    own.resizer.resize(old, new, options)
    return np.frombuffer(bytearray(new.get_buffer()), np.uint8).reshape(*size, channels)


def _by_pillow(pixels: Array, size: tuple[int, int], height: float, width: float) -> Array:
    image: Any = extra("PIL.Image", "images", "resizing pictures")
    flat = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    old = image.fromarray(np.ascontiguousarray(flat))
    made = old.resize(size[::-1], image.Resampling.BILINEAR, (0, 0, width, height))
    return np.array(made).reshape(*size, pixels.shape[2])
