"""Draws the documentation's pictures into docs/pictures, with feedline's own samplers, collators and drawing code.

    make pictures

The same pictures each time, byte for byte: a test compares them with those in the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drawn_data import packed_rows, splits
from drawn_practice import gradient_noise_by_batch_size, learning_rate_with_warmup
from drawn_samplers import classes_in_batches, mixing, padding_of_batches
from feedline.drawing.svg import Drawing

FOLDER = Path(__file__).parent / "pictures"
PICTURES: dict[str, Callable[[], Drawing]] = {
    "classes-in-batches": classes_in_batches,
    "gradient-noise": gradient_noise_by_batch_size,
    "learning-rate": learning_rate_with_warmup,
    "mixing": mixing,
    "packed-rows": packed_rows,
    "padding": padding_of_batches,
    "splits": splits,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()), encoding="utf-8")


if __name__ == "__main__":
    main()
