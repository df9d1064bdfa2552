"""Draws the documentation's pictures into docs/pictures, with feedline's own samplers and collators, by matplotlib.

    make pictures

Some show what benchmarks have measured or simulated, which is kept in docs/measured (make_pages takes new results).

The same pictures each time, byte for byte, with one version of matplotlib: a test compares them with those in the tree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drawn_data import packed_rows, splits
from drawn_practice import gradient_noise_by_batch_size, learning_rate_with_warmup
from drawn_samplers import classes_in_batches, mixing, padding_of_batches
from feedline.diagnose.plotting import encoded, looks
from measured_grid import grid_picture
from measured_growth import growth_picture
from measured_peers import peers_picture
from measured_ray import ray_scaling_picture
from measured_simulation import simulation_picture

FOLDER = Path(__file__).parent / "pictures"
MEASURED = Path(__file__).parent / "measured"


def facts(measured: str) -> Any:
    """What a benchmark has measured."""
    return json.loads((MEASURED / f"{measured}.json").read_text(encoding="utf-8"))


PICTURES = {
    "classes-in-batches": classes_in_batches,
    "cost-growth": lambda: growth_picture(facts("growth")),
    "grid": lambda: grid_picture(facts("grid")),
    "gradient-noise": gradient_noise_by_batch_size,
    "learning-rate": learning_rate_with_warmup,
    "mixing": mixing,
    "packed-rows": packed_rows,
    "padding": padding_of_batches,
    "peers": lambda: peers_picture(facts("peers")),
    "ray-scaling": lambda: ray_scaling_picture(facts("ray_scaling")),
    "simulation": lambda: simulation_picture(facts("simulation")),
    "splits": splits,
}


@looks()
def drawn(name: str) -> bytes:
    """A picture's file."""
    return encoded(PICTURES[name]())


def draw_all() -> None:
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_bytes(drawn(name))


if __name__ == "__main__":
    draw_all()
