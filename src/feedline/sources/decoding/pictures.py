"""Pictures: JPEG by the quickest decoder there is, everything else by Pillow.

Takes: the bytes of a JPEG, PNG, WebP, GIF, BMP or TIFF file, known by their first bytes and not by the file's suffix.
Gives: pixels, uint8, (height, width, channels); of an animation the first frame.
Promises: the number of pixels is read from the header and limited before anything is decoded; a JPEG that is to become
much smaller is decoded at 1/2, 1/4 or 1/8 (never below the size asked for); the same picture with and without
simplejpeg.
Not its job: resizing (resizing); other kinds of files.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from feedline.datasets import Array
from feedline.errors import SourceError
from feedline.extras import extra
from feedline.sources.decoding.resizing import can_vector, resized

TURBO = "simplejpeg"
MODES = {"RGB": 3, "L": 1}
"""What a picture is converted to, and its channels."""

# By Pillow's classes, and not Image.open: that one looks for every format it knows (some start other programs), and has
# a limit of its own that is a setting of the whole process.
_PLUGINS = {
    "JPEG": ("JpegImagePlugin", "JpegImageFile"),
    "PNG": ("PngImagePlugin", "PngImageFile"),
    "WebP": ("WebPImagePlugin", "WebPImageFile"),
    "GIF": ("GifImagePlugin", "GifImageFile"),
    "BMP": ("BmpImagePlugin", "BmpImageFile"),
    "TIFF": ("TiffImagePlugin", "TiffImageFile"),
}
_SCALES = (8, 4, 2)
"""Those that libjpeg-turbo has vector code for: at 5/8 a picture takes longer than whole (benchmarks/images.py)."""
_DEEPER = ("I", "I;16", "I;16B", "I;16L", "I;16N")


def kind_of(data: bytes) -> str | None:
    """Which kind of picture this is, by its first bytes.

    >>> kind_of(b"\\x89PNG\\r\\n\\x1a\\n....."), kind_of(b"hello")
    ('PNG', None)
    """
    if data.startswith(b"\xff\xd8"):
        return "JPEG"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WebP"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if data.startswith(b"BM"):
        return "BMP"
    return "TIFF" if data.startswith((b"II*\0", b"MM\0*")) else None


@dataclass(frozen=True)
class Pictures:
    """Decodes pictures. `turbo` and `vector` say which packages do it; `chosen` finds out."""

    size: tuple[int, int] | None
    """Height and width."""
    mode: str
    max_pixels: int
    upright: bool
    channels_first: bool
    turbo: bool = False
    vector: bool = False

    def chosen(self) -> Pictures:
        """With the packages that are installed: once, so that all workers have the same."""
        extra("PIL.Image", "images", "pictures")
        return replace(self, turbo=find_spec(TURBO) is not None, vector=can_vector())

    def __call__(self, data: bytes) -> Array:
        kind = kind_of(data)
        if kind is None:
            raise SourceError(f"is no picture: it begins with {data[:12]!r}, which no {', '.join(_PLUGINS)} does")
        pixels = self._by_turbo(data) if kind == "JPEG" and self.turbo else None
        if pixels is None:
            pixels = self._by_pillow(kind, data)
        if self.size is not None:
            pixels = resized(pixels, self.size, self.vector)
        return pixels.transpose(2, 0, 1) if self.channels_first else pixels

    def _by_turbo(self, data: bytes) -> Array | None:
        """None if Pillow had better look at it: it knows more of the odd ones, and says better what is wrong."""
        turbo = extra(TURBO, "images", "JPEG as this dataset was made to decode it")
        try:
            height, width, colours, _ = turbo.decode_jpeg_header(data)
            self._check(width, height)
            if colours not in ("YCbCr", "RGB", "Gray") or (self.upright and b"Exif\0\0" in data):
                return None
            scale = self._scale(width, height)
            least = {"min_height": -(-height // scale), "min_width": -(-width // scale)}
            decoded: Array = turbo.decode_jpeg(data, colorspace="GRAY" if self.mode == "L" else "RGB", **least)
            return decoded
        except ValueError:  # also what can be read all the same, such as stray bytes between two markers
            return None

    def _by_pillow(self, kind: str, data: bytes) -> Array:
        module, name = _PLUGINS[kind]
        plugin = getattr(extra(f"PIL.{module}", "images", "pictures"), name)
        try:
            with plugin(io.BytesIO(data)) as image:
                self._check(*image.size)
                return self._pixels(image)
        except (SourceError, MemoryError):
            raise
        except Exception as error:  # damaged headers lead Pillow to errors of many kinds
            raise SourceError(f"this {kind} picture cannot be decoded: {_reason(error)}") from error

    def _pixels(self, image: Any) -> Array:
        turned = self.upright and image.getexif().get(0x0112, 1) in range(2, 9)
        if hasattr(image, "draft"):
            sideways = turned and image.getexif()[0x0112] >= 5
            scale = self._scale(*(image.size[::-1] if sideways else image.size))
            image.draft(self.mode, tuple(max(1, side // scale) for side in image.size))
        if turned:
            image = extra("PIL.ImageOps", "images", "pictures").exif_transpose(image)
        if image.mode in _DEEPER:
            return self._from_deeper(np.asarray(image), image.mode)
        if image.mode == "F":
            raise SourceError(
                "its pixels are floats, which 8 bits cannot hold; give a decoder for its suffix (decoders=)"
            )
        image.info.pop("transparency", None)  # the colours are wanted, and Pillow warns of what it does with this
        pixels = np.array(image if image.mode == self.mode else image.convert(self.mode))
        return pixels.reshape(*pixels.shape[:2], MODES[self.mode])

    def _from_deeper(self, values: Array, mode: str) -> Array:
        """16 bits, of which the upper 8 are taken. (Pillow's own conversion makes all above 255 white.)"""
        if mode == "I" and not (values.min() >= 0 and values.max() < 1 << 16):
            raise SourceError("its pixels have more than 16 bits; give a decoder for its suffix (decoders=)")
        upper = (values.astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(upper[..., None], MODES[self.mode], axis=2)

    def _scale(self, width: int, height: int) -> int:
        if self.size is None:
            return 1
        fits = (
            scale for scale in _SCALES if -(-height // scale) >= self.size[0] and -(-width // scale) >= self.size[1]
        )
        return next(fits, 1)

    def _check(self, width: int, height: int) -> None:
        if width * height > self.max_pixels:
            raise SourceError(
                f"its header says {width} × {height} = {width * height:,} pixels, more than max_pixels="
                f"{self.max_pixels:,}; a larger max_pixels= reads it, if you trust it"
            )


def _reason(error: Exception) -> str:
    """Pillow's words, or better ones where it has none."""
    if isinstance(error, SyntaxError | struct.error | IndexError):
        return f"it is damaged or cut short ({error})"
    return str(error) or type(error).__name__
