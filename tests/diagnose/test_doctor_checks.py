"""What the doctor must not say: chance, harmless things, and what it cannot know. Pure checks on made-up evidence."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.arena.segment import reserve_of
from feedline.diagnose.doctor import carrying, consult, failures, randomness, speed
from feedline.diagnose.doctor import label_checks as labels
from feedline.diagnose.doctor import sample_values as values
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import (
    ARRAY,
    NUMBER,
    Carried,
    CodeLine,
    Column,
    Evidence,
    Field,
    LoaderSetting,
    Reading,
    Run,
)
from feedline.diagnose.doctor.failures import check_empty
from feedline.diagnose.findings import Finding
from feedline.machine.gil import Looks
from feedline.supervise.growth import MB

IMAGE = Field("[0]", ARRAY, "uint8", (8, 8, 3), 192)


def with_labels(known: list[Any], **setting: Any) -> Evidence:
    readings = [
        Reading(index, fields=(IMAGE, Field("[1]", NUMBER, "int", (), 8, value=label)))
        for index, label in enumerate(known)
    ]
    return Evidence(LoaderSetting(length=len(known), **setting), tuple(readings))


def ids(findings: Any) -> list[str]:
    return [each.id for each in findings if each.severity != "ok"]


# Labels


@given(st.integers(2, 20), st.integers(16, 400), st.randoms(use_true_random=False))
def test_balanced_and_mixed_labels_are_never_complained_of(classes: int, count: int, draw: random.Random) -> None:
    known = [index % classes for index in range(max(count, 16 * classes))]
    draw.shuffle(known)
    for setting in ({}, {"loader": True, "in_order": True}):
        assert ids(judged(with_labels(known, **setting))) == []


@given(st.integers(1, 15), st.integers(0, 3))
def test_few_labels_say_nothing(count: int, label: int) -> None:
    assert ids(judged(with_labels([label] * count))) == []


def test_what_is_no_label() -> None:
    numbers = list(range(100))
    assert labels.label_path(with_labels(numbers)) is None  # the index
    assert labels.label_path(with_labels([number * 3 for number in numbers])) is None  # all different
    seen = with_labels([1] * 100)
    weights = replace(
        seen,
        readings=tuple(replace(each, fields=(IMAGE, each.fields[1]._replace(value=1.0))) for each in seen.readings),
    )
    assert labels.label_path(weights) is None
    assert labels.label_path(Evidence(readings=(Reading(0, fields=(IMAGE,)),))) is None


def test_a_one_hot_vector_is_its_class() -> None:
    fields = [Field("[1]", ARRAY, "float32", (4,), 16, value=place) for place in (0, 1, 2, 3) * 10]
    seen = Evidence(readings=tuple(Reading(place, fields=(field,)) for place, field in enumerate(fields)))
    assert [each.id for each in consult.judged(seen)] == ["examined"]


def test_the_label_among_several_numbers() -> None:
    fields = (IMAGE, Field("['id']", NUMBER, "int", (), 8, value=3), Field("['target']", NUMBER, "int", (), 8, value=4))
    seen = Evidence(readings=tuple(Reading(index, fields=fields) for index in range(30)))
    assert labels.label_path(seen) == "['target']"
    assert labels.label_path(replace(seen, setting=LoaderSetting(label="id"))) == "['id']"
    assert labels.label_path(replace(seen, setting=LoaderSetting(label="nothing"))) is None


def test_sorted_data_matters_where_it_is_read_in_order() -> None:
    known = [0] * 50 + [1] * 50
    assert ids(labels.check_sorted(with_labels(known, loader=True, in_order=False))) == []
    assert ids(labels.check_sorted(with_labels(known, loader=True, in_order=True, balanced=True))) == []
    (finding,) = labels.check_sorted(with_labels(known, loader=True, in_order=True, batch_size=32))
    assert finding.severity == "warning"
    assert "a batch of 32 has one class" in finding.title
    (finding,) = labels.check_sorted(with_labels(known))
    assert finding.severity == "note"
    column = Column("dataset.labels", {0: 5000, 1: 5000}, changes=4990)
    assert ids(labels.check_sorted(replace(with_labels(known), column=column))) == []


def test_neighbours_of_one_label_are_not_yet_sorted() -> None:
    threes = [place // 3 * 7 % 4 for place in range(400)]
    assert ids(labels.check_sorted(with_labels(threes))) == []
    assert ids(labels.check_sorted(with_labels([0] * 57 + [1] * 3))) == []  # three at the end may be chance


@pytest.mark.parametrize(("rare", "said"), [(40, []), (22, []), (4, ["class-imbalance"])])
def test_imbalance_that_may_be_chance(rare: int, said: list[str]) -> None:
    known = [0] * (400 - rare) + [1] * rare
    random.Random(1).shuffle(known)
    assert ids(labels.check_imbalance(with_labels(known))) == said
    assert ids(labels.check_imbalance(with_labels(known, balanced=True))) == []
    column = Column("dataset.labels", {0: 400 - rare, 1: rare}, 9)
    exact = replace(with_labels(known), column=column)
    assert ids(labels.check_imbalance(exact)) == (["class-imbalance"] if rare < 36 else [])


def test_a_stream_of_one_label_may_be_sorted() -> None:
    (finding,) = labels.check_constant(with_labels([2] * 100, stream=True))
    assert finding.severity == "warning"
    (finding,) = labels.check_constant(with_labels([2] * 100))
    assert finding.severity == "problem"


# Values


def of_shapes(*shapes: tuple[int, ...], **setting: Any) -> Evidence:
    readings = [Reading(index, fields=(Field("", ARRAY, "float32", shape),)) for index, shape in enumerate(shapes)]
    return Evidence(LoaderSetting(**setting), tuple(readings))


def test_lengths_that_vary_are_the_collate_fns_business() -> None:
    shapes = [(length,) for length in range(2, 30)]
    assert ids(values.check_shapes(of_shapes(*shapes, loader=True, collates="own"))) == []
    assert ids(values.check_shapes(of_shapes(*shapes, loader=True, collates="feedline"))) == []
    (finding,) = values.check_shapes(of_shapes(*shapes, loader=True))
    assert (finding.severity, finding.code) == (
        "problem",
        "loader = DataLoader(dataset, collate=feedline.collate.pad(0))",
    )
    (finding,) = values.check_shapes(of_shapes(*[(3, size, size) for size in range(8, 30)]))
    assert (finding.severity, finding.evidence["axes"]) == ("note", [1, 2])
    assert "axis=(1, 2)" in finding.code


def test_odd_ones_out() -> None:
    shapes = [(512,)] * 95 + [(17,)] * 5
    assert ids(values.check_shapes(of_shapes(*shapes, loader=True, collates="feedline"))) == []
    grey = [(8, 8, 3)] * 95 + [(8, 8)] * 5
    for setting, severity in (({}, "warning"), ({"loader": True}, "problem"), ({"collates": "own"}, "note")):
        (finding,) = values.check_shapes(of_shapes(*grey, **setting))
        assert (finding.id, finding.severity) == ("odd-shapes", severity)
        assert finding.evidence["indices"] == [95, 96, 97, 98, 99]


def test_what_is_not_finite_is_counted() -> None:
    bad = Field("", ARRAY, "float32", (9,), 36, nans=2, infs=1)
    (finding,) = values.check_finite(Evidence(readings=(Reading(0, fields=(IMAGE,)), Reading(1, fields=(bad,)))))
    assert (finding.evidence["nan"], finding.evidence["inf"], finding.evidence["indices"]) == (2, 1, [1])


def test_small_float64_is_let_be() -> None:
    pair = Field("", ARRAY, "float64", (2,), 16)
    assert ids(values.check_float64(Evidence(readings=(Reading(0, fields=(pair,)),)))) == []


# Randomness


def test_a_seed_that_few_samples_set_is_no_rule() -> None:
    readings = tuple(Reading(index, seeds=(("random.seed", "0"),) if index < 3 else ()) for index in range(10))
    assert ids(randomness.check_seeds(Evidence(readings=readings))) == []


def test_repeated_elements_of_the_stream_itself_are_no_duplicates() -> None:
    constant = tuple(Reading(index, digest="same") for index in range(50))
    seen = Evidence(LoaderSetting(stream=True), constant, constant)
    assert ids(randomness.check_duplicates(seen)) == []


def test_data_that_reading_changes_is_one_finding() -> None:
    first, again = Reading(0, digest="a", changed=("[0]",)), Reading(0, digest="b")
    assert ids(judged(Evidence(readings=(first,), again=(again,)))) == ["changes-dataset"]
    assert ids(judged(Evidence(readings=(replace(first, changed=()),), again=(again,)))) == ["non-deterministic"]


# Carrying


def test_what_cannot_be_sent_matters_more_where_it_must_be() -> None:
    words = "dataset.lock: _thread.lock cannot be sent to a worker process (cannot pickle). Open such a thing inside."
    (finding,) = carrying.check_pickle(Evidence(carried=Carried(unsendable=words)))
    assert (finding.severity, finding.title) == ("warning", "dataset.lock cannot be sent to a worker process")
    (finding,) = carrying.check_pickle(Evidence(carried=Carried(unsendable=words, start_method="spawn")))
    assert finding.severity == "problem"


def test_a_pickle_without_end() -> None:
    carried = Carried(pickled=64 << 20, pickled_all=False, largest="dataset.records: list of 9,000,000")
    (finding,) = carrying.check_pickle(Evidence(carried=carried))
    assert finding.id == "heavy-pickle"
    assert "64 MiB" in finding.title
    assert "list of 9,000,000" in finding.explanation


# Speed

PYTHON = Looks(32, 31, seconds=1.0, computing=1.0)
BOTH = Looks(32, 16, seconds=1.0, computing=1.0)
RELEASING = Looks(32, 4, seconds=1.0, computing=1.0)
WAITING = Looks(32, 1, seconds=1.0, computing=0.01)


def timed(*seconds: float, **more: Any) -> Evidence:
    return Evidence(readings=tuple(Reading(place, each) for place, each in enumerate(seconds)), **more)


def test_threads() -> None:
    def said(looks: Looks, threads: bool = False) -> list[tuple[str, str]]:
        seen = timed(0.01, looks=looks, setting=LoaderSetting(threads=threads))
        return [(each.id, each.severity) for each in speed.check_threads(seen)]

    assert said(PYTHON) == [("python-bound", "note")]
    assert said(PYTHON, threads=True) == [("python-bound", "warning")]
    assert said(BOTH, threads=True) == []
    assert said(RELEASING) == [("threads-help", "ok")]
    assert said(WAITING) == [("threads-help", "ok")]
    for looks in (PYTHON, RELEASING):
        assert said(looks._replace(looked=7, held=7 * looks.held // 32)) == [], "too few"


def test_a_slow_first_time_is_no_slow_sample() -> None:
    first = timed(*[0.001] * 20, 0.5)
    assert ids(speed.check_outliers(replace(first, reread=timed(*[0.001] * 21).readings))) == []
    assert ids(speed.check_outliers(first)) == []
    (finding,) = speed.check_outliers(replace(first, reread=first.readings))
    assert finding.evidence["indices"] == [20]
    assert (
        ids(speed.check_outliers(replace(timed(*[0.001, 0.03] * 10), reread=timed(*[0.001, 0.03] * 10).readings))) == []
    )


def test_a_line_is_named_only_if_it_was_met_often() -> None:
    line = CodeLine("data.py", 7, "__getitem__")
    few = Evidence(readings=tuple(Reading(place, 0.02, lines=((line, 1),)) for place in range(10)))
    (finding,) = speed.check_reading(few)
    assert "data.py" not in finding.explanation
    many = Evidence(readings=tuple(Reading(place, 0.02, lines=((line, 8),)) for place in range(10)))
    (finding,) = speed.check_reading(many)
    assert "data.py:7 (__getitem__)" in finding.explanation


# Memory


@given(st.lists(st.integers(0, 3), min_size=20, max_size=40))
def test_memory_that_goes_up_and_down_does_not_grow(noise: list[int]) -> None:
    assert ids(carrying.check_growth(Evidence(rounds=tuple((100 + each) * MB for each in noise), round_size=16))) == []


def test_a_cache_that_fills_does_not_grow() -> None:
    rounds = tuple((100 + min(place, 10) * 20) * MB for place in range(40))
    assert ids(carrying.check_growth(Evidence(rounds=rounds, round_size=16))) == []
    growing = (40 * MB, *((100 + place * 2) * MB for place in range(1, 40)))  # after warming up
    large = tuple((3000 + place * 16) * MB for place in range(10))  # forked by a process that has much
    assert ids(carrying.check_growth(Evidence(rounds=large, round_size=16))) == ["memory-growth"]
    (finding,) = carrying.check_growth(Evidence(rounds=growing, round_size=16))
    assert finding.evidence["bytes_per_sample"] == 2 * MB // 16


def test_a_batch_against_what_is_free() -> None:
    seen = with_labels([0, 1] * 20, loader=True, batch_size=1000, num_workers=2)
    wanted = int(6 * 1000 * 200 * 1.25)
    for free, severity in ((100 * wanted, None), (wanted * 3 // 2, "warning"), (wanted // 2, "problem")):
        found = list(carrying.check_batch(replace(seen, free=free + reserve_of(0), limit_of_memory=0)))
        assert [each.severity for each in found] == ([severity] if severity else [])


# Batches


@pytest.mark.parametrize(("padding", "said"), [(None, []), (0.39, []), (0.41, ["padding"])])
def test_padding_is_told_above_two_fifths(padding: float | None, said: list[str]) -> None:
    assert ids(failures.check_padding(Evidence(run=Run(10, padding)))) == said


def test_the_default_collation_of_a_mere_dataset_may_fail() -> None:
    seen = Evidence(run=Run(error="CollateError: sample 3 has shape (2,)"))
    assert ids(failures.check_collation(seen)) == []
    assert ids(failures.check_collation(replace(seen, setting=LoaderSetting(loader=True)))) == ["collate-fails"]


def test_a_mere_dataset_of_what_nobody_can_stack_is_no_problem() -> None:
    seen = Evidence(run=Run(error="TypeError: default_collate: found <class 'PIL.Image.Image'>"))
    (finding,) = [each for each in consult.judged(seen) if each.severity != "ok"]
    assert (finding.id, finding.severity) == ("collate-fails", "warning")


# The whole


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_weather(seen: Evidence) -> Any:
        raise ZeroDivisionError("no rain")

    monkeypatch.setattr(consult, "CHECKS", (check_weather, *consult.CHECKS))
    found = judged(replace(with_labels([3] * 50), troubles=(("threads", "OSError: no more"),)))
    assert [each.id for each in found] == ["constant-label", "could-not-examine", "could-not-examine", "examined"]
    assert "weather: ZeroDivisionError: no rain" in found[1].title


def test_the_worst_comes_first() -> None:
    seen = replace(with_labels([3] * 50), carried=Carried(generators=("dataset.rng",)), run=Run(3, 0.6))
    assert [each.severity for each in judged(seen)] == ["problem", "warning", "note", "ok"]


def test_nothing_seen_nothing_said() -> None:
    assert [each.id for each in judged(Evidence())] == ["examined"]
    assert all(isinstance(each, Finding) for each in judged(Evidence(LoaderSetting(stream=True))))


def test_a_stream_that_could_not_be_read_is_not_called_empty() -> None:
    seen = Evidence(LoaderSetting(stream=True))
    assert [each.id for each in check_empty(seen)] == ["empty-dataset"]
    assert list(check_empty(Evidence(LoaderSetting(stream=True), troubles=(("samples", "OSError"),)))) == []
