"""What a simulation of many CPUs on a Ray cluster gave, as it is shown on docs/ray.md.

Takes: the facts of docs/measured/ray_scaling.json. Gives: `ray_scaling_picture`.
Not its job: simulating (benchmarks/ray_scaling.py), what it means (the page).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feedline.diagnose.plotting import FAINT, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ray_scaling_picture(facts: Sequence[Mapping[str, Any]]) -> Figure:
    """Samples per second against CPUs, and for each setting what limits it at last."""
    drawing = figure("Remote CPUs and samples per second (simulated)", 760, 420)
    axes = drawing.subplots()
    for one in facts:
        axes.plot(one["cpus"], one["samples_per_second"], "o-", markersize=4, label=one["name"])
        name, most = min(
            (limit for limit in one["limits"].items() if limit[0] != "a worker"), key=lambda limit: limit[1]
        )
        if one["samples_per_second"][-1] > 0.7 * most * one["batch_size"]:
            place = (one["cpus"][-1], one["samples_per_second"][-1])
            axes.annotate(name, place, (0, -14), textcoords="offset points", ha="right", color=FAINT, fontsize="small")
    axes.set(xscale="log", yscale="log", xlabel="CPUs", ylabel="samples per second", ylim=(3, 600_000))
    axes.set_xticks(facts[0]["cpus"], [str(cpus) for cpus in facts[0]["cpus"]])
    axes.minorticks_off()
    axes.grid(axis="y")
    drawing.legend(loc="outside lower left", ncols=2)
    return drawing
