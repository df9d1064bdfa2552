"""Mixtures of streams: exact shares, the same batches for any workers and ranks, states, changing weights, ends."""

from __future__ import annotations

import json
import os
import pickle
import signal
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, SPAWN, THREADS, few, quick_kinds
from shared_streams import as_rank

from feedline import (
    DataLoader,
    IterableDataset,
    MixtureStream,
    OptionError,
    OptionTypeError,
    SourceError,
    SourceStats,
    StateError,
    get_worker_info,
    rng,
)

WHOLE = "ignore:the IterableDataset neither asks"


class Numbers(IterableDataset[int]):
    """Numbers from `start` on; its iterator has a state, unless it is told otherwise."""

    def __init__(self, start: int, length: int, stateful: bool = True) -> None:
        self.start, self.length, self.stateful = start, length, stateful

    def __iter__(self) -> Iterator[int]:
        numbers = range(self.start, self.start + self.length)
        return Counting(numbers) if self.stateful else iter(numbers)


class Counting:
    def __init__(self, numbers: range) -> None:
        self.numbers, self.at, self.read = numbers, 0, 0

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> int:
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        self.read += 1
        return self.numbers[self.at - 1]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Parted(Numbers):
    """Its parts are every count-th number."""

    def shard(self, index: int, count: int) -> Parted:
        part = Parted(0, 0)
        part.numbers = self.numbers[index::count]
        return part

    numbers: Any = None

    def __init__(self, start: int, length: int) -> None:
        super().__init__(start, length)
        self.numbers = range(start, start + length)

    def __iter__(self) -> Iterator[int]:
        return Counting(self.numbers)


