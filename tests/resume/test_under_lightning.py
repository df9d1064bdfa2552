"""Lightning's loop among the callers: found where it is there and as it is known, and nobody looks where it is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from feedline import DataLoader
from feedline.resume.under_lightning import asking_loop, epoch_is_over, is_ahead, is_iterating

LOOP = """
class FitLoop:
    def on_save_checkpoint(self, do):
        return do()
    def renamed(self, do):
        return do()
"""


@pytest.fixture
def fit_loop(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a Lightning made for this."""
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    names: dict[str, Any] = {"__name__": "lightning.pytorch.loops.fit_loop"}
    exec(LOOP, names)
    return names["FitLoop"]()


def answers() -> tuple[bool, bool, bool]:
    loop = loader_asks()
    return loop is not None, epoch_is_over(loop), is_ahead(loop)


def loader_asks() -> Any:
    return asking_loop()


def test_the_loop_that_saves_says_what_it_knows(fit_loop: Any) -> None:
    progress = SimpleNamespace(is_last_batch=True)
    fit_loop.epoch_loop = SimpleNamespace(batch_progress=progress)
    fit_loop._data_fetcher = SimpleNamespace(batches=["one"])
    assert fit_loop.on_save_checkpoint(answers) == (True, True, True)
    progress.is_last_batch = False
    fit_loop._data_fetcher.batches.clear()
    assert fit_loop.on_save_checkpoint(answers) == (True, False, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda loop: None,
        lambda loop: setattr(loop, "epoch_loop", SimpleNamespace()),
        lambda loop: setattr(loop, "epoch_loop", SimpleNamespace(batch_progress=SimpleNamespace())),
        lambda loop: vars(loop).update(epoch_loop=None, _data_fetcher=SimpleNamespace(batches=3)),
    ],
    ids=["no loop of epochs", "no progress", "no last batch", "batches that are a number"],
)
def test_where_lightning_is_made_otherwise_a_state_is_that_of_a_plain_loop(
    change: Callable[[Any], None], fit_loop: Any
) -> None:
    change(fit_loop)
    assert fit_loop.on_save_checkpoint(answers)[1:] == (False, False)
    forever = DataLoader(range(8), 2).forever(3)
    next(iter(forever))
    assert fit_loop.on_save_checkpoint(forever.state_dict) == forever.state_dict()


def test_where_its_methods_have_other_names_it_is_not_found(fit_loop: Any) -> None:
    fit_loop.epoch_loop = SimpleNamespace(batch_progress=SimpleNamespace(is_last_batch=True))
    assert fit_loop.renamed(answers) == (False, False, False)


def test_where_nobody_has_imported_lightning_no_frame_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(depth: int = 0) -> Any:
        raise AssertionError("somebody looks at frames")

    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "_getframe", refuse)
    found = answers(), is_iterating()
    monkeypatch.undo()
    assert found == ((False, False, False), False)
