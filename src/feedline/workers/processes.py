"""Worker processes: fork, forkserver or spawn.

Takes: a `Job`, the ledger's parts. Gives: outcomes whose large arrays are views on shared memory, and deaths.
Promises: any free worker takes the next part, or each worker takes its own in turn (`Job.in_turn`; a stream's parts
always go to the worker that has its shard open); the parent never blocks on a worker except in `receive`, where it
waits for answers and deaths together; a death loses no part: it lists the parts that no worker has any more.
Not its job: what a worker does (process_main, body), what to do about a death (engine.recovery).
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from itertools import islice
from multiprocessing.context import BaseContext
from typing import Any

from feedline.arena.kept import KeptPool
from feedline.arena.packing import unpack
from feedline.engine.contract import Traits
from feedline.engine.ledger import Ledger, Part
from feedline.errors import ShippingError, WorkerError, add_note
from feedline.messages.outcome import Failure, Outcome
from feedline.messages.progress import IDLE, INDEX, LEAVING, MEMORY, PLACE, PREPARING, SINCE, TASK, Row, clock
from feedline.supervise import last_words
from feedline.supervise.shutdown import KILL_SECONDS
from feedline.supervise.watch import Death, Standing
from feedline.workers.crew import Crew
from feedline.workers.job import Job
from feedline.workers.main_guard import check_guard
from feedline.workers.shipping import Parcel, ship, without_main
from feedline.workers.wire import DoneTicket, TaskTicket, dump_task, receive_done

LOOK_SECONDS = 1.0
"""Another thread's `stop` is noticed after at most this long, because it closes the descriptors that could wake us."""


