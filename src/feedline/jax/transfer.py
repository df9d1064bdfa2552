"""The last step of a batch: onto its devices, some batches ahead of the user.

Takes: the loop's iterator and its count of what was delivered. Gives: an iterator over global batches.
Promises: JAX copies while the user's step runs, and the loop does not wait for a copy. At most `depth` batches are on
their way before they are asked for; they do not count as delivered. If this process has another batch than the others
at the same step (a collator left out a whole batch), that is an error, not a wrong global array.
Not its job: the batches (engine.loop), where their parts go (placing).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from feedline.engine.ledger import Entry
from feedline.engine.loop import BatchIterator
from feedline.errors import CollateError
from feedline.jax.layout import Layout, Rows
from feedline.jax.placing import Placer
from feedline.jax.shapes import Counted, have_arrived
from feedline.messages.progress import clock
from feedline.messages.task import Task
from feedline.resume.passed import Passed


class How(NamedTuple):
    """What is done with each batch."""

    layout: Layout
    placer: Placer
    counters: Counted
    warn: Callable[[str], None]
    depth: int
    size: int
    """The rows of a full global batch; 0 if a batch sampler decides."""
    pads: bool
    seed: int | None
    """The seed of a key for each batch; None for no keys."""
    shared_stream: bool
    """Does this process get only its own rows of a stream?"""


class _Ready(NamedTuple):
    """A batch that has been taken from the loop, or the error that came instead."""

    given: Any
    arrays: list[Any]
    """Its leaves."""
    error: Exception | None
    entries: int
    """How many batches have left the loop for it: more than one if some were empty."""
    samples: int | None


class Placed(Iterator[Any]):
    """The global batches of one epoch."""

    def __init__(self, batches: BatchIterator[Any], passed: Passed, how: How) -> None:
        passed.hold()
        self._batches = batches
        self._passed = passed
        self._how = how
        self._ahead: deque[_Ready] = deque()
        self.samples_given: int | None = None
        """How many samples this process has of the latest batch."""

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        if not self._ahead:
            self._ahead.append(self._take())
        ready = self._ahead[0]
        # What is put ahead comes first: if Ctrl-C interrupts it, this batch does not count as delivered.
        while ready.error is None and len(self._ahead) <= self._how.depth and self._is_ready():
            self._ahead.append(self._take())
        # An error counts as well: a loop that continues after it gets the next batch. If Ctrl-C comes before the batch
        # is taken off, a loop that goes on gets it; if it comes later, it belongs to who caught it.
        self._passed.settle(but=sum(each.entries for each in self._ahead) - ready.entries)
        self._ahead.popleft()
        if ready.error is not None:
            try:
                raise ready.error
            finally:
                del ready  # the error refers to this frame: nothing must keep the loop alive
        self.samples_given = ready.samples
        self._how.counters.late += not have_arrived(ready.arrays)
        return ready.given

    def close(self) -> None:
        """Leave the epoch; its workers end unless they are persistent."""
        self._ahead.clear()
        self._passed.hold()  # those that left the loop never reach the user, and so never count
        self._batches.close()

    def _is_ready(self) -> bool:
        try:
            return self._batches.is_ready()
        except Exception as error:  # it belongs to the next batch: this one is still good
            self._ahead.append(_Ready(None, [], error, 0, None))
            return False

    def _take(self) -> _Ready:
        before = len(self._passed.held)
        try:
            batch = next(self._batches)
            entries = self._passed.held[before:]
            self._check_step(entries[:-1])
            given, arrays = self._placed(batch, entries[-1].task)
        except StopIteration:
            self._check_step(self._passed.held[before:])
            self._passed.settle()
            raise
        except Exception as error:
            return _Ready(None, [], error, len(self._passed.held) - before, None)
        except BaseException:  # Ctrl-C: a batch that has left the loop would be missing between the others
            self.close()
            raise
        return _Ready(given, arrays, None, len(entries), self._batches.samples_given)

    def _check_step(self, empty: Sequence[Entry]) -> None:
        """Batches that the loop has left out because they were empty here are not empty on other processes."""
        for entry in empty:
            assert entry.outcome is not None
            shared = self._how.shared_stream if entry.task.share is None else entry.task.share[1] > 1
            if shared and (entry.outcome.dropped or entry.outcome.bad):
                raise CollateError(
                    f"no sample was left in batch {entry.task.seq} of this process, so it was not delivered, but other "
                    "processes have their rows of it: let the collator keep or replace at least one sample, and leave "
                    "samples that cannot be read, with all their neighbours (on_error='replace'), out of the dataset"
                )

    def _placed(self, batch: Any, task: Task) -> tuple[Any, list[Any]]:
        how, began = self._how, clock()
        rows, samples = self._rows(task)
        placed, mask, shapes = how.placer.place(batch, rows, samples, self._batches.samples_given)
        if rows.groups > 1:
            how.counters.check_the_same(shapes)
        if (warning := how.counters.take(shapes)) is not None:
            how.warn(warning)
        further = [] if mask is None else [mask]
        if how.seed is not None:
            # Processes that divide a stream take turns, and number their batches over all of them.
            number = task.seq // rows.groups if how.shared_stream else task.seq
            further.append(how.placer.key(how.seed, task.epoch, number))
        self._batches.moved(clock() - began)
        return (placed, *further) if further else placed, jax.tree.leaves(placed)

    def _rows(self, task: Task) -> tuple[Rows, int]:
        """The rows that are here, and how many samples the global batch has."""
        how = self._how
        if task.share is not None:
            return how.layout.rows(max(task.share[0], how.size if how.pads else 0)), task.share[0]
        if how.shared_stream:
            return how.layout.rows(how.size), how.size
        given = self._batches.samples_given or 0
        size = how.size if how.pads else given
        return how.layout.whole(size), given
