"""What `make bench-skewed` measured, as it is shown on docs/skewed.md: shares of the limit.

Takes: the facts of docs/measured/skewed.json. Gives: `skewed_table` (Markdown).
Promises: a share is the median of a side's turns over the median of the limit's; a side that failed is there with the
word, and one that was not asked has a dash.
Not its job: measuring and computing limits (benchmarks/skewed.py), putting it into the page (make_pages).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from feedline.diagnose.bench.comparison import is_noisy, noise_of

Facts = Mapping[str, Any]

LIMIT = "limit"


def skewed_table(facts: Facts) -> str:
    """A line for each shape: the limit as samples a second, and what share of it each loader reached."""
    machine, turns, cases = facts["machine"], facts["repeats"], facts["cases"]
    sides = [side for side in cases[0]["values"] if side != LIMIT]
    quick = " **A quick run: a look, not a result.**" if facts["quick"] else ""
    noisy = any(is_noisy(_noise(case, side)) for case in cases for side in sides)
    doubt = " “?”: other programs used over 10 % of the machine meanwhile, do not trust that share." if noisy else ""
    lines = [
        f"Measured on {facts['date']} in {facts['seconds']} s, {turns} turn{'s' * (turns > 1)} each, medians; "
        f"{machine['cpu']}, {machine['cores']} cores, Python {facts['python']}, torch {facts['torch']}.{doubt}{quick}",
        "",
        f"| samples | limit, samples/s | limit in order | {' | '.join(sides)} |",
        "|---|---|---|" + "---|" * len(sides),
    ]
    return "\n".join([*lines, *(_line(case, sides) for case in cases)])


def _line(case: Facts, sides: list[str]) -> str:
    limit, in_order = median(case["values"][LIMIT]), median(case["in order"])
    cells = [f"{case['title']}, {case['workers']} workers", f"{limit:,.0f}", f"{in_order / limit:.0%}"]
    return f"| {' | '.join([*cells, *(_share(case, side, limit) for side in sides)])} |"


def _share(case: Facts, side: str, limit: float) -> str:
    """
    >>> case = {"values": {"a": [90, 80, 70]}, "noise": {"a": [0.0]}, "skips": {"b": "no"}, "failures": {"c": "a bug"}}
    >>> [_share(case, side, 100) for side in "abc"]
    ['80%', '—', 'failed']
    """
    if side in case["skips"]:
        return "—"
    if side in case["failures"] or not case["values"][side]:
        return "failed"
    return f"{median(case['values'][side]) / limit:.0%}{'?' * is_noisy(_noise(case, side))}"


def _noise(case: Facts, side: str) -> float | None:
    return noise_of(case["noise"].get(side, []))
