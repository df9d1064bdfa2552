"""Files of every kind, made on the spot."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from feedline.sources.places import StoredFile


def natural(width: int, height: int, seed: int = 0, grain: float = 4) -> np.ndarray:
    """Something like a photograph: a slope, soft blobs of three sizes, fine grain."""
    random = np.random.default_rng(seed)
    down, across = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    pixels = random.normal(0, grain, (height, width, 1)) + 128
    pixels = pixels + down[..., None] * random.normal(0, 40, 3) + across[..., None] * random.normal(0, 40, 3)
    for cells in (4, 12, 36):
        coarse = Image.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        pixels += (np.asarray(coarse.resize((width, height))) - 128.0) / 3
    return np.clip(pixels, 0, 255).astype(np.uint8)


def encoded(pixels: Any, kind: str, **options: Any) -> bytes:
    """A picture as the bytes of a file."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def saved(array: Any, **options: Any) -> bytes:
    """An array as .npy."""
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def zipped(**arrays: Any) -> bytes:
    """Arrays as .npz."""
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def sound(frames: bytes, channels: int = 1, width: int = 2, rate: int = 8000) -> bytes:
    """A .wav file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)
    return out.getvalue()


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


class Drawer:
    """A place that is no folder: bytes by name, as object storage has them, and a count of what was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[int] = []

    def read(self, name: str) -> bytes:
        return self.read_many([name])[0]

    def read_many(self, names: Any) -> list[bytes]:
        self.asked.append(len(names))
        missing = [name for name in names if name not in self.files]
        if missing:
            raise FileNotFoundError(f"there is no {missing[0]}")
        return [self.files[name] for name in names]

    def read_range(self, name: str, start: int, end: int) -> bytes:
        return self.read(name)[start:end]

    def size(self, name: str) -> int:
        return len(self.files[name])

    def list(self, prefix: str = "") -> list[StoredFile]:
        return sorted(StoredFile(name, len(data)) for name, data in self.files.items() if name.startswith(prefix))
