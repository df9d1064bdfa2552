"""A script that trains when it is imported, because it has no `if __name__ == "__main__":`, and how that is detected.

Takes: regular looks while the script is imported. Gives: `Trains`, raised at the script's current line.
Promises: nothing in the script, in torch or in feedline is changed: iterators of loaders are found through Python's
garbage collector (30 ms a look). A loader from which only a batch or two are taken is ignored.
Not its job: how often it looks (deadline), the message (target).
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
"""How many looks must each see a loader further than the look before: a quick sum over a small dataset is fewer."""
FEW = 2
"""Batches that a script may take to see their shape."""


class Trains(BaseException):
    """The script iterates a loader. This is no `Exception`: a training loop may catch those, and continue."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


class Watch:
    """One script's import."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._moves = 0

    def __call__(self, frame: FrameType | None) -> None:
        """Look once; raise if loaders advance from look to look."""
        given = {id(each): batches for each in _iterators() if (batches := _given(each)) > FEW}
        self._moves += any(self._before.get(each) != batches for each, batches in given.items())
        self._before = given
        if self._moves >= MOVES:
            raise Trains(place_of(_top_level(frame)))


def _iterators() -> list[Any]:
    """The iterators of loaders, ours and torch's, that are alive."""
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
    """The number of batches it has given."""
    try:
        return int(iterator.flow().batches if is_a(type(iterator), BatchIterator) else iterator._num_yielded)
    except Exception:  # the iterator is not completely made yet
        return 0


def _top_level(frame: FrameType | None) -> FrameType | None:
    """The line of the script itself: the guard belongs there."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame
