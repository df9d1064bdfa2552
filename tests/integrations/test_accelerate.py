"""Accelerate: what `prepare` gives trains as with torch's loader, and `with_feedline` puts our engine under it.

`Accelerator.prepare` builds a `torch.utils.data.DataLoader` of its own around the dataset and sampler of the loader it
is given, so by itself it drops the engine of any subclass, ours too.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import set_seed
from training import (
    BATCH,
    EPOCHS,
    SEED,
    SIZE,
    feedlines,
    loss_of,
    network,
    torchs,
    torchs_engine_forbidden,
    two_ranks,
    with_and_without_workers,
)

import feedline.torch
from feedline.torch import with_feedline


@pytest.fixture(autouse=True)
def _forget_its_state():
    """Accelerate keeps its state in module globals."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def plain(prepared: Any) -> Any:
    return prepared


def train(make_loader: Any, engine: Any = plain, **options: Any) -> tuple[list[float], list[list[int]]]:
    """Two epochs: the losses of this process, and the indices it saw in each epoch."""
    set_seed(SEED)
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, make_loader(shuffle=True, **options))
    loader = engine(loader)
    losses: list[float] = []
    indices: list[list[int]] = []
    for _ in range(EPOCHS):
        indices.append([])
        for batch in loader:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
            indices[-1] += batch[2].tolist()
    return losses, indices


@with_and_without_workers
def test_prepare_takes_our_loader_and_the_losses_stay(options):
    assert train(feedlines, **options) == train(torchs)


@with_and_without_workers
def test_with_our_engine_under_it_the_losses_are_those_of_torch_to_the_bit(options):
    losses = train(torchs)
    assert len(losses[0]) == EPOCHS * 7
    with torchs_engine_forbidden():
        assert train(feedlines, lambda loader: with_feedline(loader, **options)) == losses


def test_by_itself_prepare_drops_our_engine():
    prepared = Accelerator(cpu=True).prepare(feedlines())
    assert type(prepared.base_dataloader) is torch.utils.data.DataLoader
    with torchs_engine_forbidden(), pytest.raises(AssertionError, match="torch's own engine was used"):
        next(iter(prepared))


def test_skipping_batches_makes_a_loader_anew():
    prepared = with_feedline(Accelerator(cpu=True).prepare(feedlines()))
    skipped = skip_first_batches(prepared, 3)
    assert type(skipped.base_dataloader) is torch.utils.data.DataLoader
    with torchs_engine_forbidden():
        seen = [index for batch in with_feedline(skipped) for index in batch[2].tolist()]
    assert seen == list(range(3 * BATCH, SIZE))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(20))


@pytest.mark.parametrize(
    "loader",
    [
        torch.utils.data.DataLoader(range(20), batch_size=3, drop_last=True),
        torch.utils.data.DataLoader(range(20), batch_size=None),
        torch.utils.data.DataLoader(range(20), batch_sampler=[[1, 2], [5]]),
        torch.utils.data.DataLoader(range(20), sampler=[3, 1, 4]),
        torch.utils.data.DataLoader(range(20), batch_size=6, collate_fn=tuple),
        torch.utils.data.DataLoader(Stream(), batch_size=3, drop_last=True),
        torch.utils.data.DataLoader(Stream(), batch_size=None),
    ],
)
def test_with_feedline_gives_any_torch_loader_our_engine(loader):
    expected = [torch.as_tensor(batch).tolist() for batch in loader]
    with torchs_engine_forbidden():
        ours = with_feedline(loader)
        assert type(ours) is feedline.torch.DataLoader
        assert [torch.as_tensor(batch).tolist() for batch in ours] == expected
    for name in ("batch_size", "drop_last", "dataset", "collate_fn", "generator"):
        assert getattr(ours, name) is getattr(loader, name)
    assert with_feedline(ours) is ours


def test_with_feedline_names_what_it_cannot_take():
    with pytest.raises(TypeError, match="list"):
        with_feedline([1, 2])


def test_two_processes_have_the_losses_of_torch_and_share_the_data_and_go_on_after_a_stop(tmp_path):
    (said, resumed, *first), (_, on_the_other, *second) = two_ranks("accelerate_two_ranks.py", tmp_path)
    for each in said:  # global_batch_size, of which Accelerate knows nothing
        assert "would give each rank a part of them a second time" in each
    for name in resumed:
        for whole, parts in (resumed[name], on_the_other[name]):
            assert parts == whole, name
    for rank in (first, second):
        (losses, indices), *others = rank
        for other in others:
            assert other == [losses, indices]
    for one, other in zip(first[0][1], second[0][1], strict=True):
        assert one != other
        assert set(one) | set(other) == set(range(SIZE))
