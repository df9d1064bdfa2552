"""The values of a sample's members, by suffix: decodes and encodes txt, json, cls and npy.

Takes: bytes and a suffix (only what follows its last dot counts), or a value and a suffix. Gives: the value, or the
bytes.
Promises: nothing is ever unpickled; an array's header is compared with its data before memory is allocated. Members of
unknown suffixes stay bytes. Not its job: pictures and sounds (`decode=Decoders(…)`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.errors import OptionTypeError
from feedline.sources.decoding.numpy_files import OneArray
from feedline.sources.decoding.text import parsed, text, whole

Decode = Callable[[bytes, str], Any]


def decode_plain(data: bytes, suffix: str) -> Any:
    """The value of a member, if its suffix is `txt`, `json`, `cls` (an integer) or `npy`; else the bytes.

    >>> decode_plain(b"7", "cls"), decode_plain(b'{"a": 1}', "meta.json"), decode_plain(b"...", "jpg")
    (7, {'a': 1}, b'...')
    """
    read = _READ.get(suffix.rpartition(".")[2])
    return data if read is None else read(data)


def is_read_as_value(suffix: str) -> bool:
    """Does `decode_plain` make something else of the bytes of such a member?"""
    return suffix.rpartition(".")[2] in _READ


def encode_plain(value: Any, suffix: str) -> bytes:
    """The reverse of `decode_plain`; bytes stay unchanged.

    >>> encode_plain(7, "cls"), encode_plain("héllo", "txt"), encode_plain([1, 2], "json")
    (b'7', b'h\\xc3\\xa9llo', b'[1, 2]')
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    write = _WRITE.get(suffix.rpartition(".")[2])
    if write is None:
        known = ", ".join(sorted(_WRITE))
        raise OptionTypeError(
            f"the field {suffix!r} is a {type(value).__name__}, but only fields ending in {known} are encoded for "
            "you: give bytes"
        )
    try:
        return write(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise OptionTypeError(
            f"the field {suffix!r} cannot be encoded from a {type(value).__name__}: {error}"
        ) from error


def _array_file(value: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(value), version=None, allow_pickle=False)
    return stream.getvalue()


def _whole(value: Any) -> bytes:
    if isinstance(value, bool) or int(value) != value:
        raise ValueError(f"{value!r} is not a whole number")
    return str(int(value)).encode()


_READ: dict[str, Callable[[bytes], Any]] = {
    "txt": text,
    "json": parsed,
    "cls": whole,
    "npy": OneArray(allow_pickle=False),
}
_WRITE: dict[str, Callable[[Any], bytes]] = {
    "txt": lambda value: bytes(value.encode("utf-8")),
    "json": lambda value: json.dumps(value, sort_keys=True).encode(),
    "cls": _whole,
    "npy": _array_file,
}
