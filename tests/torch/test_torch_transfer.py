"""Pinning and copying to a device, against a stand-in for torch.cuda that takes down every call (there is no GPU)."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, THREADS, thorough
from made_up_cuda import Machine
from sameness import Point, Record, Trees, assert_same
from warm_host import host

import feedline.torch as ours
from feedline.engine.loop import BatchIterator
from feedline.errors import OptionError
from feedline.torch.transfer import Transfer, transferred

kinds = pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])


# Without an accelerator


def loop(library: Any, **options: Any) -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        loader = library.DataLoader(range(4), batch_size=2, pin_memory=True, **options)
        for _ in range(3):
            assert_same(list(loader), [torch.tensor([0, 1]), torch.tensor([2, 3])])
    return caught


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}])
def test_pinning_without_an_accelerator_warns_once_in_torchs_words(options: dict[str, Any]) -> None:
    (wanted,), (found,) = loop(torchs, **options), loop(ours, **options)
    assert found.category is wanted.category is UserWarning
    assert str(found.message) == str(wanted.message)
    assert found.filename == __file__


def test_a_pin_memory_device_is_ignored_with_torchs_warning() -> None:
    options = {"pin_memory_device": "cuda:1"}
    wanted = [str(warning.message) for warning in loop(torchs, **options)]
    assert [str(warning.message) for warning in loop(ours, **options)] == wanted


def test_the_cpu_as_device_changes_nothing() -> None:
    (batch,) = ours.DataLoader(range(2), batch_size=2, device="cpu")
    assert_same(batch, torch.tensor([0, 1]))


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_device_that_is_not_there_is_named_with_the_remedy(device: str) -> None:
    with pytest.raises(OptionError, match=f"device='{device}' cannot be used here: .* Leave device out"):
        next(iter(ours.DataLoader(range(2), device=device)))


# With one that is made up


def thread_of(call: tuple[str, str]) -> str:
    return "pin" if call[0].startswith("feedline-pin") else call[0]


@kinds
def test_a_batch_goes_to_the_device_in_the_right_order_of_calls(kind: dict[str, Any], machine: Machine) -> None:
    (batch,) = ours.DataLoader(Trees(2, lambda n: 7 + n), batch_size=2, device="cuda:1", **kind)
    assert_same(batch, torch.tensor([7, 8]))
    assert [(thread_of(call), call[1]) for call in machine.calls] == [
        ("pin", "7 pinned"),
        ("pin", "7 copied on the side stream"),
        ("pin", "event 0 recorded on the side stream"),
        ("MainThread", "the user's stream waits for event 0"),
        ("MainThread", "7 used on the user's stream"),
    ]


def test_all_copies_of_a_batch_lie_between_its_pinning_and_its_event(machine: Machine) -> None:
    dataset = Trees(3, lambda n: {"a": n, "b": (n + 100, "text", [np.full(2, n + 200)])})
    (batch,) = ours.DataLoader(dataset, batch_size=3, device="cuda:1")
    assert_same(batch["b"][1], ("text",) * 3)
    calls = [call for _, call in machine.calls]
    assert calls[:3] == ["0 pinned", "100 pinned", "200 pinned"]
    assert calls[3:6] == [f"{n} copied on the side stream" for n in (0, 100, 200)]
    assert calls[6:8] == ["event 0 recorded on the side stream", "the user's stream waits for event 0"]
    assert calls[8:] == [f"{n} used on the user's stream" for n in (0, 100, 200)]


@kinds
def test_every_batch_is_right_and_waited_for_before_it_is_handed_out(kind: dict[str, Any], machine: Machine) -> None:
    for number, batch in enumerate(ours.DataLoader(Trees(20, int), batch_size=2, device="cuda:1", **kind)):
        assert batch.tolist() == [2 * number, 2 * number + 1]
        assert ("MainThread", f"the user's stream waits for event {number}") in machine.calls
        begun = sum(call.endswith("pinned") for _, call in machine.calls)
        assert begun <= number + 2  # this one and at most one ahead
    assert number == 9


@kinds
def test_pin_memory_pins_in_a_thread_of_its_own_on_the_users_device(kind: dict[str, Any], machine: Machine) -> None:
    threads = torch.get_num_threads()
    batches = list(ours.DataLoader(Trees(4, int), batch_size=2, pin_memory=True, **kind))
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
    assert all(any(batch is pinned() for pinned in machine.pinned) for batch in batches)
    assert {thread_of(call) for call in machine.calls} == {"pin"}
    ((name, index),) = machine.devices
    assert name.startswith("feedline-pin")
    assert index == 3  # as the user's thread has it, not 0: that would make a context on another device
    assert torch.get_num_threads() == threads


def test_the_copying_thread_is_on_the_device_asked_for(machine: Machine) -> None:
    list(ours.DataLoader(Trees(4, int), device="cuda:1"))
    assert [index for _, index in machine.devices] == [1]


def test_apples_devices_are_not_pinned_for_as_in_torch(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *args: torch.device("mps"))
    with pytest.warns(UserWarning, match="not supported on MPS"):
        list(ours.DataLoader(Trees(4, int), pin_memory=True))
    assert machine.calls == []


class Custom:
    """A batch of the user's own kind."""

    def __init__(self, samples: Any, state: str = "new") -> None:
        self.samples, self.state = samples, state

    def pin_memory(self) -> Custom:
        return Custom(self.samples, f"{self.state}, pinned")


