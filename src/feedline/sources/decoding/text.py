"""Text, JSON and class numbers.

Takes: the bytes. Gives: a string; what JSON holds; an integer.
Promises: invalid UTF-8 or JSON is an error that says where.
Not its job: tokens.
"""

from __future__ import annotations

import json
from typing import Any

from feedline.errors import SourceError


def text(data: bytes) -> str:
    """Decodes .txt.

    >>> text("für".encode())
    'für'
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"is not UTF-8 from byte {error.start} on; for another encoding give a decoder: "
            "decoders={'.txt': lambda data: data.decode('latin-1')}"
        ) from error


def parsed(data: bytes) -> Any:
    """Decodes .json.

    >>> parsed(b'{"boxes": [[0, 1]]}')
    {'boxes': [[0, 1]]}
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"is not JSON: {error}") from error


def whole(data: bytes) -> int:
    """Decodes .cls, the number of a class, as used in tar shards.

    >>> whole(b"7")
    7
    """
    try:
        return int(data)
    except ValueError as error:
        raise SourceError(f"is not a whole number: {data[:20]!r}") from error
