"""Mixtures: each source has its share, each pass has every sample once, and any place is found without those before."""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few

import feedline
from feedline import (
    ArrayDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    Mixture,
    MixtureSampler,
    OptionError,
    OptionTypeError,
    StateError,
)
from feedline.order import index_shuffle

SEEDS = st.integers(0, 2**63 - 1)
SOURCES = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=6)


def mixed(sources: list[tuple[int, int]], num_samples: int | None = None, seed: int = 0) -> MixtureSampler:
    """A sampler of sources of such lengths and weights."""
    mixture = Mixture({f"s{number}": range(length) for number, (length, _) in enumerate(sources)})
    weights = {f"s{number}": weight for number, (_, weight) in enumerate(sources)}
    return MixtureSampler(mixture, weights, num_samples, seed)


def run_of(sampler: MixtureSampler, epochs: int) -> list[int]:
    """The indices of some epochs, one after the other."""
    orders = [sampler.order(sampler.seed or 0, epoch) for epoch in range(epochs)]
    return np.concatenate([order[: len(order)] for order in orders]).tolist()  # type: ignore[no-any-return]


def by_source(sampler: MixtureSampler, indices: list[int]) -> list[list[int]]:
    """What was drawn from each source, in order, by the source's own indices."""
    ends = np.cumsum(list(sampler.data_source.lengths.values()))
    found: list[list[int]] = [[] for _ in ends]
    for index in indices:
        source = int(np.searchsorted(ends, index, side="right"))
        found[source].append(index - int(ends[source - 1] if source else 0))
    return found


# --- the order ---


@settings(max_examples=few(60), deadline=None)
@given(sources=SOURCES, num_samples=st.integers(1, 900), epochs=st.integers(1, 4), seed=SEEDS)
def test_each_pass_over_a_source_has_every_sample_once_whatever_the_epochs(
    sources: list[tuple[int, int]], num_samples: int, epochs: int, seed: int
) -> None:
    sampler = mixed(sources, num_samples, seed)
    drawn = by_source(sampler, run_of(sampler, epochs))
    for (length, _), indices in zip(sources, drawn, strict=True):
        for start in range(0, len(indices), length):
            part = indices[start : start + length]
            assert len(set(part)) == len(part)
            assert set(part) <= set(range(length))


@settings(max_examples=few(60), deadline=None)
@given(sources=SOURCES, seed=SEEDS)
def test_shares_are_right_to_within_one_after_each_stretch(sources: list[tuple[int, int]], seed: int) -> None:
    stretch = mixed(sources)._plan.stretch
    sampler = mixed(sources, 4 * stretch, seed)
    indices = run_of(sampler, 1)
    for end in range(stretch, 4 * stretch + 1, stretch):
        counts = [len(part) for part in by_source(sampler, indices[:end])]
        for count, (_, weight) in zip(counts, sources, strict=True):
            assert abs(count - Fraction(end * weight, sum(weight for _, weight in sources))) < 1


@settings(max_examples=few(60), deadline=None)
@given(
    sources=SOURCES,
    num_samples=st.integers(1, 3000),
    epoch=st.integers(0, 10**6),
    start=st.integers(0, 3000),
    size=st.integers(0, 700),
    seed=SEEDS,
)
def test_any_part_is_read_without_what_precedes(
    sources: list[tuple[int, int]], num_samples: int, epoch: int, start: int, size: int, seed: int
) -> None:
    sampler = mixed(sources, num_samples, seed)
    part = sampler.order(seed, epoch)[start : start + size]
    assert part.dtype == np.int64
    assert part.tolist() == sampler.order(seed, epoch)[:num_samples][start : start + size].tolist()


@settings(max_examples=few(40), deadline=None)
@given(sources=SOURCES, num_samples=st.integers(1, 900), seed=SEEDS, data=st.data())
def test_source_epochs_is_what_was_drawn(
    sources: list[tuple[int, int]], num_samples: int, seed: int, data: st.DataObject
) -> None:
    sampler = mixed(sources, num_samples, seed)
    epoch, samples = data.draw(st.integers(0, 3)), data.draw(st.integers(0, num_samples))
    drawn = by_source(sampler, run_of(sampler, 4)[: epoch * num_samples + samples])
    counts = {f"s{number}": len(drawn[number]) / length for number, (length, _) in enumerate(sources)}
    assert sampler.source_epochs(epoch, samples) == counts


def test_an_epoch_goes_on_where_the_one_before_ended_also_far_into_a_run() -> None:
    """As one epoch of all, cut anywhere: only the count of samples before says where it stands."""
    sources = [(1000, 3), (7, 1), (50_000, 5)]
    for epoch, num_samples in ((3, 1000), (10**6, 999), (7, 10_007)):
        parts, whole = mixed(sources, num_samples, seed=5), mixed(sources, num_samples * (epoch + 1), seed=5)
        assert parts.order(5, epoch)[:64].tolist() == whole.order(5, 0)[epoch * num_samples :][:64].tolist()