class Movable(Custom):
    def pin_memory(self) -> Movable:
        return Movable(self.samples, f"{self.state}, pinned")

    def to(self, device: Any) -> Movable:
        return Movable(self.samples, f"{self.state}, moved to {device} in {threading.current_thread().name}")


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_an_objects_own_pin_memory_and_to_are_used(kind: dict[str, Any], machine: Machine) -> None:
    options: dict[str, Any] = {"batch_size": 2, **kind}
    for batch in ours.DataLoader(range(4), collate_fn=Custom, pin_memory=True, **options):
        assert batch.state == "new, pinned"
    for batch in ours.DataLoader(range(4), collate_fn=lambda s: {"x": [Movable(s)]}, device="cuda:1", **options):
        assert batch["x"][0].state == "new, pinned, moved to cuda:1 in MainThread"


def test_containers_keep_their_types_on_the_way(machine: Machine) -> None:
    def sample(number: int) -> Any:
        return Point(number, Record({"a": number, "b": str(number)}))

    (wanted,) = torchs.DataLoader(Trees(2, sample), batch_size=2)
    for options in ({"pin_memory": True}, {"device": "cuda:1"}):
        assert_same(next(iter(ours.DataLoader(Trees(2, sample), batch_size=2, **options))), wanted)


PACKED = torch.nn.utils.rnn.pack_sequence([torch.arange(3.0) + 1, torch.arange(2.0) + 5])


def test_a_packed_sequence_moves_by_its_own_method(machine: Machine) -> None:
    (batch,) = ours.DataLoader(range(1), collate_fn=lambda samples: PACKED, device="cuda:1")
    assert type(batch) is type(PACKED)
    assert_same(batch.data, PACKED.data)
    copied = [call for _, call in machine.calls if "copied" in call]
    assert copied == ["1 copied on the user's stream"]  # its batch_sizes must stay on the CPU


def test_the_source_is_held_until_the_event_has_passed(machine: Machine) -> None:
    iterator = iter(ours.DataLoader(Trees(6, int), batch_size=1, device="cuda:1"))
    kept = [next(iterator) for _ in range(3)]
    gc.collect()
    assert [source() is not None for source in machine.pinned] == [True] * 3
    machine.events[1].done = True  # a later one does not free an earlier one
    kept.append(next(iterator))
    assert [source() is not None for source in machine.pinned] == [True] * 4
    machine.events[0].done = True
    kept.append(next(iterator))
    gc.collect()
    assert [source() is not None for source in machine.pinned] == [False, False, True, True, True]
    assert [batch.item() for batch in kept] == list(range(5))


# One ahead, and errors in their turn


