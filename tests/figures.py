"""What is written in an SVG file of matplotlib's, and where."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: bytes) -> list[str]:
    return [part.text or "" for part in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def check_places(svg: bytes) -> None:
    """Nothing that is written lies outside the picture, nor on anything else that is."""
    _, _, width, height = map(float, ElementTree.fromstring(svg).attrib["viewBox"].split())
    places = list(_places(svg))
    for text, (left, top, right, bottom) in places:
        assert left >= 0 <= top, text
        assert right <= width, text
        assert bottom <= height, text
    for (text, one), (other, two) in combinations(places, 2):
        assert one[0] >= two[2] or two[0] >= one[2] or one[1] >= two[3] or two[1] >= one[3], (text, other)


def _places(svg: bytes) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """Left, top, right and bottom of each text, in the font that matplotlib brings: the widest of the usual ones."""
    from matplotlib.textpath import TextPath

    for part in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        if part.text and "x" in part.attrib:  # powers of ten have their places letter by letter
            style = dict(each.split(": ", 1) for each in part.attrib["style"].split("; "))
            size = float(style["font-size"].removesuffix("px"))
            long = (
                TextPath((0, 0), part.text, size=size, prop={"weight": style.get("font-weight", 400)}).get_extents().x1
            )
            x, y = float(part.attrib["x"]), float(part.attrib["y"])
            before = {"start": 0.0, "middle": long / 2, "end": long}[style["text-anchor"]]
            if "rotate(-90" in part.attrib["transform"]:
                yield part.text, (x - 0.75 * size, y + before - long, x, y + before)
            else:
                yield part.text, (x - before, y - 0.75 * size, x - before + long, y)
