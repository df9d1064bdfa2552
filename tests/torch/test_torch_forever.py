"""Endless loading in torch's clothes: a run that stops goes on with the batch that would have come next."""

from __future__ import annotations

import itertools
import json
from typing import Any

import torch

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
