"""Which decoder a file gets: chosen once, by its suffix.

Takes: options, and the user's decoders. Gives: `Decoders`, which decodes bytes under a name.
Promises: it can be pickled (a driver is imported where it is used); a user's decoder comes before ours, the longest
suffix first; our errors name the file; errors of a user's decoder keep their type.
Not its job: how anything is decoded (the other files here).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from feedline.errors import OptionError, OptionTypeError, SourceError
from feedline.errors.checks import check_choice, check_flag, check_function, check_whole
from feedline.errors.missing_packages import extra
from feedline.sources.decoding.numpy_files import ManyArrays, OneArray
from feedline.sources.decoding.pictures import MODES, Pictures
from feedline.sources.decoding.sound import RECORDINGS, Recordings, Waves
from feedline.sources.decoding.text import parsed, text, whole

PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
Decode = Callable[[bytes], Any]


MAX_PIXELS = 89_478_485
"""Pillow's own limit: 256 MB as RGB."""
MAX_BYTES = 2**30


class Decoders:
    """Decodes files by suffix: for sources that take a `decode`, `decode=Decoders(size=(224, 224))`.

    Options are those of `FilesDataset`. It is called with the bytes and a name, of which only the suffix counts
    (`"a/b.jpg"`, or just `"jpg"`).

    >>> Decoders()(b"[1]", "a/b.json"), Decoders()(b"7", "cls")
    ([1], 7)
    >>> known = Decoders(None, decoders={".csv": lambda data: data.split(b",")})
    >>> known.decode("a/b.JSON", b"[1]"), known.decode("a/b.csv", b"1,2")
    ([1], [b'1', b'2'])
    """

    def __init__(
        self,
        size: Any = None,
        *,
        mode: str = "RGB",
        channels_first: bool = False,
        upright: bool = False,
        allow_pickle: bool = False,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
        decoders: Mapping[str, Decode] | None = None,
    ) -> None:
        check_choice("mode", mode, tuple(MODES))
        first = self.channels_first = check_flag("channels_first", channels_first)
        self.max_bytes = check_whole("max_bytes", max_bytes, 1)
        most = check_whole("max_pixels", max_pixels, 1)
        pictures = Pictures(check_size(size), mode, most, check_flag("upright", upright), first).chosen()
        array = OneArray(check_flag("allow_pickle", allow_pickle))
        self._ours: dict[str, Decode] = {
            **dict.fromkeys(PICTURES, pictures),
            ".npy": array,
            ".npz": ManyArrays(array, self.max_bytes),
            ".txt": text,
            ".json": parsed,
            ".cls": whole,
            ".wav": Waves(first),
            **dict.fromkeys(RECORDINGS, Recordings(first)),
        }
        self._own = _checked(decoders)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """All known suffixes."""
        return tuple(sorted({*self._ours, *self._own}))

    def check_packages(self, suffixes: Iterable[str]) -> None:
        """Check that the packages for files with these suffixes are installed."""
        if any(suffix in PICTURES and suffix not in self._own for suffix in suffixes):
            extra("PIL.Image", "images", "pictures")
        if any(suffix in RECORDINGS and suffix not in self._own for suffix in suffixes):
            extra("soundfile", "audio", "sound")

    def suffix(self, name: str) -> str:
        """The longest known suffix of a name, in lower case; "" if there is none.

        >>> Decoders(None, decoders={".seg.png": bytes}).suffix("dir.x/a.b.seg.PNG")
        '.seg.png'
        """
        last = name[name.rfind("/") + 1 :].lower()
        at = last.find(".", 1)  # a leading dot marks a hidden file, and is no suffix
        while at >= 0:
            if (found := last[at:]) in self._own or found in self._ours:
                return found
            at = last.find(".", at + 1)
        return ""

    def has_own(self, suffix: str) -> bool:
        """Has the user given a decoder for that suffix?"""
        return suffix in self._own

    def __call__(self, data: bytes, name: str) -> Any:
        """The contents of an object or of a shard's member."""
        return self.decode(name if "." in name else f"*.{name}", data)

    def decode(self, name: str, data: bytes) -> Any:
        """The contents of a file."""
        suffix = self.suffix(name)
        if suffix in self._own:
            return self._own[suffix](data)
        if suffix not in self._ours:
            raise SourceError(f"{name}: no decoder is known for such a file; {self.remedy(name)}")
        if not data and suffix != ".txt":
            raise SourceError(f"{name}: the file is empty")
        try:
            return self._ours[suffix](data)
        except SourceError as error:
            raise SourceError(f"{name}: {error}") from error.__cause__

    def remedy(self, name: str) -> str:
        """What to do about a file that no decoder is known for."""
        dot = name.rfind(".", name.rfind("/") + 1)
        suffix = name[dot:].lower() if dot >= 0 else ".suffix"
        own = f"decoders={{{suffix!r}: function_of_bytes}}"
        return f"the known suffixes are {' '.join(self.suffixes)}; give a decoder for others: {own}"


def check_size(size: Any) -> tuple[int, int] | None:
    """The size of pictures."""
    if size is None:
        return None
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise OptionTypeError(f"size must be (height, width), such as (224, 224), or None; got {size!r}")
    height, width = (check_whole(f"size[{place}]", side, 1) for place, side in enumerate(size))
    return height, width


def _checked(own: Mapping[str, Decode] | None) -> dict[str, Decode]:
    if own is not None and not isinstance(own, Mapping):
        raise OptionTypeError(f"decoders must map suffixes to functions, such as {{'.dcm': read}}; got {own!r}")
    for suffix, decode in (own or {}).items():
        if not isinstance(suffix, str) or not suffix.startswith(".") or "/" in suffix:
            raise OptionError(f"decoders has the key {suffix!r}; a suffix begins with a dot, such as '.dcm'")
        if check_function(f"decoders[{suffix!r}]", decode) is None:
            raise OptionTypeError(f"decoders[{suffix!r}] must be a function of bytes; got None")
    return {suffix.lower(): decode for suffix, decode in (own or {}).items()}
