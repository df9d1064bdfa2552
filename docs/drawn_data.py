"""Pictures of splits, and of sequences packed into rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from drawn_samplers import WIDTH, name_panel
from feedline.collate import pack
from feedline.datasets.splitting import split_indices
from feedline.diagnose.plotting import COLOURS, FAINT, GROUND, PALE, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# --- splits ---

FRACTIONS = {"train": 0.7, "validation": 0.15, "test": 0.15}


def splits() -> Figure:
    drawing = figure("Splits by group, and by a stable hash of a key", WIDTH, 350)
    panels = drawing.subplot_mosaic("ab;ac;ad", height_ratios=[3, 4, 4], width_ratios=[4, 5])
    _draw_groups(panels["a"])
    _draw_keys(panels["b"], panels["c"], panels["d"])
    for colour, name in zip(COLOURS, FRACTIONS, strict=False):
        panels["a"].plot([], [], "s", color=colour, label=name)
    drawing.legend(loc="outside upper right", ncols=3)
    return drawing


def _parts(size: int, **by: object) -> np.ndarray:
    """The number of each sample's part."""
    numbers = np.empty(size, int)
    for number, indices in enumerate(split_indices(size, FRACTIONS, **by).values()):
        numbers[indices] = number
    return numbers


def _draw_groups(axes: Axes) -> None:
    sizes = np.random.default_rng(3).integers(3, 16, 14)
    patients = np.repeat(np.arange(len(sizes)), sizes)
    places = np.concatenate([np.arange(size) for size in sizes])
    parts = _parts(len(patients), groups=patients)
    _draw_cells(axes, "groups=patient: no patient in two parts", places, patients, parts)
    for row in range(len(sizes)):
        axes.text(-1, row, f"patient {row + 1}", ha="right", va="center", color=FAINT, fontsize="small")


def _draw_keys(before: Axes, after: Axes, random: Axes) -> None:
    new = np.zeros(96, bool)
    new[np.random.default_rng(0).choice(96, 24, replace=False)] = True  # in between, as in a table sorted by name
    keys = np.array([f"file-{number:03}" for number in range(96)])
    by_key, by_key_before = _parts(96, keys=keys), _parts(72, keys=keys[~new])
    at_random, at_random_before = _parts(96), _parts(72)
    moved = (at_random[~new] != at_random_before).sum()
    moved_by_key = (by_key[~new] != by_key_before).sum()
    _draw_cells(before, "72 files", *_in_rows(72), by_key_before)
    _draw_cells(after, f"24 more (dots), keys=name: {moved_by_key} of 72 moved", *_in_rows(96), by_key)
    _draw_cells(random, f"the same at random: {moved} of 72 moved", *_in_rows(96), at_random)
    for axes in (after, random):
        axes.scatter(*(each[new] for each in _in_rows(96)), s=8, color=GROUND)


def _in_rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(count) % 24, np.arange(count) // 24


def _draw_cells(axes: Axes, name: str, x: np.ndarray, y: np.ndarray, parts: np.ndarray) -> None:
    axes.scatter(x, y, s=75, marker="s", c=[COLOURS[part] for part in parts])
    axes.set(xlim=(-0.6, x.max() + 0.6), ylim=(y.max() + 0.6, -0.6))
    name_panel(axes, name)


# --- packing ---

ROW = 512


def packed_rows() -> Figure:
    lengths = np.random.default_rng(0).lognormal(4.9, 0.6, 48).clip(8, ROW).astype(int)
    rows = pack(ROW)([np.zeros(length, int) for length in lengths]).segments
    drawing = figure("48 texts, padded and packed", WIDTH, 470)
    padded, packed = drawing.subplots(1, 2)
    every = range(len(lengths))
    padded.barh(every, lengths.max(), color=PALE, label="padding")
    padded.barh(every, lengths, color=COLOURS, label=["texts", *[""] * (len(lengths) - 1)])
    share = 1 - lengths.sum() / (lengths.max() * len(lengths))
    name_panel(padded, "pad: a row for each", f"{len(lengths)} rows, {share:.0%} padding")
    packed.barh(range(len(rows)), ROW, color=PALE)
    for row, segments in enumerate(rows):
        numbers, starts, counts = np.unique(segments[segments > 0], return_index=True, return_counts=True)
        packed.barh(row, counts, left=starts, color=[COLOURS[(each - 1) % 6] for each in numbers], edgecolor=GROUND)
    name_panel(packed, f"pack({ROW}): several in a row", f"{len(rows)} rows, {(rows == 0).mean():.0%} padding")
    for axes in (padded, packed):
        axes.margins(0)
        axes.invert_yaxis()
    drawing.legend(loc="outside upper right", ncols=2)
    return drawing
