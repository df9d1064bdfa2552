"""Failures: an exception reaches the consumer as what it was, or as the nearest thing that can travel."""

from __future__ import annotations

import pickle
import threading
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.errors import CollateError, RemoteError, WorkerError, WorkerTraceback, add_note
from feedline.messages.outcome import Failure


class TwoArguments(Exception):
    """Pickles, but cannot be rebuilt: Exception keeps one argument, and `__init__` wants two."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class HoldsALock(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BecomesAnother(Exception):
    def __reduce__(self) -> Any:
        return (ValueError, ("something else",))


class Outer:
    class Inner(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("not me")


class BrokenNote:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(error: BaseException) -> BaseException:
    """The error as it is after having been raised and caught: with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def sent(error: BaseException) -> BaseException:
    """What arrives in another process."""
    failure = Failure.of(raised(error), same_process=False)
    return pickle.loads(pickle.dumps(failure)).exception()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("text", 3),
        KeyError("key"),
        FileNotFoundError(2, "No such file", "/data/7.png"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        StopIteration(5),
        CollateError("shapes"),
        SystemExit(3),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_an_exception_keeps_its_type_arguments_and_text(error: BaseException) -> None:
    arrived = sent(error)
    assert type(arrived) is type(error)
    assert arrived.args == error.args
    assert str(arrived) == str(error)


def test_attributes_travel_too() -> None:
    error = ValueError("text")
    error.path = "/data/7.png"  # type: ignore[attr-defined]
    assert sent(error).path == "/data/7.png"  # type: ignore[attr-defined]
    assert sent(FileNotFoundError(2, "No such file", "/data/7.png")).filename == "/data/7.png"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "make", [lambda: ValueError("text"), lambda: TwoArguments(3, "text"), lambda: HoldsALock("text")]
)
def test_notes_arrive_once_and_in_order(make: Any) -> None:
    error = make()
    add_note(error, "one")
    add_note(error, "two")
    assert sent(error).__notes__ == ["one", "two"]


@pytest.mark.parametrize("notes", [5, "text", None])
def test_notes_of_a_wrong_kind_do_not_hide_the_error(notes: Any) -> None:
    error = ValueError("text")
    error.__notes__ = notes
    assert type(sent(error)) is ValueError


def test_a_note_whose_text_fails_does_not_hide_the_error() -> None:
    error = HoldsALock("text")
    error.__notes__ = [BrokenNote(), "fine"]  # type: ignore[list-item]
    assert sent(error).__notes__ == ["<BrokenNote whose __str__ fails>", "fine"]


def local_exception() -> BaseException:
    class Local(Exception):
        pass

    return Local("text")


@pytest.mark.parametrize(
    ("error", "name", "text"),
    [
        (TwoArguments(3, "text"), "TwoArguments", "3: text"),
        (local_exception(), "Local", "text"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_rebuilt_arrives_under_its_name(error: BaseException, name: str, text: str) -> None:
    arrived = sent(error)
    assert isinstance(arrived, RemoteError)
    assert isinstance(arrived, WorkerError)
    assert type(arrived).__name__ == name
    assert text in str(arrived)
    assert f"{name}: " in "".join(traceback.format_exception_only(type(arrived), arrived))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (HoldsALock("text"), "text"),
        (ValueError(threading.Lock()), "lock"),
        (BecomesAnother("text"), "text"),
        (Outer.Inner("text"), "text"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_does_not_pickle_is_made_anew_from_its_text(error: BaseException, text: str) -> None:
    arrived = sent(error)
    assert type(arrived) is type(error)
    assert text in str(arrived)


def test_a_class_that_is_missing_at_the_consumer_is_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.Passing", type("Passing", (Exception,), {"__module__": __name__}), raising=False)
    failure = Failure.of(raised(globals()["Passing"]("text")), same_process=False)
    assert type(failure.exception()) is globals()["Passing"]
    monkeypatch.undo()
    arrived = failure.exception()
    assert isinstance(arrived, RemoteError)
    assert (type(arrived).__name__, str(arrived)) == ("Passing", "text")


def test_an_exception_whose_text_fails_still_arrives() -> None:
    failure = Failure.of(raised(BrokenText("args")), same_process=False)
    assert failure.message == "<BrokenText whose __str__ fails>"
    assert type(failure.exception()) is BrokenText
    assert failure.exception().args == ("args",)

    class Local(BrokenText):
        pass

    assert str(sent(Local())) == f"<{Local.__qualname__} whose __str__ fails>"


@pytest.mark.parametrize("make", [lambda: ValueError("text"), lambda: TwoArguments(3, "text")])
def test_the_workers_traceback_is_the_cause(make: Any) -> None:
    error = make()
    error.__cause__ = LookupError("the deeper reason")
    cause = sent(error).__cause__
    assert type(cause) is WorkerTraceback
    for part in ("the deeper reason", "in raised", "raise error", f"{type(error).__name__}: {error}"):
        assert part in cause.text
        assert part in str(cause)


def test_in_the_same_process_the_exception_itself_is_handed_over() -> None:
    error = raised(HoldsALock("text"))
    failure = Failure.of(error, same_process=True)
    assert failure.exception() is error
    assert failure.exception().__cause__ is None
    assert (failure.name, failure.message, failure.pickled) == ("HoldsALock", "text", None)


@given(st.text(), st.lists(st.text(), unique=True))
def test_any_text_and_notes_travel_unchanged(text: str, notes: list[str]) -> None:
    for error in (ValueError(text), HoldsALock(text)):
        for note in notes:
            add_note(error, note)
        arrived = sent(error)
        assert str(arrived) == text
        assert getattr(arrived, "__notes__", []) == notes
