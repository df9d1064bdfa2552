"""Copies to a device in numbers: the explorer's page has the same function (page/memory.js), and tests compare them.

Takes: how long a copy and a step take, in whole microseconds. Gives: when each copy and each step happens.
Promises: from pageable memory the loop copies, and the device waits; from pinned memory the next batch is copied while
the device computes, one batch ahead, as feedline.torch does (torch/transfer.py).
Not its job: how fast a machine copies: that is the reader's number. Nothing of this was measured on a GPU.
"""

from __future__ import annotations

from typing import NamedTuple


class Turn(NamedTuple):
    """One batch."""

    copied_from: int
    copied: int
    step_from: int
    stepped: int


def transfers(batches: int, copy: int, step: int, ahead: bool) -> list[Turn]:
    """All batches; `ahead`: pinned, and copied under the step before.

    >>> transfers(2, copy=4, step=10, ahead=False)[1], transfers(2, copy=4, step=10, ahead=True)[1]
    (Turn(copied_from=14, copied=18, step_from=18, stepped=28), Turn(copied_from=4, copied=8, step_from=14, stepped=24))
    """
    found: list[Turn] = []
    for _ in range(batches):
        before = found[-1] if found else Turn(0, 0, 0, 0)
        begin = max(before.copied, before.step_from) if ahead else before.stepped
        ready = max(begin + copy, before.stepped)
        found.append(Turn(begin, begin + copy, ready, ready + step))
    return found
