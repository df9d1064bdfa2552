"""num_workers=0: a sample that is stuck is told of while it is, and a timeout ends it where Python can."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import queue
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from kinds import FORK, ours

import feedline
from feedline.engine.inline_watch import InlineWatch
from feedline.errors import WorkerTimeout
from feedline.supervise import watchdog
from feedline.supervise.last_words import ASK

BAD = 13
LONG = 600
SOON = 0.01
"""Seconds, which pass only while the sample is stuck (`only_when_stuck`)."""
SAMPLE = f"reading dataset[{BAD}] (photos/{BAD}.jpg) for batch 3 of epoch 0, sample 2 of 4"


class Told:
    """An event whose wait is one step in C: threading's own, interrupted inside of Python code, may stay locked."""

    def __init__(self) -> None:
        self._is_set = False
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._wakes.put(True)

    def wait(self) -> None:
        if not self._is_set:
            self._wakes.get()


class Stuck(feedline.Dataset[Any]):
    """Sample BAD does `how`; whoever waits for it is told when it does."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.begun = threading.Event()
        self.told = Told()
        self.lock = threading.Lock()
        self.lock.acquire()

    def __len__(self) -> int:
        return 40

    def describe(self, index: int) -> str:
        return f"photos/{index}.jpg"

    def __getitem__(self, index: int) -> int:
        if index == BAD and self.how:
            self.begun.set()
            getattr(self, self.how)()
        return index

    def loop(self) -> None:
        while not self.told.is_set():
            pass

    def waits(self) -> None:
        self.told.wait()

    def locked(self) -> None:
        self.lock.acquire()

    def reads(self) -> None:
        reading, writing = os.pipe()
        try:
            os.read(reading, 1)
        finally:
            os.close(reading)
            os.close(writing)

    def hopes(self) -> None:
        while not self.told.is_set():
            try:
                self.told.wait()
            except Exception as error:
                raise AssertionError("it was meant for us") from error

    def catches_all(self) -> None:
        while not self.told.is_set():
            try:
                self.told.wait()
            except BaseException:
                continue


@pytest.fixture(autouse=True)
def only_when_stuck(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stuck], Stuck]:
    """No sample that is merely slow, on however busy a machine, is told of."""
    look = InlineWatch.look
    begun: list[threading.Event] = []

    def looking(self: InlineWatch, entry: Any, now: float, stood_still: float) -> float:
        return look(self, entry, now, stood_still) if all(each.is_set() for each in begun) else now + SOON

    def until(dataset: Stuck) -> Stuck:
        begun.append(dataset.begun)
        return dataset

    monkeypatch.setattr(InlineWatch, "look", looking)
    return until


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said: list[str] = []
        monkeypatch.setattr(warnings, "showwarning", lambda message, *rest, **more: said.append(str(message)))
        yield said


def release_when(monkeypatch: pytest.MonkeyPatch, dataset: Stuck, words: str) -> list[tuple[str, str]]:
    """The sample goes on when a warning says so; what was said, and of which file."""
    said: list[tuple[str, str]] = []

    def note(message: Any, category: Any, filename: str, *rest: Any, **more: Any) -> None:
        said.append((str(message), filename))
        if words in str(message):
            dataset.told.set()

    monkeypatch.setattr(warnings, "showwarning", note)
    return said


@pytest.mark.parametrize("front", ["feedline", "feedline.torch"])
@pytest.mark.parametrize("how", ["loop", "waits"])
def test_the_warning_says_which_sample_and_where(
    how: str, front: str, only_when_stuck: Any, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = only_when_stuck(Stuck(how))
    said = release_when(monkeypatch, dataset, f"in {how}")
    loader = importlib.import_module(front).DataLoader(dataset, 4, stall_warning=SOON)
    assert [list(map(int, batch)) for batch in loader] == [list(range(at, at + 4)) for at in range(0, 40, 4)]
    text, filename = said[0]
    assert text.startswith("the loop has been waiting for a batch (number 3) for ")
    assert f"the main process (pid {os.getpid()}, num_workers=0): {SAMPLE}, for " in text
    assert "in __getitem__" in text
    assert "feedline/loop.py" not in text  # what is ours is the same every time
    assert "stall_warning=… sets when this warning comes" in text
    assert filename == __file__  # the line of the user's loop


def test_it_is_said_again_and_a_loop_where_warnings_are_errors_goes_on(
    only_when_stuck: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = only_when_stuck(Stuck("waits"))
    printed: list[str] = []

    class Screen:
        def write(self, text: str) -> None:
            printed.append(text)
            if sum(SAMPLE in each for each in printed) == 3:
                dataset.told.set()

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", Screen())
    assert len(list(feedline.DataLoader(dataset, 4, stall_warning=SOON))) == 10


@pytest.mark.parametrize("how", ["loop", "waits", "locked", "reads", "hopes"])
def test_a_timeout_ends_what_the_main_thread_waits_for(how: str, only_when_stuck: Any) -> None:
    dataset = only_when_stuck(Stuck(how))
    loader = feedline.DataLoader(dataset, 4, timeout=SOON, stall_warning=0, on_error="skip")
    iterator = iter(loader)
    assert [len(next(iterator)) for _ in range(3)] == [4, 4, 4]
    with pytest.raises(WorkerTimeout, match=r"no batch came within timeout=0\.01 s") as caught:
        next(iterator)
    assert SAMPLE in str(caught.value)
    assert f"in {how}" in str(caught.value)
    assert "num_workers=1" in str(caught.value)
    assert loader.errors() == []
    assert signal.getsignal(ASK) is signal.SIG_DFL
    dataset.how = ""
    dataset.begun.clear()
    assert len(list(loader)) == 10


def test_where_the_signal_is_somebodys_it_stays_theirs_and_python_code_ends_all_the_same(only_when_stuck: Any) -> None:
    def theirs(signum: int, frame: Any) -> None:
        raise AssertionError("nobody has sent it")

    signal.signal(ASK, theirs)
    try:
        with pytest.raises(WorkerTimeout, match=r"no batch came within timeout=0\.01 s"):
            list(feedline.DataLoader(only_when_stuck(Stuck("loop")), 4, timeout=SOON, stall_warning=0))
        assert signal.getsignal(ASK) is theirs
    finally:
        signal.signal(ASK, signal.SIG_DFL)


def test_a_timeout_in_another_thread_ends_python_code(only_when_stuck: Any) -> None:
    dataset = only_when_stuck(Stuck("loop"))
    found: list[Any] = []

    def consume() -> None:
        try:
            found.extend(feedline.DataLoader(dataset, 4, timeout=SOON))
        except WorkerTimeout as error:
            found.append(str(error))

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join()
    assert [len(batch) for batch in found[:3]] == [4, 4, 4]
    assert SAMPLE in found[3]


@pytest.mark.parametrize("how", ["waits", "catches_all"])
def test_what_cannot_be_interrupted_is_said_and_the_error_comes_late(
    how: str, only_when_stuck: Any, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = only_when_stuck(Stuck(how))
    monkeypatch.setattr("feedline.engine.inline_watch.AGAIN_SECONDS", SOON)
    said = release_when(monkeypatch, dataset, "could not be interrupted")
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            list(feedline.DataLoader(dataset, 4, timeout=SOON, stall_warning=0))
        except WorkerTimeout as error:
            errors.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join()
    assert SAMPLE in str(errors[0])
    assert any("could not be interrupted" in text and SAMPLE in text for text, _ in said)


def test_nothing_is_on_its_way_when_a_batch_came_in_time() -> None:
    loader = feedline.DataLoader(Stuck(""), 4, timeout=1000)
    for _ in loader:
        assert signal.getsignal(ASK) is signal.SIG_DFL


def test_a_loader_in_a_sample_does_not_take_the_timeout_of_the_one_around_it(only_when_stuck: Any) -> None:
    inner = only_when_stuck(Stuck("waits"))

    class Outer(Stuck):
        def __getitem__(self, index: int) -> int:
            return sum(map(sum, feedline.DataLoader(inner, 4, timeout=1000, stall_warning=0)))

    with pytest.raises(WorkerTimeout, match=r"within timeout=0\.01 s.*\n.*reading dataset\[0\] \(photos/0\.jpg\)"):
        list(feedline.DataLoader(Outer(""), 4, timeout=SOON, stall_warning=0))


def test_streams_and_what_reads_several_samples_at_a_time(
    only_when_stuck: Any, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = only_when_stuck(Stuck("waits"))
    said = release_when(monkeypatch, dataset, SAMPLE)
    assert len(list(feedline.DataLoader(dataset, 4, stall_warning=SOON, fetch_threads=2))) == 10
    assert "in waits" in said[-1][0]

    class Elements(feedline.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return map(stream.__getitem__, range(40))

    stream = only_when_stuck(Stuck("waits"))
    said = release_when(monkeypatch, stream, "reading element 13 of the stream")
    assert len(list(feedline.DataLoader(Elements(), 4, stall_warning=SOON))) == 10
    assert "in waits" in said[-1][0]


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "feedline-watchdog"]


def test_who_wants_no_warning_has_no_thread() -> None:
    watchdog.rest()
    for loader in (feedline.DataLoader(Stuck(""), 4, stall_warning=0), feedline.DataLoader(np.arange(40), 4)):
        for _ in loader:
            assert thread_names() == []
    iterator = iter(feedline.DataLoader(Stuck(""), 4))
    assert thread_names() == ["feedline-watchdog"]
    next(iterator)
    del iterator


def test_one_thread_for_all_loaders_and_none_when_they_are_gone() -> None:
    iterators = [iter(feedline.DataLoader(Stuck(""), 4, stall_warning=after)) for after in (1000, 500, 30)]
    for iterator in iterators:
        next(iterator)
    assert thread_names() == ["feedline-watchdog"]
    assert len(watchdog._entries) == 3
    assert len(list(iterators.pop())) == 9  # to its end
    iterators.pop().close()
    del iterator
    gc.collect()
    assert len(watchdog._entries) == 1
    iterators.clear()
    assert not watchdog._entries
    watchdog.rest()
    assert thread_names() == []


def test_a_dataset_that_holds_its_iterator_is_not_kept_alive() -> None:
    dataset = Stuck("")
    dataset.iterator = iter(feedline.DataLoader(dataset, 4))  # type: ignore[attr-defined]
    gone = weakref.ref(dataset)
    del dataset
    gc.collect()
    assert gone() is None
    assert not watchdog._entries


def test_a_forked_child_has_no_such_thread_and_its_parent_goes_on_watching(
    only_when_stuck: Any, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = only_when_stuck(Stuck("waits"))
    said = release_when(monkeypatch, dataset, SAMPLE)
    iterator = iter(feedline.DataLoader(dataset, 4, stall_warning=SOON))
    pid = os.fork()
    if pid == 0:
        try:
            begins_alone = not thread_names() and not watchdog._entries and watchdog._thread is None
            mine = iter(feedline.DataLoader(Stuck(""), 4))
            next(mine)
            is_watched = bool(thread_names())  # asked now: when all is read the thread leaves
            os._exit(0 if begins_alone and is_watched and len(list(mine)) == 9 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(iterator)) == 10
    assert any(SAMPLE in text for text, _ in said)


def test_forks_are_warned_of_no_more_than_without_us() -> None:
    def warned() -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(feedline.DataLoader(np.arange(8), 4, **FORK))) == 2
        assert not ours(caught)
        return sum("multi-threaded" in str(each.message) for each in caught)

    watchdog.rest()
    before = warned()  # from Python 3.12 on, of the threads of libraries
    iterator = iter(feedline.DataLoader(Stuck(""), 4))
    next(iterator)
    assert thread_names() == ["feedline-watchdog"]
    assert warned() == before
    next(iterator)
    assert thread_names() == ["feedline-watchdog"]  # and is back


class Nested(feedline.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        total = sum(map(len, feedline.DataLoader(list(range(8)), 4)))
        return total + 100 * len(thread_names()) + 100 * len(watchdog._entries)


def test_in_a_worker_its_parent_watches() -> None:
    assert [batch.tolist() for batch in feedline.DataLoader(Nested(), 4, **FORK)] == [[8, 8, 8, 8]]


def looked_at(dataset: Stuck, seconds: float, stood_still: float = 0.0) -> None:
    """In another thread, as if so much time had passed."""
    (entry,) = watchdog._entries
    thread = threading.Thread(target=lambda: entry.look(time.monotonic() + seconds, stood_still))
    thread.start()
    thread.join()


def test_time_at_a_debuggers_prompt_does_not_count(only_when_stuck: Any, told: list[str]) -> None:
    class Debugged(Stuck):
        def stops(self) -> None:
            looked_at(self, 2000)

        def prompts(self) -> None:
            module = {"__name__": "pdb", "stops": self.stops}
            FunctionType(compile("stops()", "pdb.py", "exec"), module)()

    for how, messages in (("prompts", 0), ("stops", 1)):
        dataset = only_when_stuck(Debugged(how))
        list(feedline.DataLoader(dataset, 4, stall_warning=1000))
        assert len(told) == messages


def test_time_in_which_the_whole_process_was_stopped_does_not_count(only_when_stuck: Any, told: list[str]) -> None:
    class Stopped(Stuck):
        def stops(self) -> None:
            looked_at(self, 2000, stood_still=1990)

    list(feedline.DataLoader(only_when_stuck(Stopped("stops")), 4, stall_warning=1000))
    assert told == []


def test_a_fork_under_way_does_not_end_the_watch() -> None:
    """By the sample itself: no batch comes that would begin it again."""

    class Forks(feedline.Dataset[int]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            if (pid := os.fork()) == 0:
                os._exit(0)
            try:
                os.waitpid(pid, 0)
            except BaseException:  # on a busy machine, time is up so early: the child is still to be seen off
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
                raise
            threading.Event().wait(LONG)
            return index

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's own from 3.12 on: there is a thread again
        with pytest.raises(WorkerTimeout, match="no batch came within"):
            list(feedline.DataLoader(Forks(), timeout=0.2, stall_warning=0))


def test_a_thread_that_was_ended_by_a_fault_is_replaced() -> None:
    dead = threading.Thread(target=int)
    dead.start()
    dead.join()
    watchdog.rest()
    watchdog._thread = dead
    with pytest.raises(WorkerTimeout, match="no batch came within"):
        list(feedline.DataLoader(Waits(), timeout=0.2, stall_warning=0))


class Waits(feedline.Dataset[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        threading.Event().wait(LONG)
        return index
