"""feedline's samplers of batches in torch's loader: the same batches, ranks and resuming as in the core."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch

import feedline
from feedline import DistributedSampler
from feedline.torch import BucketBatchSampler, DataLoader, Dataset, StratifiedBatchSampler, weights_from_labels

LABELS = torch.tensor([0] * 40 + [1] * 11 + [2] * 2)
LENGTHS = np.random.default_rng(0).lognormal(3, 1, 53).astype(int)
MAKERS: dict[str, Any] = {
    "stratified": lambda seed=None: StratifiedBatchSampler(LABELS, 7, seed=seed),
    "buckets": lambda seed=None: BucketBatchSampler(torch.from_numpy(LENGTHS), 5, max_padding=0.4, seed=seed),
    "a rank": lambda seed=0: DistributedSampler(BucketBatchSampler(LENGTHS, 5), 2, 1, seed=seed),
}
THREADS = {"num_workers": 2, "workers": "thread"}


class Augmented(Dataset[Any]):
    def __len__(self) -> int:
        return len(LABELS)

    def __getitem__(self, index: int) -> Any:
        return index, feedline.rng().random()


def drawn(loader: Any, stop: int | None = None) -> list[Any]:
    return [(indices.tolist(), draws.tolist()) for indices, draws in itertools.islice(loader, stop)]


@pytest.mark.parametrize("name", MAKERS)
def test_the_batches_are_those_of_the_sampler(name: str) -> None:
    loader = DataLoader(Augmented(), batch_sampler=MAKERS[name](3))
    sampler = MAKERS[name](3)
    assert len(loader) == len(sampler)
    for _ in range(2):
        assert [indices for indices, _ in drawn(loader)] == list(sampler)
    loader.set_epoch(1)
    for epoch in (1, 2):  # from there on it counts by itself
        sampler.set_epoch(epoch)
        assert [indices for indices, _ in drawn(loader)] == list(sampler)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", [None, 3])
def test_at_every_place_another_loader_goes_on(name: str, seed: int | None) -> None:
    def loader(**options: Any) -> Any:
        made = MAKERS[name]() if seed is None else MAKERS[name](seed)
        return DataLoader(Augmented(), batch_sampler=made, **options)

    for stop in range(len(loader()) + 1):
        torch.manual_seed(stop)
        before = loader(**(THREADS if stop % 3 == 0 else {}))
        first = drawn(before, stop)
        state = json.loads(json.dumps(before.state_dict()))
        before.close()
        torch.manual_seed(stop)
        whole = drawn(loader())
        again = loader()
        if stop:
            torch.manual_seed(99)  # what the epoch began with is in the state
        else:
            torch.manual_seed(stop)
        again.load_state_dict(state)
        assert first + drawn(again) == whole


def test_worker_processes_give_the_same() -> None:
    torch.manual_seed(1)
    expected = drawn(DataLoader(Augmented(), batch_sampler=MAKERS["stratified"](3)))
    torch.manual_seed(1)
    loader = DataLoader(Augmented(), batch_sampler=MAKERS["stratified"](3), num_workers=2)
    assert drawn(loader) == expected


def test_other_ranks_go_on_with_the_same_global_batches() -> None:
    def loader(ranks: int, rank: int) -> Any:
        sampler = DistributedSampler(BucketBatchSampler(LENGTHS, 5), ranks, rank)
        return DataLoader(Augmented(), batch_sampler=sampler)

    whole = [indices for indices, _ in drawn(loader(1, 0))]
    two = [loader(2, rank) for rank in range(2)]
    got = [batch for step in zip(*[drawn(each, 3) for each in two], strict=True) for batch, _ in step]
    three = [loader(3, rank) for rank in range(3)]
    for each in three:
        each.load_state_dict(two[0].state_dict())
    got += [batch for step in zip(*[drawn(each, 1) for each in three], strict=True) for batch, _ in step]
    assert got == whole[:9]


def test_labels_and_lengths_must_be_those_of_the_dataset() -> None:
    for name, make in MAKERS.items():
        with pytest.raises(ValueError, match="made for 53 samples, but the dataset has 54"):
            DataLoader(range(54), batch_sampler=make())
        assert len(DataLoader(range(53), batch_sampler=make())), name


def test_given_as_sampler_it_is_refused() -> None:
    with pytest.raises(ValueError, match="pass it as batch_sampler"):
        DataLoader(Augmented(), sampler=MAKERS["buckets"](), batch_size=4)


FEEDLINES: dict[str, Any] = {
    "weighted": lambda: feedline.WeightedRandomSampler([0.0] * 40 + [1.0] * 13, 53),
    "buckets": MAKERS["buckets"],
    "batches": lambda: feedline.BatchSampler(range(53), 4),
}


@pytest.mark.parametrize("name", FEEDLINES)
def test_torchs_sampler_for_ranks_over_one_of_ours_is_refused(name: str) -> None:
    """It would take the sampler for a dataset, and deal out 0, 1, 2, … whatever the sampler gives."""
    shared = feedline.torch.DistributedSampler(FEEDLINES[name](), 2, 0)
    wrongs: list[dict[str, Any]] = [{"sampler": shared}, {"batch_sampler": shared}]
    wrongs += [{"batch_sampler": feedline.torch.BatchSampler(shared, 4, False)}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"feedline\.DistributedSampler, which divides the indices of a sampler"):
            DataLoader(Augmented(), **wrong)
    DataLoader(Augmented(), sampler=feedline.torch.DistributedSampler(Augmented(), 2, 0))


def test_a_subclass_that_shares_out_samplers_itself_is_let_be() -> None:
    class OfSamplers(feedline.torch.DistributedSampler[Any]):
        def __iter__(self) -> Any:
            return iter(list(self.dataset)[self.rank :: self.num_replicas])

    shared = OfSamplers(feedline.SequentialSampler(9), 2, 1)  # type: ignore[arg-type]
    assert [batch.tolist() for batch in DataLoader(range(9), batch_size=3, sampler=shared)] == [[1, 3, 5], [7]]


def test_weights_of_a_tensor_of_labels_go_into_torchs_sampler() -> None:
    weights = weights_from_labels(LABELS)
    sampler = feedline.torch.WeightedRandomSampler(weights, 3000, generator=torch.Generator().manual_seed(0))
    counts = LABELS[list(sampler)].bincount()
    assert ((counts - 1000) ** 2 / 1000).sum() < 15  # chi-square, 2 degrees
