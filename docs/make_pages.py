"""Puts what was measured into the documentation: tables between the markers of pages, and their pictures.

    python docs/make_pages.py                                          # again, from docs/measured
    python docs/make_pages.py --peers FILE --growth FILE --grid FILE   # from new results, which are kept there

Takes: docs/measured/*.json. Promises: only what stands between `<!-- name -->` and `<!-- /name -->` is changed; the
same facts, the same page, byte for byte: a test compares. Not its job: what is written there (measured_….py).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from make_pictures import MEASURED, draw_all, facts
from measured_grid import grid_summary, grid_worst
from measured_growth import growth_table
from measured_peers import peers_set_up, peers_table
from measured_skewed import skewed_table

DOCS = Path(__file__).parent
PARTS: dict[str, dict[str, tuple[str, Callable[[Any], str]]]] = {
    "peers.md": {"table": ("peers", peers_table), "set up": ("peers", peers_set_up)},
    "cost-growth.md": {"table": ("growth", growth_table)},
    "grid.md": {"summary": ("grid", grid_summary), "worst": ("grid", grid_worst)},
    "skewed.md": {"table": ("skewed", skewed_table)},
}
"""For each page and marker: the measured facts, and what makes text of them."""


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with other text between its markers.

    >>> filled("Before <!-- a -->old<!-- /a --> after", {"a": "new"})
    'Before <!-- a -->\\nnew\\n<!-- /a --> after'
    """
    for name, text in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"the page needs {begin} and {end} once each")
        before, after = page.partition(begin)[0], page.partition(end)[2]
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def made(name: str) -> str:
    """A page as it should be."""
    parts = {marker: make(facts(measured)) for marker, (measured, make) in PARTS[name].items()}
    return filled((DOCS / name).read_text(encoding="utf-8"), parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("peers", "growth", "grid", "skewed"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"new results of make bench-{name}")
    for name, path in vars(parser.parse_args()).items():
        if path is not None:
            shutil.copyfile(path, MEASURED / f"{name}.json")
    for page in PARTS:
        (DOCS / page).write_text(made(page), encoding="utf-8")
    draw_all()


if __name__ == "__main__":
    main()
