"""The last step of a batch: into pinned memory, onto a device, one batch ahead of the user.

Takes: the loop's iterator. Gives: an iterator of the same batches, pinned or on the device.
Promises: pinning happens in a thread of its own. A copy to the device runs on a side stream; the user's stream waits
for it, the CPU does not, and its source memory is kept until the copy's event has passed. At most one batch is being
transferred. It counts neither as delivered (`settle`) nor as making room for another (`hold`): workers get the same
tasks as without pinning. Without an accelerator: torch's warning, and unchanged batches.
Not its job: the batches (engine.loop). Tested only with a stand-in for torch.cuda: there was no GPU.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import _utils

from feedline.engine.loop import BatchIterator
from feedline.errors import OptionError
from feedline.errors.foreign import ask
from feedline.messages.progress import clock
from feedline.observe.recording import Recording
from feedline.observe.stepping import DeviceClock
from feedline.torch.moving import moved

Timed = Callable[[int | None], tuple[DeviceClock | None, Recording | None]]

_USERS_LINE = 6
"""Frames above `Transfer.chosen`: Engine._begin, Engine.begin, _get_iterator, __iter__, the loop."""


@dataclass(frozen=True)
class Transfer:
    """What must be done with every batch."""

    pin: bool
    device: torch.device | None

    @classmethod
    def chosen(cls, pin_memory: bool, pin_memory_device: str, device: torch.device | None) -> Transfer | None:
        """What the options request and the machine can do; None for nothing. Warns in the same cases as torch."""
        if pin_memory and pin_memory_device:
            warnings.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the device,"
                f"ignore pin_memory_device='{pin_memory_device}'.",
                stacklevel=_USERS_LINE,
            )
        if pin_memory and not torch.accelerator.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=_USERS_LINE,
            )
        pin = pin_memory and torch.accelerator.is_available()
        if pin and _accelerator_type() == "mps":
            warnings.warn(
                "'pin_memory' argument is set as true but not supported on MPS now, "
                "device pinned memory won't be used.",
                stacklevel=_USERS_LINE,
            )
            pin = False
        onto = device if device is not None and device.type != "cpu" else None
        # A copy is asynchronous only from pinned memory, so a device implies pinning.
        return cls(pin or onto is not None, onto) if pin or onto is not None else None


def no_clock(device: int | None) -> tuple[DeviceClock | None, Recording | None]:
    """The time on the device is not measured."""
    return None, None


def transferred(
    batches: BatchIterator[Any],
    transfer: Transfer | None,
    settle: Callable[[], None] = lambda: None,
    timed: Timed = no_clock,
) -> Iterator[Any]:
    """The batches, transferred one ahead; unchanged if there is nothing to do.

    `settle` is called when all that was taken from `batches` is on its way to the user. `timed` gives the device's
    clock, if there is one by now, and what its times are recorded in.
    """
    return batches if transfer is None else Transferred(batches, transfer, settle, timed)


class Transferred(Iterator[Any]):
    """Batches of an iterator; each is made ready while the user works on the one before."""

    def __init__(
        self, batches: BatchIterator[Any], transfer: Transfer, settle: Callable[[], None], timed: Timed = no_clock
    ) -> None:
        self._batches = batches
        self._settle = settle
        device = transfer.device
        self._timed = timed if device is None or device.type == "cuda" else no_clock
        self._copier = None if device is None else _copier_to(device)
        index = device.index if device is not None else None
        if index is None:
            index = torch.accelerator.current_device_index()
        self._device = index
        self._timed(index)  # so that a clock that is begun now is this device's, whoever asks for it later
        # The thread ends when this object is collected (it holds the executor weakly). Waiting could take forever.
        self._thread = ThreadPoolExecutor(1, "feedline-pin", _enter_thread, (index,))
        self._ahead: Callable[[], Any] | None = None
        self.samples_given: int | None = None
        """The number of samples in the latest batch, if it is known."""

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        # What a device's clock marks is all of this: waiting, and the wait of the device's stream for the copy.
        device, recording = self._timed(self._device)
        if device is None:
            return self._next()
        device.asked(self._batches.meter, recording)
        batch = self._next()
        device.gave(self._batches.meter, recording)
        return batch

    def _next(self) -> Any:
        ready = self._ahead
        self._ahead = self._failing(self._batches.let_go) if ready is not None else None
        if ready is None:
            ready = self._prepare()
        self._settle()  # an error counts as well: a loop that continues after it gets the next batch
        began = clock()
        batch = ready()
        self._batches.moved(clock() - began)
        self.samples_given = self._batches.samples_given  # of this batch: the next one is not taken yet
        self._ahead = self._ahead or self._failing(self._begin_next)
        return batch

    def _begin_next(self) -> Callable[[], Any] | None:
        if not self._batches.is_ready():
            return None
        self._batches.hold()
        return self._prepare()

    def _failing(self, step: Callable[[], Callable[[], Any] | None]) -> Callable[[], Any] | None:
        """A step for later batches. Its error (a dead worker, say) is theirs: the current batch is still good."""
        try:
            return step()
        except Exception as error:
            return _raising(error)

    def _prepare(self) -> Callable[[], Any]:
        """Begin the transfer of the next batch. An error in it is kept until it is that batch's turn."""
        try:
            batch = next(self._batches)
        except StopIteration:
            self._thread.shutdown()
            raise
        except Exception as error:
            return _raising(error)
        if self._copier is None:
            return self._thread.submit(_utils.pin_memory.pin_memory, batch).result
        return self._copier.copy(batch, self._thread)


