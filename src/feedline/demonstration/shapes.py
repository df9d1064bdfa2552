"""What is on the images: shapes and textures, drawn with NumPy.

Takes: the name of a class and a generator. Gives: the pixels of one image. Promises: same generator state, same image.
Not its job: which image has which class, files (images).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CLASSES = ("disk", "ring", "square", "cross", "stripes", "checks")
RARE = ("ring", "cross")
SIZE = 96


def draw(name: str, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """A shape or texture in two random colours, somewhere near the middle, with noise on top.

    >>> draw("ring", np.random.default_rng(0)).shape
    (96, 96, 3)
    """
    down, across = np.mgrid[0:SIZE, 0:SIZE] - SIZE / 2
    y, x = np.abs(down - random.normal(0, 9)), np.abs(across - random.normal(0, 9))
    distance, radius = np.hypot(x, y), SIZE * random.uniform(0.2, 0.35)
    period = SIZE / random.uniform(3, 5)
    bands, columns = np.sin(2 * np.pi * down / period), np.sin(2 * np.pi * across / period)
    inside = {
        "disk": distance < radius,
        "ring": np.abs(distance - radius) < SIZE / 14,
        "square": np.maximum(x, y) < radius * 0.9,
        "cross": (np.minimum(x, y) < SIZE / 14) & (np.maximum(x, y) < radius * 1.3),
        "stripes": bands > 0,
        "checks": bands * columns > 0,
    }[name]
    back, front = random.uniform(20, 130, 3), random.uniform(120, 235, 3)
    pixels = np.where(inside[..., None], front, back) + random.normal(0, 35, (SIZE, SIZE, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)
