"""num_workers="auto" in the torch front: an int for everybody else, torch's order, the same batches."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from scripted_pace import scripted

import feedline
from feedline import OptionTypeError
from feedline.options.worker_count import AutoCount
from feedline.torch import DataLoader, with_feedline


def torchs() -> Any:
    return torch.rand(())


def numpys() -> float:
    return np.random.random()


class Drawing(torch.utils.data.Dataset[Any]):
    def __init__(self, draw: Any = numpys) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        return index, float(self.draw()), torch.full((20_000,), float(index))


def told(loader: Any) -> list[Any]:
    torch.manual_seed(7)
    return [[leaf.tolist() for leaf in batch] for batch in loader]


@pytest.mark.parametrize(
    ("kind", "draw"),  # torch's generator is one for all threads
    [({"workers": "thread"}, numpys), ({"multiprocessing_context": "fork"}, torchs)],
    ids=["threads", "fork"],
)
def test_the_batches_of_any_fixed_number_with_torchs_order(kind: dict[str, Any], draw: Any) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, **kind}
    with DataLoader(Drawing(draw), num_workers=2, **options) as two:
        fixed = told(two)
    with DataLoader(Drawing(draw), num_workers="auto", **options) as loader:
        scripted(loader, {2: 3, 5: 1, 9: None, 10: 2})
        assert told(loader) == fixed
        assert [change.workers for change in loader.stats().auto_workers.changes] == [3, 1, 1, 2]


def test_there_are_no_workers_for_tensors_in_memory_and_torchs_loader_agrees() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(40))
    with DataLoader(data, batch_size=4, shuffle=True, num_workers="auto") as loader:
        ours = told(loader)
        assert (loader.stats().auto_workers.workers, loader.stats().workers) == (0, ())
    with_workers = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=1)
    assert ours == told(with_workers)


def test_workers_that_are_kept_go_when_none_are_needed_any_more() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(40))
    with DataLoader(data, batch_size=4, num_workers="auto", persistent_workers=True, timeout=60) as loader:
        batches = told(loader)
        workers = loader.stats().workers  # one, or two if the machine was so busy that batches were waited for
        assert workers
        loader.timeout = 0
        assert told(loader) == batches
        assert (loader.stats().auto_workers.workers, loader.stats().kind) == (0, "")
        for worker in workers:
            with pytest.raises(ProcessLookupError):
                os.kill(worker.pid, 0)


def test_num_workers_is_an_int_that_a_loader_made_again_takes_for_auto() -> None:
    loader = DataLoader(Drawing(), num_workers="auto", persistent_workers=True, timeout=5)
    assert isinstance(loader.num_workers, int)
    assert 1 <= loader.num_workers <= feedline.machine.cpus.look().workers
    assert loader.prefetch_factor == 2
    made = [
        DataLoader(loader.dataset, num_workers=loader.num_workers, prefetch_factor=loader.prefetch_factor),
        with_feedline(torch.utils.data.DataLoader(Drawing(), num_workers=loader.num_workers)),
        pickle.loads(pickle.dumps(loader)),
        copy.deepcopy(loader),
    ]
    for again in made:
        assert type(again.num_workers) is AutoCount
        assert again.num_workers.prefetches
    with pytest.raises(OptionTypeError, match='num_workers must be a whole number of at least 0, or "auto"'):
        DataLoader(Drawing(), num_workers="many")
    with pytest.raises(ValueError, match="num_workers option should be non-negative"):
        DataLoader(Drawing(), num_workers=-1)


def test_a_number_that_is_set_later_counts() -> None:
    with DataLoader(Drawing(), batch_size=4, num_workers="auto", workers="thread") as loader:
        list(loader)
        assert loader.stats().auto_workers is not None
        loader.num_workers = 3
        list(loader)
        assert (loader.stats().auto_workers, loader.stats().epoch.num_workers) == (None, 3)
