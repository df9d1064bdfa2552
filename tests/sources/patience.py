"""For tests of `idle`: however long a busy machine takes to bring the first records, time counts only after them."""

from __future__ import annotations

from typing import Any

import pytest

from feedline.sources.live import Live


def idle_only_after(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, whatever is read waits for so many records as long as it takes; then for `idle` seconds each."""
    original, given = Live.__next__, 0

    def following(self: Live) -> Any:
        nonlocal given
        idle = self._idle
        if idle is not None and given < records:
            self._idle = 600.0
        try:
            found = original(self)
        finally:
            self._idle = idle
        given += 1
        return found

    monkeypatch.setattr(Live, "__next__", following)
