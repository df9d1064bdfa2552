"""From samples to what is shown: rows with medians and ratios, the table, the JSON file, the picture.

Takes: the Contests of a run.
Gives: `rows` (data), `table` (text), `save` (results.json, ratios.png, ratios.svg).
Promises: a ratio is always "times better", whether more or less is better; the spread is that of pairs taken
one after the other, so that a machine that slows down half-way does not widen it.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display in a container
import matplotlib.pyplot as plt
import numpy as np

from contest import HERE, Contest
from feedline.diagnose.bench.comparison import compared, is_noisy, noise_of
from feedline.diagnose.bench.machine import BUSY, machine

HEADER = ("workload", "case", "metric", "feedline", "other", "theirs", "times better", "spread", "target", "")
KEPT_VERSIONS = ("feedline", "torch")


@dataclass(frozen=True)
class Row:
    """One comparison: feedline against `other`, or against nothing but a limit."""

    workload: str
    case: str
    metric: str
    feedline: float | None
    other: str
    theirs: float | None
    ratio: float | None
    lowest: float | None
    highest: float | None
    target: float | None
    limit: float | None
    noise: float | None
    note: str

    @property
    def reached(self) -> bool | None:
        """None when nothing was asked or measured."""
        answers = []
        if self.target is not None:
            answers.append(None if self.ratio is None else self.ratio >= self.target)
        if self.limit is not None:
            answers.append(None if self.feedline is None else self.feedline <= self.limit)
        return None if not answers or None in answers else all(answers)


def rows(contests: list[Contest]) -> list[Row]:
    return [
        _row(contest, metric, other)
        for contest in contests
        for metric in contest.workload.metrics
        for other in contest.workload.sides
        if other != "feedline"
    ]


def _row(contest: Contest, metric: str, other: str) -> Row:
    more = contest.workload.metrics[metric] == "more"
    found = compared(_values(contest, "feedline", metric), _values(contest, other, metric), more)
    is_first = metric == next(iter(contest.workload.metrics))
    failed = [side for side in ("feedline", other) if side in contest.failures]
    return Row(
        workload=contest.workload.name,
        case=contest.case.name,
        metric=metric,
        feedline=found.ours,
        other=other,
        theirs=found.theirs,
        ratio=found.ratio,
        lowest=found.lowest,
        highest=found.highest,
        target=contest.case.targets.get(other) if is_first else None,
        limit=contest.case.limits.get(metric),
        noise=noise_of(contest.noise.get("feedline", []), contest.noise.get(other, [])),
        note="; ".join(f"{side}: {contest.failures[side]}" for side in failed) if is_first else "",
    )


def _values(contest: Contest, side: str, metric: str) -> list[float]:
    return [sample[metric] for sample in contest.samples.get(side, [])]


def table(all_rows: list[Row]) -> str:
    """Plain text, one line per row, with what could not be measured underneath."""
    lines = [HEADER, *(_cells(row) for row in all_rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    text.insert(1, "─" * max(len(line) for line in text))
    notes = [f"{row.workload}, {row.case}: {row.note}" for row in all_rows if row.note]
    if any(_is_noisy(row) for row in all_rows):
        notes.append(f"?: something else used over {BUSY:.0%} of the machine meanwhile; do not trust that ratio")
    return "\n".join([*text, *([""] if notes else []), *notes])


def _is_noisy(row: Row) -> bool:
    """Whether the ratio is in doubt. Memory is the same on a busy machine."""
    return is_noisy(row.noise) and "MB" not in row.metric


def _cells(row: Row) -> tuple[str, ...]:
    spread = "" if row.lowest is None or row.highest is None else f"{_number(row.lowest)}…{_number(row.highest)}"
    targets = [f"≥ {row.target:g}×"] if row.target is not None else []
    targets += [f"≤ {row.limit:g}"] if row.limit is not None else []
    verdict = {True: "reached", False: "NOT reached", None: "not measured" if targets else ""}[row.reached]
    doubt = "?" if _is_noisy(row) and row.ratio is not None else ""
    return (
        row.workload,
        row.case,
        row.metric,
        _number(row.feedline),
        row.other,
        _number(row.theirs),
        "—" if row.ratio is None else f"{_number(row.ratio)}×{doubt}",
        spread,
        ", ".join(targets),
        f"{verdict}{doubt}" if verdict else "",
    )


def _number(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def save(contests: list[Contest], all_rows: list[Row], folder: Path, quick: bool) -> list[Path]:
    """Write everything into `folder`, replacing the last run's files."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": {**machine(), "commit": _commit()},
        "versions": {**_versions(contests), "python": platform.python_version(), "numpy": np.__version__},
        "rows": [{**asdict(row), "reached": row.reached} for row in all_rows],
        "samples": [_as_data(contest) for contest in contests],
    }
    written = [folder / "results.json"]
    written[0].write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    drawn = [row for row in all_rows if row.ratio is not None]
    return written + (_draw(drawn, folder, str(facts["date"])[:10]) if drawn else [])


def _versions(contests: list[Contest]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for contest in contests:
        found.update({side: contest.versions[side] for side in KEPT_VERSIONS if side in contest.versions})
    return found


def _as_data(contest: Contest) -> dict[str, Any]:
    return {
        "workload": contest.workload.name,
        "case": contest.case.name,
        "options": contest.case.options,
        "samples": contest.samples,
        "noise": contest.noise,
        "failures": contest.failures,
    }


def _commit() -> str | None:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def _draw(drawn: list[Row], folder: Path, date: str) -> list[Path]:
    """One bar per ratio on a logarithmic scale, its spread as a line, its target as a mark."""
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.42 * len(drawn)), layout="constrained")
    colours = [_colour(row) for row in drawn]
    places = range(len(drawn))[::-1]
    axes.barh(places, [row.ratio or 1 for row in drawn], color=colours, height=0.6)
    for place, row in zip(places, drawn, strict=True):
        axes.plot([row.lowest or 1, row.highest or 1], [place, place], color="black", linewidth=1.2)
        if row.target is not None:
            axes.plot([row.target] * 2, [place - 0.42, place + 0.42], "k:", linewidth=1.6)
        right = max(row.highest or 1, row.target or 1, 1)
        axes.annotate(
            f"  {_number(row.ratio)}×{'?' if _is_noisy(row) else ''}", (right, place), va="center", fontsize=8
        )
    axes.set_xscale("log")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_yticks(list(places), [_label(row) for row in drawn], fontsize=8)
    axes.set_xlabel("times better (bar: ratio of medians, line: spread of pairs, dots: target)")
    axes.set_title(f"feedline, {date}", fontsize=10)
    axes.set_xlim(right=axes.get_xlim()[1] * 4)  # room for the last number
    paths = [folder / "ratios.png", folder / "ratios.svg"]
    for path in paths:
        figure.savefig(path, dpi=150)
    plt.close(figure)
    return paths


def _colour(row: Row) -> str:
    """Green, orange where the target is missed, grey where noise forbids to say."""
    if _is_noisy(row):
        return "#9a9a94"
    return "#c2571a" if row.reached is False else "#2b8a5f"


def _label(row: Row) -> str:
    return f"{row.workload}: {row.case}, {row.metric} vs {row.other}"


def unfinished(contests: list[Contest]) -> Iterator[str]:
    """Sides that failed, as opposed to sides that a case leaves out."""
    for contest in contests:
        for side, reason in contest.failures.items():
            if side not in contest.case.skips:
                yield f"{contest.workload.name}, {contest.case.name}, {side}: {reason}"
