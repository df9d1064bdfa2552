"""The loop, written once for every kind of worker and every front.

Takes: a session, an epoch's tasks. Gives: an iterator over batches.
Promises: at most `prefetch_factor × num_workers` batches are out; every batch comes once; errors are raised by `next()`
and nowhere else; however the loop is left, no resource stays behind.
Not its job: which batches are out (ledger), deaths (recovery), stalls (waiting, inline_watch), what lasts longer than
an epoch (session), what a stream's outcomes say (streams), how a batch is made (reading, collate).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from feedline.collate.counted import nothing_valid
from feedline.datasets import described
from feedline.engine.contract import CLOSED_MEANWHILE
from feedline.engine.dispatch import Dispatch
from feedline.engine.inline_watch import InlineWatch, watch_for
from feedline.engine.next_epoch import Predict
from feedline.engine.one_reader import Inside, enter, is_used_elsewhere
from feedline.engine.recovery import Recovery
from feedline.engine.streams import StreamEnds, StreamPlaces
from feedline.engine.waiting import Waiting
from feedline.engine.worker_set import WorkerSet
from feedline.errors import WorkerError
from feedline.machine.finalizers import by_hand, undisturbed
from feedline.messages.outcome import Outcome
from feedline.messages.progress import clock
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.meter import Meter, Spent
from feedline.observe.recording import Recording, Slots
from feedline.observe.stats import WorkerMemory
from feedline.options import Options
from feedline.order.plan import Tasks
from feedline.resume.passed import Passed
from feedline.supervise.worker_memory import MemorySetting
from feedline.workers.inline import InlineWorkers

if TYPE_CHECKING:
    from feedline.engine.session import Session


B = TypeVar("B", covariant=True)
"""A batch."""


class State(Enum):
    """The state of an epoch; the text is the error that `next()` raises in this state."""

    RUNNING = "it goes on"
    FINISHED = "all batches have been delivered"
    CLOSED = "this iteration was closed before its end; begin another with iter(loader)"
    GIVEN_UP = "this iterator was given up when iter() was called again on its loader (persistent_workers=True)"
    FAILED = (
        "this iteration was ended by an error ({error}), and its remaining batches have not been delivered; begin "
        "another with iter(loader)"
    )


RUNNING = State.RUNNING


class BatchIterator(Iterator[B]):
    """Iterates over the batches of one epoch."""

    def __init__(
        self,
        session: Session,
        options: Options,
        tasks: Tasks,
        passed: Passed,
        length: Callable[[], int],
        crew: WorkerSet,
        predict: Predict | None = None,
    ) -> None:
        self._session = session  # keeps the session and its persistent workers alive while the loop runs
        self._options = options
        self._passed = passed
        self._length = length
        self._crew = crew  # not `_workers`: Ultralytics takes an object with that name for torch's iterator
        self._ledger = crew.ledger
        self._recording = session.recording
        self._meter = session.new_meter(Meter(passed.epoch, crew.count, crew.spent()))
        self._run = 0 if self._recording is None else len(self._recording.meters)
        describe = partial(described, options.dataset)
        workers, error_policy, timeout = crew.workers, options.error_policy, options.timeout
        self._works_ahead = crew.works_ahead
        self._places = StreamPlaces(crew.count, crew.runs == 1) if options.stream else None
        known = session.say, session.quarantine, self._meter, self._places
        self._recovery = Recovery(workers, crew.ledger, error_policy, describe, *known)
        if self._works_ahead:
            self._waiting = Waiting(self._recovery, error_policy, timeout, describe, session.say)
        self._watch: InlineWatch | None = None
        if isinstance(workers, InlineWorkers):
            self._watch = watch_for(workers, error_policy, timeout, describe, session.say)
            self._make = workers.make if self._watch is None or not timeout else self._watch.make
        self._ends = StreamEnds(options, passed) if options.stream else None
        following = session.next_epoch, predict
        self._dispatch = Dispatch(tasks, passed, crew, self._recovery, self._ends, *following, self._places)
        self._inside: Inside = {}
        self._state = RUNNING
        self._error = ""  # what ended the epoch; raised once, so that a loop that catches all errors ends
        self._passes_over = error_policy.on_error != "raise"
        self._says_more = self._passes_over or self._ends is not None
        self._batched = options.batched
        self._is_followed = self._recording is not None or crew.scaling is not None
        self._dropped = 0
        self._is_whole = passed.batches == 0
        self.samples_given: int | None = None
        """How many samples the latest batch has; None if the dataset gives whole batches."""
        self._setting = MemorySetting(options.dataset, options.stream, workers.traits.forked)
        # Called once: by us, by the garbage collector or at the interpreter's exit, whichever is first.
        leave = crew.ledger.let_go_later() if options.persistent_workers else crew.stop
        self._end = weakref.finalize(self, _end, self._meter, crew.spent, leave, weakref.ref(session))

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> BatchIterator[B]:
        return self

    def __next__(self) -> B:
        mine = object()
        try:
            if self._inside.setdefault(0, mine) is not mine:
                enter(self._inside, mine, self)
            if self._state is not RUNNING:
                self._refuse()
            meter = self._meter
            meter.asked(self._ledger.back)
            try:
                outcome = self._next_outcome() if self._works_ahead else self._make_next()
            except BaseException as error:  # Ctrl-C, a timeout, no memory: the state is unknown, so drop it
                was_running = self._state is RUNNING
                self._abandon(error)
                if was_running or isinstance(error, WorkerError) or not isinstance(error, Exception):
                    raise
                raise WorkerError(CLOSED_MEANWHILE) from error  # it met workers that had already ended
            if outcome is None:
                self._passed.finished = self._dispatch.sampler_error is None
                self._finish()
                raise StopIteration
            if outcome.failure is not None:
                meter.gave_none()
                raise outcome.failure.exception()
            size, batch = outcome.size, outcome.batch
            meter.gave(size, batch)
            self.samples_given = size if self._batched else None
            if self._is_followed:
                self._follow(outcome)
            return batch  # type: ignore[no-any-return]
        finally:
            if self._inside.get(0) is mine:
                self._inside.clear()

    def _next_outcome(self) -> Outcome | None:
        """The next outcome for the user; None at the end of the epoch."""
        ledger, fill = self._ledger, self._dispatch.fill
        while True:
            fill()
            while (entry := ledger.following) is None:
                if ledger.queue:
                    self._receive()
                # Another thread may have closed the loader and emptied the ledger: that is not the end of the epoch.
                # Or it has begun another epoch on the same workers, whose batches are not for this loop.
                if self._state is not RUNNING:
                    raise WorkerError(CLOSED_MEANWHILE)
                if not ledger.queue:
                    return None
            # The batch is delivered: its place is free again, and the run has passed it.
            self._passed.delivered(entry, ledger.deliver(entry))
            self._waiting.since = None  # the next wait counts from its own start
            outcome = entry.outcome
            assert outcome is not None
            if self._says_more or outcome.notice is not None:
                self._note(outcome)
            if outcome.size > 0 or outcome.failure is not None:
                fill()  # the place just freed is used while the user computes
                return outcome

    def _make_next(self) -> Outcome | None:
        """The same without workers: nothing is out, so a batch needs no entry in the ledger."""
        dispatch = self._dispatch
        while (task := dispatch.next_task()) is not None:
            sampler_state = dispatch.sampler_state()
            outcome = self._make(task)
            if self._state is not RUNNING:
                raise WorkerError(CLOSED_MEANWHILE)
            if self._ends is not None:
                self._ends.note(outcome, dispatch.tasks)
            self._passed.made(task, sampler_state, outcome)
            if self._says_more or outcome.notice is not None:
                self._note(outcome)
            if outcome.size > 0 or outcome.failure is not None:
                return outcome
        if self._state is not RUNNING:
            raise WorkerError(CLOSED_MEANWHILE)
        return None

    def fill(self) -> None:
        """Send out batches while there is room; `next()` does this itself."""
        if self._works_ahead:
            self._dispatch.fill()

    def _receive(self) -> None:
        """Wait for workers and take in their answers."""
        began = clock()
        self._look_at_memory()
        if self._crew.splitting is not None:
            self._crew.splitting.rest()
        self._dispatch.take(self._waiting.receive(self._ledger.awaited))
        self._meter.blocked += clock() - began

    def _note(self, outcome: Outcome) -> None:
        """Take in what the outcome says apart from the batch."""
        if outcome.notice is not None:
            self._session.note(outcome.notice)
            self._dropped += outcome.dropped
        if self._passes_over:
            self._session.bad_samples.take(outcome, self._options.error_policy)
        if self._ends is not None:
            self._ends.left(outcome)

    def _follow(self, outcome: Outcome) -> None:
        """A batch has been given: record it, and decide whether there should be more workers."""
        if self._recording is not None:
            self._record(self._recording, outcome)
        if self._crew.scaling is not None:
            with self._abandoned_by_errors():
                if self._crew.scale(self._meter):
                    self._recovery.may_be_starting = True
                    self.fill()

    def _record(self, recording: Recording, outcome: Outcome) -> None:
        epoch, asked, queued = self._passed.epoch, self._meter.latest, self._meter.queued
        pool = self._crew.workers.traits.pool
        slots = Slots() if pool is None else Slots(*pool.occupancy())
        recording.gave(self._run, epoch, outcome.seq, outcome.size, asked, queued, slots, outcome.batch)

    def _look_at_memory(self) -> None:
        for warning in self._session.memory.look(self.processes, self._setting, ended=False):
            self._session.tell_once(warning)

    def is_ready(self) -> bool:
        """Would `next()` give a batch without waiting for a worker? The end of the epoch does not count."""
        if self._state is not RUNNING or not self._works_ahead:
            return False
        with self._abandoned_by_errors():
            self.fill()
            if self._ledger.following is None:
                self._dispatch.take(self._crew.workers.receive(0))
        entry = self._ledger.following
        if entry is None or entry.outcome is None:
            return False
        return entry.outcome.size > 0 or entry.outcome.failure is not None

    def hold(self) -> None:
        """The next batch is taken before the user asks. It keeps its place, so that the number of batches sent out (and
        made, if the epoch is left) depends on how many the user has asked for, not on timing."""
        self._dispatch.held = 1

    def let_go(self) -> None:
        """The user has asked for the batch that was taken early (`hold`)."""
        self._dispatch.held = 0
        if self._state is RUNNING:
            with self._abandoned_by_errors():
                self.fill()

    @property
    def goes_on(self) -> bool:
        """Has it neither ended nor failed, nor been closed or given up?"""
        return self._state is State.RUNNING

    @property
    def meter(self) -> Meter:
        """What counts this epoch."""
        return self._meter

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of each worker process."""
        return self._crew.processes()

    def told_memory(self) -> list[WorkerMemory]:
        """What workers on other machines use, as they say themselves."""
        return self._crew.told_memory()

    def flow(self) -> EpochStats:
        """Statistics of this epoch so far."""
        if self._state is RUNNING:
            self._meter.take(self._crew.spent())
        return self._meter.flow()

    def started(self, nanoseconds: int) -> None:
        """Starting its workers took this long; the user waited for that."""
        self._meter.starting = nanoseconds

    def moved(self, nanoseconds: int) -> None:
        """A further step after this loop (pinning, a device transfer) made the user wait this long."""
        self._meter.moved(nanoseconds)

    def close(self) -> None:
        """Leave the epoch; its workers end unless they are persistent."""
        self._leave(State.CLOSED)

    def give_up(self) -> bool:
        """A newer iteration takes over the persistent workers. Is another thread still using them in this one?"""
        if self._state is RUNNING:
            self._state = State.GIVEN_UP  # first, so that a thread that calls next() now gets an error
            by_hand(self._end)
            self._take_leave()
        return is_used_elsewhere(self, __name__)

    def _leave(self, state: State) -> None:
        if self._state is not RUNNING:
            return
        self._crew.leave()
        self._state = state
        if self._watch is not None:
            self._watch.end()
        self._take_leave()
        self._ledger.end()  # nobody will ask for the prefetched batches
        by_hand(self._end)
        if self._options.persistent_workers:
            self._crew.workers.drop_before(self._ledger.run)
        else:
            self._ledger.clear()  # else late batches would stay in memory as long as this iterator

    def _take_leave(self) -> None:
        self._crew.pending_warnings += self._recovery.pending_warnings
        self._crew.out_of_step |= self._places is not None and self._places.out_of_step

    def _finish(self) -> None:
        session, options = self._session, self._options
        grown: Iterable[str] = ()
        if self._works_ahead:
            session.memory.note(self.told_memory())
            grown = session.memory.look(self.processes, self._setting, ended=True)
        self._leave(State.FINISHED)
        for warning in grown:
            session.tell_once(warning)
        if self._dispatch.sampler_error is not None:
            raise self._dispatch.sampler_error
        session.bad_samples.judge(options.error_policy, at_end=True)
        if self._dropped and self._is_whole and not self._meter.flow().batches:
            session.tell_once(nothing_valid(self._dropped))
        for warning in () if self._ends is None else self._ends.warnings():
            session.tell_once(warning)
        if options.on_epoch_end is not None:
            options.on_epoch_end(session.stats())

    @contextmanager
    def _abandoned_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._abandon(error)
            raise

    def _abandon(self, error: BaseException) -> None:
        self._error = type(error).__name__
        if (pool := self._crew.workers.traits.pool) is not None:
            pool.spoiled = True
        self._leave(State.FAILED)
        if self._options.persistent_workers:
            self._session.drop_workers(self._crew)

    def _refuse(self) -> None:
        if self._state is State.FINISHED or (self._state is State.FAILED and not self._error):
            raise StopIteration
        error, self._error = self._error, ""
        raise RuntimeError(self._state.value.format(error=error))


@undisturbed
def _end(
    meter: Meter, spent: Callable[[], Spent], leave: Callable[[], None], session: Callable[[], Session | None]
) -> None:
    """Complete the statistics of an iteration that is over, call `leave` (it ends the workers, or drops the batches of
    persistent ones), and write the recordings.

    After a `break` this is called when the iterator is garbage-collected. So no argument may refer to the iterator, nor
    to persistent workers, which may refer to the loader through their dataset.
    """
    meter.gave_none()
    meter.take(spent())
    leave()
    if (kept := session()) is not None:
        kept.write_recordings()
