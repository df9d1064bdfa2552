"""One thread for torch, where tests ask for it: a second one waits in a loop, and takes a core from the other runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from made_up_cuda import Gpu, Machine, put_in_place

import feedline
import feedline.torch

FRONTS = {"core": feedline.DataLoader, "torch": feedline.torch.DataLoader}


def pytest_configure(config: pytest.Config) -> None:
    """On a machine with one CPU torch warns of a second worker, in our loader, too. Tests have two all the same."""
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create . worker processes:UserWarning")
    # torch's loader waits so long for each worker that an error keeps from ending; 5 s, if nobody says otherwise.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> Any:
    """Each of the two, where a test is of what holds for either."""
    return FRONTS[request.param]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A made-up machine with an accelerator, which takes down every call."""
    made = Machine()
    put_in_place(made, monkeypatch)
    return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A made-up GPU, whose clock is the host's, too."""
    made = Gpu()
    made.put_in_place(monkeypatch)
    return made
