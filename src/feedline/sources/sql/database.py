"""Where a database is, and what may be said of that.

Takes: a URL, or a function that returns a connection. Gives: its kind and place; its name without the password.
Promises: pickles; the password is in no text made here. Not its job: connecting (connecting).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from feedline.errors import OptionError, OptionTypeError, SourceError

FORMS = "sqlite:///file.db, sqlite:////absolute/file.db, postgresql://user:password@host/name, duckdb:///file.duckdb"
FILES = ("sqlite", "duckdb")
SHORTEST_SECRET = 4
"""A shorter password is taken out of its URL only: it may be part of any word."""

_IN_PLACE = re.compile(r"^([a-z]+://[^:/?#]*):(.*)@", re.IGNORECASE)
_IN_QUERY = re.compile(r"([?&](?:password|sslpassword)=)([^&#]*)", re.IGNORECASE)


class Database:
    """One that is known by its URL, or by a function that connects to it.

    >>> Database("postgresql://ann:secret@host/shop")
    postgresql://ann:***@host/shop
    """

    def __init__(self, where: str | Callable[[], Any]) -> None:
        if not isinstance(where, str) and not callable(where):
            raise OptionTypeError(
                f"url must be a text ({FORMS}) or a function that returns a DB-API connection; "
                f"got a {type(where).__name__}"
            )
        self.where = where
        self.kind = "dbapi" if callable(where) else _kind(where)
        self.path = ""
        """Of a file, from the root: workers may stand elsewhere."""
        if self.kind in FILES:
            self.path = _path(str(where))

    def check_file(self) -> None:
        """Drivers make a file that is missing."""
        if self.path and not Path(self.path).is_file():
            what = "is a folder" if Path(self.path).is_dir() else "is not there"
            raise SourceError(
                f"the database file {self.path} {what}: look at the URL {self} (three slashes from here on, four from "
                "the root on)"
            )

    def hide(self, text: str) -> str:
        """A text without the password."""
        if not isinstance(self.where, str):
            return text
        text = text.replace(self.where, masked(self.where))
        for secret in _secrets(self.where):
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return text

    def __repr__(self) -> str:
        if isinstance(self.where, str):
            return masked(self.where)
        return f"the database of {getattr(self.where, '__qualname__', type(self.where).__name__)}()"


def masked(url: str) -> str:
    """Without the password, wherever it is.

    >>> masked("postgresql://ann@host/shop?password=secret&x=1"), masked("postgresql://ann:p@:/x@host/shop")
    ('postgresql://ann@host/shop?password=***&x=1', 'postgresql://ann:***@host/shop')
    """
    return _IN_QUERY.sub(r"\1***", _IN_PLACE.sub(r"\1:***@", url))


def _secrets(url: str) -> list[str]:
    found = [match[2] for pattern in (_IN_PLACE, _IN_QUERY) if (match := pattern.search(url)) is not None]
    return sorted({each for text in found for each in (text, unquote(text))}, key=len, reverse=True)


def _kind(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    kind = {"postgres": "postgresql"}.get(scheme.lower(), scheme.lower())
    if not separator or kind not in (*FILES, "postgresql"):
        raise OptionError(
            f"url must be one of {FORMS}, or a function that returns a DB-API connection; got {masked(url)!r}"
        )
    return kind


def _path(url: str) -> str:
    rest = url.partition("://")[2]
    if not rest.startswith("/"):
        raise OptionError(f"url of a file has three slashes, or four from the root on: {FORMS}; got {url!r}")
    if rest in ("/", "/:memory:"):
        raise OptionError(
            f"url={url!r}: a database in memory belongs to one connection; give a function that returns the connection"
        )
    return os.path.abspath(rest[1:])
