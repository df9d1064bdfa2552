"""What was read from a stream is compared with what is read when it is read again.

Takes: the first element of each batch, one after the other. Gives: whether the checksum of all of them together equals
the one in a record of that place.
Promises: a batch costs a few microseconds.
Not its job: the checksum (datasets/checksum), what happens if the checksums differ (stream_reader).
"""

from __future__ import annotations

from typing import Any

from feedline.datasets import seen


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
