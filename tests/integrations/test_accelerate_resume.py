"""Accelerate's checkpoints hold the place of a prepared loader that has our engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import set_seed
from kinds import thorough
from training import PROCESSES, SEED, WORKERS, feedlines, loss_of, network, torchs_engine_forbidden

from feedline.torch import with_feedline

STEPS = 7


def forget_its_state() -> None:
    """Accelerate keeps its state in module globals; forgotten, it is as in a new process."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@pytest.fixture(autouse=True)
def _clean():
    yield
    forget_its_state()


def train(start: int, steps: int, folder: Path, options: dict[str, Any], config: Any) -> list[Any]:
    """Train on from a step, and save after the last; what each step saw, and its loss."""
    forget_its_state()
    set_seed(SEED + start)  # what a new process has drawn before is its own affair
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, feedlines(shuffle=True))
    loader = with_feedline(loader, **options)
    if start:
        accelerator.load_state(str(folder))
    found: list[Any] = []
    for epoch in range(start // STEPS, 9):
        loader.set_epoch(epoch)
        for batch in loader:
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            found.append((batch[2].tolist(), loss.item()))
            if len(found) == steps:
                accelerator.save_state(str(folder))
                return found
    raise AssertionError


# Accelerate's sampler and the place have nothing to do with who reads: one of each with processes, all with the others.
@pytest.mark.parametrize(
    ("options", "seedable", "stop"),
    [
        pytest.param(
            *kind.values, *case, id=f"{kind.id}-{case}", marks=[thorough] if kind.id == PROCESSES and skip else []
        )
        for kind in WORKERS
        for case, skip in [((False, 3), True), ((False, 9), False), ((True, 3), False), ((True, 9), True)]
    ],
)
def test_a_run_saved_in_an_epoch_goes_on_as_if_it_had_not_stopped(options, seedable, stop, tmp_path):
    def config() -> Any:
        return DataLoaderConfiguration(use_seedable_sampler=seedable, data_seed=7 if seedable else None)

    with torchs_engine_forbidden():
        whole = train(0, 18, tmp_path / "whole", options, config())
        first = train(0, stop, tmp_path / "parts", options, config())
        rest = train(stop, 18 - stop, tmp_path / "parts", options, config())
    assert first + rest == whole


def test_before_the_first_batch_the_wrapper_has_a_state_too():
    loader = with_feedline(Accelerator(cpu=True).prepare(feedlines()))
    assert loader.state_dict()["batches"] == 0
