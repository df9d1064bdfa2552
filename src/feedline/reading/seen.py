"""A checksum of what was read from a stream, to check that reading again gives the same.

Takes: the first element of each batch, one after the other. Gives: a checksum of all of them together; whether it
equals the one in a record of that place.
Promises: no user code runs: only plain values, NumPy's arrays and torch's tensors have a checksum. Of a large value
only the beginning is read, so a batch costs a few microseconds.
Not its job: what happens if the checksums differ (stream_reader).
"""

from __future__ import annotations

import zlib
from itertools import islice
from typing import Any

import numpy as np

from feedline.machine import loaded_torch

MOST = 1 << 10
"""How many values of an array, characters of a text, and parts of one element count."""
FEW = 8
"""How many items of a list, tuple or dict count, besides its length: 50 would take 25 µs of a batch's 150."""
_PLAIN = (int, float, complex, bool, type(None))


class Seen:
    """What has been read of a part, compared with the `until` or `seen` of a record (see stream_source).

    >>> one, other = Seen({}), Seen({"seen": [2, 5]})
    >>> one.add(["a", "b"]); one.record(1)
    {'seen': [1, 4056790841]}
    >>> other.differs(1, ended=False), other.differs(2, ended=False), other.differs(3, ended=False)
    (False, True, False)
    """

    def __init__(self, record: dict[str, Any]) -> None:
        self._number: int | None = 0
        self._began = record.get("seen")
        self._until = record.get("until") or self._began

    def need_not(self) -> None:
        """Turn comparing off."""
        self._number = self._until = None

    def begin(self, at: int) -> None:
        """The part is opened at batch `at`, and not at its beginning."""
        self._number = self._began[1] if self._began and self._began[0] == at else None
        if self._number is None or (self._until and self._until[0] <= at):
            self._until = None

    def add(self, elements: list[Any]) -> None:
        """Add a batch that was read."""
        if elements and self._number is not None:
            self._number = seen(elements[0], self._number)

    def record(self, at: int) -> dict[str, Any]:
        """What to remember before batch `at`; empty if it could not be compared."""
        return {} if self._number is None else {"seen": [at, self._number]}

    def differs(self, at: int, ended: bool) -> bool:
        """Has everything known been read again, and was it different? True at most once."""
        if self._until is None or not (ended or at >= self._until[0]):
            return False
        until, self._until = self._until, None
        return (at, self._number) != tuple(until)


def seen(element: Any, before: int) -> int | None:
    """The checksum after one more element; None if the element has no checksum.

    >>> seen(("a", 1), 0) == seen(("a", 1), 0), seen(("a", 1), 0) == seen(("a", 2), 0), seen(object(), 0)
    (True, False, None)
    """
    found: list[bytes] = []
    try:
        return zlib.crc32(b"\0".join(found), before) if _tell(element, found) else None
    except Exception:  # a tensor without memory, say
        return None


def _tell(value: Any, found: list[bytes]) -> bool:
    """Add the content of a value. Is all of it of known types? Only exact types count: a subclass is user code."""
    kind = type(value)
    found.append(kind.__name__.encode())
    if len(found) > MOST:
        return True
    if kind in _PLAIN:
        found.append(repr(value).encode())
    elif kind is str:
        found.append(value[:MOST].encode(errors="surrogatepass"))
    elif kind is bytes:
        found.append(value[:MOST])
    elif kind is tuple or kind is list:
        found.append(b"%d" % len(value))
        return all(_tell(each, found) for each in value[:FEW])
    elif kind is dict:
        found.append(b"%d" % len(value))
        return all(_tell(name, found) and _tell(each, found) for name, each in islice(value.items(), FEW))
    else:
        array = _array(value, kind)
        if array is None or array.dtype.hasobject:
            return False
        found.append(f"{array.dtype} {array.shape}".encode())
        found.append(array.flat[:MOST].tobytes())
    return True


def _array(value: Any, kind: type) -> Any:
    if kind is np.ndarray or (issubclass(kind, np.generic) and kind.__module__ == "numpy"):
        return np.asarray(value)
    torch = loaded_torch.module()
    if torch is not None and kind is getattr(torch, "Tensor", None):
        start = value.detach().flatten()[:MOST].contiguous().view(torch.uint8).numpy()
        return np.concatenate([start, np.array([*value.shape, zlib.crc32(str(value.dtype).encode())])])
    return None
