"""Pictures of splits, and of sequences packed into rows."""

from __future__ import annotations

import numpy as np

from feedline import pack
from feedline.datasets.splitting import split_indices
from feedline.drawing.svg import Drawing, colour

WIDTH = 760
HALF = 356


# --- splits ---

FRACTIONS = {"train": 0.7, "validation": 0.15, "test": 0.15}


def splits() -> Drawing:
    drawing = Drawing(WIDTH, 350, "Splits by group, and by a stable hash of a key")
    drawing.text(16, 26, drawing.title, bold=True)
    drawing.legend(WIDTH - 270, 26, [(colour(number), name) for number, name in enumerate(FRACTIONS)])
    _draw_groups(drawing, 16, 46)
    _draw_keys(drawing, 16 + HALF + 16, 46)
    return drawing


def _parts(size: int, **by: object) -> np.ndarray:
    """The number of each sample's part."""
    numbers = np.empty(size, int)
    for number, indices in enumerate(split_indices(size, FRACTIONS, **by).values()):
        numbers[indices] = number
    return numbers


def _draw_groups(drawing: Drawing, x: float, y: float) -> None:
    sizes = np.random.default_rng(3).integers(3, 16, 14)
    parts = _parts(int(sizes.sum()), groups=np.repeat(np.arange(len(sizes)), sizes))
    drawing.text(x, y + 12, "groups=patient: no patient in two parts")
    for row, cells in enumerate(np.split(parts, np.cumsum(sizes)[:-1])):
        drawing.text(x + 66, y + 34 + 19 * row, f"patient {row + 1}", "faint", "end", size=11)
        for column, part in enumerate(cells.tolist()):
            drawing.box(x + 76 + 17 * column, y + 23 + 19 * row, 15, 15, colour(part), rounded=2)


def _draw_keys(drawing: Drawing, x: float, y: float) -> None:
    rng = np.random.default_rng(0)
    new = np.zeros(96, bool)
    new[rng.choice(96, 24, replace=False)] = True  # rows that came in between, as in a table sorted by name
    keys = np.array([f"file-{number:03}" for number in range(96)])
    by_key, by_key_before = _parts(96, keys=keys), _parts(72, keys=keys[~new])
    at_random, at_random_before = _parts(96), _parts(72)
    moved = int((at_random[~new] != at_random_before).sum())
    stayed = int((by_key[~new] == by_key_before).sum())
    _draw_cells(drawing, x, y, "72 files", by_key_before, np.zeros(72, bool))
    _draw_cells(drawing, x, y + 88, f"24 more (dots), keys=name: {72 - stayed} of 72 moved", by_key, new)
    _draw_cells(drawing, x, y + 196, f"the same at random: {moved} of 72 moved", at_random, new)


def _draw_cells(drawing: Drawing, x: float, y: float, name: str, parts: np.ndarray, marked: np.ndarray) -> None:
    drawing.text(x, y + 12, name)
    for place, (part, mark) in enumerate(zip(parts.tolist(), marked.tolist(), strict=True)):
        left, top = x + 14.9 * (place % 24), y + 23 + 19 * (place // 24)
        drawing.box(left, top, 13, 15, colour(part), rounded=2)
        if mark:
            drawing.dot(left + 6.5, top + 7.5, "ground", 2.5)


# --- packing ---

ROW = 512


def packed_rows() -> Drawing:
    lengths = np.random.default_rng(0).lognormal(4.9, 0.6, 48).clip(8, ROW).astype(int)
    batch = pack(ROW)([np.zeros(length, int) for length in lengths])
    drawing = Drawing(WIDTH, 470, "48 texts, padded and packed")
    drawing.text(16, 26, drawing.title, bold=True)
    drawing.legend(WIDTH - 290, 26, [(colour(0), "texts"), ("pale", "padding")])
    width = HALF / ROW
    padded = 1 - lengths.sum() / (lengths.max() * len(lengths))
    drawing.text(16, 56, "pad: a row for each")
    drawing.text(16 + HALF, 56, f"{len(lengths)} rows, {padded:.0%} padding", "faint", "end", size=11)
    for row, length in enumerate(lengths.tolist()):
        drawing.box(16, 66 + 8 * row, width * lengths.max(), 7, "pale")
        drawing.box(16, 66 + 8 * row, width * length, 7, colour(row))
    left, rows = 16 + HALF + 16, batch.segments
    drawing.text(left, 56, f"pack({ROW}): several in a row")
    drawing.text(left + HALF, 56, f"{len(rows)} rows, {(rows == 0).mean():.0%} padding", "faint", "end", size=11)
    for row, segments in enumerate(rows):
        y = 66 + 20 * row
        drawing.box(left, y, HALF, 16, "pale")
        for segment in sorted(set(segments.tolist()) - {0}):
            places = np.flatnonzero(segments == segment)
            drawing.box(left + width * places[0], y, width * len(places) - 1, 16, colour(segment - 1))
    return drawing
