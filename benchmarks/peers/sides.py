"""Who takes part, as plain data: libraries, their packages, how each is set up, and why one is not asked for something.

Takes: nothing. Gives: `SIDES` in the order of the table. Promises: imports none of the libraries.
Not its job: the code that sets one up (with_….py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

NO_SHARDS = {"shards": "has no shards of its own"}
NO_DECODER = {"decoder": "has no decoder of its own"}
OWN_FILES = dict.fromkeys(
    ("memory", "large", "decoder", "text", "text-2", "wait-8", "wait-128"), "reads its own files: see shards and JPEG"
)
ONE_THREAD_A_WORKER = {"wait-128": "has one sample at a time in each process"}


@dataclass(frozen=True)
class Side:
    """A library. `absent`: workloads it has no part in, and why."""

    name: str
    module: str
    package: str
    page: str
    how: str
    absent: dict[str, str] = field(default_factory=dict)


SIDES = [
    Side(
        "feedline",
        "with_feedline",
        "feedline",
        "index.md",
        "defaults, persistent worker processes; `ArrayDataset` in memory, `FilesDataset` as decoder, `TarStream`; "
        "8 workers with `fetch_threads=16` where 128 samples are waited for",
    ),
    Side(
        "feedline, threads",
        "with_feedline_threads",
        "feedline",
        "tuning.md",
        'the same with `workers="thread"`',
        dict.fromkeys(("memory", "text", "resume"), "no workers are asked for")
        | dict.fromkeys(("decoder", "wait-128", "shards"), "left out to save time"),
    ),
    Side(
        "torch",
        "with_torch",
        "torch",
        "https://docs.pytorch.org/docs/stable/data.html",
        "`DataLoader`, persistent worker processes; `TensorDataset` in memory; 8 workers where samples are waited for",
        NO_SHARDS | NO_DECODER | {"resume": "has no state"},
    ),
    Side(
        "torchdata",
        "with_torchdata",
        "torchdata",
        "https://docs.pytorch.org/data/0.11/torchdata.stateful_dataloader.html",
        "`StatefulDataLoader` with the same options as torch",
        NO_SHARDS | NO_DECODER | ONE_THREAD_A_WORKER,
    ),
    Side(
        "torchdata.nodes",
        "with_nodes",
        "torchdata",
        "https://docs.pytorch.org/data/0.11/migrate_to_nodes_from_utils.html",
        "sampler, `Batcher`, `ParallelMapper` that reads and collates, `Prefetcher`; 2 threads, or as many as "
        "samples are waited for (its processes were slower in a short trial)",
        NO_SHARDS | NO_DECODER,
    ),
    Side(
        "Grain",
        "with_grain",
        "grain",
        "https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html",
        "`MapDataset`, shuffled, repeated, batched; no reading threads in memory, as many as asked for where samples "
        "are waited for, 2 for large samples, else `mp_prefetch` with 2 processes; shards as ArrayRecord files",
        NO_DECODER,
    ),
    Side(
        "SPDL",
        "with_spdl",
        "spdl",
        "https://facebookresearch.github.io/spdl/latest/getting_started/pytorch.html",
        "a pipeline of threads: batches of indices, and one stage that makes batches of them (in memory: two gathers); "
        "single samples where they are waited for; in the order of completion, its default; "
        "`load_image_batch` as decoder",
        NO_SHARDS | {"resume": "has no state"},
    ),
    Side(
        "WebDataset",
        "with_webdataset",
        "webdataset",
        "https://webdataset.github.io/webdataset/",
        "tar shards, decoded and batched in 2 persistent workers of `WebLoader`; a shuffle buffer of 200 pictures",
        OWN_FILES | {"resume": "has no state"},
    ),
    Side(
        "Mosaic Streaming",
        "with_mosaic",
        "mosaicml-streaming",
        "https://docs.mosaicml.com/projects/streaming/en/stable/getting_started/quick_start.html",
        "local MDS shards, uncompressed; `StreamingDataLoader` with 2 persistent workers",
        OWN_FILES,
    ),
    Side(
        "LitData",
        "with_litdata",
        "litdata",
        "https://pypi.org/project/litdata/",
        "local chunks; `StreamingDataLoader` with 2 persistent workers",
        OWN_FILES,
    ),
]
