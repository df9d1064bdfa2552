"""When a worker reached each place of a task: kept only during a recording.

Takes: a worker's row. Gives: `Marking`, a row that remembers what is written to it, and `Marks`, the marks of a batch.
Not its job: collecting them (recording).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from feedline.messages.progress import AT_ONCE, PLACE, SINCE, Row, place_among


class Marks(NamedTuple):
    """How one batch was made. Times are nanoseconds of `progress.clock`, which all processes of a machine share."""

    seq: int
    epoch: int
    worker: int | None
    """None if the loop itself makes the batches."""
    began: int
    made: int
    indices: tuple[Any, ...] | None
    """None for a stream."""
    places: tuple[int, ...]
    """Places in the batch (or codes of messages.progress), in the order they were reached."""
    times: tuple[int, ...]
    """When each of these places was reached."""
    indices_left: int = 0
    """How many indices are not kept."""
    host: str = ""
    """The machine it was made on, if that may be another one."""


def worker_name(worker: int | None, host: str = "") -> str:
    """The name of a row of a timeline.

    >>> worker_name(None), worker_name(3), worker_name(3, "node-7")
    ('loading', 'worker 3', 'worker 3 on node-7')
    """
    return "loading" if worker is None else f"worker {worker}" + (f" on {host}" if host else "")


def elsewhere(marks: Marks, offset: int, host: str) -> Marks:
    """The marks of a worker on another machine, by this machine's clock: `offset` is what to add to the other's.

    >>> marks = Marks(0, 0, 1, began=5, made=8, indices=None, places=(0,), times=(6,))
    >>> elsewhere(marks, 100, "node-7")[3:]
    (105, 108, None, (0,), (106,), 0, 'node-7')
    """
    times = tuple(time + offset for time in marks.times)
    return marks._replace(began=marks.began + offset, made=marks.made + offset, times=times, host=host)


class Marking:
    """A row that remembers the places written to it.

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
        if item == SINCE:  # PLACE is always written before SINCE
            place = self._row[PLACE]
            if place_among(place) is None:
                self._places.append(place)
                self._times.append(value)
            elif AT_ONCE not in self._places:  # with several at a time, how long each takes is not known here
                self._places.append(AT_ONCE)
                self._times.append(value)

    def take(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The marks since the last call."""
        found = tuple(self._places), tuple(self._times)
        self._places, self._times = [], []
        return found
