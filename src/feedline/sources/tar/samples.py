"""WebDataset's layout: consecutive members with the same key are a sample.

Takes: a shard's `Members`. Gives: `TarParts` of one sample after the other: its key, and each member by suffix.
Promises: the key is the path up to the first dot of the base name, the suffix the rest in lower case; a member that is
no file, has no suffix, or is named `__…__` is left out. A suffix that comes twice in a sample, or a key that comes
again after another one, is an error of that sample, and the next one follows; so is a sample with too many bytes.
Not its job: headers (members), what the data mean (tar_values).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from feedline.errors import SourceError
from feedline.sources.tar.members import FILE, FOLDER, Members, TarMember

MAX_BYTES = 2**30
"""The largest sample in bytes by default: the same as for a file (decoding)."""
OWN_FIELDS = ("__key__", "__url__")
"""Fields that we add to a sample: no member may have these names."""
_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__(?:$|/)")


def key_and_suffix(name: str) -> tuple[str, str] | None:
    """Key and suffix of a member's name; None if it is no part of a sample.

    >>> key_and_suffix("images/cat.v1/0001.seg.PNG")
    ('images/cat.v1/0001', 'seg.png')
    >>> key_and_suffix("README"), key_and_suffix("images/.hidden.txt"), key_and_suffix("__meta__/info.json")
    (None, None, None)
    """
    found = _NAME.fullmatch(name)
    if found is None or _META.match(name) or found[2].lower() in OWN_FIELDS:
        return None
    return found[1], found[2].lower()


@dataclass
class TarParts:
    """The members of a sample."""

    key: str
    start: int
    """Where its first header is."""
    members: list[tuple[str, TarMember, int]] = field(default_factory=list)
    """For each member: suffix, member, and where its data begins."""
    data: list[bytes] = field(default_factory=list)
    """The data of each member, if the sample is wanted; else empty."""
    problem: str = ""


Named = tuple[str, str, TarMember]
"""Key, suffix and member."""


class TarTerms(NamedTuple):
    """What is read of a sample."""

    suffixes: tuple[str, ...] | None = None
    """The suffixes of the wanted members; None for all."""
    max_bytes: int = MAX_BYTES
    """The most bytes that these may have together."""

    def excess(self, name: str, size: int, before: int) -> str:
        """What is wrong with one more member, after `before` bytes of others; "" if nothing is."""
        if before + size <= self.max_bytes:
            return ""
        others = f" beside {before:,} of others" if before else ""
        return (
            f"its member {name!r} has {size:,} bytes{others}, more than max_bytes={self.max_bytes:,}; raise "
            "max_bytes= to read it"
        )


ALL = TarTerms()


class TarSamples:
    """The samples of a shard, in order, from the current position on."""

    def __init__(self, members: Members, number: int = 0, terms: TarTerms = ALL) -> None:
        self._members = members
        self._terms = terms
        self._ahead: Named | None = None
        self._end: int | None = None
        self._seen: set[str] = set()
        self.number = number
        """The number of the next sample."""
        self.broken = False
        """Is it impossible to read any more of the shard?"""
        self.left_out: dict[str, str] = {}
        """Members that were no part of a sample: for each kind, the name of the first."""

    @property
    def at(self) -> int:
        """Where the next sample begins, or where to search for it."""
        if self._ahead is not None:
            return self._ahead[2].start
        return self._members.at if self._end is None else self._end

    def next(self, wanted: Callable[[int], bool]) -> TarParts | None:
        """The next sample, with its data if `wanted(number)` is true; None at the end of the shard."""
        parts: TarParts | None = None
        try:
            ahead = self._ahead or self._file()
            if ahead is None:
                return None
            parts = TarParts(ahead[0], ahead[2].start)
            read = wanted(self.number)
            while ahead is not None and ahead[0] == parts.key:
                self._add(parts, ahead[1], ahead[2], read)
                ahead = self._file()
            self._ahead = ahead
        except SourceError as error:
            self.broken = True
            if parts is None:
                raise
            raise type(error)(f"{error} (in or after the sample {parts.key!r} at offset {parts.start})") from error
        self.number += 1
        if parts.key in self._seen:
            parts.problem = "its key came earlier in this shard: the members of a sample must follow each other"
        self._seen.add(parts.key)
        return parts

    def _add(self, found: TarParts, suffix: str, member: TarMember, read: bool) -> None:
        if any(suffix == each for each, _, _ in found.members):
            found.problem = f"it has two members with the suffix {suffix!r}; the second is {member.name!r}"
        found.members.append((suffix, member, self._members.at))
        wanted = read and (self._terms.suffixes is None or suffix in self._terms.suffixes)
        if wanted and (excess := self._terms.excess(member.name, member.size, sum(map(len, found.data)))):
            found.problem, wanted = excess, False
        if wanted:
            found.data.append(self._members.data(member))
        else:
            found.data.append(b"")
            self._members.leave(member)

    def _file(self) -> Named | None:
        """The next member that is part of a sample."""
        while self._end is None:
            at = self._members.at
            member = self._members.next()
            if member is None:
                self._end = at
                break
            names = key_and_suffix(member.name) if member.kind == FILE else None
            if names is not None:
                return (*names, member)
            if member.kind != FOLDER:
                self.left_out.setdefault("name without suffix" if member.kind == FILE else member.kind, member.name)
            self._members.leave(member)
        return None


def warn_of(left_out: dict[str, str], url: str) -> None:
    """One warning for everything that was no part of a sample."""
    if left_out:
        named = ", ".join(f"{kind} ({name!r})" for kind, name in sorted(left_out.items()))
        warnings.warn(
            f"{url}: these members are left out, because they are not files of a sample: {named}", stacklevel=3
        )
