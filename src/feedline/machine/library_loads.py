"""How many shared libraries this process has loaded so far: whoever has looked through them sees whether to look again.

Takes: nothing. Gives: a number that grows with each library. Promises: a few microseconds; 0 where the system's loader
does not count (macOS).
Not its job: which libraries they are.
"""

from __future__ import annotations

import ctypes
from typing import Any


class _About(ctypes.Structure):
    """What the loader says of each library: `struct dl_phdr_info` of <link.h>."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("number_of_headers", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
    )


_PROCESS = ctypes.CDLL(None)
_Said = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_About), ctypes.c_size_t, ctypes.c_void_p)


def library_loads() -> int:
    """The number of loads so far.

    >>> before = library_loads()
    >>> library_loads() == before
    True
    """
    each_library = getattr(_PROCESS, "dl_iterate_phdr", None)
    found: list[int] = []

    def note(about: Any, size: int, _: Any) -> int:
        if size >= ctypes.sizeof(_About):  # else it is an old loader, which does not say it
            found.append(about.contents.loads)
        return 1  # each of them says the same

    if each_library is not None:
        each_library(_Said(note), None)
    return found[0] if found else 0
