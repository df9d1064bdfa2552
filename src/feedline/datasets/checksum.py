"""A checksum of samples, to check that reading them again gives the same.

Takes: a sample, the checksum of those before it. Gives: `seen`, the checksum of all of them together.
Promises: no user code runs: only plain values, NumPy's arrays and torch's tensors have a checksum. Of a large value
only the beginning is read.
Not its job: what is compared, and when (reading/seen, mixture_stream).
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from feedline.machine import loaded_torch

MOST = 1 << 10
"""How many values of an array, characters of a text, and parts of one element count."""
FEW = 8
"""How many items of a list, tuple or dict count, besides its length: 50 would take 25 µs of a batch's 150."""
_PLAIN = (int, float, complex, bool, type(None))


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
        found.append(f"{_name(array.dtype)} {array.shape}".encode())
        # A view, if it can be one: array.flat goes through the values one by one.
        start = array.reshape(-1)[:MOST] if array.flags.c_contiguous else array.flat[:MOST]
        found.append(start.tobytes())
    return True


@lru_cache(maxsize=256)
def _name(dtype: Any) -> str:
    return str(dtype)  # NumPy takes 5 µs for it


def _array(value: Any, kind: type) -> Any:
    if kind is np.ndarray or (issubclass(kind, np.generic) and kind.__module__ == "numpy"):
        return np.asarray(value)
    torch = loaded_torch.module()
    if torch is not None and kind is getattr(torch, "Tensor", None):
        start = value.detach().flatten()[:MOST].contiguous().view(torch.uint8).numpy()
        return np.concatenate([start, np.array([*value.shape, zlib.crc32(str(value.dtype).encode())])])
    return None
