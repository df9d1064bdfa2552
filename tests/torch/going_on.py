"""A state as it is after it was written to a file, and batches as lists, for tests of runs that go on. Both fronts."""

from __future__ import annotations

import json
from typing import Any

import torch


def listed(batches: Any) -> list[list[int]]:
    return [torch.as_tensor(batch).tolist() for batch in batches]


def after_json(loader: Any) -> Any:
    return json.loads(json.dumps(loader.state_dict()))
