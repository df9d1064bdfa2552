"""A number of workers that changes at given batches, instead of by what is measured."""

from __future__ import annotations

from typing import Any

from feedline.engine.scaling import Scaled, Scaling
from feedline.observe.meter import Meter
from feedline.observe.window import Setting
from feedline.supervise.pace import Pace

MOST = 6


class Scripted(Scaling):
    """After so many batches (of all epochs) there are so many workers; `None` settles on those there are."""

    def __init__(self, script: dict[int, int | None], start: int = 1) -> None:
        super().__init__(Pace(Setting(start, 2), MOST), MOST)
        self.script = script
        self.seen: list[int] = []
        self.interrupted = False

    def gave(self, meter: Meter, workers: Scaled) -> bool:
        self._total += 1
        self.seen.append(workers.count)
        if self._total not in self.script:
            return False
        before, count = self.chosen(), self.script[self._total]
        self._pace.settled = count is None
        self._pace.setting = Setting(workers.count if count is None else count, 2)
        has_changed = self._follow(before, meter, workers)
        if self.interrupted:
            raise KeyboardInterrupt
        return has_changed


def scripted(loader: Any, script: dict[int, int | None], start: int = 1) -> Scripted:
    """Have the loader (of either front) follow the script."""
    feed = loader._session if hasattr(loader, "_session") else loader._feedline.session
    feed.scaling = pacing = Scripted(script, start)
    feed.chosen = pacing.chosen
    return pacing
