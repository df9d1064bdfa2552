"""What torch says of two workers on one CPU is no fault."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from idioms import Told
from inside import TORCHS_ADVICE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # of all folders
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{TORCHS_ADVICE}"))


@pytest.fixture
def told() -> Iterator[Told]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", TORCHS_ADVICE)  # where there is one CPU
        yield Told(caught)
