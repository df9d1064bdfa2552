"""What `make bench-peers` measured, as it is shown on docs/peers.md: medians and ratios, the table, the picture.

Takes: the facts of docs/measured/peers.json. Gives: `rows` (data), `peers_table` and `peers_set_up` (Markdown),
`peers_picture`.
Promises: a ratio is "times as fast as feedline", below 1 where feedline is faster; all are compared with feedline's
defaults, its own other side too (the better of two would be picked by its luck as well); who could not take part is
there with the reason.
Not its job: measuring (benchmarks/peers), putting it into the page (make_pages).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from feedline.diagnose.bench.comparison import compared, is_noisy, noise_of
from feedline.diagnose.plotting import COLOURS, FAINT, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Facts = Mapping[str, Any]

OURS = "feedline"
"""With its defaults: what everyone is compared with."""


@dataclass(frozen=True)
class Row:
    """One side in one workload. `ratio`: times as fast as feedline, with the lowest and highest of the pairs."""

    workload: str
    side: str
    value: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    noisy: bool = False
    why: str = ""
    """Why there is no value."""


def is_ours(side: str) -> bool:
    return side.startswith(OURS)


def rows(facts: Facts) -> list[Row]:
    """All sides of all workloads, the fastest first, and those without a value last.

    >>> found = rows({"workloads": [{"title": "text", "resumes": False, "failures": {"b": "no wheel"}, "absent": {},
    ...     "values": {"feedline": [10, 12, 11], "a": [22, 20, 33]}, "noise": {"feedline": [0], "a": [0]}}]})
    >>> [(row.side, row.ratio, row.high, row.why) for row in found]
    [('a', 2.0, 3.0, ''), ('feedline', None, None, ''), ('b', None, None, 'no wheel')]
    """
    return [row for workload in facts["workloads"] for row in _rows(workload)]


def _rows(workload: Facts) -> list[Row]:
    title, more, values = workload["title"], not workload["resumes"], workload["values"]
    measured = {side: found for side, found in values.items() if found and side not in workload["failures"]}
    found = [_row(title, side, measured, workload, more) for side in measured]
    found.sort(key=lambda row: row.value or 0.0, reverse=more)
    reasons = {**workload["failures"], **workload["absent"]}
    return found + [Row(title, side, None, why=_short(why)) for side, why in reasons.items()]


def _row(title: str, side: str, measured: Mapping[str, list[float]], workload: Facts, more: bool) -> Row:
    noise = workload["noise"]
    noisy = is_noisy(noise_of(noise.get(side, []), noise.get(OURS, [])))
    value = float(median(measured[side]))
    if side == OURS or OURS not in measured:
        return Row(title, side, value, noisy=noisy)
    found = compared(measured[side], measured[OURS], more)
    return Row(title, side, value, found.ratio, found.lowest, found.highest, noisy)


def _short(why: str) -> str:
    """The end of an error tells most, and a cell has one line."""
    line = " ".join(why.replace("|", "/").split())
    return line if len(line) <= 160 else f"…{line[-159:]}"


# --- in words ---


def peers_table(facts: Facts) -> str:
    """One table for each workload."""
    parts = []
    for workload in facts["workloads"]:
        found = [row for row in rows({"workloads": [workload]}) if row.side not in workload["absent"]]
        unit = "to the first batch" if workload["resumes"] else "samples/s"
        lines = [
            f"**{workload['title']}**",
            "",
            f"| | {unit} | times as fast as feedline | spread |",
            "|---|---|---|---|",
        ]
        lines += [_line(row, workload["resumes"]) for row in found]
        lines += ["", _absent(workload["absent"])] if workload["absent"] else []
        parts.append("\n".join(lines))
    return "\n\n".join([_head(facts), *parts])


def _head(facts: Facts) -> str:
    machine, turns = facts["machine"], facts["repeats"]
    quick = " **A quick run: a look, not a result.**" if facts["quick"] else ""
    noisy = any(row.noisy for row in rows(facts))
    doubt = " “?”: other programs used over 10 % of the machine meanwhile, do not trust that ratio." if noisy else ""
    return (
        f"Measured on {facts['date']} in {facts['seconds']} s, {turns} turn{'s' * (turns > 1)} each, medians. "
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']}, {machine['kernel']}, "
        f"Python {facts['python']}, NumPy {facts['numpy']}.{doubt}{quick}"
    )


def _line(row: Row, resumes: bool) -> str:
    name = f"**{row.side}**" if is_ours(row.side) else row.side
    if row.value is None:
        return f"| {name} | failed: {row.why} | | |"
    value = f"{1000 * row.value:.3g} ms" if resumes else f"{row.value:,.0f}"
    if row.ratio is None:
        return f"| {name} | {value} | {'1' if row.side == OURS else '—'} | |"
    return f"| {name} | {value} | {_times(row.ratio)}{'?' * row.noisy} | {_times(row.low)}–{_times(row.high)} |"


def _times(ratio: float | None) -> str:
    """Two digits say enough.

    >>> _times(0.0213), _times(1.96), _times(26.14), _times(140.2)
    ('0.021', '2', '26', '140')
    """
    return f"{ratio or 0:.0f}" if (ratio or 0) >= 10 else f"{ratio or 0:.2g}"


def _absent(reasons: Mapping[str, str]) -> str:
    """Those with the same reason together."""
    together: dict[str, list[str]] = {}
    for side, why in reasons.items():
        together.setdefault(why, []).append(side)
    return "Not asked: " + "; ".join(f"{', '.join(sides)} ({why})" for why, sides in together.items()) + "."


def peers_set_up(facts: Facts) -> str:
    """Versions, and how each was set up."""
    lines = ["| library | version | set up as |", "|---|---|---|"]
    lines += [f"| [{side['name']}]({side['page']}) | {side['version']} | {side['how']} |" for side in facts["sides"]]
    return "\n".join(lines)


# --- drawn ---

WIDTH, LINE, HEAD = 760, 17, 3
"""Pixels; a title takes as much as so many lines."""
ROOM = 1.6
"""Of the longest bar: for what is written at its end."""


def peers_picture(facts: Facts) -> Figure:
    """A bar for each side, as long as it is fast beside the fastest of its workload."""
    all_groups = [([row for row in _rows(each) if row.value], each["resumes"]) for each in facts["workloads"]]
    groups = [(group, resumes) for group, resumes in all_groups if group]
    lines = [HEAD + len(group) for group, _ in groups]
    drawing = figure("feedline beside other loaders: the longer, the faster", WIDTH, LINE * (HEAD + sum(lines)))
    panels = drawing.subplots(len(groups), squeeze=False, height_ratios=[len(group) for group, _ in groups])[:, 0]
    for axes, (group, resumes) in zip(panels, groups, strict=True):
        speeds = [1 / (row.value or 1) if resumes else row.value or 0.0 for row in group]
        colours = [COLOURS[0 if is_ours(row.side) else 1] for row in group]
        bars = axes.barh(range(len(group)), speeds, color=colours)
        axes.bar_label(bars, [_label(row, resumes) for row in group], padding=4, color=FAINT, fontsize="small")
        axes.set(xlim=(0, ROOM * max(speeds)), ylim=(len(group) - 0.5, -0.5))
        axes.set_title(group[0].workload, fontweight="bold")
        axes.set_axis_off()
    for colour, name in zip(COLOURS, ("feedline", "another library"), strict=False):
        panels[0].barh(0, 0, color=colour, label=name)
    drawing.legend(loc="outside upper right", ncols=2)
    return drawing


def _label(row: Row, resumes: bool) -> str:
    value = f"{1000 * (row.value or 0):.3g} ms" if resumes else f"{row.value:,.0f}/s"
    ratio = "" if row.ratio is None else f" ({_times(row.ratio)}{'?' * row.noisy})"
    return f"{row.side} {value}{ratio}"
