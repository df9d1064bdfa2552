"""Records that arrive over time: what streams from Kafka, sockets and generators have in common.

Takes: a `Feed`, which is asked for the next record and may have none yet. Gives: `Live`, its samples; `DealtStream`,
the base of streams made of several lines or partitions.
Promises: it waits and never polls; if nothing has come for `idle` seconds it ends with a message instead of hanging,
and the batch that was begun is delivered. A record that cannot be decoded is an error that names it, and the next
record follows (`on_error` decides what happens). Its position is always after the record given last.
Not its job: connections and reconnecting (kafka, sockets, generated).
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from feedline.datasets import IterableDataset
from feedline.errors import OptionError, add_note
from feedline.errors.checks import LONGEST, check_number
from feedline.machine.finalizers import undisturbed
from feedline.machine.rank_questions import note_sharing
from feedline.machine.this_rank import ranks

log = logging.getLogger("feedline")

Items = TypeVar("Items", str, tuple[str, ...], list[tuple[str, int]])


class Feed(Protocol):
    """Where records come from."""

    def next(self, wait: float | None) -> tuple[Any, str] | None:
        """The next record and its name; waits at most that many seconds (None: as long as it takes). None if there was
        no record. Raises StopIteration at the end."""
        ...

    def close(self) -> None:
        """Release everything; may be called again."""
        ...


class SeekableFeed(Feed, Protocol):
    """…that has a position, and can continue from one."""

    def state(self) -> dict[str, Any]:
        """Its position: after the record given last."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Continue at a position. Called before the first record is requested."""
        ...


class Live:
    """The samples of a feed, one after the other. This is no generator: it continues after a record that failed."""

    def __init__(self, feed: Feed, decode: Callable[[Any], Any] | None, idle: float | None) -> None:
        self._feed = feed
        self._decode = decode
        self._idle = idle
        self._over = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        try:
            found = self._feed.next(self._idle)
        except BaseException:  # its end, or an error after which it cannot continue
            self.close()
            raise
        if found is None:
            log.warning("%s: nothing came for %g s (idle), so the epoch ends here", self._feed, self._idle)
            self.close()
            raise StopIteration
        record, name = found
        if self._decode is None:
            return record
        try:
            return self._decode(record)
        except Exception as error:
            add_note(error, f"feedline: raised by decode for {name}")
            raise

    def close(self) -> None:
        """Release what is open; there are no more samples."""
        self._over = True
        self._feed.close()

    @undisturbed
    def __del__(self) -> None:
        self.close()


class Seekable(Live):
    """…of a feed that can continue from a position."""

    def __init__(self, feed: SeekableFeed, decode: Callable[[Any], Any] | None, idle: float | None) -> None:
        super().__init__(feed, decode, idle)
        self._place = feed

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return self._place.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position of a state."""
        self._place.load(state)


class DealtStream(IterableDataset[Any]):
    """A stream made of lines or partitions, each read by one worker of one rank.

    >>> whole = DealtStream(num_replicas=2, rank=1)
    >>> whole.shard(0, 2).dealt("abcdefgh"), whole.shard(1, 2).dealt("abcdefgh")
    ('cg', 'dh')
    >>> whole.shard(0, 2).shard(0, 2).dealt("abcdefgh"), whole.shard(0, 2).shard(1, 2).dealt("abcdefgh")
    ('e', 'g')
    """

    def __init__(self, num_replicas: int | None, rank: int | None) -> None:
        self.num_replicas, self.rank = self.ranks = ranks(num_replicas, rank, alone=True)
        self._share = (0, 1)

    def shard(self, index: int, count: int) -> DealtStream:
        """The part of one of several workers; parts of parts, too."""
        part = copy.copy(self)
        own, of = self._share
        part._share = (own + of * index, of * count)
        return part

    def dealt(self, items: Items) -> Items:
        """The items that are read here."""
        note_sharing(self.num_replicas)
        own, of = self._share
        return items[self.rank * of + own :: self.num_replicas * of]


class Deadline:
    """How much longer to wait."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float) -> float:
        """The seconds left, at most `most`; 0 when the time is over."""
        return most if self._until is None else max(0.0, min(most, self._until - time.monotonic()))


def check_idle(idle: float | None) -> float | None:
    """Seconds, or None to wait forever."""
    if idle is None:
        return None
    seconds = check_number("idle", idle)
    if not 0 < seconds <= LONGEST:
        raise OptionError(f"idle must be a positive number of seconds, or None to wait forever; got {idle}")
    return seconds


def check_wait(timeout: float) -> float:
    """The seconds to wait for a server's answer."""
    seconds = check_number("timeout", timeout)
    if not 0 < seconds <= LONGEST:
        raise OptionError(f"timeout must be a positive number of seconds; got {timeout}")
    return seconds
