"""Pictures of batch size: gradient noise, learning rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from feedline import gradient_noise, scale_learning_rate, warmup
from feedline.diagnose.plotting import FAINT, INK, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 760
VARIANCES = np.linspace(0.5, 2.0, 20)
"""Of the inputs of a made linear regression; its weights are 0.3 off in each direction."""


def gradients(batch: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(batch)
    x = rng.normal(size=(count * batch, len(VARIANCES))) * np.sqrt(VARIANCES)
    errors = 0.3 * x.sum(1) - rng.normal(size=len(x))
    return (x * errors[:, None]).reshape(count, batch, -1).mean(1)


def gradient_noise_by_batch_size() -> Figure:
    truth = 0.3 * VARIANCES
    sizes = [2**power for power in range(11)]
    apart = [np.square(gradients(size, 64) - truth).sum(1).mean() / np.square(truth).sum() for size in sizes]
    small = gradients(8, 32 * 8).reshape(32, 8, -1)
    noise = gradient_noise(small, small.mean(1), 8, 64)
    drawing = figure("Batch size and gradient noise", WIDTH, 320)
    axes = drawing.subplots()
    axes.loglog(sizes, apart, "o", markersize=4, label="measured")
    axes.loglog([1, 1024], [noise.scale, noise.scale / 1024], label="noise scale / batch size")
    axes.set(xlabel="batch size", ylabel="noise / gradient")
    axes.minorticks_off()
    for value, colour in ((noise.low, FAINT), (noise.high, FAINT), (noise.scale, INK)):
        axes.axvline(value, color=colour, linestyle="--", linewidth=1)
    beside = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
    axes.annotate(str(noise).partition(", so")[0], (noise.high, 0.93), (6, 0), **beside)
    small_print = {**beside, "color": FAINT, "fontsize": "small"}
    axes.annotate("twice the batch: half the steps", (noise.low, 0.05), (-6, 0), ha="right", **small_print)
    axes.annotate("twice the batch: hardly fewer steps", (noise.high, 0.05), (6, 0), **small_print)
    axes.grid(axis="y")
    drawing.legend(loc="outside upper right", ncols=2)
    return drawing


def learning_rate_with_warmup() -> Figure:
    drawing = figure("Linear scaling from 0.1 at 256, with warmup(200)", WIDTH, 300)
    axes = drawing.subplots()
    for size in (256, 512, 1024):
        rate, factor = scale_learning_rate(0.1, size, 256), warmup(200, start=256 / size)
        axes.plot(range(0, 501, 10), [rate * factor(step) for step in range(0, 501, 10)], label=f"batches of {size}")
    axes.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    axes.grid(axis="y")
    drawing.legend(loc="outside lower left", ncols=3)
    return drawing
