"""The actors of one loader on a Ray cluster: they are started, given parts, asked what they do, and ended.

Takes: a parcel with the job, parts of batches. Gives: `Reply` and `Ended` records in `answers`.
Promises: a worker has one call at a time; Ray decides where a worker runs, and a keeper is started on each machine that
has one; nothing here refers to the job, so that the finalizer that ends the actors does not keep a loader alive.
Not its job: the ledger and deaths (workers.ray), which parts a call carries (ray_lanes), what an actor does
(ray_worker), what the cluster has (ray_cluster).

All changes happen in one thread, step by step (`_serve`): what Ray's futures and the loop want done waits in `_inbox`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from feedline.arena.kept import KeptPool
from feedline.engine.contract import CLOSED_MEANWHILE
from feedline.engine.ledger import Part
from feedline.errors import WorkerError
from feedline.messages.progress import IDLE, PLACE, clock
from feedline.observe.meter import Spent
from feedline.workers import ray_node, ray_worker
from feedline.workers.ray_cluster import SEE_ALL, Connection, Home, check_home, in_short
from feedline.workers.ray_lanes import Lanes
from feedline.workers.ray_members import ClockOffset, Ended, Machine, Member, Reply
from feedline.workers.ray_worker import Answer
from feedline.workers.shipping import Parcel
from feedline.workers.wire import dump_task

END_SECONDS = 5.0
"""How long the end waits for the thread, which ends at once unless Ray itself is stuck."""
DISCONNECTED = (
    "Ray was shut down in this process (ray.shutdown) while workers='ray' were in use, which has ended them: end the "
    "iteration first, or call loader.close(). A new iteration has new workers"
)


class Fleet:
    """At most `count` workers. If they are to be `near`, this machine's CPUs are used first."""

    def __init__(
        self, count: int, options: Mapping[str, Any], lanes: Lanes, kept: KeptPool, near: bool = False
    ) -> None:
        self.count = count
        self.owner = os.getpid()
        self.pool = kept.take()
        self.members: dict[int, Member] = {}
        self.answers: queue.SimpleQueue[Reply | Ended | BaseException | None] = queue.SimpleQueue()
        self.is_ending = False
        self.lanes = lanes
        self._kept = kept
        self._options = dict(options)
        self._near = near
        self._machines: dict[str, Machine] = {}
        self._gone = (0, 0, 0)
        self._connection: Connection | None = None
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
        self._connection = connection = Connection()
        ray = self._ray = connection.ray
        self._parcel, self._environment = parcel, environment
        self._cargo = ray.put(cargo)
        self.lanes.open(lanes, connection.store())
        self._nearest = connection.cpus_here() if self._near and "scheduling_strategy" not in self._options else 0
        self._options = {**connection.placing(), **self._options}
        self._worker = ray.remote(ray_node.Worker)
        self._worker.options(**self._options)  # an option that there is not is an error here, not in another thread
        self._keeper = ray.remote(ray_worker.Keeper)
        self._thread = threading.Thread(target=_serve, args=(self._inbox,), name="feedline-ray", daemon=True)
        self._thread.start()

    def resize(self, count: int) -> None:
        with self._lock:
            staying = [member for member in self.members.values() if not member.is_leaving]
            for member in sorted(staying, key=lambda each: (bool(each.parts), -each.number))[: len(staying) - count]:
                member.is_leaving = True
                self._let_go_if_idle(member)
            for number in range(self.count):
                if len(staying) < count and number not in self.members:
                    staying.append(self.add(number))

    def add(self, number: int) -> Member:
        """Start a worker with that number."""
        with self._lock:
            assert self._connection is not None
            near = self._connection.on(self._connection.here(), soft=True) if number < self._nearest else {}
            member = self.members[number] = Member(number, self._worker.options(**{**self._options, **near}).remote())
            self._then(member.actor.home.remote(sys.path), self._placed, member)
            return member

    def send(self, part: Part, first: bool) -> None:
        self.lanes.add(part, first)
        self._wake()

    def opened(self) -> None:
        """A batch was copied out of Ray's memory."""
        with self._lock:
            self.lanes.unopened -= 1
        self._wake()

    def look(self, ask: bool = False) -> None:
        """Ask all keepers what their workers do; the answers come later. If `ask`, also why workers have no place."""
        with self._lock:
            if self._is_lost:
                return
            for node, machine in self._machines.items():
                there = [each for each in self.members.values() if each.home and each.home.node == node]
                there = [each for each in there if each.is_started and (ask or each.asked is None)]
                if there and machine.shared is not None:
                    for member in there:
                        member.asked = member.asked or time.monotonic()
                    pids = {member.number: member.home.pid for member in there if member.home}
                    self._then(machine.keeper.look.remote(pids, ask), self._looked, there)
            waiting = [member for member in self.members.values() if ask and member.home is None]
            if waiting and self._connection is not None:
                lacks = self._connection.lacking(self._options)
                for member in waiting:
                    member.lacks = lacks

    def kill(self, number: int) -> None:
        with self._lock:
            if (member := self.members.get(number)) is not None and not self._is_lost:
                self._has_died(member, "")

    def spent(self) -> Spent:
        """What all workers, including dead ones, have spent their time on."""
        all_of_them = [self._gone, *(member.spent for member in list(self.members.values()))]
        return Spent(*map(sum, zip(*all_of_them, strict=True)))

    def check(self) -> None:
        """Raise an error if another thread, or the end of Ray, has ended the workers."""
        if self.is_ending:
            raise WorkerError(CLOSED_MEANWHILE)
        if self._is_lost:
            raise WorkerError(DISCONNECTED)

    @property
    def _is_lost(self) -> bool:
        return self._connection is not None and self._connection.is_lost

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
                if not self.is_ending and not self._is_lost:  # else Ray would connect anew by itself
                    step(*arguments)
        except Exception as error:  # the loop waits for an answer, whatever it is
            self.answers.put(error)

    def _placed(self, member: Member, future: Any) -> None:
        """Ray has started the worker somewhere."""
        if (found := self._result(member, future)) is None:
            return
        assert self._connection is not None
        home = member.home = Home(found["node"], self._connection.name(found["node"]), found["pid"])
        check_home(found, home.host, member.number)
        member.offset = ClockOffset(is_ours=found["boot"] == ray_node.boot())
        machine = self._machines.get(home.node)
        if machine is None:
            environment = {"runtime_env": self._options["runtime_env"]} if "runtime_env" in self._options else {}
            keeper = self._keeper.options(num_cpus=0, **self._connection.on(home.node), **environment)
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
                self._has_died(member, in_short(error))
            return
        self._start_waiting(machine)

    def _start_waiting(self, machine: Machine) -> None:
        if machine.shared is None:
            return
        waiting, machine.waiting = machine.waiting, []
        for member in waiting:
            # It is done before `start`, whose argument it is: else it might erase what the worker has written.
            expected = machine.keeper.expect.remote(member.number)
            member.is_started = True
            started = member.actor.start.remote(
                expected,
                machine.shared,
                self.count,
                self._parcel,
                member.number,
                self._environment,
                self._host_of(member),
            )
            self._then(started, self._started, member)

    def _started(self, member: Member, future: Any) -> None:
        if self._result(member, future, "done") is not None:
            member.is_ready = True
            member.seen.row[PLACE] = IDLE
            self._dispatch()

    def _dispatch(self) -> None:
        """Give parts to all workers that wait for some."""
        members = list(self.members.values())
        ready, out = sum(each.is_ready for each in members), sum(len(each.parts) for each in members)
        for member in members:
            if member.is_ready and not member.parts:
                chosen, unwanted = self.lanes.take(member.number, member.run, ready, out)
                if unwanted:
                    self.answers.put(Reply(unwanted, []))
                if chosen:
                    out += len(chosen)
                    self._submit(member, chosen)

    def _submit(self, member: Member, parts: list[Part]) -> None:
        sent = self._parcel.sent
        tasks = [(part.serial, part.entry.run, dump_task(part.task, None, sent)) for part in parts]
        member.parts, member.run, member.sent = parts, parts[-1].entry.run, clock()
        self._then(member.actor.work.remote(tasks), self._has_made, member)

    def _has_made(self, member: Member, future: Any) -> None:
        answer: Answer | None = self._result(member, future)
        if answer is None:
            return
        parts, member.parts = member.parts, []
        member.spent, member.memory = answer.spent, answer.memory
        member.offset.note(member.sent, *answer.times, clock())
        took = (answer.times[1] - answer.times[0]) / 1e9
        self.lanes.made(len(parts), took, max(made.buffer.nbytes for made in answer.made))
        self.lanes.unopened += len(answer.made)
        self.answers.put(Reply(parts, answer.made, member))
        self._let_go_if_idle(member)
        self._dispatch()

    def _let_go_if_idle(self, member: Member) -> None:
        if member.is_leaving and not member.parts and not self.lanes.has_own(member.number):
            self._forget(member)

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
            raise WorkerError(f"{member.name} could not be set up: {error.cause}. {SEE_ALL}.") from error
        except self._ray.exceptions.RuntimeEnvSetupError as error:
            raise WorkerError(
                f"a worker could not be set up, because of ray_options['runtime_env']: {error}"
            ) from error
        except self._ray.exceptions.RayError as error:
            self._has_died(member, in_short(error))
            return None
        if self.members.get(member.number) is not member:
            return None
        return result if instead is None else instead

    def _has_died(self, member: Member, reason: str) -> None:
        if self.members.get(member.number) is not member:
            return
        self._forget(member)
        member.parts += self.lanes.lost(member.number)  # no other worker takes those
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

    def _forget(self, member: Member) -> None:
        del self.members[member.number]
        self._gone = tuple(map(sum, zip(self._gone, member.spent, strict=True)))  # type: ignore[assignment]
        self._end(member.actor)

    def _host_of(self, member: Member) -> str:
        return "" if member.home is None else member.home.host

    def _end(self, actor: Any) -> None:
        if not self._is_lost:
            with contextlib.suppress(Exception):  # it has ended
                self._ray.kill(actor)


def _serve(inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    # A function, not a method: between two steps a waiting thread must not keep a dropped loader alive.
    while (step := inbox.get()) is not None:
        step()
        del step