class Drawn(Numbers):
    """Each number with what is drawn for it."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.start, self.start + self.length):
            yield number, rng().random()


def of(number: int) -> str:
    return "ab"[number >= 1000] if number < 2000 else "c"


def mixture(**options: Any) -> MixtureStream:
    sources = {"a": Numbers(0, 300), "b": Numbers(1000, 40, stateful=False)}
    options = {"weights": {"a": 3, "b": 1}, "when_ended": {"a": "stop", "b": "repeat"}} | options
    return MixtureStream(sources, **options)


def batches_of(loader: Any) -> list[list[int]]:
    with loader:
        return [batch.tolist() for batch in loader]


# --- which source comes when ---


@settings(max_examples=few(60), deadline=None)
@given(weights=st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any), seed=st.integers(0, 2**62))
def test_shares_are_exact_after_each_stretch(weights: list[int], seed: int) -> None:
    names = [str(number) for number in range(len(weights))]
    sources = {name: [number] for number, name in enumerate(names)}
    stream = MixtureStream(sources, dict(zip(names, weights, strict=True)), seed=seed, when_ended="repeat")
    drawn: Counter[int] = Counter()
    elements = iter(stream)
    for stretch in range(1, 4):
        drawn.update(islice(elements, 256))
        for number, weight in enumerate(weights):
            assert abs(drawn[number] - 256 * stretch * weight / sum(weights)) < 1


def test_elements_of_a_source_come_in_its_order_and_each_pass_has_all() -> None:
    numbers = list(mixture(num_samples=256))
    assert [number for number in numbers if of(number) == "a"] == list(range(192))
    assert [number for number in numbers if of(number) == "b"] == [1000 + place % 40 for place in range(64)]


def test_weights_change_at_their_sample() -> None:
    stream = mixture(weights={0: {"a": 1, "b": 0}, 100: {"a": 0, "b": 1}, 150: {"a": 1, "b": 1}})
    numbers = list(islice(stream, 406))
    assert all(of(number) == "a" for number in numbers[:100])
    assert all(of(number) == "b" for number in numbers[100:150])
    assert Counter(map(of, numbers[150:])) == {"a": 128, "b": 128}


@pytest.mark.parametrize(("word", "expected"), [("stop", 20), ("drop", 310)])
def test_when_a_source_has_ended(word: str, expected: int) -> None:
    stream = MixtureStream({"a": Numbers(0, 300), "b": Numbers(1000, 10)}, {"a": 1, "b": 1}, when_ended=word)
    numbers = list(stream)
    assert len(numbers) == expected if word == "drop" else abs(len(numbers) - expected) < 40
    assert sorted(numbers) == sorted(set(numbers))
    assert sum(of(number) == "b" for number in numbers) == 10
    elements = iter(stream)
    list(elements)
    assert next(elements, None) is None


def test_a_mixture_that_has_ended_keeps_no_source_open() -> None:
    """Their files and what is decoded would stay until the garbage collector looks: a loader holds its last stream."""
    held = []

    class Held(Numbers):
        def __iter__(self) -> Iterator[int]:
            elements = Counting(range(self.length))
            held.append(weakref.ref(elements))
            return elements

    elements = iter(MixtureStream({"a": Held(0, 300), "b": Held(1000, 300)}, {"a": 1, "b": 1}, num_samples=300))
    assert len(list(elements)) == 300
    assert [each() for each in held] == [None, None]
    state = elements.state_dict()
    elements.load_state_dict(state)
    assert next(elements, None) is None


def test_a_source_that_has_given_nothing_is_counted_with_nothing() -> None:
    stream = mixture(weights={0: {"a": 1, "b": 0}, 100: {"a": 0, "b": 1}}, num_samples=120)
    with DataLoader(stream, batch_size=20) as loader:
        batches = iter(loader)
        next(batches)
        assert loader.stats().sources == {"a": SourceStats(20, 0), "b": SourceStats(0, 0)}
        assert len(list(batches)) == 5
        assert loader.stats().sources == {"a": SourceStats(100, 0), "b": SourceStats(20, 0)}


def test_a_source_without_weight_gets_its_turn_when_the_others_have_ended() -> None:
    weights = {0: {"a": 1, "b": 0}, 1000: {"a": 0, "b": 1}}
    stream = MixtureStream({"a": Numbers(0, 5), "b": Numbers(1000, 5)}, weights, when_ended="drop")
    assert list(stream) == [0, 1, 2, 3, 4, 1000, 1001, 1002, 1003, 1004]


def test_an_empty_source_cannot_be_repeated() -> None:
    with pytest.raises(SourceError, match="'b' is to be repeated, and has no elements"):
        list(MixtureStream({"a": range(9), "b": []}, {"a": 1, "b": 1}, when_ended="repeat"))


def test_a_repeated_source_is_in_another_order_in_each_pass() -> None:
    class Shuffled(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(rng(7).permutation(20).tolist())

    stream = MixtureStream({"only": Shuffled()}, {"only": 1}, when_ended="repeat", num_samples=40)
    one, two = batches_of(DataLoader(stream, batch_size=20, seed=1))
    assert sorted(one) == sorted(two) == list(range(20))
    assert one != two


# --- workers and ranks ---


@pytest.mark.filterwarnings(WHOLE)
@pytest.mark.parametrize("kind", [THREADS, FORK, SPAWN, {**THREADS, "num_workers": 3}])
def test_the_same_batches_for_any_workers(kind: dict[str, Any]) -> None:
    sources = {"a": Drawn(0, 60), "b": Drawn(1000, 7)}
    stream = MixtureStream(sources, {"a": 2, "b": 1}, when_ended={"a": "stop", "b": "repeat"})
    expected, got = [], []
    with DataLoader(stream, batch_size=7, seed=3) as one, DataLoader(stream, batch_size=7, seed=3, **kind) as other:
        for loader, found in ((one, expected), (other, got)):
            found += [[column.tolist() for column in batch] for batch in loader]
        assert one.stats().sources == other.stats().sources
    assert got == expected
    draws = [draw for _, drawn in expected for draw in drawn]
    assert len(set(draws)) == len(draws)  # a repeated element has another draw


class Deadly(Numbers):
    """Kills the process that reads the number in the file, once; the number of samples of each source counts on."""

    def __init__(self, start: int, length: int, stateful: bool, fuse: Path) -> None:
        super().__init__(start, length, stateful)
        self.fuse = str(fuse)

    def __iter__(self) -> Iterator[int]:
        return Fatal(super().__iter__(), self.fuse) if self.stateful else self._plain()

    def _plain(self) -> Iterator[int]:
        for number in super().__iter__():
            die_of(number, self.fuse)
            yield number


class Fatal:
    def __init__(self, numbers: Any, fuse: str) -> None:
        self.numbers, self.fuse = numbers, fuse
        self.state_dict, self.load_state_dict = numbers.state_dict, numbers.load_state_dict

    def __iter__(self) -> Fatal:
        return self

    def __next__(self) -> int:
        number: int = next(self.numbers)
        die_of(number, self.fuse)
        return number


def die_of(number: int, fuse: str) -> None:
    with suppress(FileNotFoundError):
        if number == int(Path(fuse).read_text()):
            os.unlink(fuse)  # one worker only, and not again
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings(WHOLE, "ignore:worker")
@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("dies_of", [0, 130, 1033])
def test_a_worker_killed_in_a_mixture_changes_no_batch(tmp_path: Path, stateful: bool, dies_of: int) -> None:
    def made() -> MixtureStream:
        sources = {"a": Deadly(0, 300, stateful, tmp_path / "fuse"), "b": Deadly(1000, 40, stateful, tmp_path / "fuse")}
        ends = {"a": "stop", "b": "repeat"}
        return MixtureStream(sources, {0: {"a": 3, "b": 1}, 150: {"a": 1, "b": 1}}, when_ended=ends)

    with DataLoader(made(), batch_size=7) as loader:
        expected = [batch.tolist() for batch in loader]
        counts = loader.stats().sources
    (tmp_path / "fuse").write_text(str(dies_of))
    with DataLoader(made(), batch_size=7, **FORK) as loader:
        assert [batch.tolist() for batch in loader] == expected
        assert loader.stats().epoch.restarts == 1
        assert loader.stats().sources == counts
    assert not (tmp_path / "fuse").exists()


@pytest.mark.filterwarnings(WHOLE)
@pytest.mark.parametrize("kind", [INLINE, THREADS])
def test_the_same_batches_for_any_ranks(kind: dict[str, Any]) -> None:
    expected = batches_of(DataLoader(mixture(), batch_size=7))
    dealt = []
    for rank in range(2):
        with as_rank(rank, 2):
            dealt.append(batches_of(DataLoader(mixture(), batch_size=7, ranks="shard", uneven="exact", **kind)))
    assert [dealt[place % 2][place // 2] for place in range(len(expected))] == expected


@quick_kinds
def test_sources_with_shards_are_read_once(kind: dict[str, Any]) -> None:
    stream = MixtureStream({"a": Parted(0, 400), "b": Parted(1000, 90)}, {"a": 4, "b": 1}, when_ended="drop")
    with DataLoader(stream, batch_size=10, **kind) as loader:
        numbers = [number for batch in loader for number in batch.tolist()]
        counts = loader.stats().sources
    assert sorted(numbers) == [*range(400), *range(1000, 1090)]
    assert {name: count.samples for name, count in counts.items()} == {"a": 400, "b": 90}
    assert abs(sum(number >= 1000 for number in numbers[:240]) - 48) <= 12  # one stretch of each worker has begun


@pytest.mark.filterwarnings(WHOLE)
def test_share_batches_reads_sources_with_shards_whole() -> None:
    stream = MixtureStream({"a": Parted(0, 40), "b": Parted(1000, 9)}, {"a": 4, "b": 1}, share="batches")
    expected = batches_of(DataLoader(stream, batch_size=4))
    assert batches_of(DataLoader(stream, batch_size=4, **THREADS)) == expected


class Asking(Numbers):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(self.start + first, self.start + self.length, step))


def test_sources_that_share_themselves_out() -> None:
    both = MixtureStream({"a": Asking(0, 30), "b": Asking(1000, 30)}, {"a": 1, "b": 1}, when_ended="drop")
    with DataLoader(both, batch_size=5, **THREADS) as loader:
        numbers = sorted(number for batch in loader for number in batch.tolist())
    assert numbers == [*range(30), *range(1000, 1030)]


@pytest.mark.filterwarnings(WHOLE)
@pytest.mark.parametrize("asks", "ab")
def test_sources_shared_out_in_two_ways_are_refused(asks: str) -> None:
    sources = {name: (Asking if name == asks else Numbers)(0, 30) for name in "ab"}
    with DataLoader(MixtureStream(sources, {"a": 5, "b": 1}), batch_size=5, **THREADS) as loader:
        with pytest.raises(
            (OptionError, RuntimeError), match=f"source '{asks}' picks its own share|asks for get_worker"
        ):
            list(loader)


def test_sources_of_which_some_know_their_rank_are_refused() -> None:
    class Ranked(Numbers):
        ranks = (2, 1)

    with pytest.raises(OptionError, match="'a' is that of rank 1 of 2, 'b' is that of rank 0 of 1"):
        MixtureStream({"a": Ranked(0, 3), "b": Numbers(0, 3)}, {"a": 1, "b": 1})


# --- states ---


@pytest.mark.filterwarnings(WHOLE, "ignore:to continue with batch")
@settings(max_examples=few(40), deadline=None)
@given(after=st.integers(0, 40), threads=st.sampled_from([INLINE, THREADS]), again=st.sampled_from([INLINE, THREADS]))
def test_resumes_exactly(after: int, threads: dict[str, Any], again: dict[str, Any]) -> None:
    weights = {0: {"a": 3, "b": 1}, 130: {"a": 1, "b": 1}}
    expected = batches_of(DataLoader(mixture(weights=weights), batch_size=9))
    with DataLoader(mixture(weights=weights), batch_size=9, **threads) as loader:
        seen = [batch.tolist() for batch in islice(loader, after)]
        state = json.loads(json.dumps(loader.state_dict()))
    with DataLoader(pickle.loads(pickle.dumps(mixture(weights=weights))), batch_size=9, **again) as loader:
        loader.load_state_dict(state)
        assert (seen + [batch.tolist() for batch in loader] if after < len(expected) else seen) == expected


def test_what_is_drawn_for_an_element_is_the_same_when_it_is_read_again() -> None:
    stream = MixtureStream({"a": Drawn(0, 300), "b": Drawn(1000, 300)}, {"a": 1, "b": 1}, num_samples=256)
    with DataLoader(stream, batch_size=16, collate_fn=list, seed=3) as loader:
        expected = [*loader]
        seen = [*islice(loader, 5)]
        state = loader.state_dict()
    assert seen != expected[:5]  # another epoch
    with DataLoader(stream, batch_size=16, collate_fn=list, seed=3) as loader:
        loader.load_state_dict(state)
        rest = [*loader]
        assert {name: each.samples for name, each in loader.stats().sources.items()} == {
            name: 128 - sum(of(number) == name for batch in seen for number, _ in batch) for name in "ab"
        }
    with DataLoader(stream, batch_size=16, collate_fn=list, seed=3) as loader:
        loader.set_epoch(1)
        assert [*loader] == seen + rest


def test_a_source_with_a_state_is_not_read_again() -> None:
    elements = iter(mixture())
    list(islice(elements, 200))
    state = json.loads(json.dumps(elements.state_dict()))
    assert len(json.dumps(state)) < 500
    again = iter(mixture())
    again.load_state_dict(state)
    assert list(islice(again, 50)) == list(islice(elements, 50))
    assert again._sources[0]._elements.read < 50  # type: ignore[union-attr]


def test_other_weights_hold_from_the_checkpoint_on() -> None:
    elements = iter(mixture())
    before = list(islice(elements, 100))
    again = iter(mixture(weights={"a": 1, "b": 7}))
    again.load_state_dict(elements.state_dict())
    after = list(islice(again, 256))
    assert Counter(map(of, after)) == {"a": 32, "b": 224}
    of_a = [number for number in before + after if of(number) == "a"]
    assert of_a == list(range(len(of_a)))


def test_a_state_of_another_mixture_is_refused() -> None:
    state = iter(mixture()).state_dict()
    for other in (
        MixtureStream({"a": range(3)}, {"a": 1}),
        mixture(seed=5),
        MixtureStream({"b": range(3), "a": range(3)}, {"a": 1, "b": 1}),
    ):
        with pytest.raises(StateError, match="the state was saved for a mixture"):
            iter(other).load_state_dict(state)


@pytest.mark.parametrize(("start", "length"), [(1500, 40), (1000, 3)])
def test_a_source_that_gives_something_else_when_it_is_read_again_is_refused(start: int, length: int) -> None:
    elements = iter(mixture())
    list(islice(elements, 100))
    other = mixture()
    other.datasets["b"] = Numbers(start, length, stateful=False)
    with pytest.raises(StateError, match=r"read again, and gave (other|3) elements"):
        iter(other).load_state_dict(elements.state_dict())


def test_two_elements_that_have_changed_places_are_found() -> None:
    elements = iter(MixtureStream({"a": list(range(100))}, {"a": 1}))
    list(islice(elements, 50))
    other = MixtureStream({"a": [0, 2, 1, *range(3, 100)]}, {"a": 1})
    with pytest.raises(StateError, match="gave other elements"):
        iter(other).load_state_dict(elements.state_dict())


# --- errors ---


class Failing(Numbers):
    """Fails for each tenth number, and goes on."""

    def __iter__(self) -> Iterator[int]:
        class Sometimes(Counting):
            def __next__(self) -> int:
                if not (number := super().__next__()) % 10:
                    raise ValueError(f"number {number}")
                return number

        return Sometimes(range(self.start, self.start + self.length))


@pytest.mark.filterwarnings(WHOLE)
@quick_kinds
def test_a_bad_element_is_skipped_and_the_shares_stay_exact(kind: dict[str, Any]) -> None:
    stream = MixtureStream({"a": Failing(0, 400), "b": Numbers(1000, 300)}, {"a": 1, "b": 1}, num_samples=512)
    with DataLoader(stream, batch_size=8, on_error="skip", **kind) as loader:
        numbers = [number for batch in loader for number in batch.tolist()]
        assert {"number 0" in bad.error for bad in loader.errors()} == {True, False}
        assert {name: each.samples for name, each in loader.stats().sources.items()} == {"a": 256, "b": 256}
    assert Counter(map(of, numbers)) == {"a": 256, "b": 256}


def test_a_generator_that_has_failed_is_told_of_and_not_just_at_its_end() -> None:
    class Broken(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield 1
            raise ValueError("broken")

    elements = iter(MixtureStream({"a": Broken()}, {"a": 1}))
    assert next(elements) == 1
    with pytest.raises(ValueError, match="broken"):
        next(elements)
    with pytest.raises(SourceError, match="'a' has failed, and its __iter__ is a generator"):
        next(elements)
    assert next(elements, None) is None


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (OptionTypeError, "sources must be a dict", ([range(3)], {"a": 1})),
        (OptionError, "sources is empty", ({}, {"a": 1})),
        (OptionTypeError, r"sources\['a'\] \(object\) has no __iter__; Mixture mixes", ({"a": object()}, {"a": 1})),
        (OptionTypeError, r"sources\['a'\] \(range_iterator\) is an iterator", ({"a": iter(range(3))}, {"a": 1})),
        (OptionError, r"\['a'\] are missing and \['b'\] are not sources", ({"a": "x"}, {"b": 1})),
        (OptionError, "one number must be above 0", ({"a": "x"}, {"a": 0})),
        (OptionError, "what holds from sample 0 on", ({"a": "x"}, {5: {"a": 1}})),
        (OptionError, r"weights\[7\]: one number must be", ({"a": "x"}, {0: {"a": 1}, 7: {"a": 0}})),
        (OptionTypeError, "weights must be a dict", ({"a": "x"}, [1])),
        (OptionError, r"less than one sample in", ({"a": "x", "b": "y"}, {"a": 1, "b": 1e-9})),
    ],
)
def test_what_does_not_fit_is_named(error: type[Exception], match: str, arguments: Any) -> None:
    with pytest.raises(error, match=match):
        MixtureStream(*arguments)


def test_words_that_do_not_exist_are_named() -> None:
    with pytest.raises(OptionError, match="when_ended must be 'stop', 'repeat' or 'drop'; got 'again' for 'a'"):
        mixture(when_ended={"a": "again", "b": "stop"})
    with pytest.raises(OptionError, match=r"a word for each source of \['a', 'b'\]"):
        mixture(when_ended={"a": "stop"})
    with pytest.raises(OptionError, match="share must be 'parts' or 'batches'"):
        mixture(share="all")


class NamedAlike(IterableDataset[int]):
    """The user's own: whatever its methods are called, nobody else calls them."""

    def sharing_notice(self, readers: int) -> str:
        raise AssertionError("called by the loader")

    def __iter__(self) -> Iterator[int]:
        yield from range(4)


@pytest.mark.parametrize("stream", [NamedAlike(), MixtureStream({"a": NamedAlike()}, {"a": 1})])
def test_a_users_method_is_not_called_for_what_it_is_named(stream: Any) -> None:
    assert [value for batch in DataLoader(stream, 2) for value in batch.tolist()] == [0, 1, 2, 3]
