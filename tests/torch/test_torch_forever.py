"""Endless loading in torch's clothes: a run that stops goes on with the batch that would have come next."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from going_on import listed

from feedline import DistributedSampler
from feedline.torch import DataLoader


def made() -> Any:
    torch.manual_seed(4)
    return DataLoader(range(7), batch_size=2, shuffle=True).forever(3)


def test_it_goes_on_where_it_stopped() -> None:
    endless = made()
    whole = [batch.tolist() for _ in range(3) for batch in endless]
    endless = made()
    first = [batch.tolist() for batch in itertools.islice(endless, 2)]
    state, generator = endless.state_dict(), torch.get_rng_state()
    again = made()
    again.load_state_dict(json.loads(json.dumps(state)))
    torch.set_rng_state(generator)
    assert first + [batch.tolist() for _ in range(3) for batch in again] == whole


@pytest.mark.parametrize("sampler", ["torch", "ours"])
def test_forever_reshuffles_under_a_distributed_sampler(front: Any, sampler: str) -> None:
    data = list(range(40))
    make: Callable[..., Any] = torch.utils.data.DistributedSampler if sampler == "torch" else DistributedSampler
    endless = front(data, batch_size=4, sampler=make(data, 2, 0)).forever(batches_per_epoch=5)
    assert len({str(listed(endless)) for _ in range(4)}) == 4
