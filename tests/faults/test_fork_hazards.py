"""A library that was used before the fork is named where a worker waits for it, and only there."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import still
from kinds import FORK

from feedline import DataLoader, Dataset, StalledSample
from feedline.diagnose.doctor.carrying import check_fork
from feedline.diagnose.doctor.evidence import Carried, Evidence
from feedline.engine.waiting import Waiting
from feedline.supervise import fork_hazards
from feedline.supervise.fork_hazards import _waits_for_lock as waits_for_lock

STANDIN = """
import threading
lock = threading.Lock()
def collect():
    with lock:
        pass
"""
"""As polars: whoever calls it waits for what its threads hold."""


class Told(Exception):
    """What a warning said, raised out of next()."""


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_hazards, "_loaded", set())
    monkeypatch.setattr(fork_hazards, "_had_threads", set())


@pytest.fixture
def polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "polars").mkdir()
    (tmp_path / "polars" / "__init__.py").write_text(STANDIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "polars", None)  # so that what is there afterwards goes with the test
    del sys.modules["polars"]
    return importlib.import_module("polars")


@pytest.fixture
def its_thread() -> Iterator[None]:
    """A thread that the system knows by the name that those of polars have."""
    is_there, may_end = threading.Event(), threading.Event()

    def live() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("polars-0")
        is_there.set()
        may_end.wait()

    thread = threading.Thread(target=live)
    thread.start()
    is_there.wait()
    yield
    may_end.set()
    thread.join()


class Calls(Dataset[int]):
    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        self.call()
        return index


def told_of(call: Callable[[], object], where: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The report on a worker that is stuck there."""

    def note(message: Any, category: Any, *rest: Any, **more: Any) -> None:
        if where in str(message) and not issubclass(category, DeprecationWarning):
            raise Told(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", note)
        with pytest.raises(Told) as caught:
            list(DataLoader(Calls(call), 4, **{**FORK, "num_workers": 1}, stall_warning=0.2))
    return str(caught.value)


def test_a_call_that_waits_in_the_library_is_told_with_the_remedy(polars: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with polars.lock:  # as a thread of its own would, at the moment of the fork
        text = told_of(polars.collect, "in collect", monkeypatch)
    assert "Worker 0 waits inside polars, which was loaded in this process before its workers were forked" in text
    assert "multiprocessing_context='forkserver'" in text


@pytest.mark.filterwarnings("ignore")
def test_a_sample_that_is_given_up_is_not_simply_blamed(polars: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("receive", "_take"):  # put back afterwards
        monkeypatch.setattr(Waiting, name, getattr(Waiting, name))
    still.until(lambda standings, batch: any(at.place == 0 and waits_for_lock(at.pid) for at in standings))
    still.answered()
    options = {**FORK, "num_workers": 1, "on_stall": "restart", "stall_warning": 0.1, "max_deaths": 1}
    with polars.lock, pytest.raises(StalledSample, match="the sample is most likely not the cause"):
        list(DataLoader(Calls(polars.collect), 4, **options))


def waits() -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def reads() -> None:
    os.read(os.pipe()[0], 1)


@pytest.mark.usefixtures("its_thread")
def test_a_lock_elsewhere_may_be_the_librarys(polars: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = told_of(waits, "in waits", monkeypatch)
    assert "polars had threads in this process when its workers were forked" in text
    assert "may be waiting for such a thread" in text


@pytest.mark.usefixtures("its_thread")
def test_what_waits_for_something_else_is_not_the_librarys(polars: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path(f"/proc/{os.getppid()}/wchan").read_text() == "0":  # which waits for us
        pytest.skip("the system does not say what a process waits for")
    assert "polars" not in told_of(reads, "in reads", monkeypatch)


def test_a_library_without_threads_is_not_named_for_a_lock_elsewhere(
    polars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "polars" not in told_of(waits, "in waits", monkeypatch)


@pytest.mark.usefixtures("its_thread")
def test_the_doctor_names_it() -> None:
    assert fork_hazards.running() == ["polars"]
    (finding,) = check_fork(Evidence(carried=Carried(threads=("polars",))))
    assert (finding.id, finding.severity) == ("fork-hazard", "warning")
    assert "polars has threads" in finding.title
    assert "forkserver" in (finding.code or "")
    assert list(check_fork(Evidence(carried=Carried(threads=("polars",), start_method="spawn")))) == []
    assert list(check_fork(Evidence())) == []
