"""The last step of a batch: into pinned memory, onto a device, one batch ahead of the user.

Takes: the loop's iterator. Gives: an iterator of the same batches, pinned or on the device.
Promises: pinning happens in a thread of its own; a copy to the device runs on a side stream, is awaited by the
user's stream and not by the CPU, and its source memory is held until the copy's event has passed. At most one batch
is under way. Without an accelerator: torch's warning, and batches as they are.
Not its job: the batches (loop). It has been tried against a stand-in for torch.cuda only: there was no GPU.
"""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import _utils

from feedline.line.own import own
from feedline.loop import BatchIterator


@dataclass(frozen=True)
class Transfer:
    """What is to happen to every batch."""

    pin: bool
    device: torch.device | None

    @classmethod
    def chosen(cls, pin_memory: bool, pin_memory_device: str, device: torch.device | None) -> Transfer | None:
        """What the options ask for and the machine can do; None for nothing. Warns where torch warns."""
        if pin_memory and pin_memory_device:
            warnings.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the device,"
                f"ignore pin_memory_device='{pin_memory_device}'.",
                stacklevel=3,
            )
        if pin_memory and not torch.accelerator.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=3,
            )
        pin = pin_memory and torch.accelerator.is_available()
        onto = device if device is not None and device.type != "cpu" else None
        # A copy is asynchronous only from pinned memory, so a device implies it.
        return cls(pin or onto is not None, onto) if pin or onto is not None else None


def transferred(batches: BatchIterator, transfer: Transfer | None) -> Iterator[Any]:
    """The batches, transferred one ahead; as they are if there is nothing to do."""
    return batches if transfer is None else Transferred(batches, transfer)


class Transferred(Iterator[Any]):
    """Batches of an iterator, each made ready while the user works on the one before."""

    def __init__(self, batches: BatchIterator, transfer: Transfer) -> None:
        self._batches = batches
        self._thread = ThreadPoolExecutor(1, "feedline-pin")
        self._copier = None if transfer.device is None else DeviceCopier(transfer.device)
        self._ahead: Callable[[], Any] | None = None
        weakref.finalize(self, self._thread.shutdown, False)

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        ready = self._ahead if self._ahead is not None else self._prepare()
        self._ahead = None
        batch = ready()
        if self._batches.is_ready():
            self._ahead = self._prepare()
        return batch

    def _prepare(self) -> Callable[[], Any]:
        """Begin the transfer of the next batch. An error of its own is kept until its turn has come."""
        try:
            batch = next(self._batches)
        except StopIteration:
            self._thread.shutdown()
            raise
        except Exception as error:
            failure = error

            def fail() -> Any:
                raise failure

            return fail
        if self._copier is None:
            return self._thread.submit(_utils.pin_memory.pin_memory, batch).result
        return self._copier.copy(batch, self._thread)


class DeviceCopier:
    """Copies batches to a device on a stream of its own."""

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
            own(arrived, np.empty, self._used_here)
            self._hold(source, event)
            return arrived

        return finish

    def _enqueue(self, batch: Any) -> tuple[Any, Any, Any]:
        pinned: Any = _utils.pin_memory.pin_memory(batch)  # type: ignore[no-untyped-call]
        with self._backend.stream(self._stream):
            arrived = own(pinned, np.empty, self._to_device)
            event = self._backend.Event()
            event.record(self._stream)
        return pinned, arrived, event

    def _to_device(self, value: Any, empty: Any) -> Any:
        return value.to(self._device, non_blocking=True) if isinstance(value, torch.Tensor) else value

    def _used_here(self, value: Any, empty: Any) -> Any:
        # Its memory came from the side stream: the allocator must not reuse it before this stream is done with it.
        if isinstance(value, torch.Tensor):
            value.record_stream(self._backend.current_stream(self._device))
        return value

    def _hold(self, source: Any, event: Any) -> None:
        self._under_way.append((source, event))
        while self._under_way and self._under_way[0][1].query():
            self._under_way.popleft()
