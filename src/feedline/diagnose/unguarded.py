"""A script that trains when it is imported, because it has no `if __name__ == "__main__":`, and how that is noticed.

Takes: a look now and then, while the script is imported. Gives: `Trains`, raised where the script stands.
Promises: nothing of the script's, of torch's or of ours is changed: iterators of loaders are found as Python's garbage
collector knows them (30 ms a look). A loader that only a batch or two are taken from is none of its business.
Not its job: how often is looked (deadline), what is said (target).
"""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

from feedline.diagnose.deadline import place_of
from feedline.engine.loop import BatchIterator
from feedline.errors.foreign import ask
from feedline.supervise.walking import is_a

MOVES = 3
"""Looks that see a loader further on than the look before: then it is more than a quick sum over a small dataset."""
FEW = 2
"""Batches that somebody may take to see their shape."""


class Trains(BaseException):
    """The script goes through a loader. No `Exception`: a training loop may catch those, and go on."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


class Watch:
    """One script's import."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._moves = 0

    def __call__(self, frame: FrameType | None) -> None:
        """Look once; raise if loaders move on, look after look."""
        given = {id(each): batches for each in _iterators() if (batches := _given(each)) > FEW}
        self._moves += any(self._before.get(each) != batches for each, batches in given.items())
        self._before = given
        if self._moves >= MOVES:
            raise Trains(place_of(_top_level(frame)))


def _iterators() -> list[Any]:
    """Those of loaders, ours and torch's, that are alive."""
    kinds: list[type] = [BatchIterator]
    torchs = sys.modules.get("torch.utils.data.dataloader")
    if isinstance(base := ask(torchs, "_BaseDataLoaderIter"), type):
        kinds.append(base)
    known: dict[type, bool] = {}
    found = []
    for each in gc.get_objects():
        kind = type(each)
        if kind not in known:
            known[kind] = is_a(kind, *kinds)
        if known[kind]:
            found.append(each)
    return found


def _given(iterator: Any) -> int:
    """So many batches."""
    try:
        return int(iterator.flow().batches if is_a(type(iterator), BatchIterator) else iterator._num_yielded)
    except Exception:  # half made
        return 0


def _top_level(frame: FrameType | None) -> FrameType | None:
    """Where the script itself stands: what is to be guarded is there."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame
