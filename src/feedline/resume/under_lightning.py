"""What Lightning knows about an epoch, and what a loader must know to save and load its place under Lightning.

Takes: the call stack. Gives: the loop of Lightning's that saves or loads, and what it says.
Promises: None and False wherever it is not Lightning that asks, or it is made otherwise than is known: then its states
are those of a plain loop. Lightning is not imported, and where nobody has, no frame is looked at.
Not its job: what follows from it (fronts, forever).

Lightning gives a loader only its state. But Lightning ends an epoch by counting batches, without reaching the
iterator's end. When it loads a checkpoint of such a moment, it calls iter() for the *next* epoch (sometimes twice), so
a place after the last batch would give an epoch without batches. And if it knows no length, it takes one batch early.
So we look for the loop among the callers: it knows, by itself or from the checkpoint, whether its epoch is over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sized
from types import FrameType
from typing import Any

from feedline.errors.foreign import ask

_ROOTS = ("lightning", "pytorch_lightning")
_ASKING = ("_load_combined_loader_states", "on_save_checkpoint")
"""Methods of Lightning's fit loop: tests/integrations/test_lightning_resume.py fails if their names change."""


def asking_loop() -> Any:
    """Lightning's fit loop, if that is saving or loading the states of its loaders now; otherwise None.

    A loader inside `forever(…)` is not Lightning's own, and its epochs are not Lightning's.

    >>> asking_loop() is None
    True
    """
    for name, frame in _callers():
        if name == "feedline.resume.endless":
            return None
        if frame.f_code.co_name in _ASKING and _is_lightnings(name):
            loop = frame.f_locals.get("self")
            return loop if hasattr(loop, "epoch_loop") else None
    return None


def epoch_is_over(loop: Any) -> bool:
    """Has Lightning had the last batch that it wants of its epoch?"""
    return bool(ask(ask(ask(loop, "epoch_loop"), "batch_progress"), "is_last_batch"))


def is_ahead(loop: Any) -> bool:
    """Has Lightning taken a batch that it has not trained on yet?"""
    batches = ask(ask(loop, "_data_fetcher"), "batches")
    return isinstance(batches, Sized) and len(batches) > 0


def is_iterating() -> bool:
    """Is Lightning taking the batches?"""
    if not _is_loaded():
        return False
    return any(name.endswith(".loops.fetchers") and _is_lightnings(name) for name, _ in _callers())


def _is_loaded() -> bool:
    return _ROOTS[0] in sys.modules or _ROOTS[1] in sys.modules


def _is_lightnings(module: str) -> bool:
    return module.partition(".")[0] in _ROOTS


def _callers() -> Iterator[tuple[str, FrameType]]:
    if not _is_loaded():
        return
    frame = sys._getframe(2).f_back  # who called the one that asks
    while frame is not None:
        yield str(frame.f_globals.get("__name__")), frame
        frame = frame.f_back
