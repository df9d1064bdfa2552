"""Draws the documentation's pictures into docs/pictures, with feedline's own samplers, collators and drawing code.

    make pictures

The same pictures each time, byte for byte: a test compares them with those in the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from feedline import (
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    gradient_noise,
    scale_learning_rate,
    warmup,
)
from feedline.drawing.charts import Axis, Series, draw_lines, line_chart
from feedline.drawing.svg import Drawing, colour

FOLDER = Path(__file__).parent / "pictures"
WIDTH = 760


# --- which class lands in which batch ---

CLASSES = {"common": 326, "rare": 39, "very rare": 19}
BATCH = 16


def classes_in_batches() -> Drawing:
    labels = np.repeat(np.arange(len(CLASSES)), list(CLASSES.values()))  # sorted, as files in folders are
    weights = (1 / np.bincount(labels))[labels]
    orders = {
        "in order, data sorted by class": SequentialSampler(labels),
        "shuffle=True": RandomSampler(labels, seed=0),
        "WeightedRandomSampler": WeightedRandomSampler(weights, len(labels), seed=0),
    }
    drawing = Drawing(WIDTH, 420, "Which class lands in which batch")
    drawing.text(16, 24, drawing.title, bold=True)
    counts = [f"{name} ({count})" for name, count in CLASSES.items()]
    drawing.legend(400, 24, [(colour(number), name) for number, name in enumerate(counts)])
    for number, (name, sampler) in enumerate(orders.items()):
        indices = np.array(list(sampler))
        _batches(drawing, 16 + 372 * (number % 2), 44 + 186 * (number // 2), name, labels[indices])
    return drawing


def _batches(drawing: Drawing, x: float, y: float, name: str, labels: np.ndarray) -> None:
    """A column for each batch, a cell for each sample, the classes of a batch one above the other."""
    batches = np.sort(labels.reshape(-1, BATCH))
    lacking = sum(len(set(batch)) < len(CLASSES) for batch in batches.tolist())
    drawing.text(x, y + 14, name)
    note = f"{lacking} of {len(batches)} batches lack a class" if lacking else "every batch has every class"
    drawing.text(x + 356, y + 14, note, "faint", "end", size=11)
    for column, batch in enumerate(batches):
        above = BATCH
        for label, count in enumerate(np.bincount(batch, minlength=len(CLASSES)).tolist()):
            above -= count
            drawing.box(x + 15 * column, y + 24 + 9 * above, 13, 9 * count, colour(label))
    for row in range(1, BATCH):  # so that every sample is a cell
        drawing.line([(x, y + 24 + 9 * row), (x + 15 * len(batches), y + 24 + 9 * row)], "ground")


# --- batch size and gradient noise ---

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


PICTURES: dict[str, Callable[[], Drawing]] = {
    "classes-in-batches": classes_in_batches,
    "gradient-noise": gradient_noise_by_batch_size,
    "learning-rate": learning_rate_with_warmup,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
