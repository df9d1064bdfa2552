"""A dataset's fingerprint is in a loader's state, and other data is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from feedline import ConcatDataset, DataLoader, IterableDataset, StateError, Subset
from feedline.datasets import fingerprint_of


class Table:
    def __init__(self, fingerprint: Any) -> None:
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return index


class Endless(IterableDataset[int]):
    def __init__(self, fingerprint: Any) -> None:
        self.fingerprint = fingerprint

    def __iter__(self) -> Any:
        return iter(range(9))

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


def saved(dataset: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(DataLoader(dataset, 2).state_dict()))
    return state


@pytest.mark.parametrize("kind", [Table, Endless])
def test_other_content_is_refused_by_name(kind: Any) -> None:
    state = saved(kind("6 rows, aa"))
    DataLoader(kind("6 rows, aa"), 2).load_state_dict(state)
    with pytest.raises(StateError, match=r"fingerprint has changed.* was '6 rows, aa' and is '6 rows, bb' now"):
        DataLoader(kind("6 rows, bb"), 2).load_state_dict(state)


@pytest.mark.parametrize(("then", "now"), [("a", None), (None, "a"), ("a", len), (len, "a"), (7, 8)])
def test_what_says_nothing_is_not_compared(then: Any, now: Any) -> None:
    state = saved(Table(then))
    assert ("fingerprint" in state) == isinstance(then, str)
    DataLoader(Table(now), 2).load_state_dict(state)


def test_a_wrapper_stands_for_what_it_wraps() -> None:
    def both(last: str) -> Any:
        return Subset(ConcatDataset([Table("a"), range(3), Table(last)]), [0, 1])

    assert fingerprint_of(both("b")) == "a + b"
    with pytest.raises(StateError, match=r"was 'a \+ b' and is 'a \+ c' now"):
        DataLoader(both("c")).load_state_dict(saved(both("b")))


def test_a_dataset_that_holds_itself_is_looked_at_all_the_same() -> None:
    table: Any = Table(None)
    table.dataset = table
    assert fingerprint_of(table) is None