class ProcessWorkers:
    """Implements the contract with at most `job.num_workers` processes."""

    def __init__(
        self, job: Job, ledger: Ledger, context: str | BaseContext | None = None, kept: KeptPool | None = None
    ) -> None:
        self._job = job
        self._ledger = ledger
        self._context: Any = context if isinstance(context, BaseContext) else multiprocessing.get_context(context)
        self._forks = self._context.get_start_method() == "fork"
        self._parcel: Parcel | None = None
        self._crew = Crew(job.num_workers, job.dialect, kept or KeptPool(keeps=False))
        self._own_lanes = job.stream or job.in_turn
        self._count = 0
        self._oldest = 0  # parts of earlier runs are not wanted
        self._heard: dict[int, int] = {}  # where each worker's latest stack begins in its text
        self._killed: dict[int, float] = {}  # workers that we have killed, and when
        self._given_up: list[Any] = []  # slots that a worker that cannot be ended may still write to: never free
        self.traits = Traits(self._crew.pool, self._crew.spent, self._forks)
        self.stop: Callable[[], None] = self._crew.end

    def resize(self, count: int) -> None:
        """Start processes, or dismiss some: those that become free first, once all parts sent so far are taken."""
        with self._crew.lock:
            self._crew.check()
            self._resize(count)

    def _resize(self, count: int) -> None:
        if not self._crew.lanes:
            self._open(count)
        self._check_owner()
        for number in [number for number in self._crew.members if self._crew.has_ended(number)]:
            self._has_left(number)
        self._count = count
        surplus = len(self._crew.staying()) - count
        if not self._own_lanes:
            self._crew.lanes[0].dismiss(surplus)
        try:
            self._crew.start_workers(
                list(islice(self._crew.unused_numbers(), max(0, -surplus))), self._cargo(), self._context
            )
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                add_note(error, "feedline: each worker takes a few descriptors: lower num_workers or raise `ulimit -n`")
            raise

    def _open(self, count: int) -> None:
        check_guard()
        method = self._context.get_start_method()
        if method not in multiprocessing.get_all_start_methods():
            raise WorkerError(
                f"this process was started by the start method {method!r}, which is not one of Python's, and feedline "
                "cannot start workers with it: pass multiprocessing_context='fork' (inside joblib's loky that works), "
                "or use num_workers=0 or workers='thread'"
            )
        if multiprocessing.current_process().daemon:
            raise WorkerError(
                "a worker process cannot start worker processes: inside a dataset use num_workers=0 or workers='thread'"
            )
        self._crew.open(lanes=max(1, count) if self._own_lanes else 1)
        self._crew.set_run(self._oldest)

    def _has_left(self, number: int) -> bool:
        """Was this ended worker dismissed? Then clean up: nothing is lost."""
        if self._crew.row(number)[PLACE] != LEAVING:
            return False
        self._crew.clean_up(number)
        self._killed.pop(number, None)
        self._heard.pop(number, None)
        return True

    def _cargo(self) -> Job | Parcel:
        return self._job if self._forks else self._shipped()

    def _shipped(self, by_value: bool = False) -> Parcel:
        if self._parcel is None:
            self._parcel = ship(self._job, self._crew.pool.segment, by_value=by_value)
        return self._parcel

    def send(self, part: Part, first: bool = False) -> None:
        self._check_owner()
        with self._crew.lock:
            if self._crew.is_ending:
                self._crew.check()
            self._send(part, first)

    def _send(self, part: Part, first: bool) -> None:
        crew, joint = self._crew, part.joint
        slot = part.slot = crew.pool.take(small=part.task.rows is not None)
        place = None if joint is None else (joint.slot.id, joint.slot.capacity)
        data = dump_task(part.task, place, None if self._parcel is None or self._forks else self._parcel.sent)
        slot.room(len(data)).view(0, len(data))[:] = data
        lane = 0
        if self._own_lanes:
            lane = part.worker = part.task.lane % len(crew.lanes)
        ticket = TaskTicket(part.serial, part.entry.run, slot.id, slot.capacity, len(data))
        crew.lanes[lane].post(ticket, first)

    def drop_before(self, run: int) -> None:
        self._oldest = run
        self._crew.set_run(run)

    def receive(self, timeout: float | None) -> list[Part | Death]:
        self._check_owner()
        crew = self._crew
        deadline = None if timeout is None else time.monotonic() + timeout
        dead: list[int] = []
        while True:
            with crew.lock:
                if crew.is_ending:
                    crew.check()
                if (found := self._received(dead)) is not None:
                    return found
            dead = []
            seconds = self._seconds_until(deadline)
            try:
                ready = crew.selector.select(LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS))
            except ValueError:  # another thread has closed it
                crew.check()
                raise
            if not ready and seconds is not None and seconds <= LOOK_SECONDS:
                return [self._give_up(number) for number in self._cannot_be_ended()]
            dead = [key.data for key, _ in ready if key.data is not None]

    def _received(self, dead: list[int]) -> list[Part | Death] | None:
        """Answers, or else deaths, that are there now; None if there are none."""
        crew = self._crew
        tickets = receive_done(crew.done[0])
        if tickets:
            for lane in crew.lanes:
                if lane.waiting:
                    lane.flush()
            return [part for ticket in tickets if (part := self._opened(ticket)) is not None]
        if dead:  # and all answers they had sent have been read
            deaths: list[Part | Death] = [self._cleaned_up(number) for number in dead if not self._has_left(number)]
            if deaths:
                return deaths
            self._resize(self._count)  # in case more have left than should
        return None

    def _seconds_until(self, deadline: float | None) -> float | None:
        moments = [killed + KILL_SECONDS for killed in self._killed.values()]
        if deadline is not None:
            moments.append(deadline)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _cannot_be_ended(self) -> list[int]:
        return [number for number, killed in self._killed.items() if time.monotonic() >= killed + KILL_SECONDS]

    def _opened(self, ticket: DoneTicket) -> Part | None:
        """The part, with the answer from its slot; None if the part's worker was given up."""
        part, pool = self._ledger.out.get(ticket.serial), self._crew.pool
        if part is None:
            return None
        slot, joint = part.slot, part.joint
        try:
            if part.entry.run < self._oldest:
                slot.capacity = max(slot.capacity, ticket.capacity)
                return part
            if joint is not None:
                joint.slot.capacity = max(joint.slot.capacity, ticket.joint_capacity)
            part.outcome = Outcome(*unpack(ticket.packed, slot, pool, joint))
        except Exception as error:
            note = f"feedline: batch {part.task.seq} came from its worker but could not be rebuilt in the main process"
            add_note(error, note)
            part.outcome = Outcome(part.task.seq, failure=Failure.of(error, same_process=True))
        finally:
            pool.put(slot)
        return part

    def standing(self) -> list[Standing]:
        # `sorted` copies in one step: another thread may ask (stats) while workers are replaced or ended.
        return [self._stands(number, member.pid) for number, member in sorted(self._crew.members.items())]

    def _stands(self, number: int, pid: int | None) -> Standing:
        row = self._crew.row(number)
        # Also a part of an epoch that was left: it keeps the worker busy.
        part, place = self._ledger.out.get(row[TASK]), row[PLACE]
        seconds = (clock() - row[SINCE]) / 1e9
        if part is None:
            return Standing(number, pid, None, place, seconds, instead=_instead(row))
        return Standing(number, pid, part.entry.task, part.place(place), seconds, instead=_instead(row))

    def stacks(self, ask: bool = False) -> dict[int, str]:
        found = {number: self._stack_of(number) for number in sorted(self._crew.members)}
        if ask:
            for number, stack in found.items():
                self._heard[number] = self._heard.get(number, 0) + len(stack.encode())
                if (pid := self._crew.members[number].pid) is not None:
                    last_words.ask(pid)
        return found

    def _stack_of(self, number: int) -> str:
        return last_words.read(self._crew.pool.segment, number, self._heard.get(number, 0))

    def kill(self, number: int) -> None:
        if number in self._crew.members:
            self._crew.members[number].signal(signal.SIGKILL)
            self._killed[number] = time.monotonic()

    def revive(self, number: int, elsewhere: bool) -> None:
        context, cargo = self._context, self._cargo
        if elsewhere:
            with contextlib.suppress(ShippingError):  # then it can only be forked again
                self._shipped(by_value=True)
                context, cargo = multiprocessing.get_context("spawn"), self._shipped
        without = without_main() if self._parcel is not None and elsewhere else contextlib.nullcontext()
        with without, self._crew.lock:
            self._crew.check()
            self._crew.start_workers(range(number, number + 1), cargo(), context)

    def _check_owner(self) -> None:
        if self._crew.owner != os.getpid():  # each process would take answers meant for the other
            raise WorkerError(
                f"this iteration belongs to process {self._crew.owner}, of which this one ({os.getpid()}) is a forked "
                "copy: begin a new one here with iter(loader)"
            )

    def _cleaned_up(self, number: int) -> Death:
        row = self._crew.row(number)
        pid, exitcode, most = self._crew.clean_up(number)
        self._killed.pop(number, None)
        words = self._stack_of(number)
        self._heard.pop(number, None)
        part, place = self._ledger.out.get(row[TASK]), row[PLACE]
        unread = self._crew.lane_of(number).take_back()  # so that they can be told which sample kills
        lost = self._lost_with(number, row[TASK], unread)
        if part is None or not self._ledger.is_wanted(part):
            part = None
            if place in (IDLE, PREPARING):  # it may have just read a ticket
                read = (each for each in lost if each.serial not in unread and self._ledger.is_wanted(each))
                part = next(read, None)
                place = PREPARING if part is not None else place
        if part is not None:
            place = part.place(place)
        return Death(number, pid, exitcode, part, place, max(most, row[MEMORY]), words, lost, _instead(row))

    def _lost_with(self, number: int, own: int, unread: list[int]) -> tuple[Part, ...]:
        crew, ledger = self._crew, self._ledger
        if self._own_lanes:  # no other worker reads from its lane
            lost = freed = ledger.held_by(number)
        else:
            at = {other: (member.process.pid, crew.row(other)[TASK]) for other, member in crew.members.items()}
            lost, freed = ledger.missing(own, unread, at)
        for part in freed:
            crew.pool.put(part.slot)
        return tuple(lost)

    def _give_up(self, number: int) -> Death:
        """Give up a worker that still runs although it was killed. Its slot stays in use: it may still write there."""
        row, self._heard[number] = self._crew.row(number), 0
        del self._killed[number]
        part = self._ledger.out.get(row[TASK])
        pid = self._crew.give_up(number)
        if part is not None:
            self._ledger.abandon(part)
            self._given_up.append(part.joint)
        if part is None or not self._ledger.is_wanted(part):
            return Death(number, pid, None, None, row[PLACE], row[MEMORY], "", ())
        return Death(number, pid, None, part, part.place(row[PLACE]), row[MEMORY], "", (part,))


def _instead(row: Row) -> int | None:
    return row[INDEX] - 1 if row[INDEX] else None
