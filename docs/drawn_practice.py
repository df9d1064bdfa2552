"""Pictures of batch size: gradient noise, learning rates."""

from __future__ import annotations

import numpy as np

from feedline import gradient_noise, scale_learning_rate, warmup
from feedline.drawing.charts import Axis, Series, draw_lines, line_chart
from feedline.drawing.svg import Drawing

WIDTH = 760
VARIANCES = np.linspace(0.5, 2.0, 20)
"""Of the inputs of a made linear regression; its weights are 0.3 off in each direction."""


def gradients(batch: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(batch)
    x = rng.normal(size=(count * batch, len(VARIANCES))) * np.sqrt(VARIANCES)
    errors = 0.3 * x.sum(1) - rng.normal(size=len(x))
    return (x * errors[:, None]).reshape(count, batch, -1).mean(1)


def gradient_noise_by_batch_size() -> Drawing:
    truth = 0.3 * VARIANCES
    sizes = [2**power for power in range(11)]
    apart = [np.square(gradients(size, 64) - truth).sum(1).mean() / np.square(truth).sum() for size in sizes]
    small = gradients(8, 32 * 8).reshape(32, 8, -1)
    noise = gradient_noise(small, small.mean(1), 8, 64)
    drawing = Drawing(WIDTH, 320, "Batch size and gradient noise")
    series = [
        Series("measured", list(zip(map(float, sizes), apart, strict=True)), joined=False, dotted=True),
        Series("noise scale / batch size", [(size, noise.scale / size) for size in (1.0, 1024.0)]),
    ]
    x = Axis("batch size", log=True)
    across, up = draw_lines(drawing, drawing.title, series, x, Axis("noise / gradient", log=True), (0, 0, WIDTH, 320))
    for value, kind in ((noise.low, "faint"), (noise.high, "faint"), (noise.scale, "ink")):
        drawing.line([(across.at(value), up.begin), (across.at(value), up.end)], kind, dashed=True)
    drawing.text(across.at(noise.high) + 8, up.end + 14, str(noise).partition(", so")[0])
    drawing.text(across.at(noise.low) - 8, up.begin - 12, "twice the batch: half the steps", "faint", "end", size=11)
    drawing.text(across.at(noise.high) + 8, up.begin - 12, "twice the batch: hardly fewer steps", "faint", size=11)
    return drawing


def learning_rate_with_warmup() -> Drawing:
    series = []
    for size in (256, 512, 1024):
        rate, factor = scale_learning_rate(0.1, size, 256), warmup(200, start=256 / size)
        series.append(Series(f"batches of {size}", [(step, rate * factor(step)) for step in range(0, 501, 10)]))
    return line_chart("Linear scaling from 0.1 at 256, with warmup(200)", series, Axis("step"), Axis("learning rate"))
