"""Pictures of a coming epoch of torch's loaders: its order is known beforehand, without a draw from any generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, SubsetRandomSampler, WeightedRandomSampler

import feedline
from feedline.diagnose.drawing.coming_epoch import coming
from feedline.diagnose.drawing.draw import draw
from feedline.errors import OptionError
from feedline.torch import DataLoader

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("kind", [DataLoader, TorchLoader])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_what_is_drawn_is_what_comes(kind, own, workers, recwarn):
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(3) if own else None
    loader = kind(range(20), 4, shuffle=True, generator=generator, **workers)
    for _ in range(2):
        before = torch.get_rng_state(), None if generator is None else generator.get_state()
        found = coming(loader).order.tolist()
        assert torch.equal(before[0], torch.get_rng_state())
        assert generator is None or torch.equal(before[1], generator.get_state())
        assert found == torch.cat(list(loader)).tolist()
    if kind is DataLoader:
        loader.close()


@pytest.mark.parametrize("kind", [DataLoader, TorchLoader])
def test_samplers(kind, tmp_path):
    weighted = WeightedRandomSampler([1.0, 2.0] * 10, 20, generator=torch.Generator().manual_seed(1))
    for sampler in (SubsetRandomSampler(range(5, 15)), weighted, feedline.RandomSampler(range(20), seed=3)):
        loader: Any = kind(range(20), 4, sampler=sampler)
        found = coming(loader).order.tolist()
        assert found == torch.cat(list(loader)).tolist()
    assert draw(loader, tmp_path / "a.svg", labels=[0, 1] * 10) == "classes"


def test_what_is_not_known_is_not_drawn(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(3))

    for loader, words in (
        (DataLoader(range(8), sampler=feedline.RandomSampler(range(8))), "give the sampler a seed of its own"),
        (DataLoader(range(8), sampler=[1, 2]), "not known before it begins"),
        (DataLoader(Stream()), "stream"),
    ):
        with pytest.raises(OptionError, match=words):
            loader.draw(tmp_path / "a.svg")
    with pytest.raises(OptionError, match="epoch must be left out"):
        DataLoader(range(8), shuffle=True).draw(tmp_path / "a.svg", epoch=3)


@pytest.mark.parametrize("kind", [DataLoader, TorchLoader])
def test_our_samplers_in_any_epoch(kind, tmp_path):
    def stands(loader: Any, epoch: int) -> None:
        found = coming(loader)
        assert (found.epoch, found.order.tolist()) == (epoch, torch.cat(list(loader)).tolist())

    shuffled = feedline.RandomSampler(range(20), seed=3)
    sampler = feedline.DistributedSampler(shuffled, 2, 1)
    batches = feedline.StratifiedBatchSampler([0, 1] * 10, 4, seed=2)
    for given in ({"batch_size": 4, "sampler": shuffled}, {"batch_sampler": batches}):
        loader = kind(range(20), **given)
        stands(loader, 0)
        stands(loader, 1)
    loader = kind(range(20), 4, sampler=sampler)
    sampler.set_epoch(7)
    stands(loader, 7)
    sampler.set_epoch(8)
    stands(loader, 8)
    with pytest.raises(OptionError, match="epoch must be left out"):
        coming(loader, 3)


def test_torchs_loader_counts_no_epochs():
    assert coming(TorchLoader(range(8), shuffle=True)).epoch is None
    batches = feedline.StratifiedBatchSampler([0, 1] * 10, 4, seed=2)
    with pytest.raises(OptionError, match="more than once"):
        coming(TorchLoader(range(20), batch_sampler=batches, num_workers=1))
