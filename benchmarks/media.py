"""Windows of recordings and clips of films: feedline's datasets against soundfile, soxr and PyAV by hand, one core.

By hand "whole": the file is decoded from its beginning to its end, resampled, and cut, as most datasets are written.
By hand "seeking": as somebody writes it who knows the libraries: soundfile seeks, PyAV seeks to the key frame before.
No loader: samples by the second of processor time.
"""

from __future__ import annotations

import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from harness import AT_LEAST, Case, Samples, Workload, serve

RATE, TO, SECONDS, LONG = 44_100, 16_000, 1.0, 20
FRAMES, FPS, SIZE = 8, 4.0, (112, 112)
COUNT = 4


def files(kind: str) -> list[Path]:
    folder = Path(tempfile.gettempdir()) / "feedline-bench-media"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.{kind}" for number in range(COUNT)]
    for number, path in enumerate(paths):
        if not path.exists():
            unfinished = path.with_suffix(f".new.{kind}")
            (film if kind == "mp4" else recording)(unfinished, number)
            unfinished.rename(path)
    return paths


def recording(path: Path, seed: int) -> None:
    import soundfile

    random = np.random.default_rng(seed)
    noise = random.normal(0, 0.1, (RATE * LONG, 2)).cumsum(0)
    soundfile.write(path, noise / np.abs(noise).max() * 0.9, RATE)


def film(path: Path, seed: int) -> None:
    import av

    random = np.random.default_rng(seed)
    blob = random.integers(0, 256, (400, 400, 3), np.uint8).repeat(2, 0).repeat(2, 1)
    with av.open(path, "w") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 480, 360, "yuv420p"
        for number in range(25 * LONG):
            moved = np.ascontiguousarray(blob[number % 300 : number % 300 + 360, number % 200 : number % 200 + 480])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(moved)))
        container.mux(stream.encode())


def one_core(read: Any) -> Samples:
    """Samples by the second of processor time: other programs do not count."""
    random = np.random.default_rng(0)
    read(0, 0.0)
    while True:
        done, started = 0, time.process_time()
        while time.process_time() - started < AT_LEAST:
            read(int(random.integers(COUNT)), float(random.uniform(0, LONG - 4)))
            done += 1
        yield {"samples/s": done / (time.process_time() - started)}


def with_feedline(kind: str) -> Samples:
    from feedline.sources import SoundDataset, VideoDataset

    data: Any
    if kind == "mp4":
        data = VideoDataset(files(kind), frames=FRAMES, fps=FPS, size=SIZE)
    else:
        data = SoundDataset(files(kind), seconds=SECONDS, rate=TO, mono=True)
    yield from one_core(data.at)


def by_hand_whole(kind: str) -> Samples:
    paths = [str(path) for path in files(kind)]
    if kind == "mp4":
        yield from one_core(lambda file, start: _clip(paths[file], start, seeks=False))

    import soundfile
    import soxr

    def read(file: int, start: float) -> Any:
        samples, rate = soundfile.read(paths[file], dtype="float32", always_2d=True)
        first = round(start * TO)
        return soxr.resample(samples.mean(1), rate, TO)[first : first + round(SECONDS * TO)]

    yield from one_core(read)


def by_hand_seeking(kind: str) -> Samples:
    paths = [str(path) for path in files(kind)]
    if kind == "mp4":
        yield from one_core(lambda file, start: _clip(paths[file], start, seeks=True))

    import soundfile
    import soxr

    def read(file: int, start: float) -> Any:
        with soundfile.SoundFile(paths[file]) as sound:
            sound.seek(round(start * sound.samplerate))
            samples = sound.read(round(SECONDS * sound.samplerate), dtype="float32", always_2d=True)
            return soxr.resample(samples.mean(1), sound.samplerate, TO)

    yield from one_core(read)


def _clip(path: str, start: float, seeks: bool) -> Any:
    import av
    from PIL import Image

    wanted = [start + number / FPS for number in range(FRAMES)]
    found = []
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        if seeks:
            container.seek(int(start / Fraction(stream.time_base or 1)), stream=stream)
        for picture in container.decode(stream):
            if len(found) == FRAMES:
                break
            if picture.time is not None and picture.time >= wanted[len(found)] - 1e-6:
                small = Image.fromarray(picture.to_ndarray(format="rgb24")).resize(SIZE, Image.Resampling.BILINEAR)
                found.append(np.asarray(small))
    return np.stack(found)


WORKLOAD = Workload(
    name="media",
    metrics={"samples/s": "more"},
    cases=[
        Case("1 s of 20 s of FLAC, 44.1 to 16 kHz", {"kind": "flac"}, targets={"by hand, seeking": 0.8}),
        Case("1 s of 20 s of MP3, 44.1 to 16 kHz", {"kind": "mp3"}, targets={"by hand, seeking": 0.8}),
        Case("8 frames of 20 s of H.264, 4 a second", {"kind": "mp4"}, targets={"by hand, seeking": 1.0}),
    ],
    sides={
        "feedline": with_feedline,
        "by hand, seeking": by_hand_seeking,
        "by hand, whole": by_hand_whole,
    },
    repeats=5,
)

if __name__ == "__main__":
    serve(WORKLOAD)
