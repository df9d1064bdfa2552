"""Objects of the user's that fail when they are asked for something: nothing of that reaches the loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import quick_kinds

from feedline import DataLoader, IterableDataset


class Bunch(dict[str, Any]):
    """Attributes are entries, as many libraries have it: an attribute that is not there is a KeyError."""

    __getattr__ = dict.__getitem__

    def __reduce__(self) -> Any:
        return Bunch, (dict(self),)  # Python 3.10 asks the object for more than it has


class Broken(Exception):
    pass


class Surly:
    """A container that cannot be looked through."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and pickling ask for these, and are the user's to answer
            raise AttributeError(name)
        raise Broken(name)


class Numbers:
    def __init__(self, count: int = 8) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class SurlyNumbers(Numbers):
    """Whatever is not there fails otherwise than Python says it should."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Broken(name)


class SurlyStream(SurlyNumbers, IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


class SurlySampler(Surly):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))

    def __len__(self) -> int:
        return 8


def bunch(samples: list[int]) -> Any:
    return Bunch(x=np.array(samples))


def surly(samples: list[int]) -> Any:
    made = Surly()
    made.__dict__["x"] = np.array(samples)
    return made


@quick_kinds
@pytest.mark.parametrize("collate", [bunch, surly])
def test_a_batch_may_fail_when_it_is_weighed(kind: dict[str, Any], collate: Any, tmp_path: Path) -> None:
    with DataLoader(Numbers(), batch_size=4, collate_fn=collate, **kind) as loader, loader.report(tmp_path / "r.html"):
        got = [batch.x.tolist() for batch in loader]
    assert got == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert loader.stats().epoch.samples == 8


@quick_kinds
@pytest.mark.filterwarnings("ignore:the IterableDataset neither asks", "ignore:to continue with batch")
@pytest.mark.parametrize("dataset", [SurlyNumbers, SurlyStream])
def test_a_dataset_may_fail_when_it_is_asked_what_it_has_not(kind: dict[str, Any], dataset: type[Numbers]) -> None:
    loader = DataLoader(dataset(), batch_size=4, **kind)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    state = loader.state_dict()
    del iterator
    again = DataLoader(dataset(), batch_size=4, **kind)
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == [[4, 5, 6, 7]]


@quick_kinds
def test_a_sampler_may_fail_when_it_is_asked_what_it_has_not(kind: dict[str, Any]) -> None:
    loader = DataLoader(Numbers(), batch_size=4, sampler=SurlySampler(), **kind)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.state_dict()
    loader.set_epoch(3)


class Tenfold(np.ndarray):
    """Rows that are read in a way of its own."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) * 10


def test_an_array_of_a_class_of_the_users_is_read_as_that_class_reads() -> None:
    data = np.arange(4).view(Tenfold)
    assert [batch.tolist() for batch in DataLoader(data, 2)] == [[0, 10], [20, 30]]
    assert [batch.tolist() for batch in DataLoader(np.arange(4), 2)] == [[0, 1], [2, 3]]
