"""Sound and video as samples: windows of recordings, clips of films, found by (file, time).

Takes: paths on disk or in object storage, or the bytes of a file. Gives: datasets of windows or clips, with a length.
Promises: only what a sample needs is read and decoded, where the format allows it; a window or clip is what decoding
the whole file would give at that place; what is damaged is a SourceError that names the file.
Not its job: whole files of sound among others (decoding); batches.

Within this package: sound_dataset and video_dataset use clip_dataset (numbering, paths), seekable (opening), and
sound_window, video_clip with video_index (reading).
"""

from importlib import import_module
from typing import Any

_ON_DEMAND = {
    "SoundDataset": "sound_dataset",
    "SoundWindow": "sound_window",
    "VideoClip": "video_clip",
    "VideoDataset": "video_dataset",
}

__all__ = sorted(_ON_DEMAND)


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'feedline.sources.media' has no attribute {name!r}")
    return getattr(import_module(f"feedline.sources.media.{_ON_DEMAND[name]}"), name)
