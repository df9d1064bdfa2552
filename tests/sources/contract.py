"""What every source promises, as tests: subclass one of these two and give its fixtures.

class TestFolder(MapContract):
    @pytest.fixture()
    def source(self, tmp_path): ...           # the dataset
    @pytest.fixture()
    def expected(self): ...                   # its samples, in order, as plain values or arrays
"""

from __future__ import annotations

import json
import pickle
from itertools import islice
from typing import Any

import numpy as np
import pytest
from kinds import FORK, INLINE, SPAWN, THREADS, thorough

from feedline import DataLoader

KINDS = {"inline": INLINE, "threads": THREADS, "fork": FORK, "spawn": SPAWN}
by_kind = pytest.mark.parametrize("kind", KINDS)


def plain(value: Any) -> Any:
    """Comparable by ==, and distinguishing types that matter."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def as_list(samples: list[Any]) -> list[Any]:
    """A collate_fn that keeps samples as they are: those of a source need not stack."""
    return [plain(each) for each in samples]


def flat(batches: Any) -> list[Any]:
    return [sample for batch in batches for sample in batch]


def sort_key(sample: Any) -> str:
    return repr(sample)


class MapContract:
    """Of a source with a length."""

    def test_samples(self, source: Any, expected: list[Any]) -> None:
        assert len(source) == len(expected)
        assert [plain(source[index]) for index in range(len(source))] == plain(expected)
        assert plain(source[-1]) == plain(expected[-1])
        assert plain(source[np.int64(0)]) == plain(expected[0])

    def test_many_at_once(self, source: Any, expected: list[Any]) -> None:
        order = [len(expected) - 1, 0, len(expected) // 2, 0]
        if hasattr(source, "__getitems__"):
            assert plain(source.__getitems__(order)) == [plain(expected[index]) for index in order]
            assert plain(source.__getitems__([])) == []

    def test_beyond_its_end(self, source: Any, expected: list[Any]) -> None:
        for index in (len(expected), -len(expected) - 1):
            with pytest.raises(IndexError, match=str(len(expected))):
                source[index]

    def test_pickles_at_any_moment(self, source: Any, expected: list[Any]) -> None:
        for _ in range(2):  # before anything was opened, and after
            again = pickle.loads(pickle.dumps(source))
            assert plain(again[1]) == plain(expected[1])
            assert len(again) == len(expected)
            assert plain(source[0]) == plain(expected[0])

    def test_says_which_sample(self, source: Any, expected: list[Any]) -> None:
        said = [source.describe(index) for index in range(len(expected))]
        assert all(isinstance(each, str) and 0 < len(each) < 300 for each in said)
        assert len(set(said)) == len(said)
        source.describe(len(expected))  # never raises: it is asked while an error is being told

    @by_kind
    def test_same_batches_with_any_workers(self, source: Any, expected: list[Any], kind: str) -> None:
        with DataLoader(source, 3, collate_fn=as_list, shuffle=True, seed=5, **KINDS[kind]) as loader:
            got = list(loader)
        with DataLoader(range(len(expected)), 3, collate_fn=list, shuffle=True, seed=5) as order:
            assert got == [[plain(expected[index]) for index in batch] for batch in order]

    def test_resumes_exactly_with_other_workers(self, source: Any) -> None:
        with DataLoader(source, 2, collate_fn=as_list, shuffle=True, seed=5, **THREADS) as loader:
            batches = iter(loader)
            next(batches)
            state = json.loads(json.dumps(loader.state_dict()))
            rest = list(batches)
        with DataLoader(source, 2, collate_fn=as_list, shuffle=True, seed=5) as loader:
            loader.load_state_dict(state)
            assert list(loader) == rest


class StreamContract:
    """Of a source that is iterated over. `expected` are its elements; the order is the source's own affair if several
    workers share it, unless `ordered` says that one reader gives exactly this order."""

    ordered = True
    kinds = tuple(KINDS)

    def test_elements(self, source: Any, expected: list[Any]) -> None:
        for _ in range(2):
            got = [plain(each) for each in source]
            wanted = plain(expected)
            assert got == wanted if self.ordered else sorted(got, key=sort_key) == sorted(wanted, key=sort_key)

    def test_pickles_at_any_moment(self, source: Any, expected: list[Any]) -> None:
        reading = iter(source)
        next(reading)
        again = pickle.loads(pickle.dumps(source))
        assert len(list(again)) == len(expected)
        getattr(reading, "close", lambda: None)()

    @by_kind
    def test_each_element_once_over_all_workers(self, source: Any, expected: list[Any], kind: str) -> None:
        if kind not in self.kinds:
            pytest.skip("not by this source")
        with DataLoader(source, 2, collate_fn=as_list, **KINDS[kind]) as loader:
            got = flat(loader)
        assert sorted(got, key=sort_key) == sorted(plain(expected), key=sort_key)

    @pytest.mark.parametrize("after", [0, pytest.param(1, marks=thorough), 2])
    def test_resumes_exactly(self, source: Any, expected: list[Any], after: int) -> None:
        options: dict[str, Any] = {"collate_fn": as_list, **THREADS}
        with DataLoader(source, 2, **options) as loader:
            batches = iter(loader)
            seen = list(islice(batches, after))
            state = json.loads(json.dumps(loader.state_dict()))
            rest = list(batches)
        with DataLoader(pickle.loads(pickle.dumps(source)), 2, **options) as loader:
            loader.load_state_dict(state)
            assert list(loader) == rest
        assert sorted(flat(seen) + flat(rest), key=sort_key) == sorted(plain(expected), key=sort_key)

    def test_resumes_with_other_workers(self, source: Any, expected: list[Any]) -> None:
        with DataLoader(source, 2, collate_fn=as_list, **THREADS) as loader:
            batches = iter(loader)
            seen = list(islice(batches, 2))
            state = json.loads(json.dumps(loader.state_dict()))
            getattr(batches, "close", lambda: None)()
        with DataLoader(pickle.loads(pickle.dumps(source)), 2, collate_fn=as_list) as loader:
            loader.load_state_dict(state)
            rest = list(loader)
        assert sorted(flat(seen) + flat(rest), key=sort_key) == sorted(plain(expected), key=sort_key)
