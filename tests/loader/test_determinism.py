"""The batches are a function of the seed, not of number, kind or start method of workers, nor of prefetch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import every_kind, every_worker

from feedline import DataLoader, Dataset, IterableDataset, WeightedRandomSampler, get_worker_info, rng


class Drawing(Dataset[Any]):
    """Draws from all three sources of randomness."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return {
            "index": index,
            "python": random.random(),
            "numpy": np.random.rand(2),
            "gauss": np.random.randn(),
            "sample": rng().integers(1 << 60),
            "large": np.full(9000, random.gauss(0, 1)),
        }


class DrawingStream(IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Any:
        order = list(range(self.length))
        random.shuffle(order)
        for index in order:
            yield index, random.random(), np.random.rand(), rng().random()


def record(loader: DataLoader, epochs: int = 1) -> list[Any]:
    with loader:
        return [plain(batch) for _ in range(epochs) for batch in loader]


def plain(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [plain(value) for value in tree]
    return np.asarray(tree).tobytes()


@every_worker
@pytest.mark.parametrize("persistent", [False, True])
def test_every_kind_of_worker_gives_the_same_batches(kind: dict[str, Any], persistent: bool) -> None:
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "seed": 11}
    alone = record(DataLoader(Drawing(20), **options), epochs=2)
    assert record(DataLoader(Drawing(20), persistent_workers=persistent, **options, **kind), epochs=2) == alone


@settings(max_examples=12)
@given(
    length=st.integers(0, 30),
    batch_size=st.one_of(st.none(), st.integers(1, 7)),
    drop_last=st.booleans(),
    workers=st.integers(1, 3),
    prefetch=st.integers(1, 4),
    seed=st.integers(0, 2**63 - 1),
    thread=st.booleans(),
)
def test_any_number_of_workers_and_any_prefetch_gives_the_same_batches(
    length: int, batch_size: int | None, drop_last: bool, workers: int, prefetch: int, seed: int, thread: bool
) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "seed": seed}
    options["drop_last"] = drop_last and batch_size is not None
    kind: dict[str, Any] = {"workers": "thread"} if thread else {"multiprocessing_context": "fork"}
    alone = record(DataLoader(Drawing(length), **options))
    assert (
        record(DataLoader(Drawing(length), num_workers=workers, prefetch_factor=prefetch, **kind, **options)) == alone
    )


@every_worker
@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
@pytest.mark.parametrize("buffer", [0, 5])
def test_a_plain_stream_gives_the_same_batches_with_any_kind_of_worker(kind: dict[str, Any], buffer: int) -> None:
    options: dict[str, Any] = {"batch_size": 3, "seed": 5, "shuffle_buffer": buffer}
    alone = record(DataLoader(DrawingStream(17), **options), epochs=2)
    assert len(alone) == 12
    assert record(DataLoader(DrawingStream(17), **options, **kind), epochs=2) == alone


@every_kind
def test_no_two_batches_epochs_or_workers_draw_the_same(kind: dict[str, Any]) -> None:
    with DataLoader(Drawing(24), batch_size=2, seed=1, **kind) as loader:
        drawn = [batch[name].tobytes() for _ in range(2) for batch in loader for name in ("python", "numpy", "sample")]
    assert len(set(drawn)) == len(drawn)


@every_kind
def test_another_seed_gives_another_order_and_other_draws(kind: dict[str, Any]) -> None:
    one, other = (record(DataLoader(Drawing(24), batch_size=4, shuffle=True, seed=seed, **kind)) for seed in (1, 2))
    assert all(a["index"] != b["index"] and a["python"] != b["python"] for a, b in zip(one, other, strict=True))


def test_without_a_seed_two_loaders_differ() -> None:
    one, other = (record(DataLoader(Drawing(24), batch_size=24, shuffle=True)) for _ in range(2))
    assert one != other


@every_kind
def test_the_users_own_random_stream_is_left_alone(kind: dict[str, Any]) -> None:
    def stream(load: bool) -> list[float]:
        random.seed(3)
        np.random.seed(3)
        np.random.randn()  # leaves a second gaussian in the generator's cache
        drawn = [random.random(), np.random.rand()]
        if load:
            for _ in DataLoader(Drawing(8), batch_size=2, **kind):
                drawn += [random.random(), np.random.randn(), np.random.rand()]
        else:
            for _ in range(4):
                drawn += [random.random(), np.random.randn(), np.random.rand()]
        return drawn

    assert stream(load=True) == stream(load=False)


def test_an_augmentation_belongs_to_the_sample_whatever_the_batch_size() -> None:
    def drawn(batch_size: int) -> dict[int, int]:
        loader = DataLoader(Drawing(12), batch_size=batch_size, shuffle=True, seed=9)
        return {i: s for b in loader for i, s in zip(b["index"].tolist(), b["sample"].tolist(), strict=True)}

    assert drawn(1) == drawn(5) == drawn(12)


def test_a_sample_drawn_twice_in_an_epoch_is_augmented_twice() -> None:
    sampler = WeightedRandomSampler([1.0, 1.0], num_samples=40)
    samples = [s for b in DataLoader(Drawing(2), sampler=sampler, batch_size=8, seed=4) for s in b["sample"].tolist()]
    assert len(set(samples)) == 40


class Sharding(IterableDataset[Any]):
    """Shards itself by get_worker_info and draws."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, 24, step):
            yield index, random.random(), rng().random()


@every_worker
def test_the_shards_of_a_stream_draw_differently_and_repeatably(kind: dict[str, Any]) -> None:
    one, again = (list(DataLoader(Sharding(), batch_size=2, seed=2, **kind)) for _ in range(2))
    draws = [value for _, a, b in one for value in (*a.tolist(), *b.tolist())]
    assert len(set(draws)) == len(draws) == 48
    assert [plain(list(batch)) for batch in one] == [plain(list(batch)) for batch in again]