def test_far_into_a_run_shares_are_still_exact() -> None:
    sampler = mixed([(1000, 7), (10, 2), (300, 1)], num_samples=10**12)
    passes = sampler.source_epochs(10**6)
    assert passes == {"s0": 7 * 10**14, "s1": 2 * 10**16, "s2": pytest.approx(10**17 / 300, abs=0.01)}
    assert by_source(sampler, sampler.order(0, 10**6)[:2560].tolist())[1].count(3) == pytest.approx(51, abs=2)


def test_every_pass_has_another_order_and_every_seed_too() -> None:
    drawn = {seed: by_source(s := mixed([(20, 1), (20, 1)], 400, seed), run_of(s, 2)) for seed in (0, 1)}
    parts = [part for two in drawn.values() for part in two]
    passes = [tuple(part[start : start + 20]) for part in parts for start in range(0, len(part) - 19, 20)]
    assert len(passes) > 75
    assert len(set(passes)) == len(passes)


def test_sources_are_well_mixed_within_a_stretch() -> None:
    sampler = mixed([(10, 1), (10, 3)], num_samples=256 * 400)
    sources = np.array(run_of(sampler, 1)).reshape(400, 256) < 10
    assert (sources.sum(1) == 64).all()
    # Each place of a stretch: a quarter of 400, variance 75; chi-square with 255 degrees.
    assert ((sources.sum(0) - 100) ** 2 / 75).sum() < 340
    pairs = (sources[:, 1:] & sources[:, :-1]).sum()
    assert abs(pairs - 400 * 255 * 64 * 63 / (256 * 255)) < 4 * 80


def test_each_sample_is_as_likely_as_any_other_to_come_first() -> None:
    counts = Counter(by_source(s := mixed([(10, 1), (5, 1)], 20, seed), run_of(s, 1))[0][0] for seed in range(1000))
    assert sum((counts[index] - 100) ** 2 / 100 for index in range(10)) < 28  # 9 degrees


def test_a_rare_source_is_not_forgotten_and_one_too_rare_is_refused() -> None:
    sampler = mixed([(1000, 99_999), (5, 1)], num_samples=300_000)
    assert sampler._plan.stretch == 100_000
    assert (np.array(run_of(sampler, 1)) >= 1000).sum() == 3
    with pytest.raises(OptionError, match=r"proportions\['s1'\] is less than one sample in 1,048,576"):
        mixed([(1000, 10**7), (5, 1)])


def test_proportions_go_by_name() -> None:
    mixture = Mixture({"a": range(10), "b": range(10)})
    sampler = MixtureSampler(mixture, {"b": 0.7, "a": 0.3}, num_samples=10_000)
    assert sampler.source_epochs(1) == {"a": 300, "b": 700}
    assert sampler.settings == "3 a of 10, 7 b of 10"


def test_long_passes_are_computed_and_keep_all_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_shuffle, "COMPUTED_FROM", 100)
    sampler = mixed([(300, 2), (99, 1)], num_samples=1000)
    drawn = by_source(sampler, run_of(sampler, 2))
    for length, indices in zip((300, 99), drawn, strict=True):
        for start in range(0, len(indices) - length + 1, length):
            assert sorted(indices[start : start + length]) == list(range(length))


def test_orders_made_once_are_made_for_ever() -> None:
    """NumPy may change its shuffle in a new version; then this fails, and saved runs must be told."""
    assert mixed([(100, 2), (5, 1)]).order(7, 3)[:8].tolist() == [40, 45, 32, 103, 30, 59, 52, 84]


def test_a_sampler_iterated_by_hand_and_pickled() -> None:
    sampler = mixed([(30, 2), (5, 1)], seed=3)
    assert len(sampler) == 35
    assert sampler.repeats
    epochs = [list(sampler), list(sampler)]
    assert epochs[0] + epochs[1] == run_of(sampler, 2)
    assert list(pickle.loads(pickle.dumps(sampler))) == run_of(sampler, 3)[70:]


# --- in a loader ---


class Noisy(Dataset[Any]):
    """Says which sample it is, and draws."""

    def __init__(self, name: str, length: int) -> None:
        self.name = name
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return f"{self.name}{index}", feedline.rng().random()

    def describe(self, index: int) -> str:
        return f"{self.name} no. {index}"


NOISY = Mixture({"web": Noisy("web", 40), "code": Noisy("code", 7)})
HALVES = {"web": 0.5, "code": 0.5}


