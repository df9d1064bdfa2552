"""Pictures: JPEG by the fastest decoder available, everything else by Pillow.

Takes: the bytes of a JPEG, PNG, WebP, GIF, BMP or TIFF file, recognised by their first bytes, not by the file's suffix.
Gives: pixels, uint8, (height, width, channels); of an animation, the first frame.
Promises: the number of pixels is read from the header and limited before anything is decoded; a JPEG that will be made
much smaller is decoded at 1/2, 1/4 or 1/8 (never below the requested size); the picture is the same with and without
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
from feedline.errors.missing_packages import extra
from feedline.sources.decoding.resizing import can_vector, resized

TURBO = "simplejpeg"
MODES = {"RGB": 3, "L": 1}
"""What a picture is converted to, and the number of channels."""

# Pillow's classes are used instead of Image.open, which tries every format it knows (some start other programs) and has
# its own limit, a setting of the whole process.
_PLUGINS = {
    "JPEG": ("JpegImagePlugin", "JpegImageFile"),
    "PNG": ("PngImagePlugin", "PngImageFile"),
    "WebP": ("WebPImagePlugin", "WebPImageFile"),
    "GIF": ("GifImagePlugin", "GifImageFile"),
    "BMP": ("BmpImagePlugin", "BmpImageFile"),
    "TIFF": ("TiffImagePlugin", "TiffImageFile"),
}
_SCALES = (8, 4, 2)
"""The scales with vector code in libjpeg-turbo: at 5/8 a picture takes longer than whole (benchmarks/images.py)."""
ROOM = 1.25
"""A picture is decoded smaller only if it stays this much larger than requested. The result then differs from Pillow's
by 1 of 255 on average (tests/sources/test_decoding.py); at 1.0, by 2.6. 2000×1500 to 224 takes 8.8 ms, else 14.7."""
_DEEPER = ("I", "I;16", "I;16B", "I;16L", "I;16N")

Decoded = tuple[Array, tuple[float, float]]
"""Pixels, and the height and width of the picture in them: of 99 pixels decoded at 1/2, the last of 50 is only half."""


def kind_of(data: bytes) -> str | None:
    """The kind of picture, by its first bytes.

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
    """Decodes pictures. `turbo` and `vector` say which packages are used; `chosen` finds them, importing none."""

    size: tuple[int, int] | None
    """Height and width."""
    mode: str
    max_pixels: int
    upright: bool
    channels_first: bool
    turbo: bool = False
    vector: bool = False

    def chosen(self) -> Pictures:
        """A copy that uses the fast packages that are installed: decided once, so that all workers use the same."""
        return replace(self, turbo=find_spec(TURBO) is not None, vector=can_vector())

    def __call__(self, data: bytes) -> Array:
        kind = kind_of(data)
        if kind is None:
            raise SourceError(f"is not a picture: it begins with {data[:12]!r}, unlike any {', '.join(_PLUGINS)} file")
        decoded = self._by_turbo(data) if kind == "JPEG" and self.turbo else None
        pixels, whole = self._by_pillow(kind, data) if decoded is None else decoded
        if self.size is not None:
            pixels = resized(pixels, self.size, self.vector, whole)
        return pixels.transpose(2, 0, 1) if self.channels_first else pixels

    def _by_turbo(self, data: bytes) -> Decoded | None:
        """None if Pillow should decode it: Pillow knows more unusual files, and explains better what is wrong."""
        turbo = extra(TURBO, "images", "decoding JPEG with the package this dataset was made with")
        try:
            height, width, colours, _ = turbo.decode_jpeg_header(data)
            self._check(width, height)
            if colours not in ("YCbCr", "RGB", "Gray") or (self.upright and b"Exif\0\0" in data):
                return None
            scale = self._scale(width, height)
            least = {"min_height": -(-height // scale), "min_width": -(-width // scale)}
            pixels = turbo.decode_jpeg(data, colorspace="GRAY" if self.mode == "L" else "RGB", **least)
            return pixels, (height / scale, width / scale)
        except ValueError:  # also raised for readable files, such as those with stray bytes between two markers
            return None

    def _by_pillow(self, kind: str, data: bytes) -> Decoded:
        module, name = _PLUGINS[kind]
        plugin = getattr(extra(f"PIL.{module}", "images", "pictures"), name)
        try:
            if kind == "WebP":  # Pillow allocates memory for the whole picture when it opens one
                self._check(*_webp_size(data))
            with plugin(io.BytesIO(data)) as image:
                self._check(*image.size)
                if self.upright and image.getexif().get(0x0112, 1) in range(2, 9):
                    image = extra("PIL.ImageOps", "images", "pictures").exif_transpose(image)
                elif kind == "JPEG":
                    return self._smaller(image)
                return self._pixels(image), image.size[::-1]
        except (SourceError, MemoryError):
            raise
        except Exception as error:  # damaged headers cause many kinds of errors in Pillow
            raise SourceError(f"this {kind} picture cannot be decoded: {_reason(error)}") from error

    def _smaller(self, image: Any) -> Decoded:
        """A JPEG, decoded at a smaller size if that is enough."""
        width, height = image.size
        scale = self._scale(width, height)
        image.draft(self.mode, (max(1, width // scale), max(1, height // scale)))
        return self._pixels(image), (height / scale, width / scale)

    def _pixels(self, image: Any) -> Array:
        if image.mode in _DEEPER:
            return self._from_deeper(np.asarray(image), image)
        if image.mode == "F":
            raise SourceError(
                "its pixels are floats, which 8 bits cannot hold; give a decoder for its suffix (decoders=)"
            )
        image.info.pop("transparency", None)  # only the colours are wanted, and Pillow warns about transparency
        pixels = np.array(image if image.mode == self.mode else image.convert(self.mode))
        return pixels.reshape(*pixels.shape[:2], MODES[self.mode])

    def _from_deeper(self, values: Array, image: Any) -> Array:
        """The upper 8 of 16 bits. (Pillow's own conversion makes everything above 255 white.)"""
        # Older Pillows use this mode for a PNG of 16 bits. In a TIFF it is 32 bits, or signed: white is unknown.
        if image.mode == "I" and image.format != "PNG":
            raise SourceError(
                "its pixels have 32 bits or a sign, which 8 bits cannot hold; give a decoder for its suffix (decoders=)"
            )
        upper = (values.astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(upper[..., None], MODES[self.mode], axis=2)

    def _scale(self, width: int, height: int) -> int:
        if self.size is None:
            return 1
        least_height, least_width = self.size[0] * ROOM, self.size[1] * ROOM
        return next((each for each in _SCALES if height >= each * least_height and width >= each * least_width), 1)

    def _check(self, width: int, height: int) -> None:
        if width * height > self.max_pixels:
            raise SourceError(
                f"its header says {width} × {height} = {width * height:,} pixels, more than max_pixels="
                f"{self.max_pixels:,}; raise max_pixels= if you trust the file"
            )


def _webp_size(data: bytes) -> tuple[int, int]:
    """Width and height from the first chunk."""
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _reason(error: Exception) -> str:
    """Pillow's message, or a better one if it has none."""
    if isinstance(error, SyntaxError | struct.error | IndexError):
        return f"it is damaged or cut short ({error})"
    return str(error) or type(error).__name__
