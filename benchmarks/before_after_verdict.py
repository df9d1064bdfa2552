"""What the measurements of two checkouts say: a ratio, its spread, the noise, and a verdict. Pure arithmetic.

Takes: for each round the seconds of the checkout before, of the one after, and of the one before again.
Gives: `Verdict` and the lines of the table.
Promises: the noise is what the checkout before differed from itself in the same rounds; a difference is called one
only if the quartiles of the ratios lie outside it. Of two equal checkouts about one in 400 workloads is called slower
in six rounds (simulated, with normal and with heavy-tailed noise).
Not its job: measuring (before_after, before_after_workloads).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median, quantiles

from feedline.diagnose.bench.comparison import is_noisy
from feedline.diagnose.bench.machine import BUSY

FLOOR = 0.01
"""The noise is never taken to be less: where code happens to lie in memory makes as much of a difference."""

BLIND = 0.1
"""With more noise than this a workload has not been held to anything, and that is said."""

HEADER = ("workload", "before", "after", "before/after", "spread", "noise", "")
RULE = (
    "before/after: above 1 the checkout after is faster (median of the rounds; the spread is their quartiles).\n"
    "noise: in three of four rounds the checkout before differed from itself by no more than this.\n"
    "slower, faster: the whole spread lies outside the noise."
)


@dataclass(frozen=True)
class Verdict:
    """One workload: `low` and `high` are the quartiles of the ratios, `noise` is a share (0.02: 2 %)."""

    before: float
    after: float
    ratio: float
    low: float
    high: float
    noise: float
    word: str


def judge(before: Sequence[float], after: Sequence[float], again: Sequence[float]) -> Verdict:
    """Of seconds, one of each in every round and three rounds at least; `word` is "slower", "faster" or ""."""
    ratios = [sqrt(one * other) / new for one, new, other in zip(before, after, again, strict=True)]
    apart = [max(pair) / min(pair) - 1 for pair in zip(before, again, strict=True)]
    low, ratio, high = quantiles(ratios, method="inclusive")
    noise = max(FLOOR, quantiles(apart, method="inclusive")[2])
    word = "slower" if high < 1 / (1 + noise) else "faster" if low > 1 + noise else ""
    return Verdict(median([*before, *again]), median(after), ratio, low, high, noise, word)


def row(title: str, verdict: Verdict, others: float | None) -> tuple[str, ...]:
    """Its cells. `others`: the share of the machine that something else used meanwhile."""
    doubt = " ?" if is_noisy(others) else ""
    return (
        title,
        _milliseconds(verdict.before),
        _milliseconds(verdict.after),
        f"{verdict.ratio:.3f}{doubt}",
        f"{verdict.low:.3f}…{verdict.high:.3f}",
        f"±{verdict.noise:.1%}",
        f"**{verdict.word}**" if verdict.word else "",
    )


def _milliseconds(seconds: float) -> str:
    found = seconds * 1000
    return f"{found:,.0f} ms" if found >= 100 else f"{found:.3g} ms"


def unmeasured(title: str) -> tuple[str, ...]:
    """The cells of a workload that a side could not run."""
    return (title, *[""] * (len(HEADER) - 2), "**not measured**")


def unseen(titles: Sequence[str]) -> str:
    """A sentence about workloads with more noise than BLIND."""
    return f"A slowdown of {BLIND:.0%} would not have been seen in: {'; '.join(titles)}."


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Markdown, with the rule and what is in doubt underneath."""
    lines = [HEADER, *rows]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(HEADER))]
    text = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    if any("?" in cells[HEADER.index("before/after")] for cells in rows):
        text += ["", f"?: something else used over {BUSY:.0%} of the machine meanwhile; do not trust that ratio."]
    return "\n".join([*text, "", RULE])
