"""What is told of bad samples: to logging, to a file, and when there are too many of them."""

from __future__ import annotations

import json
import logging
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damaged import Damaged, Keyed, Leaky
from fronts import Front, both_fronts, kinds_and_fronts
from kinds import FORK, INLINE, four_kinds

import feedline
import feedline.torch
from feedline import FeedlineError, OptionError, TooManyErrors
from feedline.messages.outcome import BadSample, Outcome
from feedline.options import ErrorPolicy
from feedline.reading.bad_samples import KEPT, BadSamples


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@four_kinds
def test_each_is_logged(kind: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    list(feedline.DataLoader(Damaged(6, {1, 4}), batch_size=3, on_error="skip", **kind))
    list(feedline.DataLoader(Damaged(6, {4}), batch_size=3, on_error="replace", **kind))
    told = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert told == [
        ("feedline", logging.WARNING, f"sample {text}")
        for text in (
            "1 (photos/1.jpg) failed: ValueError: truncated: 1; batch 0 of epoch 0 is made without it",
            "4 (photos/4.jpg) failed: ValueError: truncated: 4; batch 1 of epoch 0 is made without it",
            "4 (photos/4.jpg) failed: ValueError: truncated: 4; batch 1 of epoch 0 has sample 5 instead",
        )
    ]


@kinds_and_fronts
def test_each_is_a_line_in_the_file(kind: dict[str, Any], front: Front, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"kept": true}\n')
    loader = front(Damaged(6, {1, 4}), batch_size=3, on_error="replace", error_log=path, **kind)
    list(loader)
    list(loader)
    kept, *written = lines(path)
    assert kept == {"kept": True}
    assert [line.pop("time")[10] for line in written] == ["T"] * 4
    assert written[1] == {
        "epoch": 0,
        "seq": 1,
        "place": 1,
        "index": 4,
        "what": "photos/4.jpg",
        "error": "ValueError: truncated: 4",
        "replacement": 5,
    }
    assert [(line["epoch"], line["index"]) for line in written] == [(0, 1), (0, 4), (1, 1), (1, 4)]


class Anything(Keyed):
    def __getitem__(self, index: Any) -> Any:
        raise ValueError(index)


class Seven:
    def __index__(self) -> int:
        return 7


ODD = [3 + 4j, {1: 2, (3,): 4}, float("nan"), np.int64(5), "ä\udc80", ("a", 1), b"x", ("b", np.int8(6)), Seven()]


def test_any_index_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    assert list(feedline.DataLoader(Anything(), sampler=ODD, on_error="skip", error_log=path)) == []
    assert [line["index"] for line in lines(path)] == [
        *("(3+4j)", "{1: 2, (3,): 4}", "nan", 5, "ä\udc80", ["a", 1], "b'x'", ["b", 6], 7)
    ]


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_numpys_numbers_are_numbers(kind: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bad.jsonl"
    numbers = list(np.arange(6))
    list(feedline.DataLoader(Damaged(6, {5}), sampler=numbers, on_error="skip", error_log=path, **kind))
    assert [line["index"] for line in lines(path)] == [5]
    assert "sample 5 (photos/5.jpg) failed" in caplog.text


@both_fronts
def test_a_file_that_cannot_be_written_is_refused_at_once(front: Front, tmp_path: Path) -> None:
    for path, why in ((tmp_path, "is a folder"), (tmp_path / "none" / "bad.jsonl", "there is no folder")):
        with pytest.raises(OptionError, match=f"error_log must be .*{why}"):
            front(Damaged(2, ()), on_error="skip", error_log=path)


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_a_full_disk_is_said_once_and_stops_nothing(kind: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    loader = feedline.DataLoader(Damaged(4, {1, 2}), on_error="skip", error_log="/dev/full", **kind)
    assert [batch.tolist() for batch in loader] == [[0], [3]]
    assert [batch.tolist() for batch in loader] == [[0], [3]]
    assert caplog.text.count("error_log='/dev/full' cannot be written to") == 1
    assert caplog.text.count("truncated: 1") == 2
    loader.close()  # what was logged refers to it, and pytest keeps that


def test_a_folder_that_is_gone_is_no_error_and_when_it_is_back_lines_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    loader = feedline.DataLoader(Damaged(4, {1}), on_error="skip", error_log=folder / "bad.jsonl")
    folder.rmdir()
    list(loader)
    folder.mkdir()
    list(loader)
    assert [line["epoch"] for line in lines(folder / "bad.jsonl")] == [1]


def test_a_line_torn_by_a_full_disk_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    loader = feedline.DataLoader(Damaged(4, {1}), on_error="skip", error_log=path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))  # the system writes as much as there is room for
    try:
        list(loader)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == 50
    list(loader)
    torn, whole = path.read_text().splitlines()
    assert len(torn) == 50
    assert json.loads(whole)["epoch"] == 1


@kinds_and_fronts
def test_more_than_max_errors_is_an_error_and_ends_the_iteration(kind: dict[str, Any], front: Front) -> None:
    loader = front(Damaged(12, {1, 4, 7, 10}), batch_size=3, on_error="skip", max_errors=2, **kind)
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 2], [3, 5]]
    with pytest.raises(TooManyErrors, match=r"3 of the 9 samples .* more than max_errors=2") as caught:
        next(iterator)
    assert "sample 7 (photos/7.jpg) failed: ValueError: truncated: 7" in str(caught.value)
    assert "raise max_errors" in str(caught.value)
    assert isinstance(caught.value, FeedlineError)
    assert isinstance(caught.value, RuntimeError)
    assert [bad.index for bad in loader.errors()] == [1, 4, 7]
    with pytest.raises(RuntimeError, match="was ended by an error"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


class Worsening(Damaged):
    """Another sample goes bad each time sample 0 is read."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            self.bad |= {len(self.bad) + 1}
        return super().__getitem__(index)


def test_max_errors_counts_over_all_epochs() -> None:
    loader = feedline.DataLoader(Worsening(6, ()), batch_size=2, on_error="skip", max_errors=2)
    list(loader)
    list(loader)
    with pytest.raises(TooManyErrors, match=r"3 of the \d+ samples"):
        list(loader)


@four_kinds
def test_the_same_bad_sample_counts_once(kind: dict[str, Any]) -> None:
    loader = feedline.DataLoader(Damaged(6, {1, 4}), batch_size=2, on_error="skip", max_errors=2, shuffle=True, **kind)
    for _ in range(4):
        list(loader)
    assert len(loader.errors()) == 8


@pytest.mark.parametrize("again", [lambda: np.int64(1), lambda: torch.tensor(1), lambda: [1], lambda: (1, [2])])
def test_so_it_does_whatever_its_index_is(again: Callable[[], Any]) -> None:
    bad_samples, care = BadSamples(), ErrorPolicy(on_error="skip", max_errors=1)
    for seq in range(3):
        bad_samples.take(Outcome(seq, bad=(BadSample(again(), 0, "", "ValueError"),)), care)
    with pytest.raises(TooManyErrors):
        bad_samples.take(Outcome(3, bad=(BadSample("other", 0, "", "ValueError"),)), care)


def test_a_streams_elements_are_other_ones_each_epoch() -> None:
    loader = feedline.DataLoader(Leaky(6, {1}), on_error="skip", max_errors=1)
    list(loader)
    with pytest.raises(TooManyErrors):
        list(loader)


def test_no_error_at_all_may_be_allowed() -> None:
    with pytest.raises(TooManyErrors):
        list(feedline.DataLoader(Damaged(4, {3}), on_error="skip", max_errors=0))
    list(feedline.DataLoader(Damaged(4, ()), on_error="skip", max_errors=0))


def epoch(loader: Any) -> tuple[int, type[Exception] | None]:
    """Batches until the end, and how it ended."""
    count = 0
    try:
        for _ in loader:
            count += 1
    except TooManyErrors as error:
        return count, type(error)
    return count, None


@pytest.mark.parametrize("how", ["skip", "replace"])
@pytest.mark.parametrize(
    ("bad", "batches", "error"),
    [
        ({0}, 20, None),  # at first all that have been read, in the end one in twenty
        ({0, 19}, 20, None),
        ({0, 1}, 20, None),
        ({0, 1, 2}, None, TooManyErrors),
        ({17, 18, 19}, None, TooManyErrors),
    ],
)
def test_a_share_is_of_the_samples_read_so_far(how: str, bad: set[int], batches: int | None, error: Any) -> None:
    loader = feedline.DataLoader(Damaged(20, bad), on_error=how, max_errors=0.1)
    count, ended = epoch(loader)
    assert ended is error
    if batches is not None:
        assert count == batches - (len(bad) if how == "skip" else 0)


def test_a_share_is_not_judged_before_it_can_be() -> None:
    early = range(20)
    count, ended = epoch(feedline.DataLoader(Damaged(1000, early), on_error="skip", max_errors=0.1))
    assert (count, ended) == (79, TooManyErrors)  # samples 20 to 98; then 20 of 100 are too many
    assert epoch(feedline.DataLoader(Damaged(1000, range(10)), on_error="skip", max_errors=0.1)) == (990, None)
    count, ended = epoch(feedline.DataLoader(Damaged(5, {0}), on_error="skip", max_errors=0.1))
    assert (count, ended) == (4, TooManyErrors)  # at the epoch's end


def test_a_share_of_a_stream() -> None:
    assert epoch(feedline.DataLoader(Leaky(20, {0, 19}), on_error="replace", max_errors=0.1)) == (18, None)
    assert epoch(feedline.DataLoader(Leaky(20, {0, 18, 19}), on_error="replace", max_errors=0.1))[1] is TooManyErrors


def test_the_list_is_bounded_and_the_count_is_not() -> None:
    bad_samples = BadSamples()
    many = tuple(BadSample(index, 0, "", "ValueError") for index in range(KEPT + 5))
    bad_samples.take(Outcome(0, bad=many), ErrorPolicy(on_error="skip", max_errors=KEPT + 5))
    assert len(bad_samples.samples) == KEPT
    assert bad_samples.samples[-1].index == KEPT + 4
    with pytest.raises(TooManyErrors, match=str(KEPT + 6)):
        bad_samples.take(
            Outcome(1, bad=(many[0]._replace(index=-1),)), ErrorPolicy(on_error="skip", max_errors=KEPT + 5)
        )


def test_a_huge_message_is_shortened() -> None:
    class Loud(Damaged):
        def __getitem__(self, index: int) -> Any:
            raise ValueError("x" * 1_000_000)

    loader = feedline.DataLoader(Loud(1, ()), on_error="skip")
    list(loader)
    assert len(pickle.dumps(loader.errors())) < 20_000


def test_a_loader_that_raises_has_no_errors_and_a_copy_begins_anew() -> None:
    assert feedline.DataLoader(Damaged(2, ())).errors() == []
    loader = feedline.DataLoader(Damaged(2, {1}), on_error="skip")
    list(loader)
    assert len(loader.errors()) == 1
    assert pickle.loads(pickle.dumps(loader)).errors() == []
