"""What `make bench-grid` measured, as it is shown on docs/grid.md: means, worst cells and why, heat map.

Takes: the facts of docs/measured/grid.json. Gives: `grid_summary`, `grid_worst` (Markdown), `grid_picture`.
Promises: a ratio is torch's time over ours, above 1 where feedline is faster; every cell in which torch is faster is in
the table, with the reason or the word that none is known yet; a cell measured beside other programs has a “?”.
Not its job: measuring (benchmarks/grid.py), putting it into the page (make_pages).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean, quantiles
from typing import TYPE_CHECKING, Any

from feedline.diagnose.bench.comparison import is_noisy
from feedline.diagnose.plotting import FAINT, GROUND, INK, PALE, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Facts = Mapping[str, Any]

GENERATORS = "`random`, NumPy's and torch's generator are saved, seeded and put back for each batch"
WHY: tuple[tuple[Callable[[Facts], bool], str], ...] = (
    (lambda cell: cell["workers"] > 0 and cell["ratio"] > 0.9, "within what two runs of one loader differ"),
    (
        lambda cell: cell["workers"] == 0 and cell["kind"] == "large",
        "torch divides a large stack among threads as we do; the rest is within what two runs of one loader differ",
    ),
    (
        lambda cell: cell["workers"] == 0 and cell["kind"] in ("text", "tokens"),
        f"{GENERATORS}; it is looked whether anybody else has what the collate_fn returned",
    ),
    (lambda cell: cell["workers"] == 0 and cell["kind"] == "work", "within what two runs of one loader differ"),
    (lambda cell: cell["workers"] == 0 and cell["batches"] == 25, f"{GENERATORS}; an epoch begins in 40 to 70 µs"),
    (lambda cell: cell["workers"] == 0, GENERATORS),
)
"""Why torch is faster in cells like these; the first that holds is told."""
UNKNOWN = "not known yet"
WORST = 10


def why(cell: Facts, reasons: Sequence[tuple[Callable[[Facts], bool], str]]) -> str:
    """
    >>> why({"ratio": 0.9, "kind": "text"}, [(lambda cell: cell["kind"] == "text", "texts are pickled")])
    'texts are pickled'
    >>> why({"ratio": 0.9, "kind": "dict"}, []), why({"ratio": 1.1, "kind": "text"}, [])
    ('not known yet', '')
    """
    if cell["ratio"] >= 1:
        return ""
    return next((reason for holds, reason in reasons if holds(cell)), UNKNOWN)


# --- in words ---


def grid_summary(facts: Facts) -> str:
    """When and where, and a line for each number of workers."""
    machine, cells = facts["machine"], facts["cells"]
    quick = " **A quick run, one pair of each cell: a look, not a result.**" if facts["quick"] else ""
    noisy = sum(is_noisy(cell["noise"]) for cell in cells)
    doubt = f" “?”: other programs used over 10 % of the machine meanwhile ({noisy} cells); do not trust those."
    lines = [
        f"Measured on {facts['date']} in {facts['seconds']} s, {len(cells)} cells; {machine['cpu']}, "
        f"{machine['cores']} cores, Python {facts['python']}, NumPy {facts['numpy']}, torch {facts['torch']}."
        f"{doubt if noisy else ''}{quick}",
        "",
        "| workers | cells | geometric mean | lowest | highest | cells in which torch is faster | by more than 5 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for workers in sorted({cell["workers"] for cell in cells}):
        lines.append(_mean_line(str(workers), [cell["ratio"] for cell in cells if cell["workers"] == workers]))
    lines.append(_mean_line("**all**", [cell["ratio"] for cell in cells]))
    return "\n".join(lines)


def _mean_line(name: str, ratios: Sequence[float]) -> str:
    """
    >>> _mean_line("2", [0.5, 0.98, 2.0, 8.0])
    '| 2 | 4 | 1.67 | 0.50 | 8.00 | 2 | 1 |'
    """
    below = [sum(ratio < limit for ratio in ratios) for limit in (1, 0.95)]
    mean, low, high = (_times(value) for value in (geometric_mean(ratios), min(ratios), max(ratios)))
    return f"| {name} | {len(ratios)} | {mean} | {low} | {high} | {below[0]} | {below[1]} |"


def grid_worst(facts: Facts) -> str:
    """The ten worst cells, or all in which torch is faster if those are more."""
    worst = sorted(facts["cells"], key=lambda cell: float(cell["ratio"]))
    worst = worst[: max(WORST, sum(cell["ratio"] < 1 for cell in worst))]
    lines = ["| torch's time over ours | middle half of the pairs | cell | why torch is faster |", "|---|---|---|---|"]
    for cell in worst:
        doubt = "?" * is_noisy(cell["noise"])
        lines.append(f"| {_times(cell['ratio'])}{doubt} | {_spread(cell)} | {_named(cell, facts)} | {why(cell, WHY)} |")
    return "\n".join(lines)


def _spread(cell: Facts) -> str:
    ratios = [theirs / ours for theirs, ours in zip(*cell["seconds"].values(), strict=True)]
    low, _, high = quantiles(ratios, method="inclusive") if len(ratios) > 1 else (ratios * 3)
    return f"{_times(low)}–{_times(high)}, {len(ratios)} pairs" if len(ratios) > 1 else "one pair"


def _named(cell: Facts, facts: Facts) -> str:
    workers = f"{cell['workers']} workers" if cell["workers"] else "no workers"
    how = [workers, *(["persistent"] * cell["persistent"]), *(["spawn"] * (cell["start"] == "spawn"))]
    title = facts["kinds"][cell["kind"]]
    return f"{title}; batch {cell['batch_size']}, {cell['batches']} batches, {', '.join(how)}, `{cell['front']}`"


def _times(ratio: float) -> str:
    """
    >>> _times(0.974), _times(9.99), _times(26.1)
    ('0.97', '9.99', '26')
    """
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"


# --- drawn ---

COLOURS = ("#d9752c", "#f0bf94", "#f6f4ee", "#a3cbe4", "#4a9bd1")
"""Orange (torch is faster) and blue (feedline is) differ for colour-blind people, and black can be read on all."""
FARTHEST = 2.0
"""Powers of two: from a quarter to four times the colours change, beyond they do not."""
EMPTY = "#f1efe9"
WIDE, HIGH, LEFT, ABOVE = 46, 19, 222, 62
"""Pixels: of a cell, of the names of rows, of the names of columns."""
BLOCKS: tuple[tuple[str, str, tuple[int, str, bool, str]], ...] = (
    ("no workers", "feedline.torch", (0, "fork", False, "feedline.torch")),
    ("no workers", "feedline", (0, "fork", False, "feedline")),
    ("2 workers", "feedline.torch", (2, "fork", False, "feedline.torch")),
    ("2 workers", "feedline", (2, "fork", False, "feedline")),
    ("2 workers", "persistent", (2, "fork", True, "feedline.torch")),
    ("2 workers", "spawn", (2, "spawn", False, "feedline.torch")),
    ("4 workers", "feedline.torch", (4, "fork", False, "feedline.torch")),
)
Column = tuple[str, str, int]


def placed(facts: Facts) -> tuple[list[Column], list[tuple[str, int]], dict[tuple[int, int], float]]:
    """The columns and rows that have cells, and for each (row, column) its ratio."""
    blocks = {key: (workers, name) for workers, name, key in BLOCKS}
    found = {}
    for cell in facts["cells"]:
        block = blocks[cell["workers"], cell["start"], cell["persistent"], cell["front"]]
        found[(cell["kind"], cell["batch_size"]), (*block, cell["batches"])] = float(cell["ratio"])
    order = list(blocks.values())
    columns = sorted({column for _, column in found}, key=lambda column: (order.index(column[:2]), column[2]))
    kinds = list(facts["kinds"])
    rows = sorted({row for row, _ in found}, key=lambda row: (kinds.index(row[0]), row[1]))
    return columns, rows, {(rows.index(row), columns.index(column)): ratio for (row, column), ratio in found.items()}


def grid_picture(facts: Facts) -> Figure:
    """Rows: kinds of samples and batch sizes. Columns: workers, front or way of starting, length of the epoch."""
    columns, rows, ratios = placed(facts)
    quick = " (a quick run)" if facts["quick"] else ""
    title = f"Whole epochs: torch's time over feedline's{quick}"
    drawing = figure(title, LEFT + WIDE * len(columns) + 12, 40 + ABOVE + HIGH * len(rows) + 30)
    axes = drawing.subplots()
    axes.set(xlim=(-LEFT / WIDE, len(columns)), ylim=(len(rows) + 1.4, -ABOVE / HIGH))
    axes.set_axis_off()
    _cells(axes, len(rows), len(columns), ratios)
    _row_names(axes, rows, facts["kinds"])
    _column_names(axes, columns)
    key = "blue, above 1: feedline is faster; orange, below 1: torch is.  persistent, spawn: feedline.torch"
    axes.text(-LEFT / WIDE, len(rows) + 1, key, fontsize="small", color=FAINT, va="center")
    return drawing


def _cells(axes: Axes, high: int, wide: int, ratios: Mapping[tuple[int, int], float]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("torch to feedline", COLOURS).with_extremes(bad=EMPTY)
    values = [[math.log2(ratios.get((row, column), math.nan)) for column in range(wide)] for row in range(high)]
    span = {"vmin": -FARTHEST, "vmax": FARTHEST}
    axes.pcolormesh(range(wide + 1), range(high + 1), values, cmap=colours, edgecolors=GROUND, linewidth=1.5, **span)
    for (row, column), ratio in ratios.items():
        middle = {"ha": "center", "va": "center", "fontsize": "small", "fontweight": "bold" if ratio < 1 else "normal"}
        axes.text(column + 0.5, row + 0.5, _times(ratio), color=INK, **middle)


def _row_names(axes: Axes, rows: Sequence[tuple[str, int]], titles: Mapping[str, str]) -> None:
    for place, (kind, batch) in enumerate(rows):
        if place == 0 or rows[place - 1][0] != kind:
            axes.text(-LEFT / WIDE, place + 0.5, titles[kind], va="center")
            axes.plot([-LEFT / WIDE, 0], [place, place], color=PALE, linewidth=1)
        axes.text(-0.15, place + 0.5, f"batch {batch}", ha="right", va="center", fontsize="small", color=FAINT)


def _column_names(axes: Axes, columns: Sequence[Column]) -> None:
    """Three lines: workers, front or way of starting, batches in the epoch."""
    for depth, line in ((1, 2.75), (2, 1.75)):
        for place, column in enumerate(columns):
            if place == 0 or columns[place - 1][:depth] != column[:depth]:
                weight = "bold" if depth == 1 else "normal"
                axes.text(place + 0.08, -line, column[depth - 1], va="center", fontsize="small", fontweight=weight)
                axes.plot([place, place], [-line - 0.5, 0], color=PALE, linewidth=1)
    for place, column in enumerate(columns):
        axes.text(place + 0.5, -0.6, f"{column[2]}", ha="center", va="center", fontsize="small", color=FAINT)
    axes.text(-0.15, -0.6, "batches in an epoch", ha="right", va="center", fontsize="small", color=FAINT)
