"""Recordings and films, made on the spot."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np

FILMS = {
    "b-frames.mp4": ("libx264", {"bf": "3"}),
    "open-gops.mkv": ("libx264", {"bf": "3", "x264-params": "open-gop=1"}),
    "vp9.webm": ("libvpx-vp9", {"cpu-used": "8"}),
    "old.avi": ("mpeg4", {}),
    "broadcast.ts": ("libx264", {"bf": "2"}),
    "disc.mpg": ("mpeg2video", {"bf": "2"}),
}


def tones(seconds: float, rate: int, channels: int = 2, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    time = np.arange(round(seconds * rate)) / rate
    pitches = random.uniform(100, rate / 5, (channels, 3))
    wave = np.sin(2 * np.pi * pitches[..., None] * time).mean(1).T * 0.5
    return (wave + random.normal(0, 0.05, wave.shape)).astype(np.float32)


def recorded(samples: np.ndarray, rate: int, kind: str, subtype: str | None = None) -> bytes:
    import soundfile

    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


def film(
    path: Path,
    codec: str = "mpeg4",
    frames: int = 60,
    uneven: bool = False,
    height: int = 48,
    first: int = 0,
    **options: str,
) -> Path:
    """Each picture is a different mixture; `uneven`: some are shown longer than others; `first`: when the first is."""
    import av

    with av.open(path, "w") as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 64, height, "yuv420p", 12
        stream.codec_context.thread_count = 1
        stream.options = options
        for number in range(frames):
            pixels = np.zeros((height, 64, 3), np.uint8)
            pixels[:, :32] = 4 * number % 256
            pixels[: number % 48, 32:] = 200
            picture = av.VideoFrame.from_ndarray(pixels)
            picture.pts = first + number + (number // 7 if uneven else 0)
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path


def decoded(path: Path) -> tuple[list[float], np.ndarray]:
    """The whole film, as anybody would decode it: seconds since its first frame, and pixels."""
    import av

    with av.open(path) as container:
        found = [(picture.time, picture.to_ndarray(format="rgb24")) for picture in container.decode(video=0)]
    return [time - found[0][0] for time, _ in found], np.stack([pixels for _, pixels in found])


def turned(film: bytes, matrix: tuple[float, float, float, float]) -> bytes:
    """An MP4 whose header asks for that: where x and y go, as telephones write it."""
    at = film.index(b"tkhd") + 44
    across, down, *others = (round(number * 65_536) for number in matrix)
    return film[:at] + struct.pack(">9i", across, down, 0, *others, 0, 0, 0, 1 << 30) + film[at + 36 :]