class Given:
    """Stands for the loop's iterator: batches and errors that are there, or are not there yet."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)
        self.ready: Any = True
        self.held = False
        self.cannot_send: Exception | None = None
        self.samples_given: int | None = None

    def __next__(self) -> Any:
        if not self.items:
            raise StopIteration
        item = self.items.pop(0)
        if isinstance(item, BaseException):
            raise item
        self.samples_given = int(item.flatten()[0]) if isinstance(item, torch.Tensor) else None
        return item

    def __len__(self) -> int:
        return 3

    def is_ready(self) -> bool:
        if isinstance(self.ready, Exception):
            raise self.ready
        return bool(self.items) and self.ready

    def hold(self) -> None:
        self.held = True

    def let_go(self) -> None:
        self.held = False
        if self.cannot_send is not None:
            raise self.cannot_send

    def moved(self, nanoseconds: int) -> None:
        assert nanoseconds >= 0


def pinning(given: Any) -> Any:
    return transferred(given, Transfer(pin=True, device=None))


def tensors(*numbers: int) -> list[torch.Tensor]:
    return [torch.tensor([number]) for number in numbers]


def test_how_many_samples_is_said_of_the_batch_given_and_not_of_the_one_ahead(machine: Machine) -> None:
    iterator: Any = pinning(Given(*tensors(5, 6, 7)))
    assert [(batch.item(), iterator.samples_given) for batch in iterator] == [(5, 5), (6, 6), (7, 7)]


def test_the_next_batch_is_begun_when_it_is_there_and_no_further(machine: Machine) -> None:
    given = Given(*tensors(0, 1, 2, 3))
    iterator = pinning(given)
    assert next(iterator).item() == 0
    assert len(given.items) == 2  # 1 is under way
    assert given.held  # and its place is not free
    given.ready = False
    assert next(iterator).item() == 1
    assert len(given.items) == 2  # nothing is waited for
    assert not given.held
    assert [batch.item() for batch in iterator] == [2, 3]
    assert len(iterator) == 3


def test_an_error_comes_in_its_turn_and_batches_go_on_after_it(machine: Machine) -> None:
    zero, two = tensors(0, 2)
    iterator = pinning(Given(zero, ValueError("1"), two))
    assert next(iterator).item() == 0
    with pytest.raises(ValueError, match="1"):
        next(iterator)
    assert [batch.item() for batch in iterator] == [2]


def test_a_death_noticed_while_looking_ahead_does_not_cost_the_batch_at_hand(machine: Machine) -> None:
    given = Given(*tensors(0))
    given.ready = RuntimeError("a worker died")
    iterator = pinning(given)
    assert next(iterator).item() == 0
    with pytest.raises(RuntimeError, match="a worker died"):
        next(iterator)


def test_a_task_that_cannot_be_sent_does_not_cost_the_batch_taken_ahead(machine: Machine) -> None:
    given = Given(*tensors(0, 1, 2))
    iterator = pinning(given)
    assert next(iterator).item() == 0
    given.cannot_send = OSError("no memory")
    assert next(iterator).item() == 1
    with pytest.raises(OSError, match="no memory"):
        next(iterator)


@kinds
def test_a_failure_to_pin_comes_in_its_turn(kind: dict[str, Any], machine: Machine) -> None:
    machine.fail_on = 2
    iterator = iter(ours.DataLoader(Trees(4, int), pin_memory=True, **kind))
    assert [next(iterator).item() for _ in range(2)] == [0, 1]
    with pytest.raises(RuntimeError, match="no memory to pin"):
        next(iterator)
    assert next(iterator).item() == 3


@kinds
@pytest.mark.parametrize("options", [{"pin_memory": True}, {"device": "cuda:1"}])
@pytest.mark.parametrize("most", [0, pytest.param(1, marks=thorough), 3])
def test_a_loop_left_early_leaves_no_thread(
    kind: dict[str, Any], options: dict[str, Any], most: int, machine: Machine
) -> None:
    loader = ours.DataLoader(Trees(30, lambda n: torch.full((30_000,), n)), batch_size=2, **kind, **options)
    assert len([batch for batch, _ in zip(loader, range(most), strict=False)]) == most
    gc.collect()
    ours_left = [thread for thread in threading.enumerate() if thread.name.startswith("feedline")]
    for thread in ours_left:  # it has been told to end, and does so when it is its turn
        thread.join(300)
    assert not [thread.name for thread in ours_left if thread.is_alive()]


COLLECTED = """
import gc, threading, torch
from torch.utils.data import _utils
from feedline.torch.transfer import Transfer, Transferred

class Batches:
    samples_given = None
    def __next__(self): return torch.zeros(1)
    def is_ready(self): return False
    def moved(self, nanoseconds): pass

gc.disable()
torch.accelerator.current_device_index = lambda: 0
torch.accelerator.set_device_index = lambda index: None
_utils.pin_memory.pin_memory = lambda batch: batch
left = Transferred(Batches(), Transfer(True, None), lambda: None)
next(left)
pins = [thread for thread in threading.enumerate() if thread.name.startswith("feedline-pin")]
cycle = [left]
cycle.append(cycle)
del left, cycle
with getattr(threading, "_shutdown_locks_lock", threading.Lock()):  # as where the collector interrupts a new thread
    gc.collect()
for thread in pins:
    thread.join()
print(len(pins))
"""


def test_a_loop_is_collected_where_pythons_own_lock_is_held() -> None:
    assert host("feedline.torch").run(["-c", COLLECTED], timeout=100, check=True).stdout == "1\n"


@pytest.mark.parametrize("kind", [THREADS, FORK], ids=["threads", "fork"])  # without workers none is ever ahead
def test_a_batch_that_is_made_ready_ahead_does_not_count_as_delivered(
    kind: dict[str, Any], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that is under way is waited for: there always is one ahead.
    monkeypatch.setattr(BatchIterator, "is_ready", lambda self: self.fill() or len(self._ledger.queue) > 0)
    with ours.DataLoader(range(12), batch_size=2, pin_memory=True, **kind) as loader:
        iterator = iter(loader)
        for number in range(6):
            assert next(iterator)[0] == 2 * number
            state = loader.state_dict()
            assert (state["epoch"], state["batches"], state["samples"]) == (0, number + 1, 2 * number + 2)
        assert next(iterator, None) is None
        assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)


def test_what_is_taken_ahead_is_settled_with_the_next_batch(machine: Machine) -> None:
    settled: list[int] = []
    given = Given(*tensors(0, 1, 2))
    iterator = transferred(given, Transfer(pin=True, device=None), lambda: settled.append(3 - len(given.items)))  # type: ignore[arg-type]
    assert [batch.item() for batch in iterator] == [0, 1, 2]
    assert settled == [1, 2, 3]
