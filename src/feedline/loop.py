"""The loop, written once for every kind of worker and every front.

Takes: checked options, an epoch's tasks, workers. Gives: an iterator over batches.
Promises: at most `prefetch_factor × num_workers` tasks out; every batch once; an error is raised by `next()` and
nowhere else; whatever way the loop is left, nothing is left behind.
Not its job: what the options mean (loader and fronts), anything a stop on the line does.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from feedline.ahead import Foresee
from feedline.collated import nothing_valid
from feedline.counting import counted
from feedline.datasets import described
from feedline.errors import StateError, add_note
from feedline.guard import Guard
from feedline.inline_watch import watch_for
from feedline.lasting import Lasting
from feedline.line.deliver import Delivery
from feedline.line.passed import Passed
from feedline.line.plan import Tasks
from feedline.line.stream import DISAGREE, ENDED_BY, UNEQUAL
from feedline.line.turns import OTHER_RANKS
from feedline.messages import Outcome, Task
from feedline.observe.meter import Meter, Spent
from feedline.observe.recording import Recording
from feedline.options import Options
from feedline.pacing import Pacing
from feedline.progress import clock
from feedline.stats import Flow
from feedline.supervise.memory import Setting
from feedline.workers.changing import ChangingWorkers
from feedline.workers.contract import Workers


class BatchIterator(Iterator[Any]):
    """One epoch under way."""

    def __init__(
        self,
        lasting: Lasting,
        options: Options,
        tasks: Tasks,
        passed: Passed,
        length: Callable[[], int],
        workers: Workers,
        foresee: Foresee | None = None,
    ) -> None:
        self._lasting = lasting  # keeps it, and with it persistent workers, alive while the loop runs
        self._options = options
        self._crew = workers  # not `_workers`: whoever finds that name has torch's iterator, they think (Ultralytics)
        self._recording = lasting.recording
        self._meter = lasting.new_meter(Meter(passed.epoch, workers.count, workers.spent()))
        self._run = 0 if self._recording is None else len(self._recording.meters)
        describe = partial(described, options.dataset)
        self._guard = Guard(
            workers, options.care, options.timeout, describe, lasting.say, lasting.quarantine, self._meter
        )
        self._watch = watch_for(workers, options.care, options.timeout, describe, lasting.say)
        self._in_time = self._watch.do if self._watch is not None and options.timeout else None
        self._owned = not options.persistent_workers
        self._foresee = foresee
        self._takes_over = not self._owned
        self._tasks = tasks
        self._passed = passed
        self._length = length
        self._delivery = Delivery(options.in_order)
        self._pacing = lasting.pacing if isinstance(workers, ChangingWorkers) else None
        self._take_pace()
        self._inside: dict[int, object] = {}
        """The call of next() that is under way, if one is; entered and left in single steps."""
        self._more = True
        self._sampler_error: Exception | None = None
        self._over: str | None = None
        self._passes_over = options.care.on_error != "raise"
        self._said_once = False  # whoever catches every error must come to an end
        self._samples = passed.place.samples if options.stream else 0
        self._dropped = 0
        self._is_whole = passed.place.batches == 0
        self._batched = options.batched
        self.samples_given: int | None = None
        """How many the latest batch was made of; None if the dataset gives batches of its own."""
        self._held = 0  # batches given ahead, which the user has not asked for yet
        self._setting = Setting(options.dataset, options.stream, workers.forked)
        self._read_whole: set[bool] = set()
        self._last, self._latest = sys.maxsize, -1  # of a stream read whole: its last batch, the latest seen
        self._ended_by = ""
        self._counts: set[int] = set()  # of such a stream: how many elements workers found in it
        # Called once: by us, by the garbage collector or at the interpreter's end, whoever is first.
        release = workers.release if self._owned else None
        self._end = weakref.finalize(self, _end, self._meter, workers.spent, release, weakref.ref(lasting))

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        mine = object()
        try:
            if self._inside.setdefault(0, mine) is not mine:
                self._enter(mine)
            if self._over is not None:
                over, self._over = self._over, "" if self._said_once else self._over
                if over:
                    raise RuntimeError(over)
                raise StopIteration
            self._meter.asked(self._delivery.back)
            try:
                outcome = self._next_outcome()
            except BaseException as error:  # Ctrl-C, a timeout, no memory: whatever state that left, drop it
                self._abandon(error)
                raise
            if outcome is None:
                self._passed.finished = self._sampler_error is None
                self._finish()
                raise StopIteration
            if outcome.failure is not None:
                self._meter.gave_none()
                raise outcome.failure.exception()
            self._meter.gave(outcome.size, outcome.batch)
            self.samples_given = outcome.size if self._batched else None
            if self._recording is not None:
                self._record(self._recording, outcome)
            if self._pacing is not None:
                self._pacing.unseen += 1
                if self._pacing.unseen >= self._pacing.every:
                    self._follow(self._pacing)
            return outcome.batch
        finally:
            if self._inside.get(0) is mine:
                self._inside.clear()

    def _enter(self, mine: object) -> None:
        """Another call of `next()` is under way: an error, unless Ctrl-C came as it was about to leave."""
        while (theirs := self._inside.setdefault(0, mine)) is not mine:
            if (ident := self._who_is_inside(sys._getframe(1))) is not None:
                raise RuntimeError(_taken_by(ident))
            if self._inside.get(0) is theirs:  # it was so all the time that we looked, and nobody is there
                self._inside.clear()

    def _who_is_inside(self, own: FrameType) -> int | None:
        for ident, frame in sys._current_frames().items():
            at: FrameType | None = frame
            while at is not None:
                if at.f_code is own.f_code and at is not own and at.f_locals.get("self") is self:
                    return ident
                at = at.f_back
        return None

    def _take_pace(self) -> None:
        prefetch = self._options.prefetch_factor if self._pacing is None else self._pacing.setting.prefetch
        self._credits = self._crew.credits(prefetch)

    def _follow(self, pacing: Pacing) -> None:
        assert isinstance(self._crew, ChangingWorkers)
        with self._abandoned_by_errors():
            if pacing.gave(self._meter, self._crew):
                self._take_pace()
                self._guard.hired()
                self.fill()

    def _record(self, recording: Recording, outcome: Outcome) -> None:
        epoch, asked, queued = self._passed.epoch, self._meter.latest, self._meter.queued
        recording.gave(self._run, epoch, outcome.seq, outcome.size, asked, queued, self._crew.slots(), outcome.batch)

    def is_ready(self) -> bool:
        """Would `next()` give a batch without waiting for a worker? The end of the epoch does not count."""
        if self._over is not None or not self._crew.count:
            return False
        with self._abandoned_by_errors():
            self.fill()
            if not self._delivery.ready:
                self._put(self._guard.poll())
        return self._delivery.ready

    def hold(self) -> None:
        """The next batch is taken ahead of the user. Its place stays taken: what is sent out, and so what workers make
        of an epoch that is left, follows from how many batches the user has asked for, and not from timing."""
        self._held = 1

    def let_go(self) -> None:
        """The user has asked for the batch that was taken ahead."""
        self._held = 0
        if self._over is None:
            with self._abandoned_by_errors():
                self.fill()

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of the worker processes there are."""
        return self._crew.processes()

    def flow(self) -> Flow:
        """How this epoch goes."""
        if self._over is None:
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
        self._leave("this iteration was closed before its end; begin another with iter(loader)")

    def _leave(self, over: str) -> None:
        if self._over is None:
            if self._pacing is not None and isinstance(self._crew, ChangingWorkers):
                self._pacing.end(self._crew)
            self._over = over
            if self._watch is not None:
                self._watch.end()
            self._watch = self._in_time = None
            self._delivery = Delivery(self._options.in_order)  # batches made ahead are nobody's any more
            self._end()
            if not self._owned and not self._lasting.ahead:
                self._crew.forget()

    def give_up(self) -> None:
        """A newer iteration has taken over the persistent workers."""
        if self._over is None:
            self._end()
            self._over = (
                "this iterator was given up when iter() was called again on its loader (persistent_workers=True)"
            )

    def _next_outcome(self) -> Outcome | None:
        do = self._crew.do
        if do is None:
            return self._next_of_workers()
        if self._takes_over:
            self._take_over()
        if len(self._delivery) and (outcome := self._next_of_workers()) is not None:  # of workers there were
            return outcome
        return self._next_done_here(self._in_time or do)

    def _next_done_here(self, do: Callable[[Task], Outcome]) -> Outcome | None:
        """Taken, done and counted in one go: nothing else is ever under way."""
        while (task := self._next_task()) is not None:
            began = clock()
            outcome = do(task)
            self._meter.blocked += clock() - began
            self._heed(outcome)
            self._passed.done(task, self._tasks.sampler_state(), outcome)
            if self._is_for_the_user(outcome):
                return outcome
        return None

    def _next_of_workers(self) -> Outcome | None:
        delivery, patience = self._delivery, None
        while True:
            self.fill()
            outcome = delivery.pop()
            if outcome is None:
                if not len(delivery):
                    return None
                self._look_at_memory()
                patience = patience or self._guard.begin_waiting()
                began = clock()
                self._put(self._guard.wait(patience, delivery.following))
                self._meter.blocked += clock() - began
                continue
            patience = None  # somebody gets on
            self._passed.delivered(outcome)
            if self._is_for_the_user(outcome):
                self.fill()  # the place just freed is used while the user computes
                return outcome

    def _is_for_the_user(self, outcome: Outcome) -> bool:
        """Take note of what is said beside the batch. Is there one, or an error?"""
        if outcome.notice is not None:
            self._lasting.heed(outcome.notice)
            self._samples += outcome.dropped
            self._dropped += outcome.dropped
        if self._passes_over:
            self._lasting.mishaps.take(outcome, self._options.care)
            self._samples += len(outcome.bad)
        if True in self._read_whole:
            self._check_ends(outcome)
        self._samples += outcome.size
        return outcome.size > 0 or outcome.failure is not None

    def fill(self) -> None:
        """Send out tasks as far as there is credit; `next()` does this by itself."""
        if self._takes_over:
            self._take_over()
        while len(self._delivery) + self._held < self._credits and (task := self._next_task()) is not None:
            self._expect(task)
            self._guard.submit(task)
        if not self._more and self._foresee is not None:  # places that are free from now on are the next epoch's
            self._lasting.ahead.send(self._foresee, self._guard, self._credits - self._held - len(self._delivery))

    def _expect(self, task: Task) -> None:
        self._delivery.expect(task.seq)
        self._passed.sent(task, self._tasks.sampler_state())

    def _take_over(self) -> None:
        """What the epoch before has sent ahead for this one, if it is what this one begins with."""
        self._takes_over, ahead = False, self._lasting.ahead
        tasks: list[Task] = []
        while len(tasks) < len(ahead) and (task := self._next_task()) is not None:
            self._expect(task)
            tasks.append(task)
        if ahead:
            ahead.settle(tasks, self._guard)

    def _next_task(self) -> Task | None:
        while self._more:
            try:
                task = next(self._tasks)
            except StopIteration:
                self._more = False
            except Exception as error:  # raised after the batches before it
                add_note(error, "feedline: raised by the sampler")
                self._sampler_error, self._more = error, False
            else:
                if not (self._passed.came_ahead and self._passed.has(task, self._tasks.sampler_state())):
                    return task
        return None

    def _look_at_memory(self) -> None:
        for warning in self._lasting.memory.look(self._crew.processes, self._setting, ended=False):
            self._lasting.tell_once(warning)

    def _put(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self._heed(outcome)
            self._delivery.put(outcome)

    def _heed(self, outcome: Outcome) -> None:
        """Take in, as soon as it is known, what an outcome says of its stream."""
        if outcome.ended:
            self._tasks.ended(outcome.seq)
        if outcome.whole is not None:
            if not outcome.whole and self._passed.others is not None:
                ranks, rank = self._passed.others
                raise StateError(OTHER_RANKS.format(ranks=ranks, rank=rank))
            self._read_whole.add(outcome.whole)
            if len(self._read_whole) > 1:
                raise RuntimeError(DISAGREE)

    def _check_ends(self, outcome: Outcome) -> None:
        """Of a stream that every worker reads whole no batch comes after one that is the last for another worker, and
        all find the same number of elements."""
        if outcome.ended:
            self._last = min(self._last, outcome.seq)
            if outcome.notice is not None and outcome.notice.ended_by:
                self._ended_by = outcome.notice.ended_by
        if outcome.size:
            self._latest = max(self._latest, outcome.seq)
        count = -1 if outcome.notice is None else outcome.notice.elements
        if count >= 0:
            self._counts.add(count)
        if self._latest > self._last or len(self._counts) > 1:
            raise RuntimeError(ENDED_BY.format(error=self._ended_by) if self._ended_by else UNEQUAL)

    def _finish(self) -> None:
        grown = self._lasting.memory.look(self._crew.processes, self._setting, ended=True)
        self._leave("")
        for warning in grown:
            self._lasting.tell_once(warning)
        if self._sampler_error is not None:
            error, self._sampler_error = self._sampler_error, None
            raise error
        self._lasting.mishaps.judge(self._options.care, at_end=True)
        if self._dropped and self._is_whole and not self._meter.flow().batches:
            self._lasting.tell_once(nothing_valid(self._dropped))
        if self._options.stream:
            self._check_length()
        if self._options.on_epoch_end is not None:
            self._options.on_epoch_end(self._lasting.stats())

    def _check_length(self) -> None:
        if self._passed.is_shared:
            return  # how many the other ranks had is not known here
        try:
            said = len(self._options.dataset)
        except Exception:  # it has no length, or none that can be had
            return
        options = self._options
        short_batches = (options.batch_size or 1) * max(1, self._passed.shards) if options.drop_last else 0
        if not said - short_batches < self._samples <= said and self._samples != said:
            self._lasting.tell_once(
                f"the IterableDataset's __len__ says {said} but it gave {counted(self._samples, 'element')}, so "
                "len(loader) is wrong too; let __len__ return the true count, or leave it out"
            )

    @contextmanager
    def _abandoned_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._abandon(error)
            raise

    def _abandon(self, error: BaseException) -> None:
        self._leave(
            f"this iteration was ended by an error ({type(error).__name__}), and its remaining batches have not been "
            "delivered; begin another with iter(loader)"
        )
        self._said_once = True
        if not self._owned:
            self._lasting.drop_workers()


def _taken_by(ident: int) -> str:
    if ident == threading.get_ident():
        return "next() was called on this iterator by its own dataset, sampler or collate_fn, while it makes a batch"
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    return (
        f"this iterator is being read by another thread ({next(names, ident)}) at this moment. Let one thread take the "
        "batches and hand them on through a queue.Queue, or give each thread its own with iter(loader)"
    )


def _end(
    meter: Meter, spent: Callable[[], Spent], release: Callable[[], None] | None, lasting: Callable[[], Lasting | None]
) -> None:
    """Count up an iteration that is over, end its workers if they are its own, and have the recordings written.

    A loop that was left by `break` gets here when its iterator is collected, so nothing here refers to that, and
    nothing to what lasts: persistent workers may, through their dataset, refer to the loader.
    """
    meter.gave_none()
    meter.take(spent())
    if release is not None:
        release()
    if (kept := lasting()) is not None:
        kept.write_recordings()
