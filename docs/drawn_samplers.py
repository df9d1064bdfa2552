"""Pictures of what samplers do: classes in batches, padding, mixtures."""

from __future__ import annotations

import numpy as np

from feedline import (
    BatchSampler,
    BucketBatchSampler,
    Mixture,
    MixtureSampler,
    RandomSampler,
    SequentialSampler,
    StratifiedBatchSampler,
    WeightedRandomSampler,
    weights_from_labels,
)
from feedline.drawing.charts import Axis, Series, draw_lines
from feedline.drawing.svg import Drawing, colour

WIDTH = 760
HALF = 356
"""Of two panels side by side."""


# --- which class lands in which batch ---

CLASSES = {"common": 326, "rare": 39, "very rare": 19}
BATCH = 16
CELL = 9


def classes_in_batches() -> Drawing:
    labels = np.repeat(np.arange(len(CLASSES)), list(CLASSES.values()))  # sorted, as files in folders are
    weighted = WeightedRandomSampler(weights_from_labels(labels), len(labels), seed=0)
    batches = {
        "data sorted by class, in order": BatchSampler(SequentialSampler(labels), BATCH),
        "shuffle=True": BatchSampler(RandomSampler(labels, seed=0), BATCH),
        "WeightedRandomSampler": BatchSampler(weighted, BATCH),
        "StratifiedBatchSampler": StratifiedBatchSampler(labels, BATCH, seed=0),
    }
    drawing = Drawing(WIDTH, 410, "Which class lands in which batch")
    drawing.text(16, 26, drawing.title, bold=True)
    counts = [f"{name} ({count})" for name, count in CLASSES.items()]
    drawing.legend(372, 26, [(colour(number), name) for number, name in enumerate(counts)])
    for number, (name, sampler) in enumerate(batches.items()):
        x, y = 16 + (HALF + 16) * (number % 2), 42 + 184 * (number // 2)
        _draw_batches(drawing, x, y, name, [labels[batch] for batch in sampler])
    return drawing


def _draw_batches(drawing: Drawing, x: float, y: float, name: str, batches: list[np.ndarray]) -> None:
    """A column for each batch, a cell for each sample, the classes of a batch one above the other."""
    lacking = sum(len(set(batch.tolist())) < len(CLASSES) for batch in batches)
    drawing.text(x, y + 14, name)
    note = f"{lacking} of {len(batches)} lack a class" if lacking else "each has every class"
    drawing.text(x + HALF, y + 14, note, "faint", "end", size=11)
    step = (HALF + 2) / len(batches)
    for column, batch in enumerate(batches):
        above = BATCH
        for label, count in enumerate(np.bincount(batch, minlength=len(CLASSES)).tolist()):
            above -= count
            drawing.box(x + step * column, y + 24 + CELL * above, step - 2, CELL * count, colour(label))
    for row in range(1, BATCH):  # so that every sample is a cell
        drawing.line([(x, y + 24 + CELL * row), (x + HALF, y + 24 + CELL * row)], "ground")


# --- padding ---


def padding_of_batches() -> Drawing:
    lengths = np.random.default_rng(0).lognormal(4.0, 0.6, 4096).clip(4, 300).astype(int)
    ways = {
        "shuffle=True": BatchSampler(RandomSampler(lengths, seed=0), 16),
        "BucketBatchSampler": BucketBatchSampler(lengths, 16, seed=0),
    }
    drawing = Drawing(WIDTH, 490, "Padding of shuffled and of bucketed batches")
    drawing.text(16, 26, drawing.title, bold=True)
    drawing.legend(WIDTH - 200, 26, [(colour(0), "data"), ("pale", "padding")])
    for number, (name, sampler) in enumerate(ways.items()):
        batches = [lengths[batch] for batch in sampler]
        places = sum(batch.max() * len(batch) for batch in batches)
        x = 16 + (HALF + 16) * number
        drawing.text(x, 56, name)
        drawing.text(x + HALF, 56, f"{1 - lengths.sum() / places:.0%} padding", "faint", "end", size=11)
        for place, batch in enumerate(batches[:5]):
            _draw_padded(drawing, x, 66 + 83 * place, batch, HALF / lengths.max())
    return drawing


def _draw_padded(drawing: Drawing, x: float, y: float, lengths: np.ndarray, width: float) -> None:
    drawing.box(x, y, width * lengths.max(), 5 * len(lengths) - 1, "pale")
    for row, length in enumerate(lengths.tolist()):
        drawing.box(x, y + 5 * row, width * length, 4, colour(0))


# --- mixtures ---

SOURCES = {"web": 4000, "code": 1000, "books": 250}
PROPORTIONS = {"web": 0.6, "code": 0.3, "books": 0.1}


def mixing() -> Drawing:
    mixture = Mixture({name: range(size) for name, size in SOURCES.items()})
    sampler = MixtureSampler(mixture, PROPORTIONS, num_samples=6400, seed=0)
    names = np.array([mixture.source_of(index) for index in sampler])
    batches = names.reshape(-1, 64)
    drawing = Drawing(WIDTH, 270, "Three sources in given proportions")
    shares, passes = [], []
    for name in SOURCES:
        share = (batches == name).mean(1).tolist()
        shares.append(Series(f"{name} {PROPORTIONS[name]:.0%}", [(64 * k, each) for k, each in enumerate(share, 1)]))
        gone = [sampler.source_epochs(0, samples)[name] for samples in range(0, 6401, 64)]
        passes.append(Series(f"{name} ({SOURCES[name]:,})", [(64 * k, each) for k, each in enumerate(gone)]))
    samples = Axis("samples drawn")
    of_batch = Axis("of a batch of 64", label="{:.0%}".format)
    draw_lines(drawing, drawing.title, shares, samples, of_batch, (0, 0, 380, 270))
    draw_lines(drawing, "How often each was gone through", passes, samples, Axis("passes"), (380, 0, 380, 270))
    return drawing
