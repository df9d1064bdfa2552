"""The actors of one loader on a Ray cluster: they are started, given parts, asked what they do, and ended.

Takes: a parcel with the job, parts of batches. Gives: `Reply` and `Ended` records in `answers`.
Promises: a worker has one call at a time, which carries `WORTHWHILE` seconds of work if there is so much; no more
batches are out than half of Ray's memory on this machine holds; Ray decides where a worker runs, and a keeper is
started on each machine that has one; nothing here refers to the job, so that the finalizer that ends the actors does
not keep a loader alive.
Not its job: the ledger and deaths (workers.ray), what an actor does (ray_worker).

All changes happen in one thread, step by step (`_serve`): what Ray's futures and the loop want done waits in `_inbox`.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from feedline.arena.kept import KeptPool
from feedline.engine.contract import CLOSED_MEANWHILE
from feedline.engine.ledger import Part
from feedline.errors import WorkerError
from feedline.errors.missing_packages import extra
from feedline.messages.progress import IDLE, PLACE, SETTING_UP, WIDTH
from feedline.observe.meter import Spent
from feedline.workers import ray_worker
from feedline.workers.ray_worker import Answer, Home, Made, Seen, Shared
from feedline.workers.shipping import Parcel
from feedline.workers.wire import dump_task

WORTHWHILE = 0.01
"""Seconds of work that a call carries if there is enough: a call takes 1 to 2 ms (benchmarks/ray_overhead.py)."""
SHARE_OF_STORE = 0.5
"""Of Ray's memory on this machine; the rest is for the user's own objects."""
END_SECONDS = 5.0
"""How long the end waits for the thread, which ends at once unless Ray itself is stuck."""


class Reply(NamedTuple):
    """Parts that are back; one without an outcome was not made, because its run is over."""

    parts: list[Part]
    made: list[Made]


class Ended(NamedTuple):
    """A worker that has ended."""

    worker: Member
    seen: Seen | None
    """What it was doing then, if that is known."""
    reason: str
    parts: list[Part]
    """What it had been given."""


class Member:
    """One worker."""

    def __init__(self, number: int, actor: Any) -> None:
        self.number = number
        self.actor = actor
        self.home: Home | None = None
        self.is_started = False
        """Has it been told to set up?"""
        self.is_ready = False
        self.is_leaving = False
        self.began = time.monotonic()
        self.parts: list[Part] = []
        """What it is making now."""
        self.run = -1
        """The run of the latest part that it was given."""
        self.spent = (0, 0, 0)
        row = [0] * WIDTH
        row[PLACE] = SETTING_UP
        self.seen = Seen(row, 0, "")
        self.asked: float | None = None
        """Since when it has not been said what it does, although that was asked."""


class Machine:
    """A machine of the cluster with at least one worker."""

    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper
        self.shared: Shared | None = None
        self.waiting: list[Member] = []
        """Workers there that wait for the keeper."""


class Fleet:
    """At most `count` workers."""

    def __init__(self, count: int, options: Mapping[str, Any], keeps_lanes: bool, makes_all: bool, kept: KeptPool):
        self.count = count
        self.owner = os.getpid()
        self.pool = kept.take()
        self.members: dict[int, Member] = {}
        self.answers: queue.SimpleQueue[Reply | Ended | BaseException | None] = queue.SimpleQueue()
        self.is_ending = False
        self.oldest = 0
        self.unopened = 0
        """Batches that have come and are not copied into slots yet."""
        self._kept = kept
        self._options = dict(options)
        self._keeps_lanes = keeps_lanes
        self._makes_all = makes_all
        self._lanes: list[deque[Part]] = []
        self._machines: dict[str, Machine] = {}
        self._gone = (0, 0, 0)
        self._cost = math.inf
        self._largest = 0
        self._budget = 0.0
        self._wanted = 0
        self._ray: Any = None
        self._cargo: Any = None
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    # --- called by the loop ---

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    def open(self, parcel: Parcel, cargo: np.ndarray[Any, Any], lanes: int, environment: dict[str, str]) -> None:
        """Connect, and put the job into Ray's memory."""
        self._ray = ray = connected()
        self._parcel, self._environment = parcel, environment
        self._cargo = ray.put(cargo)
        self._lanes = [deque() for _ in range(lanes)]
        self._budget = SHARE_OF_STORE * _store(ray)
        self._worker = ray.remote(ray_worker.Worker).options(**{**_placing(ray), **self._options})
        self._keeper = ray.remote(ray_worker.Keeper)
        self._thread = threading.Thread(target=_serve, args=(self._inbox,), name="feedline-ray", daemon=True)
        self._thread.start()

    def resize(self, count: int) -> None:
        with self._lock:
            self._wanted = count
            staying = [member for member in self.members.values() if not member.is_leaving]
            for member in sorted(staying, key=lambda each: (bool(each.parts), -each.number))[: len(staying) - count]:
                member.is_leaving = True
                if not member.parts and not self._has_more(member):
                    self._let_go(member)
            for number in range(self.count):
                if len(staying) < count and number not in self.members:
                    staying.append(self.add(number))

    def add(self, number: int) -> Member:
        """Start a worker with that number."""
        with self._lock:
            member = self.members[number] = Member(number, self._worker.remote())
            self._then(member.actor.home.remote(), self._placed, member)
            return member

    def send(self, part: Part, first: bool) -> None:
        lane = self._lanes[part.task.lane % len(self._lanes)]
        if self._keeps_lanes:
            part.worker = part.task.lane % len(self._lanes)
        lane.appendleft(part) if first else lane.append(part)
        self._wake()

    def opened(self) -> None:
        """A batch was copied out of Ray's memory."""
        with self._lock:
            self.unopened -= 1
        self._wake()

    def look(self, ask: bool = False) -> None:
        """Ask all keepers what their workers do; the answers come later."""
        with self._lock:
            for node, machine in self._machines.items():
                there = [each for each in self.members.values() if each.home and each.home.node == node]
                there = [each for each in there if each.is_started and (ask or each.asked is None)]
                if there and machine.shared is not None:
                    for member in there:
                        member.asked = member.asked or time.monotonic()
                    pids = {member.number: member.home.pid for member in there if member.home}
                    self._then(machine.keeper.look.remote(pids, ask), self._looked, there)

    def kill(self, number: int) -> None:
        with self._lock:
            if (member := self.members.get(number)) is not None:
                self._has_died(member, "")

    def spent(self) -> Spent:
        """What all workers, including dead ones, have spent their time on."""
        all_of_them = [self._gone, *(member.spent for member in list(self.members.values()))]
        return Spent(*map(sum, zip(*all_of_them, strict=True)))

    def check(self) -> None:
        """Raise an error if another thread has ended the workers."""
        if self.is_ending:
            raise WorkerError(CLOSED_MEANWHILE)

    def end(self) -> None:
        """End all actors. May be called twice, and in any state."""
        if self.owner != os.getpid() or self.is_ending:
            return
        self.is_ending = True
        with self._lock:
            actors = [*(each.actor for each in self.members.values()), *(m.keeper for m in self._machines.values())]
            self.members, self._machines = {}, {}
        for actor in actors:
            self._end(actor)
        self._cargo = None
        self.answers.put(None)
        self._inbox.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)
        self._kept.give(self.pool)

    # --- steps of the thread ---

    def _wake(self) -> None:
        self._inbox.put(partial(self._safely, self._dispatch))

    def _then(self, ref: Any, step: Callable[..., None], *arguments: Any) -> None:
        """When that call has an answer, do this step with it."""
        inbox = self._inbox
        ref.future().add_done_callback(lambda future: inbox.put(partial(self._safely, step, *arguments, future)))

    def _safely(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            with self._lock:
                if not self.is_ending:
                    step(*arguments)
        except Exception as error:  # the loop waits for an answer, whatever it is
            self.answers.put(error)

    def _placed(self, member: Member, future: Any) -> None:
        """Ray has started the worker somewhere."""
        if (home := self._result(member, future)) is None:
            return
        member.home = home
        machine = self._machines.get(home.node)
        if machine is None:
            here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(home.node, soft=False)
            environment = {"runtime_env": self._options["runtime_env"]} if "runtime_env" in self._options else {}
            keeper = self._keeper.options(num_cpus=0, scheduling_strategy=here, **environment)
            machine = self._machines[home.node] = Machine(keeper.remote(self.count, self._cargo))
            self._then(machine.keeper.shared.remote(), self._has_keeper, home.node)
        machine.waiting.append(member)
        self._start_waiting(machine)

    def _has_keeper(self, node: str, future: Any) -> None:
        if (machine := self._machines.get(node)) is None:
            return
        try:
            machine.shared = future.result()
        except self._ray.exceptions.RayActorError as error:
            del self._machines[node]
            for member in machine.waiting:
                self._has_died(member, str(error))
            return
        self._start_waiting(machine)

    def _start_waiting(self, machine: Machine) -> None:
        if machine.shared is None:
            return
        waiting, machine.waiting = machine.waiting, []
        for member in waiting:
            machine.keeper.expect.remote(member.number)  # before `start`: no later call of the keeper precedes it
            member.is_started = True
            started = member.actor.start.remote(
                machine.shared, self.count, self._parcel, member.number, self._environment, sys.path
            )
            self._then(started, self._started, member)

    def _started(self, member: Member, future: Any) -> None:
        if self._result(member, future, "done") is not None:
            member.is_ready = True
            member.seen.row[PLACE] = IDLE
            self._dispatch()

    def _dispatch(self) -> None:
        """Give parts to all workers that wait for some."""
        for member in list(self.members.values()):
            if member.is_ready and not member.parts and (parts := self._next_for(member)):
                self._submit(member, parts)

    def _next_for(self, member: Member) -> list[Part]:
        lane = self._lanes[member.number % len(self._lanes)]
        found: list[Part] = []
        most = self._group(len(lane))
        while lane and len(found) < most:
            part = lane.popleft()
            run = part.entry.run
            if run < self.oldest and not self._makes_all and not (self._keeps_lanes and run != member.run):
                self.answers.put(Reply([part], []))
            elif self._has_room(len(found)):
                member.run = run
                found.append(part)
            else:
                lane.appendleft(part)
                break
        return found

    def _group(self, waiting: int) -> int:
        """How many parts a call carries: not more than are left for each worker that could make them."""
        ready = sum(member.is_ready for member in self.members.values()) or 1
        fair = waiting if self._keeps_lanes else math.ceil(waiting / ready)
        return max(1, min(math.ceil(WORTHWHILE / self._cost) if self._cost else fair, fair))

    def _has_room(self, more: int) -> bool:
        out = sum(len(member.parts) for member in self.members.values()) + self.unopened + more
        return not out or (out + 1) * self._largest <= self._budget

    def _submit(self, member: Member, parts: list[Part]) -> None:
        sent = self._parcel.sent
        tasks = [(part.serial, part.entry.run, dump_task(part.task, None, sent)) for part in parts]
        member.parts = parts
        self._then(member.actor.work.remote(tasks), self._has_made, member)

    def _has_made(self, member: Member, future: Any) -> None:
        answer: Answer | None = self._result(member, future)
        if answer is None:
            return
        parts, member.parts = member.parts, []
        member.spent = answer.spent
        self._cost = answer.seconds / len(parts)
        self._largest = max(self._largest, *(made.buffer.nbytes for made in answer.made))
        self.unopened += len(answer.made)
        self.answers.put(Reply(parts, answer.made))
        if member.is_leaving and not self._has_more(member):
            self._let_go(member)
        self._dispatch()

    def _has_more(self, member: Member) -> bool:
        """Is there something that only this worker can make?"""
        return self._keeps_lanes and bool(self._lanes[member.number % len(self._lanes)])

    def _looked(self, members: list[Member], future: Any) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):  # then the keeper has died, as the workers will say
            for number, seen in future.result().items():
                for member in members:
                    if member.number == number:
                        member.seen, member.asked = seen, None

    def _result(self, member: Member, future: Any, instead: Any = None) -> Any:
        """What a call returned (`instead` of None); None if the worker is not there any more."""
        try:
            result = future.result()
        except self._ray.exceptions.RayTaskError as error:
            raise WorkerError(f"{self._named(member)} could not be set up: {error.cause}") from error
        except self._ray.exceptions.RayError as error:
            self._has_died(member, str(error))
            return None
        if self.members.get(member.number) is not member:
            return None
        return result if instead is None else instead

    def _named(self, member: Member) -> str:
        return f"worker {member.number}" + (f" on {member.home.host}" if member.home is not None else "")

    def _has_died(self, member: Member, reason: str) -> None:
        if self.members.get(member.number) is not member:
            return
        del self.members[member.number]
        self._gone = tuple(map(sum, zip(self._gone, member.spent, strict=True)))  # type: ignore[assignment]
        self._end(member.actor)
        if self._keeps_lanes:  # no other worker takes from its lane
            lane = self._lanes[member.number % len(self._lanes)]
            while lane:
                member.parts.append(lane.popleft())
        machine = None if member.home is None else self._machines.get(member.home.node)
        if machine is None or machine.shared is None or member.home is None:
            self.answers.put(Ended(member, None, reason, member.parts))
        else:
            seen = machine.keeper.look.remote({member.number: member.home.pid})
            self._then(seen, self._was_seen, member, reason)

    def _was_seen(self, member: Member, reason: str, future: Any) -> None:
        """What a dead worker was doing; its keeper may have died with it."""
        seen = None
        try:
            seen = future.result()[member.number]
        except self._ray.exceptions.RayError:
            assert member.home is not None
            self._machines.pop(member.home.node, None)
        self.answers.put(Ended(member, seen, reason, member.parts))

    def _let_go(self, member: Member) -> None:
        self.members.pop(member.number, None)
        self._gone = tuple(map(sum, zip(self._gone, member.spent, strict=True)))  # type: ignore[assignment]
        self._end(member.actor)

    def _end(self, actor: Any) -> None:
        with contextlib.suppress(Exception):  # it has ended, or Ray was shut down
            self._ray.kill(actor)


def _serve(inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    # A function, not a method: between two steps a waiting thread must not keep a dropped loader alive.
    while (step := inbox.get()) is not None:
        step()
        del step


def connected() -> Any:
    """Ray, connected to the cluster that the user has chosen (ray.init, RAY_ADDRESS), or a new one here."""
    ray: Any = extra("ray", "ray", "workers='ray'")
    if not ray.is_initialized():
        ray.init()
    return ray


def _store(ray: Any) -> float:
    """Bytes of Ray's memory on this machine."""
    here = ray.get_runtime_context().get_node_id()
    return float(next(node["Resources"]["object_store_memory"] for node in ray.nodes() if node["NodeID"] == here))


def _placing(ray: Any) -> dict[str, Any]:
    """One CPU for each worker, spread over the machines. If some machines have GPUs and others do not, Ray's default
    leaves the former alone as long as it can; its "SPREAD" does not."""
    has_gpus = {bool(node["Resources"].get("GPU")) for node in ray.nodes() if node["Alive"]}
    return {"num_cpus": 1, "scheduling_strategy": "DEFAULT" if len(has_gpus) == 2 else "SPREAD"}
