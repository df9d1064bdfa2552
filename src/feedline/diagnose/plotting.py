"""Pictures by matplotlib (feedline[plot]): our style, and the bytes of a picture's file.

Takes: a path, then a figure. Gives: `check_plot`, `looks` to draw under, `figure` to draw on, `encoded` for the file.
Promises: matplotlib is imported only when something is drawn; the same figure gives the same bytes as SVG (with one
version of matplotlib); readable on light and dark pages, and by colour-blind people; text stays text.
Not its job: what is drawn (tune_page, bench_page, docs/).
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
"""The palette of Okabe and Ito."""
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
    """The file of --plot; if it cannot be drawn, that is reported now, and not after minutes of measuring."""
    plot = check_file("--plot", path)
    if plot is not None and find_spec("matplotlib") is None:  # importing it would make every forked worker larger
        raise OptionError("a picture needs matplotlib, which is not installed; pip install 'feedline[plot]' brings it")
    return plot


@contextmanager
def looks() -> Iterator[None]:
    """Within the block our settings of matplotlib apply; the user's are ignored, and not changed."""
    matplotlib = extra("matplotlib", "plot", "pictures")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOKS)
        yield


def figure(title: str, width: float, height: float) -> Figure:
    """An empty figure with a title; its size is in CSS pixels. It is matplotlib's own, and needs no display."""
    inches = (width / 96, height / 96)
    made: Figure = extra("matplotlib.figure", "plot", "pictures").Figure(inches, layout="constrained")
    made.suptitle(title, x=0.015, ha="left", parse_math=False)
    return made


@looks()
def encoded(drawn: Figure, path: str = "picture.svg") -> bytes:
    """The bytes to write to that path: SVG if the name ends in .svg, else PNG."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A dataset may be named 사진. matplotlib's font has no such letters, but programs that show an SVG file do.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        if path.lower().endswith(".svg"):
            about = {"Title": drawn.get_suptitle(), "Creator": None, "Date": None}
            drawn.savefig(file, format="svg", metadata=about)
        else:
            drawn.savefig(file, format="png", dpi=192)
    return file.getvalue()
