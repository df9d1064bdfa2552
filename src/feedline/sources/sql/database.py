"""Where a database is, and how it may be named in messages.

Takes: a URL, or a function that returns a connection. Gives: its kind and place; its name without the password.
Promises: it can be pickled; no text made here has the password. Not its job: connecting (connecting).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from feedline.errors import OptionError, OptionTypeError, SourceError
from feedline.errors.masking import MASK, address, masked

FORMS = (
    "sqlite:///file.db, sqlite:////absolute/file.db, postgresql://user:password@host/name, "
    "mysql://user:password@host/name, duckdb:///file.duckdb"
)
FILES = ("sqlite", "duckdb")
SERVERS = ("postgresql", "mysql")
SHORTEST_SECRET = 4
"""A shorter password is removed only from its URL: it may be part of any word."""

_IN_PLACE = re.compile(r"^[a-z]+://[^:/?#]*:(.*)@", re.IGNORECASE)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")
_IN_QUERY = re.compile(r"[?&](?:password|sslpassword)=([^&#]*)", re.IGNORECASE)


class Database:
    """A database, given by its URL or by a function that connects to it.

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
        """The absolute path of a file: workers may have another working directory."""
        if self.kind in FILES:
            self.path = _path(str(where))

    @property
    def text(self) -> str:
        """The type that makes a text of a value, in CAST(… AS …)."""
        return "CHAR" if self.kind == "mysql" else "TEXT"

    def check_file(self) -> None:
        """Refuse a missing file: drivers would create it."""
        if self.path and not Path(self.path).is_file():
            what = "is a folder" if Path(self.path).is_dir() else "is not there"
            raise SourceError(
                f"the database file {self.path} {what}: look at the URL {self} (three slashes before a relative path, "
                "four before an absolute one)"
            )

    def check_password(self) -> None:
        """libpq takes the text before the first @ as user and password, and would show the rest as the host."""
        if self.kind not in SERVERS or not isinstance(self.where, str):
            return
        if _ends_early(self.where.partition("://")[2]):
            raise OptionError(
                f"url={address(self.where)!r}: the password has an @ or a / in it, which a URL reads as the end of "
                "the password: write %40 for @ and %2F for / (urllib.parse.quote(password, safe=''))"
            )

    def hide(self, text: str) -> str:
        """A text without the password."""
        if not isinstance(self.where, str):
            return masked(text)
        text = text.replace(self.where, address(self.where))
        for secret in _secrets(self.where):
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, MASK)
        return masked(text)

    def __repr__(self) -> str:
        if isinstance(self.where, str):
            return address(self.where)
        return f"the database of {getattr(self.where, '__qualname__', type(self.where).__name__)}()"


def _ends_early(rest: str) -> bool:
    """Does the password contain an unescaped @ or /?

    >>> [_ends_early(rest) for rest in ("me:p@ss@host/db", "me:p/ss@host", "me:pw@[::1]:1/db?user=a@b", "host:1/a@b")]
    [True, True, False, False]
    """
    authority, _, later = rest.partition("/")
    user, at, hosts = authority.partition("@")
    if at:
        return "@" in hosts.partition("?")[0]
    return "@" in later and not all(_HOST.fullmatch(each) for each in user.partition("?")[0].split(","))


def _secrets(url: str) -> list[str]:
    found = [match[1] for pattern in (_IN_PLACE, _IN_QUERY) if (match := pattern.search(url)) is not None]
    return sorted({each for text in found for each in (text, unquote(text))}, key=len, reverse=True)


def _kind(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    kind = {"postgres": "postgresql", "mariadb": "mysql"}.get(scheme.lower(), scheme.lower())
    if not separator or kind not in (*FILES, *SERVERS):
        raise OptionError(
            f"url must be one of {FORMS}, or a function that returns a DB-API connection; got {address(url)!r}"
        )
    return kind


def _path(url: str) -> str:
    rest = url.partition("://")[2]
    if not rest.startswith("/"):
        raise OptionError(
            "url of a file needs three slashes before a relative path, and four before an absolute "
            f"one: {FORMS}; got {address(url)!r}"
        )
    if rest in ("/", "/:memory:"):
        raise OptionError(
            f"url={address(url)!r}: a database in memory belongs to one connection; give a function that returns the "
            "connection"
        )
    return os.path.abspath(rest[1:])
