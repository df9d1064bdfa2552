"""Workers on a Ray cluster: the same batches, made on other machines.

Takes: a `Job`, the ledger's parts, options for Ray's actors. Gives: outcomes in shared memory of this machine, as those
of worker processes are, and deaths.
Promises: a batch is copied once here, into a slot; a death loses no part, whether a worker or its whole machine died;
any free worker takes the next part, or each takes its own in turn (`Job.in_turn`; a stream's parts always go to the
worker that has its shard open).
Not its job: the actors (ray_fleet), what they do (ray_worker), what to do about a death (engine.recovery). A divided
batch would have to be put together here, so batches are not divided.
"""

from __future__ import annotations

import math
import os
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from feedline.arena.kept import KeptPool
from feedline.arena.packing import Packed, unpack
from feedline.arena.segment import JOB_SLOT, Segment
from feedline.engine.contract import Traits
from feedline.engine.ledger import Ledger, Part
from feedline.errors import ShippingError, WorkerError, add_note
from feedline.messages.marks import elsewhere
from feedline.messages.outcome import Failure, Outcome
from feedline.messages.progress import IDLE, INDEX, MEMORY, PLACE, SETTING_UP, TASK
from feedline.supervise.watch import Death, Standing
from feedline.workers.job import Job
from feedline.workers.ray_fleet import Fleet
from feedline.workers.ray_lanes import Lanes
from feedline.workers.ray_members import Ended, Member, Reply
from feedline.workers.ray_worker import Made
from feedline.workers.shipping import Parcel, ship

LOST_SECONDS = 1.0
"""How often it is checked whether Ray was shut down meanwhile, because then no answer ever comes."""


