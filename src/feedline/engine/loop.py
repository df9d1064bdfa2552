"""The loop, written once for every kind of worker and every front.

Takes: a session, an epoch's tasks. Gives: an iterator over batches.
Promises: at most `prefetch_factor × num_workers` batches out; every batch once; an error is raised by `next()` and
nowhere else; whatever way the loop is left, nothing is left behind.
Not its job: what is out (ledger), deaths (recovery), stalls (waiting, inline_watch), what lasts longer than an epoch
(session), what a stream's outcomes tell (streams), anything a stop on the line does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from feedline.collate.counted import nothing_valid
from feedline.datasets import described
from feedline.engine.contract import CLOSED_MEANWHILE
from feedline.engine.dispatch import Dispatch
from feedline.engine.inline_watch import watch_for
from feedline.engine.next_epoch import Foresee
from feedline.engine.one_reader import Inside, enter, is_used_elsewhere
from feedline.engine.recovery import Recovery
from feedline.engine.streams import StreamEnds, StreamPlaces
from feedline.engine.waiting import Waiting
from feedline.engine.worker_set import WorkerSet
from feedline.errors import WorkerError
from feedline.machine.finalizers import by_hand, undisturbed
from feedline.messages.outcome import Outcome
from feedline.messages.progress import clock
from feedline.observe.meter import Meter, Spent
from feedline.observe.recording import Recording, Slots
from feedline.observe.stats import EpochStats
from feedline.options import Options
from feedline.order.plan import Tasks
from feedline.resume.passed import Passed
from feedline.supervise.worker_memory import MemorySetting

if TYPE_CHECKING:
    from feedline.engine.session import Session


B = TypeVar("B", covariant=True)
"""A batch."""


class State(Enum):
    """Of an epoch; the text is what `next()` says to whoever asks for more."""

    RUNNING = "it goes on"
    FINISHED = "all batches have been delivered"
    CLOSED = "this iteration was closed before its end; begin another with iter(loader)"
    GIVEN_UP = "this iterator was given up when iter() was called again on its loader (persistent_workers=True)"
    FAILED = (
        "this iteration was ended by an error ({error}), and its remaining batches have not been delivered; begin "
        "another with iter(loader)"
    )


class BatchIterator(Iterator[B]):
    """One epoch under way."""

    def __init__(
        self,
        session: Session,
        options: Options,
        tasks: Tasks,
        passed: Passed,
        length: Callable[[], int],
        crew: WorkerSet,
        foresee: Foresee | None = None,
    ) -> None:
        self._session = session  # keeps it, and with it persistent workers, alive while the loop runs
        self._options = options
        self._passed = passed
        self._length = length
        self._crew = crew  # not `_workers`: whoever finds that name has torch's iterator, they think (Ultralytics)
        self._ledger = crew.ledger
        self._recording = session.recording
        self._meter = session.new_meter(Meter(passed.epoch, crew.count, crew.spent()))
        self._run = 0 if self._recording is None else len(self._recording.meters)
        describe = partial(described, options.dataset)
        workers, error_policy, timeout = crew.workers, options.error_policy, options.timeout
        self._places = StreamPlaces(crew.count, crew.runs == 1) if options.stream else None
        known = session.say, session.quarantine, self._meter, self._places
        self._recovery = Recovery(workers, crew.ledger, error_policy, describe, *known)
        self._waiting = Waiting(self._recovery, error_policy, timeout, describe, session.say)
        self._watch = watch_for(workers, error_policy, timeout, describe, session.say)
        self._ends = StreamEnds(options, passed) if options.stream else None
        following = session.next_epoch, foresee
        self._dispatch = Dispatch(tasks, passed, crew, self._recovery, self._ends, *following, self._places)
        self._inside: Inside = {}
        self._state = State.RUNNING
        self._error = ""  # that has ended it; said once: whoever catches every error must come to an end
        self._passes_over = error_policy.on_error != "raise"
        self._says_more = self._passes_over or self._ends is not None
        self._batched = options.batched
        self._is_followed = self._recording is not None or crew.scaling is not None
        self._dropped = 0
        self._is_whole = passed.place.batches == 0
        self.samples_given: int | None = None
        """How many the latest batch was made of; None if the dataset gives batches of its own."""
        self._setting = MemorySetting(options.dataset, options.stream, workers.traits.forked)
        # Called once: by us, by the garbage collector or at the interpreter's end, whoever is first.
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
            if self._state is not State.RUNNING:
                self._refuse()
            self._meter.asked(self._ledger.back)
            try:
                outcome = self._next_outcome()
            except BaseException as error:  # Ctrl-C, a timeout, no memory: whatever state that left, drop it
                was_running = self._state is State.RUNNING
                self._abandon(error)
                if was_running or isinstance(error, WorkerError) or not isinstance(error, Exception):
                    raise
                raise WorkerError(CLOSED_MEANWHILE) from error  # it came upon workers that were no more
            if outcome is None:
                self._passed.finished = self._dispatch.sampler_error is None
                self._finish()
                raise StopIteration
            if outcome.failure is not None:
                self._meter.gave_none()
                raise outcome.failure.exception()
            self._meter.gave(outcome.size, outcome.batch)
            self.samples_given = outcome.size if self._batched else None
            if self._is_followed:
                self._follow(outcome)
            return outcome.batch  # type: ignore[no-any-return]
        finally:
            if self._inside.get(0) is mine:
                self._inside.clear()

    def _next_outcome(self) -> Outcome | None:
        """What comes next for the user; None at the end of the epoch."""
        ledger, fill = self._ledger, self._dispatch.fill
        while True:
            fill()
            while (entry := ledger.following) is None:
                if ledger.queue:
                    self._receive()
                # Another thread may have closed the loader and so emptied the ledger, which is not the end of the
                # epoch; or it has begun another epoch on the same workers, whose batches are not for this one.
                if self._state is not State.RUNNING:
                    raise WorkerError(CLOSED_MEANWHILE)
                if not ledger.queue:
                    return None
            # The batch leaves; its place is free again, and the run stands after it.
            self._passed.delivered(entry, ledger.deliver(entry))
            self._waiting.since = None  # the next wait is another one
            outcome = entry.outcome
            assert outcome is not None
            if self._says_more or outcome.notice is not None:
                self._note(outcome)
            if outcome.size > 0 or outcome.failure is not None:
                if self._crew.works_ahead:
                    fill()  # the place just freed is used while the user computes
                return outcome

    def fill(self) -> None:
        """Send out batches as far as there is room; `next()` does this by itself."""
        self._dispatch.fill()

    def _receive(self) -> None:
        """Wait for workers, and take in what they say; without workers, have the batch made."""
        began = clock()
        if self._crew.works_ahead:
            self._look_at_memory()
            if self._crew.splitting is not None:
                self._crew.splitting.rest()
            self._dispatch.take(self._waiting.receive(self._ledger.awaited))
        elif self._watch is not None and self._options.timeout:
            self._dispatch.take(self._watch.receive())
        else:
            self._dispatch.take(self._crew.workers.receive(None))
        self._meter.blocked += clock() - began

    def _note(self, outcome: Outcome) -> None:
        """Take note of what is said beside the batch."""
        if outcome.notice is not None:
            self._session.note(outcome.notice)
            self._dropped += outcome.dropped
        if self._passes_over:
            self._session.bad_samples.take(outcome, self._options.error_policy)
        if self._ends is not None:
            self._ends.left(outcome)

    def _follow(self, outcome: Outcome) -> None:
        """A batch has been given: write that down, or see whether there should be more workers."""
        if self._recording is not None:
            self._record(self._recording, outcome)
        if self._crew.scaling is not None:
            with self._abandoned_by_errors():
                if self._crew.scale(self._meter):
                    self._recovery.may_be_unborn = True
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
        if self._state is not State.RUNNING or not self._crew.works_ahead:
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
        """The next batch is taken ahead of the user. Its place stays taken: what is sent out, and so what workers make
        of an epoch that is left, follows from how many batches the user has asked for, and not from timing."""
        self._dispatch.held = 1

    def let_go(self) -> None:
        """The user has asked for the batch that was taken ahead."""
        self._dispatch.held = 0
        if self._state is State.RUNNING:
            with self._abandoned_by_errors():
                self.fill()

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of the worker processes there are."""
        return self._crew.processes()

    def flow(self) -> EpochStats:
        """How this epoch goes."""
        if self._state is State.RUNNING:
            self._meter.take(self._crew.spent())
        return self._meter.flow()

    def started(self, nanoseconds: int) -> None:
        """Workers were started for it; so long the user has waited before asking."""
        self._meter.starting = nanoseconds

    def moved(self, nanoseconds: int) -> None:
        """A further step between us and the user has kept the user waiting."""
        self._meter.moved(nanoseconds)

    def close(self) -> None:
        """Leave the epoch; its workers end unless they are persistent."""
        self._leave(State.CLOSED)

    def give_up(self) -> bool:
        """A newer iteration takes over the persistent workers. Does another thread still use them for this one?"""
        if self._state is State.RUNNING:
            self._state = State.GIVEN_UP  # first: whoever enters next() from now on is turned away
            by_hand(self._end)
            self._take_leave()
        return is_used_elsewhere(self, __name__)

    def _leave(self, state: State) -> None:
        if self._state is not State.RUNNING:
            return
        self._crew.leave()
        self._state = state
        if self._watch is not None:
            self._watch.end()
        self._take_leave()
        self._ledger.end()  # batches made ahead are nobody's any more
        by_hand(self._end)
        if self._options.persistent_workers:
            self._crew.workers.drop_before(self._ledger.run)
        else:
            self._ledger.clear()  # or what came too late would stay as long as somebody has this iterator

    def _take_leave(self) -> None:
        self._crew.untold += self._recovery.untold
        self._crew.out_of_step |= self._places is not None and self._places.out_of_step

    def _finish(self) -> None:
        session, options = self._session, self._options
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
    """Count up an iteration that is over, end its workers if they are its own (`leave`; else what they have made for
    it is dropped), and have the recordings written.

    A loop that was left by `break` gets here when its iterator is collected, so nothing here refers to that, and
    nothing to what lasts: persistent workers may, through their dataset, refer to the loader.
    """
    meter.gave_none()
    meter.take(spent())
    leave()
    if (kept := session()) is not None:
        kept.write_recordings()
