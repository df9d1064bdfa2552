"""A picture as PNG: for slides, chats and wherever SVG is not shown.

Takes: a `Drawing` and a path. Gives: a file, always on light ground.
Promises: the same shapes in the same places as the SVG; a whole file or none. Needs Pillow (feedline[images]).
Not its job: what is drawn (svg, charts).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING

from feedline.drawing.svg import (
    COLOURS,
    CORNER,
    DASH,
    GAP,
    GROUNDS,
    Box,
    Dot,
    Drawing,
    Line,
    Point,
    Shape,
    Text,
    colour,
)
from feedline.extras import extra

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

DOTS = 2
"""Of the file, per unit of the drawing: sharp on today's screens."""
FINER = 3
"""Drawn so much larger and made smaller then, for smooth edges."""
LETTERS = str.maketrans({"×": "x", "–": "-", "—": "-", "…": "...", "µ": "u", "≥": ">=", "≤": "<=", "→": "->", "·": "-"})
"""Pillow's own font has little more than ASCII."""
PAINTS = {**GROUNDS, **{colour(number): each for number, each in enumerate(COLOURS)}}


def check_can_save(path: str | os.PathLike[str]) -> None:
    """Is what is needed for that file installed? Not after a minute, when there is something to draw.

    >>> check_can_save("curve.svg")
    """
    if Path(path).suffix.lower() != ".svg":
        extra("PIL.Image", "images", "pictures as PNG")


def save(drawing: Drawing, path: str | os.PathLike[str]) -> None:
    """Write the picture: as SVG if the name ends so, else as PNG.

    >>> import tempfile
    >>> picture = Drawing(120, 40, "A bar")
    >>> picture.box(10, 10, 100, 20, colour(0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(picture, f"{folder}/bar.png")
    ...     print(Path(folder, "bar.png").read_bytes()[:4])
    b'\\x89PNG'
    """
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        if target.suffix.lower() == ".svg":
            unfinished.write_text(str(drawing), encoding="utf-8")
        else:
            painted(drawing).save(unfinished, "PNG")
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def painted(drawing: Drawing) -> Image.Image:
    """The picture in dots."""
    pillow = extra("PIL.Image", "images", "pictures as PNG")
    scale = DOTS * FINER
    image: Image.Image = pillow.new("RGBA", (round(drawing.width * scale), round(drawing.height * scale)), (0, 0, 0, 0))
    brush = extra("PIL.ImageDraw", "images", "pictures as PNG").Draw(image)
    for shape in (Box(0, 0, drawing.width, drawing.height, "ground", CORNER), *drawing.shapes):
        _paint(brush, shape, scale)
    return image.resize((round(drawing.width * DOTS), round(drawing.height * DOTS)), pillow.Resampling.BOX)


def _paint(brush: ImageDraw.ImageDraw, shape: Shape, scale: float) -> None:
    paint = PAINTS[shape.kind]
    if isinstance(shape, Box):
        if shape.width > 0 and shape.height > 0:  # as SVG: what has no area is not seen
            _paint_box(brush, shape, paint, scale)
    elif isinstance(shape, Dot):
        x, y, radius = shape.x * scale, shape.y * scale, shape.radius * scale
        brush.ellipse((x - radius, y - radius, x + radius, y + radius), paint)
    elif isinstance(shape, Line):
        pieces: Iterator[Sequence[Point]] = dashes(shape.points) if shape.dashed else iter((shape.points,))
        for piece in pieces:
            at = [(x * scale, y * scale) for x, y in piece]
            brush.line(at, paint, max(1, round(shape.width * scale)), joint="curve")
    else:
        _paint_text(brush, shape, paint, scale)


def _paint_box(brush: ImageDraw.ImageDraw, box: Box, paint: str, scale: float) -> None:
    left, top = box.x * scale, box.y * scale
    right, bottom = left + max(box.width * scale - 1, 0), top + max(box.height * scale - 1, 0)  # both ends are painted
    brush.rounded_rectangle((left, top, right, bottom), box.rounded * scale, paint)


def _paint_text(brush: ImageDraw.ImageDraw, text: Text, paint: str, scale: float) -> None:
    font = extra("PIL.ImageFont", "images", "pictures as PNG").load_default(text.size * scale)
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[text.anchor]
    heavier = round(0.03 * text.size * scale) if text.bold else 0  # Pillow brings one weight
    brush.text(
        (text.x * scale, text.y * scale), text.text.translate(LETTERS), paint, font, anchor, stroke_width=heavier
    )


def dashes(points: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    """The pieces of a dashed line that are seen; the pattern goes on around corners.

    >>> list(dashes([(0, 0), (12, 0)]))
    [((0.0, 0.0), (5.0, 0.0)), ((9.0, 0.0), (12.0, 0.0))]
    """
    done = 0.0  # of the pattern
    for (x, y), (to_x, to_y) in pairwise(points):
        length, at = hypot(to_x - x, to_y - y), 0.0
        while at < length:
            seen = done < DASH
            step = min((DASH if seen else DASH + GAP) - done, length - at)
            if seen:
                ends = [
                    (x + (to_x - x) * share, y + (to_y - y) * share) for share in (at / length, (at + step) / length)
                ]
                yield ends[0], ends[1]
            at += step
            done = (done + step) % (DASH + GAP)
