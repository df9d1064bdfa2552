"""Pictures of a coming epoch: which class, which source, how much padding is in which batch; its order; one batch.

Takes: batches of indices, and what is known of each sample. Gives: matplotlib figures in our style.
Promises: a long epoch is shown by its first batches, and the picture says so.
Not its job: finding labels and lengths (draw), the epoch (coming_epoch), files (plotting).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feedline.datasets import IntArray
from feedline.diagnose.drawing.coming_epoch import Coming
from feedline.diagnose.plotting import COLOURS, FAINT, GROUND, PALE, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 760, 340
BATCHES = 60
POINTS = 5000
CLASSES = 6
"""Colours there are; the rarest classes share the last one."""
THUMBNAILS = 16


def shares_in_batches(coming: Coming, codes: IntArray, names: Sequence[Any], title: str) -> Figure:
    """A column for each batch, with a part for each class or source."""
    shown = coming.batches[:BATCHES]
    codes, names = few_classes(codes, names)
    counts = np.array([np.bincount(codes[batch], minlength=len(names)) for batch in shown]).reshape(-1, len(names))
    below = counts.cumsum(1) - counts
    sizes = np.bincount(codes, minlength=len(names))
    drawing = figure(title, WIDTH, HEIGHT)
    axes = drawing.subplots()
    for number, name in enumerate(names):
        label = f"{name} ({sizes[number]:,})"
        axes.bar(range(len(shown)), counts[:, number], bottom=below[:, number], color=COLOURS[number], label=label)
    lacking = int((counts == 0).any(1).sum())
    note = f"{lacking} of {len(shown)} lack one" if lacking else "each has all"
    _name(axes, coming, len(shown), note)
    axes.set(xlabel="batch", ylabel="samples")
    drawing.legend(loc="outside lower center", ncols=len(names))
    return drawing


def few_classes(codes: IntArray, names: Sequence[Any]) -> tuple[IntArray, list[str]]:
    """The same with no more classes than there are colours: the smallest become one.

    >>> few_classes(np.array([0, 1, 1, 2, 3, 4, 5, 6, 6]), "abcdefg")
    (array([0, 1, 1, 2, 3, 5, 5, 4, 4]), ['a', 'b', 'c', 'd', 'g', '2 others'])
    """
    if len(names) <= CLASSES:
        return codes, [str(name)[:30] for name in names]
    sizes = np.bincount(codes, minlength=len(names))
    kept = np.sort(np.argsort(-sizes, kind="stable")[: CLASSES - 1])
    place = np.full(len(names), CLASSES - 1)
    place[kept] = np.arange(CLASSES - 1)
    return place[codes], [*(str(names[one])[:30] for one in kept), f"{len(names) - CLASSES + 1} others"]


def padding_of_batches(coming: Coming, lengths: IntArray) -> Figure:
    """For each batch the room that its samples fill, and the padding to the longest of them."""
    shown = [lengths[batch] for batch in coming.batches[:BATCHES]]
    filled = np.array([float(batch.sum()) for batch in shown])
    places = np.array([float(batch.max(initial=0) * len(batch)) for batch in shown])
    drawing = figure("Padding of each batch", WIDTH, HEIGHT)
    axes = drawing.subplots()
    axes.bar(range(len(shown)), filled, color=COLOURS[0], label="data")
    axes.bar(range(len(shown)), places - filled, bottom=filled, color=PALE, label="padding")
    whole = places.sum()
    _name(axes, coming, len(shown), f"{1 - filled.sum() / whole if whole else 0:.0%} padding, if padded to the longest")
    axes.set(xlabel="batch", ylabel="places")
    drawing.legend(loc="outside lower center", ncols=2)
    return drawing


def order_of_epoch(coming: Coming) -> Figure:
    """A point for each sample: when it comes, and where it is in the dataset."""
    order = coming.order
    step = max(1, -(-len(order) // POINTS))
    drawing = figure("Order of the epoch", WIDTH, HEIGHT)
    axes = drawing.subplots()
    axes.plot(np.arange(len(order))[::step], order[::step], ".", markersize=2, color=COLOURS[0])
    repeated = len(order) - len(np.unique(order))
    _name(axes, coming, len(coming.batches), f"{repeated:,} come again" if repeated else "each at most once")
    axes.set(xlabel="place in the epoch", ylabel="index in the dataset")
    return drawing


def thumbnails(coming: Coming, samples: Sequence[tuple[Any, Any]]) -> Figure:
    """The images of a batch with their labels."""
    across = min(8, max(1, len(samples)))
    down = -(-len(samples) // across)
    drawing = figure("The first batch", WIDTH, 60 + down * 110)
    panels = np.asarray(drawing.subplots(down, across, squeeze=False)).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, (image, label), index in zip(panels, samples, coming.batches[0].tolist(), strict=False):
        axes.imshow(image, cmap="gray" if image.ndim == 2 else None)
        shown = f"{index}" if label is None else f"{index}: {str(label)[:20]}"
        axes.set_title(shown, fontsize="small", color=FAINT, parse_math=False)
    return drawing


def _name(axes: Axes, coming: Coming, shown: int, note: str) -> None:
    total = f"{len(coming.batches):,}{' and more' if coming.cut else ''}"
    which = f"{'next epoch' if coming.epoch is None else f'epoch {coming.epoch}'}: {total} batches"
    if shown < len(coming.batches):
        which += f", the first {shown}"
    axes.set_title(which, fontsize="small", color=FAINT)
    axes.set_title(note, loc="right", fontsize="small", color=FAINT)
    axes.set_facecolor(GROUND)
    axes.margins(x=0.01)
