"""Tar shards for tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from feedline.sources import TarWriter

SAMPLES = [
    {"__key__": f"set.a/{number:03}", "cls": number % 3, "txt": f"text {number}", "x.npy": np.arange(number)}
    for number in range(10)
]


def write(path: Path | str, samples: list[dict[str, Any]] = SAMPLES, **options: Any) -> list[Path]:
    with TarWriter(path, **options) as writer:
        for sample in samples:
            writer.write(sample)
    return writer.shards


def as_read(shards: list[Path], sizes: list[int], samples: list[dict[str, Any]] = SAMPLES) -> list[dict[str, Any]]:
    urls = [str(shard) for shard, size in zip(shards, sizes, strict=True) for _ in range(size)]
    return [{**sample, "__url__": url} for sample, url in zip(samples, urls, strict=True)]


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


def members(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w") as tar:
        for name in names:
            add(tar, name, b"1")
    return path
