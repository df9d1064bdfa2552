"""The doctor on two datasets: which samples are in both, by content or by index, and what cannot be said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sick import Map, Stream
from warm_host import host

import feedline
from feedline import DataLoader, Subset
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import Evidence, Overlap
from feedline.diagnose.doctor.examine import Examination
from feedline.diagnose.doctor.patient import patient_of
from feedline.diagnose.findings import Finding

IDS = ("overlap", "overlap-unseen", "no-overlap")


class Part(Map):
    """Samples of one pool, from `first` on."""

    def __init__(self, first: int, count: int, shift: int = 0) -> None:
        super().__init__(200)
        self.first, self.count, self.shift = first, count, shift

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {"x": self.x[self.first + index], "y": int(self.y[index]) + self.shift, "path": f"{id(self)}/{index}"}


class Augmented(Part):
    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return {**sample, "x": sample["x"] + feedline.rng().normal(size=16).astype(np.float32)}


class Broken(Part):
    def __getitem__(self, index: int) -> Any:
        raise OSError("gone")


class Partly(Part):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise OSError("gone")
        return super().__getitem__(index)


def common(one: Any, other: Any, *parts: str) -> Finding:
    """What is said of both, by parts of the examination."""
    patients = [patient_of(each, None, None, None) for each in (one, other)]
    seen = Examination(patients[0], 60, 2, patients[1]).run("against", *parts)
    (finding,) = [each for each in judged(seen) if each.id in IDS or each.id == "could-not-examine"]
    return finding


def test_samples_in_both_are_found_by_their_inputs_whatever_label_and_path_are() -> None:
    finding = common(Part(0, 100), Part(90, 40, shift=5))
    assert (finding.id, finding.severity) == ("overlap", "problem")
    assert sorted(finding.evidence["pairs"]) == [[90 + number, number] for number in range(10)]
    assert finding.evidence["compared"] == [100, 40]
    assert finding.title.startswith("10 of 40 samples of Part are among 100 of this dataset: ")
    assert finding.evidence["share"] == 0.25


def test_without_any_it_is_said_how_many_were_compared() -> None:
    finding = common(Part(0, 100), Part(100, 40))
    assert (finding.id, finding.severity) == ("no-overlap", "ok")
    assert finding.title == "None of 40 samples of Part is among 100 of this dataset"


def test_loaders_and_streams_are_compared_too() -> None:
    finding = common(DataLoader(Part(0, 50), batch_size=8), DataLoader(Part(40, 50), batch_size=8, shuffle=True))
    assert finding.evidence["count"] == 10

    class Numbers(Stream):
        def __iter__(self) -> Iterator[Any]:
            for number in self.numbers:
                yield np.arange(number, number + 16.0), 0

    finding = common(Numbers(range(50)), Numbers(range(45, 60)))
    assert finding.evidence["count"] == 5


def test_parts_of_one_dataset_are_compared_by_their_indices_and_not_read() -> None:
    whole = Broken(0, 100)
    train, val = Subset(whole, range(90)), Subset(Subset(whole, range(50, 100)), range(30, 50))
    finding = common(train, val)
    assert finding.evidence["count"] == 10
    assert [80, 0] in finding.evidence["pairs"]
    assert common(whole, train).evidence["count"] == 90


def test_samples_that_change_at_random_are_said_not_to_be_recognised() -> None:
    finding = common(Augmented(0, 40), Part(0, 40), "samples", "repeats")
    assert (finding.id, finding.severity) == ("overlap-unseen", "note")
    assert "changed at random" in finding.title


def test_samples_that_cannot_be_told_apart() -> None:
    finding = common(np.arange(30), np.arange(30))
    assert finding.id == "overlap-unseen"
    assert "cannot be told apart" in finding.title


class Rows(Part):
    """Of a table; those before `short` have too little in them."""

    def __init__(self, first: int, count: int, short: int = 0) -> None:
        super().__init__(first, count)
        self.short = short

    def __getitem__(self, index: int) -> Any:
        values = np.random.default_rng(self.first + index).random(2 if index < self.short else 8).tolist()
        return {f"column {place}": value for place, value in enumerate(values)} | {"label": index % 2}


def test_rows_of_a_table_are_compared_by_their_numbers() -> None:
    finding = common(Rows(0, 100), Rows(90, 40))
    assert (finding.id, finding.evidence["count"]) == ("overlap", 10)
    assert common(Rows(0, 100), Rows(100, 40)).id == "no-overlap"


def test_samples_that_could_not_be_compared_are_said_beside_those_that_were() -> None:
    finding = common(Rows(0, 100), Rows(200, 40, short=15))
    assert (finding.id, finding.severity) == ("no-overlap", "note")
    assert finding.title.startswith("None of 25 samples of Rows is among 100 of this dataset; 15 more were read")
    assert common(Rows(0, 100), Rows(0, 40, short=40)).id == "overlap-unseen"


def test_elements_are_counted_with_those_that_fail() -> None:
    class Failing(Stream):
        def __iter__(self) -> Iterator[Any]:
            return map(self.read, self.numbers)

        def read(self, number: int) -> Any:
            if number == 3:
                raise OSError("gone")
            return np.arange(number, number + 16.0), 0

    assert sorted(common(Failing(range(20)), Failing(range(18, 30))).evidence["pairs"]) == [[18, 0], [19, 1]]


def test_samples_that_fail_are_left_out_and_a_dataset_that_cannot_be_read_is_said() -> None:
    assert common(Part(0, 20), Partly(0, 20)).evidence["count"] == 19
    finding = common(Part(0, 20), Broken(0, 20))
    assert finding.id == "could-not-examine"
    assert "Broken could not be read" in finding.title


@pytest.mark.parametrize(
    ("overlap", "severity", "words"),
    [
        (Overlap("Val", ((1, 2),), (1000, 1000), (1000, 1000)), "warning", "1 of 1,000 samples of Val is among 1,000"),
        (Overlap("Val", ((1, 2),), (1000, 1000), (50_000, 1000)), "problem", "1 of 1,000 samples of Val is among"),
    ],
)
def test_what_was_compared_stands_for_the_rest(overlap: Overlap, severity: str, words: str) -> None:
    finding = judged(Evidence(overlap=overlap))[0]
    assert (finding.id, finding.severity) == ("overlap", severity)
    assert finding.title.startswith(words)
    assert ("in all, about 5.0 % of Val would be" in finding.explanation) == (severity == "problem")


SCRIPT = """
import numpy as np
print("imported")
pool = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
train = [(pool[index], index % 3) for index in range(80)]
val = [(pool[index], index % 3) for index in range(70, 100)]
"""


def test_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ["-m", "feedline", "doctor", "train.py:train", "--against", "train.py:val", "--seconds", "30", "--json"]
    done = host("feedline.cli").run(command, 600, tmp_path)
    (finding,) = [each for each in json.loads(done.stdout)["findings"] if each["id"] == "overlap"]
    assert (finding["evidence"]["count"], done.returncode) == (10, 1)
    assert done.stderr.count("imported") == 1
