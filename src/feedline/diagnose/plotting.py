"""Pictures by matplotlib (feedline[plot]): our looks, and what a file of one holds.

Takes: a path, then a figure. Gives: `check_plot`, `looks` to draw under, `figure` to draw on, `encoded` for the file.
Promises: matplotlib is imported when something is drawn, not before; the same figure gives the same bytes as SVG (with
one version of matplotlib); readable on light and dark pages, and by those who do not see all colours; words stay words.
Not its job: what is drawn (tune.picture, bench.picture, docs/).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from feedline.errors import OptionError
from feedline.errors.checks import check_file
from feedline.errors.missing_packages import extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
"""Okabe and Ito's."""
GROUND, INK, FAINT, RULE, PALE = "#fbfaf7", "#20242a", "#62686f", "#dddad2", "#e6e3db"
LOOKS = {
    "axes.axisbelow": True,
    "axes.edgecolor": RULE,
    "axes.facecolor": GROUND,
    "axes.labelcolor": FAINT,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.facecolor": GROUND,
    "figure.titlesize": "large",
    "figure.titleweight": "bold",
    "font.size": 9,
    "grid.color": RULE,
    "legend.frameon": False,
    "legend.labelcolor": FAINT,
    "svg.fonttype": "none",
    "svg.hashsalt": "feedline",
    "text.color": INK,
    "xtick.color": RULE,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "ytick.major.size": 0,
}


def check_plot(path: Any) -> str | None:
    """The file of --plot; not after minutes of measuring is said that it cannot be drawn."""
    plot = check_file("--plot", path)
    if plot is not None and find_spec("matplotlib") is None:  # importing it would weigh on every forked worker
        raise OptionError("--plot needs matplotlib, which is not installed; pip install 'feedline[plot]' brings it")
    return plot


@contextmanager
def looks() -> Iterator[None]:
    """Whatever the user's own settings of matplotlib are, they are not asked, and stay as they are."""
    matplotlib = extra("matplotlib", "plot", "pictures")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOKS)
        yield


def figure(title: str, width: float, height: float) -> Figure:
    """An empty one with a title, so many CSS pixels large. It is matplotlib's own, and needs no display."""
    inches = (width / 96, height / 96)
    made: Figure = extra("matplotlib.figure", "plot", "pictures").Figure(inches, layout="constrained")
    made.suptitle(title, x=0.015, ha="left", parse_math=False)
    return made


@looks()
def encoded(drawn: Figure, path: str = "picture.svg") -> bytes:
    """What is to be written to that path: SVG if the name ends so, else PNG."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A dataset may be called 사진. matplotlib's font has no such letters, but whoever shows an SVG file has.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        if path.lower().endswith(".svg"):
            about = {"Title": drawn.get_suptitle(), "Creator": None, "Date": None}
            drawn.savefig(file, format="svg", metadata=about)
        else:
            drawn.savefig(file, format="png", dpi=192)
    return file.getvalue()
