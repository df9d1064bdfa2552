"""One thread for torch: a second one for these small models waits in a loop, and takes a core from the other runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    """On a machine with one CPU torch warns of a second worker, in our loader, too. Tests have two all the same."""
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create . worker processes:UserWarning")
    # torch's loader waits so long for each worker that an error keeps from ending; 5 s, if nobody says otherwise.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
