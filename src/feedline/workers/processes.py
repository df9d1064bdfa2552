"""Worker processes: fork, forkserver or spawn.

Takes: a `Job`, tasks. Gives: outcomes whose large arrays are views on shared memory, and the deaths of workers.
Promises: any free worker takes the next task, or each its own in turn (`Job.in_turn`; a stream's tasks always go to
the worker that has its shard open); the parent never blocks on a worker except in `wait`, where it waits for outcomes
and deaths together; a death takes no task with it: those that nobody works on any more are named.
Not its job: what a worker does (process_main, body), what to do about a death (guard, supervise).
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from itertools import islice
from multiprocessing.context import BaseContext
from typing import Any

from feedline.arena.packing import unpack
from feedline.arena.slots import SlotPool
from feedline.errors import ShippingError, WorkerError, add_note
from feedline.messages import Failure, Outcome, Task
from feedline.observe.meter import Spent
from feedline.observe.recording import Slots
from feedline.progress import IDLE, INDEX, LEAVING, MEMORY, PLACE, PREPARING, SINCE, TASK, Row, clock
from feedline.supervise import last_words
from feedline.supervise.shutdown import KILL_SECONDS
from feedline.supervise.watch import Death, Standing, state_of
from feedline.workers.crew import Crew
from feedline.workers.job import Job
from feedline.workers.main_guard import check_guard
from feedline.workers.outgoing import Outgoing, Sent
from feedline.workers.shipping import Parcel, ship, without_main
from feedline.workers.wire import DoneTicket, TaskTicket, dump_task, receive_done


class ProcessWorkers:
    """The contract, kept by `job.num_workers` processes; or by `count` of them, if the others may come later."""

    do = None

    def __init__(self, job: Job, context: str | BaseContext | None, count: int | None = None) -> None:
        self._job = job
        self.count = job.num_workers if count is None else count
        self._context: Any = context if isinstance(context, BaseContext) else multiprocessing.get_context(context)
        self.forked = self._context.get_start_method() == "fork"
        self._parcel: Parcel | None = None
        self._crew = Crew(job.num_workers, job.dialect.preload)
        self.pool: SlotPool | None = self._crew.pool
        self._out = Outgoing(self._crew)
        self.takes_early = not job.stream and not job.in_turn
        self._run = 0
        self._early_run = 0  # that of tasks sent early; they are wanted later, or not at all
        self._aside: list[tuple[DoneTicket, Sent]] = []  # outcomes of early tasks
        self._heard: dict[int, int] = {}  # where in each worker's writing its latest stack begins
        self._killed: dict[int, float] = {}  # by us, and when
        self.spent: Callable[[], Spent] = self._crew.spent
        self.release: Callable[[], None] = self._crew.end

    def processes(self) -> list[tuple[int, int]]:
        found = sorted(self._crew.members.items())
        return [(number, member.process.pid) for number, member in found if member.process.pid is not None]

    def credits(self, prefetch_factor: int) -> int:
        return prefetch_factor * self.count

    def start(self) -> None:
        check_guard()
        if multiprocessing.current_process().daemon:
            raise WorkerError(
                "a worker process cannot start worker processes: inside a dataset use num_workers=0 or workers='thread'"
            )
        try:
            self._crew.open(lanes=self.count if self._job.stream or self._job.in_turn else 1)
            self._crew.set_run(self._run)  # they may be started late, in a later run than the first
            self._crew.hire(range(self.count), self._cargo(self._context), self._context)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                add_note(error, "feedline: each worker takes a few descriptors: lower num_workers or raise `ulimit -n`")
            raise

    def resize(self, count: int) -> None:
        """Have so many: hire, or dismiss those who are free first, once the tasks sent so far are taken."""
        self._check_owner()
        for number in [number for number in self._crew.members if self._crew.has_ended(number)]:
            self._has_left(number)
        self.count = count
        surplus = len(self._crew.staying()) - count
        self._crew.lanes[0].dismiss(surplus)
        if surplus < 0:
            self._crew.hire(list(islice(self._crew.vacant(), -surplus)), self._cargo(self._context), self._context)

    def ready(self) -> int:
        """How many have got as far as their first task."""
        return self._crew.ready()

    def _has_left(self, number: int) -> bool:
        """Had it been dismissed? Then that was its end, and nothing is lost."""
        if self._crew.row(number)[PLACE] != LEAVING:
            return False
        self._crew.bury(number)
        self._killed.pop(number, None)
        self._heard.pop(number, None)
        return True

    def _cargo(self, context: Any) -> Job | Parcel:
        if context.get_start_method() == "fork":
            return self._job
        if self._parcel is None:
            self._parcel = ship(self._job, self._crew.pool.segment)
        return self._parcel

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        self._check_owner()
        if early:
            self._early_run = self._run + 1
        run = self._early_run if early else self._run
        slot = self._crew.pool.take(small=task.piece_of >= 0)
        data = dump_task(task, None if self._parcel is None or self.forked else self._parcel.sent)
        slot.room(len(data)).view(0, len(data))[:] = data
        serial = self._out.add(Sent(slot, task, run))
        ticket = TaskTicket(serial, run, slot.id, slot.capacity, len(data))
        self._crew.lane_of(task.lane).post(ticket, urgent)

    def submit_first(self, tasks: Sequence[Task]) -> None:
        for lane in self._crew.lanes:
            lane.recall()
        for task in reversed(tasks):
            self.submit(task, urgent=True)
        for lane in self._crew.lanes:
            lane.flush()

    def wait(self, timeout: float | None) -> list[Outcome | Death]:
        self._check_owner()
        crew = self._crew
        deadline = None if timeout is None else time.monotonic() + timeout
        dead: list[int] = []
        while True:
            if self._aside and (kept := self._from_aside()):
                return kept
            tickets = receive_done(crew.done[0])
            if tickets:
                for lane in crew.lanes:
                    lane.flush()
                outcomes: list[Outcome | Death] = [
                    outcome for ticket in tickets if (outcome := self._take(ticket)) is not None
                ]
                if outcomes:
                    return outcomes
                continue
            if dead:  # and what they had finished has been read
                deaths: list[Outcome | Death] = [self._bury(number) for number in dead if not self._has_left(number)]
                if deaths:
                    return deaths
                self.resize(self.count)  # should more have left than were to
                dead = []
                continue
            ready = crew.selector.select(self._seconds_until(deadline))
            if not ready:
                return [self._give_up(number) for number in self._cannot_be_ended()]
            dead = [key.data for key, _ in ready if key.data is not None]

    def _seconds_until(self, deadline: float | None) -> float | None:
        moments = [killed + KILL_SECONDS for killed in self._killed.values()]
        if deadline is not None:
            moments.append(deadline)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _cannot_be_ended(self) -> list[int]:
        return [number for number, killed in self._killed.items() if time.monotonic() >= killed + KILL_SECONDS]

    def _give_up(self, number: int) -> Death:
        """A worker that was killed and is still there: do without it. Its slot stays out, it may yet write there."""
        row, self._heard[number] = self._crew.row(number), 0
        del self._killed[number]
        own = self._out.get(row[TASK])
        pid = self._crew.give_up(number)
        if own is None or own.run < self._run:
            return Death(number, pid, None, None, row[PLACE], row[MEMORY], "", ())
        own.lost = True
        lost, early = self._by_run([own])
        return Death(number, pid, None, own.task, row[PLACE], row[MEMORY], "", lost, None, early)

    def forget(self, keep_early: bool = False) -> None:
        later = max(self._run, self._early_run)
        self._run = later if keep_early and later > self._run else later + 1
        self._crew.set_run(self._run)

    def _from_aside(self) -> list[Outcome | Death]:
        """Take what was put aside and is early no more; outcomes as far as they are wanted."""
        due = [each for each in self._aside if each[1].run <= self._run]
        self._aside = [each for each in self._aside if each[1].run > self._run]
        return [outcome for ticket, sent in due if (outcome := self._open(ticket, sent)) is not None]

    def standing(self) -> list[Standing]:
        return [self._stands(number) for number in sorted(self._crew.members)]

    def slots(self) -> Slots:
        return Slots(*self._crew.pool.occupancy())

    def ask_stacks(self) -> None:
        for number, pid in self.processes():
            self._heard[number] = self._heard.get(number, 0) + len(self.stack_of(number).encode())
            last_words.ask(pid)

    def stack_of(self, number: int) -> str:
        return last_words.read(self._crew.pool.segment, number, self._heard.get(number, 0))

    def kill(self, number: int) -> None:
        if number in self._crew.members:
            self._crew.members[number].signal(signal.SIGKILL)
            self._killed[number] = time.monotonic()

    def revive(self, number: int, elsewhere: bool) -> None:
        try:
            self._revive(number, elsewhere)
        except BaseException:
            self._crew.members.pop(number, None)  # it has not come to life
            raise
        finally:
            self._crew.lane_of(number).flush()

    def _revive(self, number: int, elsewhere: bool) -> None:
        context = self._context
        if elsewhere:
            with contextlib.suppress(ShippingError):  # else it can only be forked again
                self._parcel = self._parcel or ship(self._job, self._crew.pool.segment, by_value=True)
                context = multiprocessing.get_context("spawn")
        with without_main() if self._parcel is not None and elsewhere else contextlib.nullcontext():
            self._crew.hire(range(number, number + 1), self._cargo(context), context)

    def _check_owner(self) -> None:
        if self._crew.owner != os.getpid():  # both would take outcomes meant for the other
            raise WorkerError(
                f"this iteration belongs to process {self._crew.owner}, of which this one ({os.getpid()}) is a forked "
                "copy: begin a new one here with iter(loader)"
            )

    def _take(self, ticket: DoneTicket) -> Outcome | None:
        sent = self._out.pop(ticket.serial, None)
        if sent is None:  # of a worker that has been given up
            return None
        if sent.run > self._run:
            self._aside.append((ticket, sent))
            return None
        return self._open(ticket, sent)

    def _open(self, ticket: DoneTicket, sent: Sent) -> Outcome | None:
        slot, pool = sent.slot, self._crew.pool
        try:
            if sent.run != self._run:
                slot.capacity = max(slot.capacity, ticket.capacity)
                return None
            if (joint := sent.task.joint) is not None:
                joint.slot.capacity = max(joint.slot.capacity, ticket.joint_capacity)
            return Outcome(*unpack(ticket.packed, slot, pool, joint))
        except Exception as error:
            number = sent.task.batch  # of a piece, too
            add_note(
                error, f"feedline: batch {number} came from its worker but could not be rebuilt in the main process"
            )
            return Outcome(sent.task.seq, failure=Failure.of(error, same_process=True))
        finally:
            pool.put(slot)

    def _stands(self, number: int) -> Standing:
        row, pid = self._crew.row(number), self._crew.members[number].process.pid
        sent = self._out.get(row[TASK])
        task = sent.task if sent is not None else None  # of an epoch left early, too: it is in the way
        seconds = (clock() - row[SINCE]) / 1e9
        return Standing(number, pid, task, row[PLACE], seconds, state_of(pid) if pid is not None else "", _instead(row))

    def _bury(self, number: int) -> Death:
        row = self._crew.row(number)
        pid, exitcode, most = self._crew.bury(number)
        self._killed.pop(number, None)
        words = self.stack_of(number)
        self._heard.pop(number, None)
        own = self._out.get(row[TASK])
        lost, early = self._by_run(self._out.lost_with(number))
        task, place = own.task if own is not None and own.run >= self._run else None, row[PLACE]
        if task is None and (lost or early) and place in (IDLE, PREPARING):  # perhaps it has just read a ticket
            task, place = (lost or early)[0], PREPARING
        return Death(number, pid, exitcode, task, place, max(most, row[MEMORY]), words, lost, _instead(row), early)

    def _by_run(self, found: list[Sent]) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
        """Tasks that are wanted now, and early ones."""
        lost = tuple(sent.task for sent in found if sent.run == self._run)
        return lost, tuple(sent.task for sent in found if sent.run > self._run)


def _instead(row: Row) -> int | None:
    return row[INDEX] - 1 if row[INDEX] else None
