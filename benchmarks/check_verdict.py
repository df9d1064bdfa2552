"""What two costs of a cell say, and which commit made it slower. Pure arithmetic.

Takes: costs, and a function that measures a state of the source. Gives: `Verdict`, `table`, `first_slower`.
Promises: a cell is called slower only beyond the tolerance of its meter; a search measures about log2 of the commits.
Not its job: measuring (check_meters, check_cells), commits and files (check).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeVar

State = TypeVar("State")

TOLERANCES = {"instructions": (0.03, 0.08), "cpu": (0.15, 0.40)}
"""Without workers, and with. Runs of one checkout on a crowded machine differed by up to 1 % and 3 % in
instructions (how often the parent waits depends on its workers)."""


@dataclass(frozen=True)
class Verdict:
    """One cell: costs in thousandths of the calibration's."""

    title: str
    before: float | None
    now: float
    tolerance: float
    torch: float | None = None
    """What torch's own loader costs."""

    @property
    def change(self) -> float:
        """0.05: 5 % more than before.

        >>> round(Verdict("texts", 10.0, 10.5, 0.02).change, 3)
        0.05
        """
        return self.now / self.before - 1 if self.before else 0.0

    @property
    def word(self) -> str:
        """
        >>> [Verdict("texts", 10.0, now, 0.02).word for now in (10.1, 10.3, 9.7)], Verdict("new", None, 1.0, 0.02).word
        (['', 'slower', 'faster'], 'not kept yet')
        """
        if self.before is None:
            return "not kept yet"
        return "slower" if self.change > self.tolerance else "faster" if self.change < -self.tolerance else ""


def tolerance(meter: str, workers: int) -> float:
    return TOLERANCES[meter][workers > 0]


def table(verdicts: Sequence[Verdict], before: str) -> str:
    """Plain text, a line for each cell."""
    width = max(len(verdict.title) for verdict in verdicts)
    beside = any(verdict.torch for verdict in verdicts)
    lines = [f"{'cell':{width}}  {before:>12}  {'now':>9}  {'change':>8}{'  torch/ours' * beside}  allowed"]
    for each in verdicts:
        kept = f"{each.before:12.3f}" if each.before is not None else f"{'—':>12}"
        change = f"{each.change:+8.1%}" if each.before is not None else " " * 8
        torch = f"  {each.torch / each.now:10.2f}" if each.torch else " " * 12 * beside
        line = f"{each.title:{width}}  {kept}  {each.now:9.3f}  {change}{torch}  ±{each.tolerance:.0%}  {each.word}"
        lines.append(line.rstrip())
    return "\n".join(lines)


@dataclass(frozen=True)
class Found:
    """Where a cell became slower: the position of the first slow state, and the costs before it and in it."""

    place: int
    before: float
    after: float


def first_slower(count: int, good: float, bad: float, cost: Callable[[int], float]) -> Found:
    """Among `count` states, the last of which costs `bad`, the first that has more than half of the slowdown.

    `good` is what it cost before the first of them. If several made it slower, the one found took it past the half;
    its own step is in `before` and `after`.

    >>> costs = [10.0, 10.1, 12.0, 12.1, 12.0]
    >>> first_slower(5, 10.0, 12.0, costs.__getitem__)
    Found(place=2, before=10.1, after=12.0)
    """
    low, high, known = -1, count - 1, {-1: good, count - 1: bad}
    while high - low > 1:
        middle = (low + high) // 2
        known[middle] = cost(middle)
        if is_past_half(known[middle], good, bad):
            high = middle
        else:
            low = middle
    return Found(high, known[low], known[high])


def is_past_half(cost: float, good: float, bad: float) -> bool:
    return cost > sqrt(good * bad)


class Remembered:
    """Measures each state of the source once, all asked cells together: a process takes longer to start than a cell."""

    def __init__(self, measure: Callable[[State, Sequence[str]], Mapping[str, float]], names: Sequence[str]) -> None:
        self._measure, self._names = measure, names
        self._found: dict[object, Mapping[str, float]] = {}

    def cost(self, name: str, state: State) -> float:
        if state not in self._found:
            self._found[state] = self._measure(state, self._names)
        return self._found[state][name]
