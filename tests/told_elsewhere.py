"""A module by which a loop could tell workers something, for the tests of what is shared with them."""

from __future__ import annotations

import multiprocessing

TOLD_EPOCH = multiprocessing.Value("i", 0)


def told_epoch() -> int:
    return TOLD_EPOCH.value


def plain(index: int) -> int:
    return index + 1


class Settings:
    epoch = multiprocessing.Value("i", 0)


class MoreSettings(Settings):
    pass


class Reader:
    def epoch(self) -> int:
        return TOLD_EPOCH.value


class NamesItself:
    def number(self) -> int:
        return 0 if type(self) is NamesItself else 1
