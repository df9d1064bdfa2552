"""Generators in a thread: bounded, and never waited for without end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from contract import StreamContract
from patience import idle_only_after

from feedline import DataLoader, OptionError, OptionTypeError
from feedline.sources import GeneratorStream


def numbers() -> Iterator[int]:
    yield from range(11)


@pytest.mark.filterwarnings("ignore:the IterableDataset neither asks", "ignore:to continue with batch")
class TestGenerated(StreamContract):
    @pytest.fixture
    def source(self) -> GeneratorStream:
        return GeneratorStream(numbers)

    @pytest.fixture
    def expected(self) -> list[int]:
        return list(range(11))


class Counted:
    """Counts what was asked of it, and how it ended."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.given = 0
        self.closed = threading.Event()
        self.changed = threading.Condition()

    def __call__(self) -> Iterator[int]:
        try:
            for number in range(self.length):
                with self.changed:
                    self.given += 1
                    self.changed.notify_all()
                yield number
        finally:
            self.closed.set()


def test_it_runs_ahead_so_far_and_no_further() -> None:
    make = Counted(100)
    reading = iter(GeneratorStream(make, buffer=3))
    with make.changed:
        assert make.changed.wait_for(lambda: make.given == 4, 300)  # three that wait, and one in hand
        assert not make.changed.wait_for(lambda: make.given > 4, 0.05)
    assert next(reading) == 0
    with make.changed:
        assert make.changed.wait_for(lambda: make.given == 5, 300)
    reading.close()
    assert make.closed.wait(300)


def test_a_reader_that_is_dropped_ends_the_generator() -> None:
    make = Counted(100)
    for number in GeneratorStream(make, buffer=1):
        if number == 2:
            break
    assert make.closed.wait(300)


def test_nothing_for_a_while_ends_it(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    idle_only_after(2, monkeypatch)
    forgotten = threading.Event()

    def waits() -> Iterator[int]:
        yield 1
        yield 2
        forgotten.wait()
        yield 3

    with DataLoader(GeneratorStream(waits, idle=0.2), 4) as loader:
        assert [batch.tolist() for batch in loader] == [[1, 2]]
    assert "waits: nothing came for 0.2 s (idle), so the epoch ends here" in caplog.text
    forgotten.set()


def test_errors_come_where_they_happened() -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise ConnectionError("the sensor is gone")

    reading = iter(GeneratorStream(fails))
    assert next(reading) == 1
    with pytest.raises(ConnectionError, match="the sensor is gone"):
        next(reading)
    assert list(reading) == []

    def cannot_begin() -> Any:
        raise OSError("no such device")

    with pytest.raises(OSError, match="no such device"):
        next(iter(GeneratorStream(cannot_begin)))


def test_poison_is_named_and_passed_over() -> None:
    stream = GeneratorStream(lambda: iter(["1", "two", "3"]), decode=int)
    with DataLoader(stream, 2, on_error="skip") as loader:
        assert [each for batch in loader for each in batch.tolist()] == [1, 3]
        (bad,) = loader.errors()
        assert "element 1 of" in str(bad.trace)


def test_bad_input() -> None:
    with pytest.raises(OptionTypeError, match="make must be a function"):
        GeneratorStream(numbers())  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="buffer must be at least 1"):
        GeneratorStream(numbers, buffer=0)
    with pytest.raises(OptionTypeError, match="idle must be a number"):
        GeneratorStream(numbers, idle="long")  # type: ignore[arg-type]
