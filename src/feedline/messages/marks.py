"""When a worker came to each place of a task: kept only while somebody records.

Takes: a worker's row. Gives: `Marking`, the same row with a memory, and `Marks`, a batch's worth of it.
Not its job: collecting them (recording).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from feedline.messages.progress import AT_ONCE, PLACE, SINCE, Row, place_among


class Marks(NamedTuple):
    """How one batch was made. Times are nanoseconds of `progress.clock`, which all processes share."""

    seq: int
    epoch: int
    worker: int | None
    """None where the loop does the work itself."""
    began: int
    made: int
    indices: tuple[Any, ...] | None
    """None for a stream."""
    places: tuple[int, ...]
    """Places in the batch (or one of progress's other places), in the order they were come to…"""
    times: tuple[int, ...]
    """…and when."""
    indices_left: int = 0
    """Indices that are not kept."""


class Marking:
    """A row that remembers.

    >>> row = Marking([0] * 8)
    >>> row[PLACE] = 3; row[SINCE] = 99
    >>> row.take(), row.take()
    (((3,), (99,)), ((), ()))
    """

    def __init__(self, row: Row) -> None:
        self._row = row
        self._places: list[int] = []
        self._times: list[int] = []

    def __getitem__(self, item: int, /) -> int:
        return self._row[item]

    def __setitem__(self, item: int, value: int, /) -> None:
        self._row[item] = value
        if item == SINCE:  # the place is written before it
            place = self._row[PLACE]
            if place_among(place) is None:
                self._places.append(place)
                self._times.append(value)
            elif AT_ONCE not in self._places:  # of several at a time it is not known here how long each takes
                self._places.append(AT_ONCE)
                self._times.append(value)

    def take(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What has been marked since the last time."""
        found = tuple(self._places), tuple(self._times)
        self._places, self._times = [], []
        return found
