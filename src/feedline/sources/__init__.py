"""Sources of data as ready datasets: SQL, files and images, object storage, Parquet, tar shards, streams.

    from feedline.sources import FolderDataset

Promises, for every source here (tested by tests/sources/contract.py): its driver is imported when the source is made,
never before; it can be pickled at any moment, and what is open (connections, files) is opened again in the process that
unpickles it; `describe(index)` names a sample by the name its owner uses (a path, a key, a row), and so do errors; the
samples are the same with any number and kind of workers; bad input is an error that names it, within seconds.
Not its job: batches, order, workers (order, reading, workers). A source imports datasets and errors and, from
this package, `places`, `located` (many files by few words) and `sharing` (streams made of units), but no other source.
"""

from importlib import import_module
from typing import Any

_ON_DEMAND: dict[str, str] = {
    "CachedPlace": "cached",
    "Decoders": "decoding",
    "FilesDataset": "files_dataset",
    "FolderDataset": "files_dataset",
    "GeneratorStream": "generated",
    "HuggingFaceDataset": "hugging_face",
    "HuggingFaceStream": "hugging_face",
    "KafkaRecord": "kafka",
    "KafkaStream": "kafka",
    "ObjectDataset": "object_dataset",
    "ObjectStore": "object_store",
    "SQLDataset": "sql",
    "SQLStream": "sql",
    "ParquetDataset": "parquet",
    "ParquetStream": "parquet",
    "SocketStream": "sockets",
    "SoundDataset": "media",
    "SoundWindow": "media",
    "TarDataset": "tar",
    "TarStream": "tar",
    "TarWriter": "tar",
    "VideoClip": "media",
    "VideoDataset": "media",
    "decode_plain": "tar",
    "from_hf": "hugging_face",
    "write_index": "tar",
}
"""Public names, and the file that defines each."""

__all__ = sorted(_ON_DEMAND)


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'feedline.sources' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"feedline.sources.{_ON_DEMAND[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