def flat(batches: Any) -> list[tuple[str, float]]:
    return [sample for names, draws in batches for sample in zip(names, draws.tolist(), strict=True)]


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
def test_the_same_batches_with_any_workers_and_a_repeated_sample_draws_anew(kind: dict[str, Any]) -> None:
    def loader(**options: Any) -> DataLoader:
        return DataLoader(NOISY, 8, sampler=MixtureSampler(NOISY, HALVES, num_samples=100), seed=1, **options)

    with loader(**kind) as one:
        samples = [flat(one), flat(one)]
    assert samples == [flat(two := loader()), flat(two)]
    order = MixtureSampler(NOISY, HALVES, num_samples=100).order(0, 0)  # its own seed, not the loader's
    assert [name for name, _ in samples[0]] == [NOISY[index][0] for index in order[:100].tolist()]
    draws = [draw for name, draw in samples[0] if name == "code3"]
    assert len(draws) > 4
    assert len(set(draws)) == len(draws)


@settings(max_examples=few(40), deadline=None)
@given(
    num_samples=st.integers(1, 150),
    seed=st.integers(0, 100),
    ranks=st.integers(1, 4),
    uneven=st.sampled_from(["exact", "pad", "drop"]),
)
def test_ranks_share_one_order(num_samples: int, seed: int, ranks: int, uneven: str) -> None:
    whole = MixtureSampler(NOISY, HALVES, num_samples, seed)
    for epoch in (0, 3):
        samplers = [DistributedSampler(whole, ranks, rank, uneven=uneven) for rank in range(ranks)]
        shares = [sampler.order(9, epoch) for sampler in samplers]
        turns = itertools.zip_longest(*(share[: len(share)].tolist() for share in shares))
        together = [index for turn in turns for index in turn if index is not None]
        order = whole.order(seed, epoch)[:num_samples].tolist()
        if uneven == "drop":
            order = order[: num_samples // ranks * ranks]
        assert together[: len(order)] == order
        assert uneven == "pad" or len(together) == len(order)


@settings(max_examples=few(20), deadline=None)
@given(
    batches=st.integers(0, 14),
    ranks=st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3])),
    kinds=st.tuples(st.sampled_from([INLINE, THREADS]), st.sampled_from([INLINE, THREADS])),
)
def test_a_run_goes_on_with_other_workers_and_ranks(
    batches: int, ranks: tuple[int, int], kinds: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    def loaders(count: int, kind: dict[str, Any]) -> list[DataLoader]:
        samplers = [DistributedSampler(MixtureSampler(NOISY, HALVES, 60), count, rank) for rank in range(count)]
        return [DataLoader(NOISY, 12 // count, sampler=sampler, seed=4, **kind) for sampler in samplers]

    def steps(of: list[DataLoader]) -> Any:
        """The names in each step, over all ranks, epoch after epoch."""
        while True:
            for step in zip(*of, strict=True):
                yield sorted(name for names, _ in step for name in names)

    expected = list(itertools.islice(steps(loaders(1, INLINE)), 20))
    first = loaders(ranks[0], kinds[0])
    assert list(itertools.islice(steps(first), batches)) == expected[:batches]
    state = json.loads(json.dumps(first[0].state_dict()))
    second = loaders(ranks[1], kinds[1])
    for loader in second:
        loader.load_state_dict(state)
    assert list(itertools.islice(steps(second), 20 - batches)) == expected[batches:]
    for loader in (*first, *second):
        loader.close()


def test_a_run_goes_on_in_other_workers_with_the_same_draws() -> None:
    def loader(**options: Any) -> DataLoader:
        return DataLoader(NOISY, 10, sampler=MixtureSampler(NOISY, HALVES, 60), seed=4, **options)

    whole = loader()
    expected = flat(whole) + flat(whole)
    with loader(**FORK) as one:
        iterator = iter(one)
        taken = flat(itertools.islice(iterator, 4))
        state = one.state_dict()
    with loader(**THREADS) as two:
        two.load_state_dict(state)
        assert taken + flat(two) + flat(two) == expected


def test_a_state_is_refused_by_another_mixture() -> None:
    def loader(mixture: Mixture, proportions: dict[str, float]) -> DataLoader:
        return DataLoader(mixture, sampler=MixtureSampler(mixture, proportions, num_samples=10))

    state = loader(NOISY, HALVES).state_dict()
    loader(NOISY, {"web": 3, "code": 3}).load_state_dict(state)
    with pytest.raises(StateError, match=r"1 web of 40, 1 code of 7.*2 web of 40, 1 code of 7"):
        loader(NOISY, {"web": 2, "code": 1}).load_state_dict(state)
    longer = Mixture({"web": Noisy("web", 41), "code": Noisy("code", 7)})
    with pytest.raises(StateError, match="1 web of 41"):
        loader(longer, HALVES).load_state_dict(state)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_running_loader_says_how_often_each_source_has_come(ranks: int) -> None:
    mixture = MixtureSampler(NOISY, HALVES, num_samples=60)
    sampler = DistributedSampler(mixture, ranks, 0) if ranks > 1 else mixture
    with DataLoader(NOISY, 10 // ranks, sampler=sampler, **THREADS) as loader:
        seen = 0
        for _ in itertools.chain(loader, loader):
            seen += 10
            state = loader.state_dict()
            passes = mixture.source_epochs(state["epoch"], state["samples"])
            counts = [len(part) for part in by_source(mixture, run_of(mixture, 2)[:seen])]
            assert passes == {"web": counts[0] / 40, "code": counts[1] / 7}


def test_forever_goes_on_through_the_sources() -> None:
    sampler = MixtureSampler(NOISY, HALVES, num_samples=30)
    endless = DataLoader(NOISY, 10, sampler=sampler, seed=1).forever(batches_per_epoch=4)
    names = [name for _ in range(2) for name, _ in flat(endless)]
    assert names == [NOISY[index][0] for index in run_of(sampler, 3)][:80]


# --- the dataset ---


def test_a_mixture_knows_whose_a_sample_is() -> None:
    mixture = Mixture({"a": ["a0", "a1"], "b": ["b0"]})
    assert [mixture.source_of(index) for index in (0, 1, 2, -1)] == ["a", "a", "b", "b"]
    assert mixture.names == ("a", "b")
    assert mixture.lengths == {"a": 2, "b": 1}
    assert (mixture[2], mixture.__getitems__([2, 0])) == ("b0", ["b0", "a0"])
    with pytest.raises(IndexError):
        mixture.source_of(3)


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_samples_tell_their_source_on_request(kind: dict[str, Any]) -> None:
    arrays = {"low": ArrayDataset(np.arange(50)), "high": ArrayDataset(np.arange(100, 130))}
    for sources in (arrays, {"low": range(50), "high": range(100, 130)}):
        mixture = Mixture(sources, with_source=True)
        sampler = MixtureSampler(mixture, {"low": 1, "high": 2}, num_samples=64)
        with DataLoader(mixture, 16, sampler=sampler, **kind) as loader:
            for values, source in loader:
                values = values[0] if isinstance(values, tuple) else values
                assert (source == (values >= 100)).all()
                assert 0 < source.sum() < 16


def test_an_error_names_the_source() -> None:
    class Damaged(Noisy):
        def __getitem__(self, index: int) -> Any:
            raise ValueError("unreadable")

    mixture = Mixture({"web": Noisy("web", 3), "code": Damaged("code", 3)})
    with pytest.raises(ValueError, match="unreadable") as caught:
        list(DataLoader(mixture))
    assert "dataset[3] (source 'code', code no. 0)" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"proportions": {"web": 1}}, r"proportions must name the sources of the mixture, but \['code'\] are missing"),
        ({"proportions": {**HALVES, "cod": 1}}, r"\['cod'\] are not sources"),
        ({"proportions": {"web": 1, "code": 0}}, r"proportions\['code'\] must be above 0"),
        ({"proportions": {"web": 1, "code": -1}}, r"proportions\['code'\] must be a finite number of at least 0"),
        ({"num_samples": 0}, "num_samples must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_wrong_values_are_refused_by_name(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        MixtureSampler(**{"data_source": NOISY, "proportions": HALVES, **wrong})


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: MixtureSampler([1, 2], HALVES), "data_source must be a feedline.Mixture; got list"),  # type: ignore[arg-type]
        (lambda: MixtureSampler(NOISY, [0.5, 0.5]), "proportions must be a dict of numbers by name"),  # type: ignore[arg-type]
        (lambda: MixtureSampler(NOISY, HALVES, seed=None), "seed must be a whole number"),  # type: ignore[arg-type]
        (lambda: Mixture([[1], [2]]), "sources must be a dict of datasets by name; got list"),  # type: ignore[arg-type]
        (lambda: Mixture({"a": [1]}, with_source=1), "with_source must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_refused_by_name(make: Any, what: str) -> None:
    with pytest.raises(OptionTypeError, match=what):
        make()


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(OptionError, match=r"sources\['b'\] is empty"):
        Mixture({"a": [1], "b": []})


def test_proportions_cannot_be_changed_without_a_word() -> None:
    sampler = pickle.loads(pickle.dumps(MixtureSampler(Mixture({"a": range(9), "b": range(9)}), {"a": 1, "b": 1})))
    with pytest.raises(TypeError, match="does not support item assignment"):
        sampler.proportions["a"] = 2
    with pytest.raises(OptionError, match="cannot be changed"):
        sampler.proportions = {"a": 2, "b": 1}
    assert sampler.proportions == {"a": 1, "b": 1}