def _enter_thread(device_index: int) -> None:
    torch.set_num_threads(1)  # in this thread only: pinning is a copy, and the cores are for the user
    torch.accelerator.set_device_index(device_index)  # otherwise pinning would make a context on device 0


def _raising(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def _accelerator_type() -> str | None:
    accelerator = torch.accelerator.current_accelerator()
    return None if accelerator is None else accelerator.type


class _Later(NamedTuple):
    """An object that moves with its own `to` method."""

    value: Any


def _copier_to(device: torch.device) -> DeviceCopier:
    """A copier, or an error that names the option: torch's own ("Stream requires CUDA support") does not."""
    try:
        return DeviceCopier(device)
    except Exception as error:
        raise OptionError(
            f"device={str(device)!r} cannot be used here: {error}. Leave device out, or use a torch and a machine "
            "where torch.accelerator.is_available() is True"
        ) from error


class DeviceCopier:
    """Copies batches to a device, on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._backend: Any = torch.get_device_module(device)
        self._stream = self._backend.Stream(device)
        self._under_way: deque[tuple[Any, Any]] = deque()

    def copy(self, batch: Any, thread: ThreadPoolExecutor) -> Callable[[], Any]:
        """Begin: pin and enqueue in the thread. The function returned gives the batch, ordered after its copy."""
        begun = thread.submit(self._enqueue, batch)

        def finish() -> Any:
            source, arrived, event = begun.result()
            self._backend.current_stream(self._device).wait_event(event)
            arrived = moved(arrived, self._hand_over)
            self._hold(source, event)
            return arrived

        return finish

    def _enqueue(self, batch: Any) -> tuple[Any, Any, Any]:
        pinned: Any = _utils.pin_memory.pin_memory(batch)  # type: ignore[no-untyped-call]
        with self._backend.stream(self._stream):
            arrived = moved(pinned, self._to_device)
            event = self._backend.Event()
            event.record(self._stream)
        return pinned, arrived, event

    def _to_device(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(self._device, non_blocking=True)
        moves_itself = callable(ask(value, "to")) and not isinstance(value, Mapping)
        return _Later(value) if moves_itself else value

    def _hand_over(self, value: Any) -> Any:
        """Runs in the user's thread, where the user's stream is the current one."""
        if isinstance(value, torch.Tensor):
            # The memory came from the side stream: the allocator must not reuse it before this stream is done with it.
            value.record_stream(self._backend.current_stream(self._device))
        if isinstance(value, _Later):
            # What such an object holds is unknown, so it is copied on the user's stream, where nothing can go wrong;
            # torch keeps pinned memory until such a copy is done.
            return _moved_by_itself(value.value, self._device)
        return value

    def _hold(self, source: Any, event: Any) -> None:
        self._under_way.append((source, event))
        while self._under_way and self._under_way[0][1].query():
            self._under_way.popleft()


def _moved_by_itself(value: Any, device: torch.device) -> Any:
    try:
        return value.to(device, non_blocking=True)
    except TypeError:  # the user's class may accept only the device
        return value.to(device)
