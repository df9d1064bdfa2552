"""Elements of an iterable dataset for one task, each element once over all workers.

Takes: a dataset with `__iter__`, this worker's place among the shards, tasks. Gives: the elements of the task's batch.
Promises: a dataset that looks at `get_worker_info().num_workers` shards itself, and so does one that got its share in
worker_init_fn; one with `shard(index, count)` is asked for its part; any other is read whole by every worker, which
keeps every `shards`-th batch. In all cases task k's batch is the same however often the stream was reopened, because
each batch is read under its own seed, including batches that are skipped. An element that fails is raised, or left
out (a shorter batch), or replaced by reading on; a stream that only fails is given up. A stream that is opened in its
middle continues where a record says it was; without a state the earlier batches are skipped, and compared with
what they were. A dataset that begins a later epoch from a state that was loaded for an earlier one is not read:
`OpenAgain` is raised.
Not its job: collating, seeding (a callback does it), counting and logging what failed (bad_samples), what the dataset
says about its place (stream_source), the state of the shuffle buffer (shuffle_buffer), an untouched dataset
(workers.stream_parts).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, NoReturn

from feedline.datasets import IterableDataset, gives_shards
from feedline.errors import OptionError, StateError, add_note, noted
from feedline.machine.worker_info import id_reads, watch_for_counting
from feedline.messages.outcome import BadSample, SourceCounts, error_line
from feedline.messages.progress import PLACE, SINCE, Row, clock, unwatched
from feedline.messages.task import Task
from feedline.order.rank_turns import ONE_RANK, OWN_ENDS, Turns
from feedline.randomness.rng import enter_sample, mix
from feedline.reading import stream_words as words
from feedline.reading.seen import Seen
from feedline.reading.shuffle_buffer import Shuffled
from feedline.reading.stream_source import Loaded, Record, StreamSource, load_dataset, next_epoch_record
from feedline.resume.state import NoState

log = logging.getLogger("feedline")

Seed = Callable[[Task], None]

FAILURES_IN_A_ROW = 1_000
"""A stream is given up after this many failures: more than a file of broken records should have, and reached soon."""


class Taken(NamedTuple):
    """One batch of a stream."""

    elements: list[Any]
    ended: bool
    """Does the stream have no more elements?"""
    bad: tuple[BadSample, ...] = ()
    short: bool = False
    """Did the stream end before the batch was full? Elements that were left out do not count."""
    sources: SourceCounts = ()
    """Of a mixture of streams: what it read from each for this batch."""

    def is_batch(self, drop_last: bool) -> bool:
        """Does it count as a batch of the stream? What comes after the end does not."""
        return not self.short or (bool(self.elements) and not drop_last)


NOTHING = Taken([], ended=True, short=True)


class OpenAgain(Exception):
    """This part must be opened again at `place`, with the dataset as it was before a state was loaded."""

    def __init__(self, place: Record) -> None:
        super().__init__()
        self.place = place


class StreamReader:
    """One epoch of one part of a stream, opened for the first task that needs it."""

    def __init__(
        self,
        dataset: Any,
        task: Task,
        size: int,
        shuffle_buffer: int,
        seed: Seed,
        is_own_share: bool = False,
        on_error: str = "raise",
        row: Row | None = None,
        turns: Turns = ONE_RANK,
        drop_last: bool = False,
        snapshot_every: int = 1,
        loaded: Loaded | None = None,
    ) -> None:
        self._row = unwatched() if row is None else row
        self._turns = turns
        self._drop_last = drop_last
        self._shards = task.shards
        self._shard = task.shard
        self._size = size
        self._seed = seed
        self._whole = True
        self.asked = False
        """Has the dataset asked which worker it is in? Then it shards itself, in later epochs too."""
        self._late = False
        self._asks: bool | None = None
        """If it continues from a state: has the dataset asked again? None if this need not be checked."""
        self._first = task._replace(seq=0, place=None)
        self._ended = False
        self._count = -1
        self._failed = ""  # the latest error, in any batch
        self._on_error = on_error
        self._failures = range(0)  # the latest consecutive failures, by element number
        record = task.place or {}
        self.notices: list[str] = [record["say"]] if "say" in record else []
        self._loaded = loaded or Loaded()
        self._was_loaded = self._loaded.before is not None
        self._said: bytes | NoState | None = None  # the dataset's state after the first element
        self._seen = Seen(record)
        self._begun_at = record
        self._snapshot_every = snapshot_every
        self._snapshot: Record = {}
        self._dataset = dataset
        self._source: StreamSource
        self._shuffled: Shuffled | None = None
        self.is_new = True
        self._fewest = record.get("count", 0) if self._was_loaded or "there" not in record else 0
        begun = next_epoch_record(record) if "anew" in record else {}
        # Either the dataset is in this state already, or the record is of a later batch than the one wanted again.
        if "there" in record or record.get("next", 0) > task.seq:
            record = {}
        load_dataset(dataset, record)
        self._elements = self._open(dataset, is_own_share, record)
        self._at = self._first.seq
        self._step = 1 if self._whole else self._shards
        if shuffle_buffer:
            key = mix(task.seed, task.epoch, self._at, 0x5_0FF1E)
            self._elements = self._shuffled = Shuffled(self._elements, shuffle_buffer, key, begun)
        with watch_for_counting(self._note_again):
            self._go_on(record)
        if self._source.of == "iterator" and self._shuffled is None:
            self._seen.need_not()  # the iterator's state is enough
        elif self._at != self._first.seq:
            self._seen.begin(self._at)

    @property
    def whole(self) -> bool:
        """Does every worker read the whole stream, and keep its part?"""
        return self._whole and self._shards > 1

    @property
    def ended_by(self) -> str:
        """The error after which a stream ended that other workers read, too; empty if there was no error."""
        return self._failed if self._ended and self.whole else ""

    def can_serve(self, task: Task) -> bool:
        """Is the task of this epoch, and not of a part already read (because the epoch was restarted)?"""
        return task[1:3] == self._first[1:3] and task.place is None and task.seq >= self._at

    @property
    def elements(self) -> int:
        """The number of elements, at the end of a stream that other workers read, too; -1 if it is unknown."""
        return self._count if self.whole else -1

    def record(self) -> Record:
        """Where this part stands after the latest batch: opened with this record, it continues there."""
        if self._ended or (self._source.died and self._shuffled is None):
            self._snapshot = self._snapshot if "ended" in self._snapshot else self._source.ended(self.whole)
        elif not self._snapshot or self._is_due():
            self._snapshot = self._place()
        return self._snapshot

    def _is_due(self) -> bool:
        """Have enough batches passed since the latest record to ask the dataset for its state again?"""
        if "state" not in self._snapshot or self._shuffled is not None:
            return True  # not asking would save nothing
        every = self._snapshot_every
        return every > 0 and self._at - self._snapshot["next"] >= every * self._step

    def _place(self) -> Record:
        found: Record = self._seen.record(self._at)
        if self._shards > 1:
            found["own"] = not self._whole
        if self._shuffled is not None and self._source.of:
            return found | {"of": self._source.of, "next": self._at} | self._shuffled.record()
        found |= self._source.record()
        if self._source.of:
            found["next"] = self._at
            if self._source.of == "dataset" and isinstance(self._loaded.unread, bytes):
                found["unread"] = self._loaded.unread
            if self._failures.stop == found["read"]:
                found["failures"] = len(self._failures)
        return found

    def take(self, task: Task) -> Taken:
        """The elements of the task's batch; at the end of the stream, what this rank gets instead."""
        first, ranks, uneven = task.seq - self._turns.rank, self._turns.ranks, self._turns.uneven
        in_step = NOTHING  # the first batch of this step, if it is another rank's
        while self._at < task.seq and not self._ended:
            at = self._at
            taken = self._passed_over(task)
            if self._seen.differs(self._at, self._ended):
                self._tell_of_others(task)
            if at == first and uneven == "pad" and taken is not None:
                in_step = taken
        taken = NOTHING if self._ended else self._batch(task)
        if ranks == 1 or not self._whole:
            return taken
        if uneven == "pad" and not taken.is_batch(self._drop_last) and in_step.is_batch(self._drop_last):
            return Taken(in_step.elements, True, taken.bad, sources=in_step.sources)
        if uneven == "drop" and taken.ended and task.seq + 1 < first + ranks:
            return NOTHING._replace(bad=taken.bad)
        return taken

    def _tell_of_others(self, task: Task) -> None:
        """What was delivered has been read again, and it was different: warn, or open the part in another way."""
        what = {"part": self._shard, "parts": self._shards, "epoch": task.epoch, "batch": self._at}
        if "instead" in self._begun_at:
            raise OpenAgain({**self._begun_at["instead"], "say": words.FROM_STATE.format(**what)})
        self.notices.append(words.OTHER_ELEMENTS.format(**what))

    def completes_step(self, task: Task) -> bool:
        """Does every rank have a batch in this task's step? Matters for "drop" only; reads to the end of the step."""
        if self._turns.uneven != "drop" or not self._whole:
            return True
        stop = self._turns.after(task.seq)
        while self._at < stop and not self._ended:
            taken = self._passed_over(task)
            if taken is not None and not taken.is_batch(self._drop_last):
                self._ended = True
                return False
        return self._at >= stop

    def _passed_over(self, task: Task) -> Taken | None:
        """The next batch, which belongs to another task; None if it failed."""
        try:
            return self._batch(task._replace(seq=self._at))
        except Exception as error:  # the task that this batch belongs to reports the error
            if self._late or isinstance(error, StateError):  # other workers may not notice these two
                raise
            log.debug("batch %d, which is skipped, failed: %r", self._at, error)
            if self._turns.ranks > 1 and self._source.died:
                self.notices.append(words.ENDED_UNSEEN.format(error=self._failed))
            return None

    def _batch(self, task: Task) -> Taken:
        if self._shuffled is not None and self._source.of:
            self._shuffled.begin_batch(task.seq, self._source.record)
        self._seed_batch(task.seq)
        self._at += self._step
        if self._asks is not None:
            return self._read_knowing(task)
        if not self._whole or self._shards == 1:
            return self._read(task)
        with watch_for_counting(self._note_late):
            taken = self._read(task)
        if self._late:
            self._ended = True
            raise RuntimeError(words.ASKED_LATE)
        return taken

    def _read_knowing(self, task: Task) -> Taken:
        """The first batch after loading a state: by its end the dataset must have asked for its worker, as before."""
        with watch_for_counting(self._note_again):
            taken = self._read(task)
        asks, self._asks = self._asks, None
        if asks == self._whole:
            self._ended = True
            raise words.changed_sharing(then_own=not self._whole)
        return taken

    def _seed_batch(self, seq: int) -> None:
        if seq != self._first.seq:  # the first batch keeps the seed that its stream was opened with
            self._seed(self._first._replace(seq=seq))

    def _read(self, task: Task) -> Taken:
        elements: list[Any] = []
        bad: list[BadSample] = []
        wanted = self._size
        while len(elements) < wanted and not self._ended:
            try:
                while len(elements) < wanted:
                    elements.append(next(self._elements))
            except StopIteration:
                self._ended, self._count = True, self._source.number
                if self._count < self._fewest:
                    self.notices.append(words.FEWER.format(now=self._count, then=self._fewest, epoch=task.epoch))
            except Exception as error:
                self._failed = f"{error_line(error)} (element {self._source.number})"
                if self._on_error == "raise":
                    self._source.new_counts()  # not of the next batch
                    where = f"at element {len(elements)} of batch {task.seq}"
                    add_note(error, f"feedline: raised by the IterableDataset {where}")
                    raise
                bad.append(BadSample.of(error, task, None, self._source.number, noted(error)))
                wanted -= self._on_error == "skip"
                self._count_failure()
        self._seen.add(elements)
        return Taken(elements, self._ended, tuple(bad), len(elements) < wanted, self._source.new_counts())

    def _count_failure(self) -> None:
        number = self._source.number
        first = self._failures.start if number == self._failures.stop else number
        self._failures = range(first, number + 1)
        if len(self._failures) >= FAILURES_IN_A_ROW:
            self._ended = True
            self.notices.append(words.GIVEN_UP.format(times=len(self._failures)))
        elif self._source.is_generator:
            self.notices.append(words.GENERATOR_OVER)

    def _open(self, dataset: Any, is_own_share: bool, record: Record) -> Iterator[Any]:
        source = record if "state" in record else None
        is_new = "anew" in record or (source is None and self._was_loaded)
        if isinstance(dataset, IterableDataset) and (said := dataset._sharing_notice(self._shards)):
            self.notices.append(said)
        if self._shards == 1:
            self._begin()
            return self._begun(lambda: dataset, source) if is_new else self._opened(dataset, source)
        if not is_own_share and gives_shards(dataset):
            self._begin_own()
            self._check_sharing(record)
            part = partial(dataset.shard, self._shard, self._shards)
            return self._begun(part, source) if is_new else self._opened(part(), source)
        if is_own_share or (source is not None and source.get("own")):
            self.asked = not is_own_share
            self._begin_own()
        else:
            self._begin()
        before = id_reads()
        if source is None or is_new:
            with watch_for_counting(self._note_question):
                elements = self._begun(lambda: dataset, source)
        else:  # the first element must not be read now, under another seed; the dataset may ask only then
            self._asks = False if not is_own_share else None
            with watch_for_counting(self._note_again):
                elements = self._opened(dataset, source)
        self._check_sharing(record)
        if self._whole:
            named = words.ID_ONLY if id_reads() > before else ""
            if named or self._shards > self._turns.ranks:  # sharing among ranks alone was asked for
                self.notices.append(words.READ_WHOLE.format(shards=self._shards) + named)
        return elements

    def _go_on(self, record: Record) -> None:
        """Go to where the record says; without a state, the earlier batches are skipped later."""
        if "failures" in record:
            self._failures = range(record["read"] - record["failures"], record["read"])
        if "state" not in record or "anew" in record:
            return  # a shuffle buffer is also read again from the beginning, and so compared
        if self._shuffled is not None and "shuffle" in record:
            self._at = self._shuffled.restore(record, self._source.record, self._seed_batch, self._step)
        else:
            self._at = record["next"]

    def _check_sharing(self, record: Record) -> None:
        if not self._whole and self._turns.ranks > 1 and self._turns.uneven != "exact":
            raise OptionError(OWN_ENDS.format(uneven=self._turns.uneven))
        if record.get("own", not self._whole) == self._whole:
            raise words.changed_sharing(then_own=self._whole)

    def _begun(self, part: Callable[[], Any], record: Record | None) -> Iterator[Any]:
        """The elements; the first is read now, because a generator's code runs only when an element is requested.

        With a record, the state is that of the end of the epoch before: a source that then has no elements says so
        again, and is opened once more for this epoch. Some sources keep a loaded state, and begin there whenever they
        are opened.
        """
        elements = self._opened(part(), record)
        first = self._peek(elements)
        if record is not None and first is None:
            self._begin()
            elements = self._opened(part(), None)
            first = self._peek(elements)
            if first is None and record["of"] == "dataset":
                raise self._otherwise()
        if record is None and self._was_loaded:
            is_stuck = isinstance(self._said, bytes) and self._said == self._loaded.mark
            if (is_stuck or first is None) and "again" not in self._begun_at:
                raise self._otherwise()
            if is_stuck:
                self.notices.append(words.STUCK)
        return elements if first is None else chain(first, elements)

    def _otherwise(self) -> OpenAgain:
        kept = {name: value for name, value in self._begun_at.items() if name in ("until", "instead", "say")}
        return OpenAgain({**kept, "again": True, "count": self._fewest})

    def _peek(self, elements: Iterator[Any]) -> Iterator[Any] | None:
        try:
            return iter([next(elements)])
        except StopIteration:
            return None
        except Exception as error:
            if self._on_error == "raise":
                raise
            return map(_raise, [error])  # raises once, then ends

    def _note_question(self) -> None:
        if not self.asked:
            self.asked = True
            self._begin_own()

    def _note_again(self) -> None:
        if self._asks is not None:
            self._asks = True

    def _note_late(self) -> None:
        # Nothing is raised here: the caller is user code, and torch would have given it an answer.
        self._late = True

    def _opened(self, iterable: Any, record: Record | None) -> Iterator[Any]:
        self._source = StreamSource.opened(iterable, self._announce, record, self._dataset)
        if self._source.of == "dataset":
            if record is not None and "anew" not in record:
                self._source.tell_first = partial(setattr, self._loaded, "mark")
            elif self._loaded.mark:
                self._source.tell_first = partial(setattr, self, "_said")
        return self._source

    def _announce(self, number: int) -> None:
        enter_sample(self._first.seq, number)
        self._row[PLACE] = number
        self._row[SINCE] = clock()

    def _begin_own(self) -> None:
        """The dataset reads its own part: from here on it draws from the part's seed, not from the whole stream's."""
        self._whole = False
        self._first = self._first._replace(seq=self._shard)
        self._begin()

    def _begin(self) -> None:
        self._seed(self._first)
        enter_sample(self._first.seq)  # opening the stream belongs to no element


def _raise(error: Exception) -> NoReturn:
    raise error
