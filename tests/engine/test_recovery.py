"""After a death, told to workers that only write it down: what is sent again, to whom it is blamed, what is said."""

from __future__ import annotations

from typing import Any

import pytest
from written_down import Crew

from feedline.engine import recovery as module
from feedline.engine.ledger import Part
from feedline.errors import WorkerDied
from feedline.messages.outcome import Outcome
from feedline.messages.progress import COLLATING, INITIALISING
from feedline.messages.task import Task


def begun(crew: Crew) -> tuple[Any, list[Part]]:
    """An epoch of which four batches are out."""
    dispatch = crew.epoch(0)
    dispatch.fill()
    return dispatch, list(crew.workers.parts)


def test_what_was_lost_goes_first_and_in_order() -> None:
    crew = Crew()
    dispatch, parts = begun(crew)
    dispatch.take(crew.lose(parts[2], parts[0], parts[1], own=parts[0]))
    assert crew.workers.batches() == [0, 1, 2, 3]
    assert [entry.deaths for entry in crew.ledger.queue] == [(0,), (), (), ()]
    assert crew.workers.revived == [0]
    (told,) = crew.told
    assert "was killed by SIGKILL while reading" in told


def test_what_nobody_wants_is_not_sent_again() -> None:
    crew = Crew()
    _, old = begun(crew)
    dispatch = crew.epoch(1)
    crew.workers.parts = []
    dispatch.fill()
    dispatch.take(crew.lose(*old, crew.workers.parts[3]))
    assert [(part.task.epoch, part.task.seq) for part in crew.workers.parts] == [(1, 3), (1, 0), (1, 1), (1, 2)]


def test_a_sample_that_is_left_out_is_left_out_of_all_that_is_sent_again() -> None:
    crew = Crew(on_error="skip")
    dispatch, parts = begun(crew)
    same = parts[1].entry
    same.task = same.task._replace(indices=[7, 100])  # as sample 1 of batch 0
    dispatch.take(crew.lose(parts[0], parts[1], own=parts[0], place=1))
    again = crew.workers.parts[:2]
    dispatch.take(crew.lose(*again, own=again[0], place=1))
    assert [place for part in crew.workers.parts for place, _ in part.task.avoid] == [1, 1]
    assert crew.workers.batches() == [0, 1, 2, 3]
    assert "is left out from now on" in crew.told[1]


def test_another_sample_of_that_batch_is_counted_from_the_beginning() -> None:
    crew = Crew(on_error="skip")
    dispatch, parts = begun(crew)
    part = parts[0]
    for place in (COLLATING, 1, 1, COLLATING, 0):
        dispatch.take(crew.lose(part, own=part, place=place))
        part = crew.workers.parts[0]
    assert part.entry.outcome is None  # as five deaths with one batch would give it
    assert part.entry.deaths == (COLLATING, 0)
    dispatch.take(crew.lose(part, own=part, place=0))
    assert [place for place, _ in crew.workers.parts[0].task.avoid] == [0, 1]


def of_a_stream(crew: Crew, count: int) -> list[Part]:
    crew.epoch(0)
    return [crew.ledger.plan(Task(seq, 0, 0, None, shards=2)) for seq in range(count)]


def test_an_element_that_kills_ends_its_part_of_the_stream_and_no_other() -> None:
    crew = Crew(max_deaths=1)
    parts = of_a_stream(crew, 4)
    settled = crew.recovery.after(crew.lose(*parts, own=parts[0], place=0)[0])  # type: ignore[arg-type]
    assert crew.workers.batches() == [1, 3]
    assert [entry.task.seq for entry in settled] == [2, 0]
    assert all(entry.outcome is not None and entry.outcome.ended for entry in settled)
    assert [entry.outcome.failure is not None for entry in settled if entry.outcome] == [False, True]
    assert crew.told == []  # it is an error, and that says it


def test_a_place_that_cannot_be_filled_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, now = Crew(), [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    dispatch, parts = begun(crew)
    crew.workers.refuses = True
    dispatch.take(crew.lose(parts[0], own=parts[0]))
    assert any("feedline will try again" in told for told in crew.told)
    assert crew.recovery.again_at == 100.0 + module.AGAIN_SECONDS
    crew.workers.refuses = False
    crew.recovery.fill_places()
    assert crew.workers.revived == []
    now[0] = crew.recovery.again_at
    crew.recovery.fill_places()
    assert crew.workers.revived == [0]
    crew.recovery.fill_places()
    assert crew.workers.revived == [0]


def test_a_place_where_nobody_comes_to_life_is_an_error_unless_somebody_makes_a_batch() -> None:
    crew = Crew(max_deaths=2)
    dispatch, parts = begun(crew)
    for _ in range(2):
        dispatch.take(crew.lose(place=INITIALISING))
    parts[3].outcome = Outcome(3, size=1)
    dispatch.take([parts[3]])
    for _ in range(2):
        dispatch.take(crew.lose(place=INITIALISING))
        dispatch.take(crew.lose(place=INITIALISING, worker=1))
    with pytest.raises(WorkerDied, match="2 earlier workers in its place ended in the same way"):
        dispatch.take(crew.lose(place=INITIALISING))
