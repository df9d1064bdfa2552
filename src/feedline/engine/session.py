"""A loader's session: everything that lasts as long as the loader. It begins the epochs.

Takes: checked options, an epoch's tasks, a job for workers. Gives: iterators over batches, statistics, recordings.
Promises: persistent workers serve one epoch at a time, the latest; they end with their loader, and a forked child of
its process never ends them; a warning is given once, at the line of the user's loop; closing ends all iterations.
Not its job: what happens in an epoch (loop), what the options mean (loader and fronts), owning workers (worker_set).
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from types import FrameType
from typing import Any

from feedline.arena.kept import KeptPool
from feedline.collate.counted import Collated
from feedline.engine.division import Division
from feedline.engine.loop import BatchIterator
from feedline.engine.next_epoch import NextEpoch, Predict
from feedline.engine.scaling import Scaling, in_memory, needs_no_workers, of_a_stream, scaling_for
from feedline.engine.worker_set import WorkerSet
from feedline.machine.finalizers import by_hand, undisturbed
from feedline.machine.loaded_torch import cuda_timing
from feedline.messages.outcome import BadSample, Notice
from feedline.messages.progress import clock
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.meter import Meter, Sums
from feedline.observe.recorder import Known, Recorder, Render
from feedline.observe.recording import Recording
from feedline.observe.report import page_of
from feedline.observe.stats import AutoWorkers, SourceStats, Stats
from feedline.observe.stepping import DeviceClock, StepBlock, Stepping
from feedline.observe.trace import trace_of
from feedline.options import Options
from feedline.options.worker_count import AutoCount
from feedline.order.plan import Tasks
from feedline.reading.bad_samples import BadSamples
from feedline.reading.stream_source import Loaded
from feedline.resume.passed import Passed
from feedline.supervise.user_line import tell, tell_of
from feedline.supervise.worker_memory import MemoryWatch
from feedline.workers.carried import warnings_about
from feedline.workers.changeable import changeable
from feedline.workers.held_generators import Repeats, not_in_a_state
from feedline.workers.job import Job

_NOTHING = contextlib.nullcontext()
KEPT = 100
"""How many epochs have statistics of their own."""


class Session:
    """The session of one loader."""

    def __init__(self) -> None:
        self.quarantine: dict[Any, str] = {}
        """Samples that have killed several workers, and how."""
        self.bad_samples = BadSamples()
        self.memory = MemoryWatch()
        self.next_epoch = NextEpoch()
        self.scaling: Scaling | None = None
        """Decides how many workers there are, with num_workers="auto" and data that has indices."""
        self.chosen: Callable[[], AutoWorkers | None] = lambda: None
        self._division = Division()
        self._collated = Collated()
        self._sources: dict[str, SourceStats] = {}
        self._repeats = Repeats()
        self._loaded = Loaded()
        self._warned: dict[str, object] = {}
        self._kind = ""  # the kind of workers; empty if there are none
        self._meters: deque[Meter] = deque(maxlen=KEPT)
        self._stepping = Stepping()
        self._sums_before = Sums()  # of epochs whose meters are no longer kept
        self._recorders: list[Recorder] = []
        # Several threads may read a loader and ask for its stats. Reentrant, because the garbage collector may end a
        # recorded iteration in a thread that holds the lock.
        self._lock = threading.RLock()
        self._beginning = threading.RLock()
        self._owner = os.getpid()
        self._pool = KeptPool()
        weakref.finalize(self, undisturbed(self._pool.close))
        self._kept: WorkerSet | None = None
        self._stop_kept: weakref.finalize[..., Any] | None = None
        self._marks = False  # do the persistent workers mark what they do, for a recording?
        self._ranks: Any = None  # which part of a stream the persistent workers were told to read, of how many ranks
        self._may_work_ahead = False
        self.asked_for: tuple[Any, Options, Job] | None = None
        """What the loader's options ask for, if that is the same in each epoch; the first says which options."""
        self._latest: Callable[[], BatchIterator[Any] | None] = lambda: None
        self._iterators: weakref.WeakSet[BatchIterator[Any]] = weakref.WeakSet()

    def begin(
        self,
        options: Options,
        tasks: Tasks,
        passed: Passed,
        length: Callable[[], int],
        job: Job,
        kind: type[BatchIterator[Any]] = BatchIterator[Any],
        predict: Predict | None = None,
    ) -> BatchIterator[Any]:
        """Start an iteration; it replaces one that still runs on the same persistent workers."""
        began = clock()
        self._stepping.leave()
        options, job = self._scale(options, job)
        if (marked := self.recording is not None) or (job.stream and not job.num_workers):
            job = replace(job, marked=marked, loaded=None if job.num_workers else self._loaded)
        if self.kept is None:
            self._kind = options.workers if job.num_workers else ""
            for message in warnings_about(job, self._kind, options.multiprocessing_context):
                self.tell_once(message)
        if (warning := not_in_a_state(job, passed.batches)) is not None:
            self.tell_once(warning)
        # If two threads begin at once, the second must see the iteration that the first began on the same workers.
        with self._beginning if options.persistent_workers else _NOTHING:
            kept = self._kept_for(options, job) if options.persistent_workers else None
            workers = kept or WorkerSet(job, options, self._division, self.scaling, self._pool)
            workers.begin(options.in_order)
            # The iterator, which ends the workers, exists before they do: Ctrl-C may come at any moment.
            iterator = kind(self, options, tasks, passed, length, workers, predict if self._may_work_ahead else None)
            with self._lock:
                self._iterators.add(iterator)
            self._latest = weakref.ref(iterator)
            self._start(iterator, workers, has_to=kept is None)
        if workers.processes():  # starting threads takes no time worth counting
            iterator.started(clock() - began)
        return iterator

    def _start(self, iterator: BatchIterator[Any], workers: WorkerSet, has_to: bool) -> None:
        try:
            if has_to:
                workers.start()
            if self.scaling is not None:
                self.scaling.begin(workers)
            self.memory.begin(workers.processes())
        except BaseException:
            if (pool := workers.workers.traits.pool) is not None:
                pool.spoiled = True
            iterator.close()
            raise

    def _scale(self, options: Options, job: Job) -> tuple[Options, Job]:
        """With num_workers="auto": decide how many workers there should be, and whether that number may change."""
        if not isinstance(options.num_workers, AutoCount):  # perhaps not any more: in torch's loaders it can be set
            self.scaling, self.chosen = None, lambda: None
        elif options.stream:
            self.chosen = partial(of_a_stream, options)
        elif needs_no_workers(options, job):
            self.scaling, self.chosen = None, in_memory
            self.drop_workers()  # there may be some, started before an option such as timeout was changed
            return replace(options, num_workers=0, persistent_workers=False), replace(job, num_workers=0)
        elif self.scaling is None:
            self.scaling = scaling_for(options)
            self.chosen = self.scaling.chosen
        return options, job

    def _kept_for(self, options: Options, job: Job) -> WorkerSet:
        if (latest := self._latest()) is not None and latest.give_up():
            self.drop_workers()  # each thread would take answers meant for the other
        if job.marked and not self._marks:
            self.drop_workers()  # the present workers were started without marks
        if self.kept is not None and (self.kept.out_of_step or self._ranks != (job.turns, job.share)):
            self.drop_workers()  # the present workers cannot go on, or were told of other ranks
        self._marks, self._ranks = job.marked, (job.turns, job.share)
        self.next_epoch.begin()
        if (kept := self.kept) is not None:
            return kept
        kept = WorkerSet(job, options, self._division, self.scaling)
        self.next_epoch.is_outdated = False
        may = options.prefetch_next_epoch and options.workers == "process" and not job.stream and not job.in_turn
        self._may_work_ahead = may and changeable(job) is None
        with self._lock:
            self._kept = kept
            self._stop_kept = weakref.finalize(self, undisturbed(kept.stop))  # whatever happens to the loader
        try:
            kept.start()
        except BaseException:
            self.drop_workers()
            raise
        return kept

    @property
    def kept(self) -> WorkerSet | None:
        """The persistent workers, if there are any."""
        if self._owner != os.getpid():  # a forked child: the workers are the parent's
            self._kept, self._owner = None, os.getpid()
            self._beginning = threading.RLock()  # a thread of the parent may hold the old one
        return self._kept

    def drop_workers(self, those: WorkerSet | None = None) -> None:
        """End the persistent workers; if `those` is given, only if it is that set: another thread may use a new one."""
        with self._lock:
            if those is not None and those is not self._kept:
                return
            kept, stop, self._kept, self._stop_kept = self._kept, self._stop_kept, None, None
        if stop is not None:
            by_hand(stop)
        if kept is not None:
            kept.ledger.clear()

    def close(self) -> None:
        """End all workers and release their memory."""
        for iterator in list(self._iterators):
            iterator.close()
        self.drop_workers()
        self._pool.release()

    def say(self, message: str, frame: FrameType | None = None) -> None:
        """Warn about an event and add it to the recording. `frame` shows where the user's loop is."""
        if (recording := self.recording) is not None:
            recording.happened(message)
        if frame is None:
            tell(message)
        else:
            tell_of(message, frame)

    def tell_once(self, message: str) -> None:
        """Warn, unless this warning was given before."""
        mine = object()
        if self._warned.setdefault(message, mine) is mine:  # one atomic step: only one of two threads warns
            tell(message)

    def note(self, notice: Notice) -> None:
        """Take in what a worker sent apart from its batch."""
        if notice.marks and (recording := self.recording) is not None:
            for marks in notice.marks:
                recording.made(marks)
        if notice.warning is not None:
            self.tell_once(notice.warning)
        if notice.ranks:
            self.tell_once(notice.ranks)
        # A worker that replaces a dead one begins in the same state, but no second copy is in use.
        replaced = notice.drawing and any(meter.restarts for meter in list(self._meters))
        if not replaced and (repeated := self._repeats.take(notice.drawing)) is not None:
            self.tell_once(repeated)
        for name, samples, passes in notice.sources:
            with self._lock:
                self._sources[name] = self._sources.get(name, SourceStats()).plus(samples, passes)
        if notice.tally is not None and (hint := self._collated.take(notice.tally)) is not None:
            tell(hint)

    def new_meter(self, meter: Meter) -> Meter:
        """Keep the next epoch's meter."""
        with self._lock:
            if len(self._meters) == KEPT:
                self._sums_before = self._sums_before.plus(self._meters[0].sums())
            self._meters.append(meter)
        if (recording := self.recording) is not None:
            recording.meters.append(meter)
        return meter

    def flow_now(self) -> EpochStats | None:
        """The latest epoch so far, without the workers' times, if it tells steps from the rest: a few microseconds."""
        meter = self._meters[-1] if self._meters else None
        if meter is None or (meter.steps is None and meter.device is None):
            return None
        if self._stepping.clock is not None:
            self._stepping.clock.read()
        return meter.flow()

    def step(self, on_device: bool = True) -> StepBlock:
        """What measures a training step."""
        device = self._step_on_device if on_device else self._step_on_host
        return StepBlock(self._stepping, self._latest_meter, self._meters, device)

    def _step_on_device(self) -> tuple[DeviceClock | None, Recording | None]:
        return self.device_clock(), self.recording

    def _step_on_host(self) -> tuple[None, Recording | None]:
        return None, self.recording

    def _latest_meter(self) -> Meter | None:
        """The meter of the iteration that has given the latest batch, of those that are not over if there are any; None
        before the first one."""
        if len(self._iterators) > 1 or self._latest() is None:  # the one begun last may be over, and another go on
            with self._lock:  # another thread may begin one
                there = list(self._iterators)
            if there:
                return max(there, key=lambda each: (each.goes_on, each.meter.given)).meter
        return self._meters[-1] if self._meters else None

    def timed(self, device: int | None) -> tuple[DeviceClock | None, Recording | None]:
        """The device's clock, if there is one by now, and the recording, if there is one."""
        clock = self.device_clock(device)
        return clock, None if clock is None else self.recording

    def device_clock(self, device: int | None = None) -> DeviceClock | None:
        """The clock of the GPU that this process uses, if it uses one; the first one asked for stays."""
        if self._stepping.clock is None and (timing := cuda_timing(device)) is not None:
            session = weakref.ref(self)  # the clock is the session's own, and must not keep it

            def tell_once(message: str) -> None:
                if (there := session()) is not None:
                    there.tell_once(message)

            self._stepping.clock = DeviceClock(timing, tell_once)
        return self._stepping.clock

    @property
    def errors(self) -> list[BadSample]:
        """The samples that failed and were left out or replaced."""
        return self.bad_samples.samples

    def stats(self) -> Stats:
        """How the loader is doing."""
        latest, kept = self._latest(), self.kept
        crew = latest if latest is not None else kept
        processes = [] if crew is None else crew.processes()
        self.memory.note([] if crew is None else crew.told_memory())
        ended = not processes and self._kind == "thread"  # the latest measurement is of worker processes
        if self._stepping.clock is not None:
            self._stepping.clock.read()
        with self._lock:
            before, meters, sources = self._sums_before.flow(), list(self._meters), dict(self._sources)
        epochs = [meter.flow() for meter in meters]
        if latest is not None:
            epochs[-1] = latest.flow()
        return Stats(
            epoch=epochs[-1] if epochs else EpochStats(),
            total=reduce(EpochStats.plus, epochs, before),
            epochs=tuple(epochs),
            workers=() if ended else self.memory.now(processes),
            collate=self._collated.stats(),
            sources=sources,
            errors=self.bad_samples.count,
            kind=self._kind,
            auto_workers=self.chosen(),
        )

    def trace(self, path: str | os.PathLike[str]) -> Recorder:
        """Record the epochs to come as trace events."""
        return self._record(path, lambda recording, known: trace_of(recording))

    def report(self, path: str | os.PathLike[str]) -> Recorder:
        """Record the epochs to come as a page."""
        return self._record(path, lambda recording, known: page_of(recording, known.stats, known.errors))

    def _record(self, path: str | os.PathLike[str], render: Render) -> Recorder:
        if self.recording is None and self.kept is not None and self.kept.ledger.early:
            self.next_epoch.outdate()  # batches already made have no marks for the new recording
        recorder = Recorder(path, self.recording or Recording(), render, self._known)
        self._recorders.append(recorder)
        return recorder

    def _known(self) -> Known:
        """Facts for a report that are not in the recording."""
        return Known(self.stats(), self.errors)

    @property
    def recording(self) -> Recording | None:
        """The recording that events are written to, if there is one."""
        if not self._recorders:
            return None
        self._recorders = [recorder for recorder in self._recorders if recorder.on]
        return self._recorders[0].recording if self._recorders else None

    def write_recordings(self) -> None:
        """An epoch is over: write the files now, in case the process ends later without doing so."""
        for recorder in self._recorders:
            try:
                if recorder.on:
                    recorder.write()
            except Exception as error:  # a full disk, or a bug of ours: no reason to end the training
                self.tell_once(f"the recording could not be written to {recorder.path}: {error!r}")
