"""A stand-in for torch.cuda that takes down every call (there is no GPU), and a GPU that exists in numbers only."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from feedline.engine import inline_watch, loop, session
from feedline.observe import epoch_bar, meter, recording, stepping
from feedline.torch import transfer


class Event:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.done = machine, False
        self.name = f"event {len(machine.events)}"
        machine.events.append(self)

    def record(self, stream: Any) -> None:
        self.machine.log(f"{self.name} recorded on {stream}")

    def query(self) -> bool:
        return self.done


class Stream:
    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name

    def __str__(self) -> str:
        return self.name

    def wait_event(self, event: Event) -> None:
        self.machine.log(f"{self} waits for {event.name}")


class Machine:
    """A machine with an accelerator, as far as torch's functions tell; tensors carry their first number as a name."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.events: list[Event] = []
        self.pinned: list[weakref.ref[Any]] = []
        self.users = Stream(self, "the user's stream")
        self.current = threading.local()
        self.devices: list[tuple[str, int]] = []
        self.fail_on = -1

    def log(self, what: str) -> None:
        self.calls.append((threading.current_thread().name, what))

    # torch.get_device_module(device)

    def Stream(self, device: Any) -> Stream:
        assert device == torch.device("cuda:1")
        return Stream(self, "the side stream")

    def Event(self) -> Event:
        return Event(self)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.current.stream = stream
        yield
        del self.current.stream

    def current_stream(self, device: Any) -> Stream:
        assert device == torch.device("cuda:1")
        return getattr(self.current, "stream", self.users)

    # methods of tensors

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        number = int(tensor.flatten()[0])
        self.log(f"{number} pinned")
        if number == self.fail_on:
            raise RuntimeError("no memory to pin")
        pinned = tensor.clone()
        self.pinned.append(weakref.ref(pinned))
        return pinned

    def to(self, tensor: torch.Tensor, device: Any, non_blocking: bool = False) -> torch.Tensor:
        assert device == torch.device("cuda:1")
        assert non_blocking
        assert any(tensor is pinned() for pinned in self.pinned), "a copy is asynchronous only from pinned memory"
        self.log(f"{int(tensor.flatten()[0])} copied on {self.current_stream(device)}")
        return tensor.clone()

    def record_stream(self, tensor: torch.Tensor, stream: Stream) -> None:
        self.log(f"{int(tensor.flatten()[0])} used on {stream}")


def put_in_place(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch say that there is an accelerator, and tell the machine what it is told to do."""

    def set_device_index(index: int) -> None:
        made.devices.append((threading.current_thread().name, index))

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *args: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    monkeypatch.setattr(torch.accelerator, "set_device_index", set_device_index)
    monkeypatch.setattr(torch, "get_device_module", lambda device: made)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *args: made.pin(self))
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *args, **kwargs: made.to(self, *args, **kwargs))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: made.record_stream(self, stream))


# A GPU with a clock


class TimedEvent:
    """An event of `Gpu`: it is reached after all that was launched before it was recorded."""

    def __init__(self, gpu: Gpu, enable_timing: bool) -> None:
        assert enable_timing, "CUDA refuses to compare events without it"
        gpu.made += 1
        self.gpu, self.reached = gpu, -1

    def record(self, stream: Any) -> None:
        assert stream == f"stream of device {self.gpu.device}"
        self.gpu.fail("record")
        self.reached = max(self.gpu.now, self.gpu.busy_until)

    def query(self) -> bool:
        self.gpu.fail("query")
        return self.gpu.now >= self.reached

    def elapsed_time(self, end: TimedEvent) -> float:
        self.gpu.fail("elapsed_time")
        assert self.query(), "CUDA raises an error if an event was not reached"
        assert end.query(), "CUDA raises an error if an event was not reached"
        return (end.reached - self.reached) / 1e6

    def synchronize(self) -> None:
        raise AssertionError("the loop must never wait for the device")


class Gpu:
    """Kernels run one after the other, later than they are launched; the host's clock goes on only if told to."""

    def __init__(self) -> None:
        self.now = 1_000_000_000
        self.busy_until = 0
        self.device = self.current = 0
        """The GPU that is measured, and the current one."""
        self.made = 0
        self.capturing = False
        self.initialised = True
        self.failing = ""
        self.calls = 0

    def fail(self, call: str) -> None:
        self.calls += 1
        if call == self.failing:
            raise RuntimeError("CUDA error: unspecified launch failure")

    def host(self, milliseconds: float) -> None:
        """The host does something for so long."""
        self.now += round(milliseconds * 1e6)

    def launch(self, milliseconds: float) -> None:
        """A kernel is launched, which takes the host no time."""
        self.busy_until = max(self.now, self.busy_until) + round(milliseconds * 1e6)

    def synchronise(self) -> None:
        """`loss.item()`, by the user."""
        self.now = max(self.now, self.busy_until)

    # what of torch.cuda is asked

    def put_in_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let torch.cuda and all clocks be these."""
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: self.initialised)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of device {device}")
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing=False: TimedEvent(self, enable_timing))
        for module in (meter, recording, stepping, epoch_bar, loop, session, transfer, inline_watch):
            if hasattr(module, "clock"):
                monkeypatch.setattr(module, "clock", lambda: self.now)
