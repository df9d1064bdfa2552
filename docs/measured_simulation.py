"""What benchmarks/simulation.py measured: simulated and real epochs beside each other, as a picture.

Takes: the facts of docs/measured/simulation.json. Gives: `simulation_picture`, `apart` (by how much each is off).
Promises: the median of what was measured, and its lowest and highest. Not its job: measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from feedline.diagnose.plotting import COLOURS, FAINT, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Facts = Mapping[str, Any]


def apart(facts: Facts) -> dict[str, float]:
    """The simulated time over the measured one, less one, of each setting.

    >>> apart({"settings": [{"setting": "a", "simulated": 0.9, "measured": [1.1, 1.0, 0.9]}]})
    {'a': -0.1}
    """
    return {one["setting"]: round(one["simulated"] / median(one["measured"]) - 1, 4) for one in facts["settings"]}


def simulation_picture(facts: Facts) -> Figure:
    """A line for each setting: the simulated epoch as a bar, the measured ones as points."""
    settings = facts["settings"][::-1]
    off = apart(facts)
    drawing = figure("Simulated and measured epochs", 760, 90 + 26 * len(settings))
    axes = drawing.subplots()
    places = range(len(settings))
    axes.barh(places, [one["simulated"] for one in settings], height=0.5, color=COLOURS[5], label="simulated")
    for place, one in enumerate(settings):
        label = "measured" if not place else None
        axes.plot(one["measured"], [place] * len(one["measured"]), "o", markersize=4, color=COLOURS[4], label=label)
        beside = (max(one["simulated"], *one["measured"]), place)
        style = {"textcoords": "offset points", "va": "center", "color": FAINT, "fontsize": "small"}
        axes.annotate(f"{off[one['setting']]:+.0%}", beside, (8, 0), **style)
    axes.set_yticks(list(places), [one["setting"] for one in settings])
    axes.set(xlabel="seconds", xlim=(0, 1.12 * max(max(one["measured"]) for one in settings)))
    axes.grid(axis="x")
    drawing.legend(loc="outside upper right", ncols=2)
    return drawing
