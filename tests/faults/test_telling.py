"""What is said of workers, and that nothing a dataset does gets in the way of saying it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from feedline.messages.progress import INITIALISING, SETTING_UP
from feedline.messages.task import Task
from feedline.supervise import asking, telling
from feedline.supervise.watch import Standing

TASK = Task(0, 0, 0, [7, 8])


@pytest.fixture(autouse=True)
def all_the_time_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers at all answers within a moment, on the busiest machine."""
    monkeypatch.setattr(asking, "MOMENT", 100)


def test_what_the_dataset_says_and_no_thread_is_left() -> None:
    assert telling.sample_name(TASK, 1, lambda index: f"photos/{index}.jpg") == "dataset[8] (photos/8.jpg)"


def test_one_that_does_not_answer_is_asked_once_and_when_it_is_back_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, back, calls = threading.Event(), threading.Event(), []

    def slow(index: Any) -> str:
        calls.append(index)
        asked.set()
        back.wait()
        return "late"

    with monkeypatch.context() as patch:
        patch.setattr(asking, "MOMENT", 0.01)
        assert [telling.sample_name(TASK, place, slow) for place in (0, 1)] == ["dataset[7]", "dataset[8]"]
    asked.wait()
    assert telling.sample_name(TASK, 1, lambda index: "another's") == "dataset[8] (another's)"
    assert calls == [7]
    ((_, thread),) = asking._stuck
    back.set()
    thread.join()
    assert telling.sample_name(TASK, 1, slow) == "dataset[8] (late)"
    assert not asking._stuck


def test_one_that_would_end_the_program_says_nothing() -> None:
    def leave(index: Any) -> str:
        raise SystemExit

    assert telling.sample_name(TASK, 0, leave) == "dataset[7]"


def test_a_worker_that_is_being_started_was_not_asked_for_its_stack() -> None:
    standings = [Standing(0, 17, None, SETTING_UP, 2.0), Standing(1, 18, None, INITIALISING, 2.0)]
    first, second = telling.stall(2.0, 0, standings, {}, str).split("worker 1")
    assert "(too early for a stack)" in first
    assert "no stack" not in first
    assert "(no stack: the worker did not answer in time)" in second


def test_code_that_is_not_python_is_called_that() -> None:
    fetch, body = f'File "{telling._PACKAGE}/line/fetch.py"', f'File "{telling._PACKAGE}/workers/body.py"'
    text = (
        f"Thread 0x1 (most recent call first):\n  {body}, line 1 in _batch\n"
        f'Current thread 0x2 (most recent call first):\n  {fetch}, line 3 in one_by_one\n  File "x.py", line 1\n'
    )
    assert telling.stack(text).splitlines() == [
        "    Thread 0x1 (most recent call first):",
        f"      {body}, line 1 in _batch",
        "    Current thread 0x2 (most recent call first):",
        "      in dataset.__getitem__, which is not Python code",
    ]
    mine = f'Current thread 0x2:\n  File "x.py", line 1 in read\n  {fetch}, line 3 in one_by_one'
    assert telling.stack(mine).splitlines() == ["    Current thread 0x2:", '      File "x.py", line 1 in read']