class RayWorkers:
    """Implements the contract with at most `job.num_workers` actors."""

    def __init__(
        self,
        job: Job,
        ledger: Ledger,
        options: Mapping[str, Any] | None = None,
        kept: KeptPool | None = None,
        near: bool = False,
    ) -> None:
        self._job = job
        self._ledger = ledger
        lanes = Lanes(own=job.stream or job.in_turn, makes_all=job.in_turn)
        self._fleet = Fleet(job.num_workers, options or {}, lanes, kept or KeptPool(keeps=False), near)
        self.traits = Traits(self._fleet.pool, self._fleet.spent, joins=False)
        self.stop: Callable[[], None] = self._fleet.end

    def resize(self, count: int) -> None:
        self._fleet.check()
        if not self._fleet.is_open:
            parcel, cargo = _shipped(self._job)
            lanes = max(1, count) if self._fleet.lanes.own else 1
            self._fleet.open(parcel, cargo, lanes, dict(self._job.dialect.environment))
        self._fleet.resize(count)

    def send(self, part: Part, first: bool = False) -> None:
        self._check_owner()
        self._fleet.check()
        self._fleet.send(part, first)

    def drop_before(self, run: int) -> None:
        self._fleet.lanes.oldest = run

    def receive(self, timeout: float | None) -> list[Part | Death]:
        self._check_owner()
        fleet, found = self._fleet, list[Part | Death]()
        fleet.check()
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                arrived = self._next(bool(found), deadline)
                if arrived is None:
                    break
                if isinstance(arrived, BaseException):
                    raise arrived
                found += self._opened(arrived) if isinstance(arrived, Reply) else [self._death(arrived)]
        except queue.Empty:
            return found
        fleet.check()
        return found

    def _next(self, is_enough: bool, deadline: float | None) -> Reply | Ended | BaseException | None:
        """The next answer; queue.Empty if there is none."""
        while True:
            left = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return self._fleet.answers.get(block=not is_enough, timeout=min(left, LOST_SECONDS))
            except queue.Empty:
                self._fleet.check()
                if is_enough or left <= LOST_SECONDS:
                    raise

    def standing(self) -> list[Standing]:
        self._fleet.look()
        return [self._stands(member) for _, member in sorted(self._fleet.members.items())]

    def stacks(self, ask: bool = False) -> dict[int, str]:
        if ask:
            self._fleet.look(ask=True)
        return {number: member.seen.words for number, member in sorted(self._fleet.members.items())}

    def kill(self, number: int) -> None:
        self._fleet.kill(number)

    def revive(self, number: int, elsewhere: bool) -> None:
        self._fleet.check()
        self._fleet.add(number)

    def _check_owner(self) -> None:
        if self._fleet.owner != os.getpid():
            raise WorkerError("Ray does not work in a forked copy of the process: begin a new process instead")

    def _opened(self, reply: Reply) -> list[Part]:
        """The parts, with their outcomes, copied from Ray's memory into slots."""
        made = {each.serial: each for each in reply.made}
        for part in reply.parts:
            if (each := made.get(part.serial)) is not None:
                if part.entry.run >= self._fleet.lanes.oldest:
                    part.outcome = self._outcome(part, each, reply.worker)
                self._fleet.opened()
        return reply.parts

    def _outcome(self, part: Part, made: Made, worker: Member | None) -> Outcome:
        pool = self._fleet.pool
        slot = pool.take()
        try:
            size = made.buffer.nbytes
            np.frombuffer(slot.room(size).view(0, size), np.uint8)[:] = made.buffer
            return _placed(Outcome(*unpack(Packed(made.start, made.size, slot.capacity), slot, pool)), worker)
        except Exception as error:
            note = f"feedline: batch {part.task.seq} came from its worker but could not be rebuilt in the main process"
            add_note(error, note)
            return Outcome(part.task.seq, failure=Failure.of(error, same_process=True))
        finally:
            pool.put(slot)

    def _stands(self, member: Member) -> Standing:
        pid, host = _home(member)
        row, place = member.seen.row, member.seen.row[PLACE]
        if place == SETTING_UP:
            task, instead, seconds = None, None, time.monotonic() - member.began
        else:
            part = self._ledger.out.get(row[TASK])
            task, instead = None if part is None else part.entry.task, row[INDEX] - 1 if row[INDEX] else None
            # Never more than it was when somebody looked: the worker may have gone on since. But one whose keeper does
            # not answer is where it was.
            seconds = member.seen.age / 1e9 + (0.0 if member.asked is None else time.monotonic() - member.asked)
        return Standing(member.number, pid, task, place, seconds, "", instead, host, member.memory)

    def _death(self, ended: Ended) -> Death:
        member, seen = ended.worker, ended.seen
        for each in ended.parts:
            self._ledger.abandon(each)
        pid, host = _home(member)
        part: Part | None = None
        place, instead, memory, words = SETTING_UP, None, 0, ""
        if seen is not None:
            row, place, words = seen.row, seen.row[PLACE], seen.words
            memory, instead = row[MEMORY], row[INDEX] - 1 if row[INDEX] else None
            if place != IDLE:
                part = next((each for each in ended.parts if each.serial == row[TASK]), None)
            if part is not None and not self._ledger.is_wanted(part):
                part = None
        elif member.is_ready:  # its machine is gone, and nobody knows what it did
            place = IDLE
        lost = tuple(ended.parts)
        return Death(member.number, pid, None, part, place, memory, words, lost, instead, host, ended.reason)


def _home(member: Member) -> tuple[int | None, str]:
    """The worker's pid and machine."""
    if member.home is None:
        return None, f"no machine yet{': ' if member.lacks else ''}{member.lacks}"
    return member.home.pid, member.home.host


def _placed(outcome: Outcome, worker: Member | None) -> Outcome:
    """The outcome, with its marks by this machine's clock and with the name of the machine where it was made."""
    if outcome.notice is None or not outcome.notice.marks or worker is None or worker.home is None:
        return outcome
    marks = tuple(elsewhere(each, worker.offset.value, worker.home.host) for each in outcome.notice.marks)
    return outcome._replace(notice=outcome.notice._replace(marks=marks))


def _shipped(job: Job) -> tuple[Parcel, np.ndarray[Any, Any]]:
    """The job as bytes. What is defined in the main script goes by value: actors do not import it."""
    segment = Segment()
    try:
        parcel = ship(job, segment, by_value=True)
        if parcel.inherited:
            kind = type(parcel.inherited[0]).__qualname__
            raise ShippingError(
                f"the dataset holds a multiprocessing.{kind}, which exists on this machine only: workers='ray' cannot "
                "send it. Make it in the worker, in worker_init_fn, or leave it out in __getstate__"
            )
        mapping = segment.map(JOB_SLOT, parcel.size)
        return parcel, np.frombuffer(mapping.view(0, parcel.size), np.uint8).copy()
    finally:
        segment.close()
