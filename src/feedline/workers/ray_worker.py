"""What runs on the machines of a Ray cluster: workers, and on each machine one keeper of the memory they share.

Takes: the job as a parcel, and tasks as bytes. Gives: packed outcomes, each as one buffer.
Promises: the dataset is in a machine's memory once, and a worker that writes to it changes only its own copy; what each
worker is doing, and its stack, can be asked for while it is stuck in any code, and are known after its death; nothing
outlives the actors (no file is made).
Not its job: when to call what (ray_fleet), what a task does (body).
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.arena.segment import JOB_SLOT, Segment
from feedline.arena.slots import Slot
from feedline.errors import WorkerError
from feedline.messages.progress import COLLATED, FETCHED, MEMORY, PLACE, SENT, SETTING_UP, SINCE, TASK, WIDTH, clock
from feedline.supervise import last_words
from feedline.supervise.worker_memory import own_memory
from feedline.workers.freed_memory import keep_freed_memory
from feedline.workers.one_thread import use_one_thread
from feedline.workers.serving import Serving
from feedline.workers.shipping import Parcel
from feedline.workers.wire import load_task

ANSWER_SECONDS = 0.1
"""How long a worker that was asked for its stack may take to write it; it takes less than a millisecond if it runs."""


class Shared(NamedTuple):
    """Where the memory that a machine's workers share can be opened: the keeper's pid, and its descriptor."""

    pid: int
    fd: int


class Seen(NamedTuple):
    """What a worker was doing when its keeper looked."""

    row: list[int]
    age: int
    """Nanoseconds since it began to do that: clocks of two machines cannot be compared."""
    words: str
    """The stack that it has written since it was last asked, or as it crashed."""


class Made(NamedTuple):
    """An outcome."""

    serial: int
    start: int
    """Where its head begins in the buffer (arena.packing)."""
    size: int
    buffer: npt.NDArray[np.uint8]


class Answer(NamedTuple):
    """What a call returns."""

    made: list[Made]
    spent: tuple[int, int, int]
    """Nanoseconds that this worker has spent so far on reading samples, making batches and sending them."""
    memory: tuple[int, int]
    """Bytes that this worker uses, and how many of these are its own."""
    times: tuple[int, int]
    """When this call began and ended, by this machine's clock."""


class Keeper:
    """An actor: it has the memory that all workers of a loader on its machine share."""

    def __init__(self, workers: int, cargo: npt.NDArray[np.uint8]) -> None:
        self._segment = Segment()
        self._board = self._segment.board(WIDTH * (1 + workers), create=True)
        self._segment.allocate(JOB_SLOT, 0, cargo.nbytes)
        mapping = self._segment.map(JOB_SLOT, cargo.nbytes)
        np.frombuffer(mapping.view(0, cargo.nbytes), np.uint8)[:] = cargo
        self._heard: dict[int, int] = {}

    def shared(self) -> Shared:
        """For the workers of this machine."""
        return Shared(os.getpid(), self._segment.fd)

    def expect(self, number: int) -> None:
        """A new worker with that number will begin on this machine: forget what an earlier one did."""
        last_words.erase(self._segment, number)
        self._heard.pop(number, None)
        row = self._row(number)
        row[:] = memoryview(bytes(8 * WIDTH)).cast("q")
        row[TASK], row[PLACE], row[SINCE] = 0, SETTING_UP, clock()

    def look(self, workers: dict[int, int], ask: bool = False) -> dict[int, Seen]:
        """What those workers are doing: number → pid. `ask` makes them write their stacks first."""
        if ask:
            for number, pid in workers.items():
                self._heard[number] = self._heard.get(number, 0) + len(self._words(number).encode())
                last_words.ask(pid)
            deadline = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < deadline and not all(map(self._words, workers)):
                time.sleep(0.002)
        return {number: self._seen(number) for number in workers}

    def _row(self, number: int) -> memoryview:
        return self._board[WIDTH * (1 + number) : WIDTH * (2 + number)]

    def _words(self, number: int) -> str:
        return last_words.read(self._segment, number, self._heard.get(number, 0))

    def _seen(self, number: int) -> Seen:
        row = self._row(number).tolist()
        return Seen(row, max(0, clock() - row[SINCE]), self._words(number))


class Making:
    """The work of one actor (ray_node.Worker)."""

    def __init__(
        self, shared: Shared, workers: int, parcel: Parcel, number: int, environment: dict[str, str], host: str
    ) -> None:
        os.environ.update(environment)
        use_one_thread()
        keep_freed_memory()
        try:
            fd = os.open(f"/proc/{shared.pid}/fd/{shared.fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise WorkerError(
                f"the worker cannot open memory of another process of its own machine ({error.strerror}): workers on "
                "one machine must run in one container, as one user"
            ) from None
        self._serving = Serving(Segment(fd), workers, parcel, number, lambda: False, host)
        self._memory = Segment()
        self._slots: list[Slot] = []

    def work(self, tasks: list[tuple[int, int, bytes]]) -> Answer:
        """Make the batches of those parts: serial number, run and task of each."""
        began = clock()
        serving, made = self._serving, []
        # Ray copies the buffers when this method has returned, and calls no other method before: a slot can be used
        # again in the next call.
        while len(self._slots) < len(tasks):
            self._slots.append(Slot(self._memory, JOB_SLOT + 1 + len(self._slots)))
        for slot, (serial, run, data) in zip(self._slots, tasks, strict=False):
            serving.take(serial)
            task, _ = load_task(data)
            packed = serving.make(task, run, slot)
            end = packed.start + packed.size
            buffer: npt.NDArray[Any] = np.frombuffer(slot.mapped(end).view(0, end), np.uint8)
            made.append(Made(serial, packed.start, packed.size, buffer))
            serving.row[SENT] += clock() - serving.row[SINCE]
        serving.rest()
        spent = (serving.row[FETCHED], serving.row[COLLATED], serving.row[SENT])
        return Answer(made, spent, (serving.row[MEMORY], own_memory(os.getpid())), (began, clock()))
