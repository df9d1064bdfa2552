"""Draws the documentation's pictures into docs/pictures, with feedline's own samplers, collators and drawing code.

    make pictures

Two show what benchmarks have measured, which is kept in docs/measured (make_pages takes new results).

The same pictures each time, byte for byte: a test compares them with those in the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drawn_data import packed_rows, splits
from drawn_practice import gradient_noise_by_batch_size, learning_rate_with_warmup
from drawn_samplers import classes_in_batches, mixing, padding_of_batches
from feedline.drawing.svg import Drawing
from measured_growth import growth_picture
from measured_peers import peers_picture

FOLDER = Path(__file__).parent / "pictures"
MEASURED = Path(__file__).parent / "measured"


def facts(measured: str) -> Any:
    """What a benchmark has measured."""
    return json.loads((MEASURED / f"{measured}.json").read_text(encoding="utf-8"))


PICTURES: dict[str, Callable[[], Drawing]] = {
    "classes-in-batches": classes_in_batches,
    "cost-growth": lambda: growth_picture(facts("growth")),
    "gradient-noise": gradient_noise_by_batch_size,
    "learning-rate": learning_rate_with_warmup,
    "mixing": mixing,
    "packed-rows": packed_rows,
    "padding": padding_of_batches,
    "peers": lambda: peers_picture(facts("peers")),
    "splits": splits,
}


def draw_all() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()), encoding="utf-8")


if __name__ == "__main__":
    draw_all()
