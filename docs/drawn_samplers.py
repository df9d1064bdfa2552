"""Pictures of what samplers do: classes in batches, padding, mixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from feedline.diagnose.plotting import COLOURS, FAINT, GROUND, PALE, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 760


def name_panel(axes: Axes, name: str, note: str = "") -> None:
    """A name on the left, what is to be seen on the right, and no axes."""
    axes.set_title(name)
    axes.set_title(note, loc="right", fontsize="small", color=FAINT)
    axes.set_axis_off()


# --- which class lands in which batch ---

CLASSES = {"common": 326, "rare": 39, "very rare": 19}
BATCH = 16


def classes_in_batches() -> Figure:
    labels = np.repeat(np.arange(len(CLASSES)), list(CLASSES.values()))  # sorted, as files in folders are
    weighted = WeightedRandomSampler(weights_from_labels(labels), len(labels), seed=0)
    batches = {
        "data sorted by class, in order": BatchSampler(SequentialSampler(labels), BATCH),
        "shuffle=True": BatchSampler(RandomSampler(labels, seed=0), BATCH),
        "WeightedRandomSampler": BatchSampler(weighted, BATCH),
        "StratifiedBatchSampler": StratifiedBatchSampler(labels, BATCH, seed=0),
    }
    drawing = figure("Which class lands in which batch", WIDTH, 410)
    panels = drawing.subplots(2, 2)
    for axes, (name, sampler) in zip(panels.flat, batches.items(), strict=True):
        _draw_batches(axes, name, [labels[batch] for batch in sampler])
    drawing.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return drawing


def _draw_batches(axes: Axes, name: str, batches: list[np.ndarray]) -> None:
    """A column for each batch, a cell for each sample, the classes of a batch one above the other."""
    counts = np.array([np.bincount(batch, minlength=len(CLASSES)) for batch in batches])
    below = counts.cumsum(1) - counts
    for label, (named, count) in enumerate(CLASSES.items()):
        columns = range(len(batches))
        axes.bar(columns, counts[:, label], bottom=below[:, label], label=f"{named} ({count})")
    axes.hlines(range(1, BATCH), -0.5, len(batches) - 0.5, color=GROUND, linewidth=1)  # so that every sample is a cell
    axes.margins(0)
    lacking = (counts == 0).any(1).sum()
    name_panel(axes, name, f"{lacking} of {len(batches)} lack a class" if lacking else "each has every class")


# --- padding ---


def padding_of_batches() -> Figure:
    lengths = np.random.default_rng(0).lognormal(4.0, 0.6, 4096).clip(4, 300).astype(int)
    ways = {
        "shuffle=True": BatchSampler(RandomSampler(lengths, seed=0), 16),
        "BucketBatchSampler": BucketBatchSampler(lengths, 16, seed=0),
    }
    drawing = figure("Padding of shuffled and of bucketed batches", WIDTH, 490)
    panels = drawing.subplots(1, 2, sharex=True)
    for axes, (name, sampler) in zip(panels, ways.items(), strict=True):
        batches = [lengths[batch] for batch in sampler]
        places = sum(batch.max() * len(batch) for batch in batches)
        rows = np.concatenate([np.arange(16) + 17 * place for place in range(5)])
        axes.barh(rows, np.repeat([batch.max() for batch in batches[:5]], 16), 1.0, color=PALE, label="padding")
        axes.barh(rows, np.concatenate(batches[:5]), color=COLOURS[0], label="data")
        axes.set(xlim=(0, lengths.max()), ylim=(rows[-1] + 1, -1))
        name_panel(axes, name, f"{1 - lengths.sum() / places:.0%} padding")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return drawing


# --- mixtures ---

SOURCES = {"web": 4000, "code": 1000, "books": 250}
PROPORTIONS = {"web": 0.6, "code": 0.3, "books": 0.1}


def mixing() -> Figure:
    mixture = Mixture({name: range(size) for name, size in SOURCES.items()})
    sampler = MixtureSampler(mixture, PROPORTIONS, num_samples=6400, seed=0)
    batches = np.array([mixture.source_of(index) for index in sampler]).reshape(-1, 64)
    drawing = figure("Three sources in given proportions", WIDTH, 290)
    shares, passes = drawing.subplots(1, 2)
    drawn = range(0, 6401, 64)
    for name, size in SOURCES.items():
        label = f"{name}: {PROPORTIONS[name]:.0%}, of {size:,} samples"
        shares.plot(drawn[1:], (batches == name).mean(1), label=label)
        passes.plot(drawn, [sampler.source_epochs(0, samples)[name] for samples in drawn])
    shares.set_title("of a batch of 64")
    shares.yaxis.set_major_formatter("{x:.0%}")
    passes.set_title("how often each was gone through")
    for axes in (shares, passes):
        axes.set(xlabel="samples drawn", ylim=(0, None))
        axes.grid(axis="y")
    drawing.legend(loc="outside lower left", ncols=3)
    return drawing
