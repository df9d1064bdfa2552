"""Datasets with exactly one fault each, by the id of the finding it makes; and healthy ones, which make none."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import feedline
from feedline import BucketBatchSampler, DataLoader, IterableDataset, get_worker_info
from feedline.collate import keep, pad

HERE = Path(__file__)


def mixed(count: int, classes: int = 4) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, classes, count)


class Map:
    """Healthy: vectors and labels."""

    def __init__(self, count: int = 96) -> None:
        self.x = np.random.default_rng(0).normal(size=(count, 16)).astype(np.float32)
        self.y = mixed(count)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], int(self.y[index])


class Augmented(Map):
    def __getitem__(self, index: int) -> Any:
        x = self.x[index] + feedline.rng().normal(size=16).astype(np.float32)
        return x * np.float32(np.random.rand()), int(self.y[index])


class Images(Map):
    """Healthy: images as bytes, with paths."""

    def __init__(self, count: int = 96) -> None:
        super().__init__(count)
        self.paths = [f"photos/{index}.jpg" for index in range(count)]

    def __getitem__(self, index: int) -> Any:
        image = np.random.Generator(np.random.PCG64(index)).integers(0, 256, (32, 32, 3)).astype(np.uint8)
        return {"image": image, "label": "abcd"[self.y[index]]}

    def describe(self, index: int) -> str:
        return self.paths[index]


class Text:
    """Healthy when it is padded, in batches of similar length."""

    def __init__(self, count: int = 160) -> None:
        self.lengths = np.random.default_rng(2).integers(4, 60, count)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Any:
        return {"tokens": np.arange(self.lengths[index]) + index, "label": int(self.lengths[index]) % 3}


class Stream(IterableDataset):
    """Healthy: it shares itself out."""

    def __init__(self, numbers: range = range(120)) -> None:
        self.numbers = numbers

    def shard(self, index: int, count: int) -> Stream:
        return type(self)(self.numbers[index::count])

    def __iter__(self) -> Iterator[Any]:
        for number in self.numbers:
            yield np.full(4, number, np.float32), number * 7 % 3


class Asking(Stream):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in itertools.islice(self.numbers, first, None, step):
            yield np.full(4, number, np.float32), number * 7 % 3

    shard = None  # type: ignore[assignment]


def text_loader(bucketed: bool = True) -> DataLoader:
    data = Text()
    collate: Any = {"tokens": pad(0)}
    if not bucketed:
        return DataLoader(data, batch_size=16, shuffle=True, collate=collate)
    return DataLoader(data, batch_sampler=BucketBatchSampler(data.lengths, batch_size=16), collate=collate)


class Boxes(Map):
    """Healthy: as many boxes as there are things to see."""

    def __getitem__(self, index: int) -> Any:
        return {"boxes": [[0, 0, 2, 2]] * (index % 5), "label": int(self.y[index])}


HEALTHY: dict[str, Callable[[], Any]] = {
    "map": Map,
    "augmented": Augmented,
    "images": Images,
    "arrays": lambda: feedline.ArrayDataset(Map().x, Map().y),
    "numpy": lambda: np.arange(100, dtype=np.float32),
    "strings": lambda: [f"sentence {number}" for number in range(100)],
    "text": text_loader,
    "stream": Stream,
    "asking stream": Asking,
    "shuffled loader": lambda: DataLoader(Map(), batch_size=16, shuffle=True, num_workers=2),
    "boxes": lambda: DataLoader(Boxes(), batch_size=16, collate={"boxes": keep}, shuffle=True),
}


# With one fault


class ConstantLabel(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index], int(self.y[3])


class Overwritten(Map):
    def __init__(self) -> None:
        super().__init__()
        self.y = np.zeros(len(self.x), np.int64)


class Sorted(Map):
    def __init__(self) -> None:
        super().__init__()
        self.y.sort()


class Unbalanced(Map):
    def __init__(self) -> None:
        super().__init__(400)
        self.y = (np.random.default_rng(3).random(400) < 0.05).astype(int)


class UnbalancedUnseen(Unbalanced):
    """Without a column that could be counted."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = list(zip(self.x, self.y.tolist(), strict=True))
        del self.y

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class NotFinite(Map):
    def __init__(self) -> None:
        super().__init__()
        self.x[[7, 90], 3] = np.nan, np.inf


class Nones(Map):
    def __getitem__(self, index: int) -> Any:
        return None if index % 40 == 5 else super().__getitem__(index)


class OtherFields(Images):
    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return sample if index != 11 else {**sample, "caption": "eleven"}


class Grey(Images):
    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return sample if index != 11 else {**sample, "image": sample["image"][..., 0]}


class OtherTypes(Map):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return (x.astype(np.float16) if index % 50 == 9 else x), y


class Doubles(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index].astype(np.float64), int(self.y[index])


class FloatImages(Images):
    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        mean, deviation = np.float32(0.45), np.float32(0.225)
        return {**sample, "image": (sample["image"] / np.float32(255) - mean) / deviation}


class Writes(Map):
    def __getitem__(self, index: int) -> Any:
        x = self.x[index]
        x += 1
        return x, int(self.y[index])


class FixedSeed(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index] + np.random.default_rng(0).normal(size=16).astype(np.float32), int(self.y[index])


class FixedGlobalSeed(Map):
    def __getitem__(self, index: int) -> Any:
        np.random.seed(42)
        return self.x[index] + np.float32(np.random.rand()), int(self.y[index])


class FixedState(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index] + np.random.RandomState(0).normal(size=16).astype(np.float32), int(self.y[index])


class FixedRandom(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index] + np.float32(random.Random(0).random()), int(self.y[index])


class Copies(Map):
    """Every fifth sample is that before it, under another label."""

    def __getitem__(self, index: int) -> Any:
        return self.x[index - (index % 5 == 4)], int(self.y[index])


class Blank(Map):
    def __getitem__(self, index: int) -> Any:
        return np.zeros(16, np.float32) if index in (7, 90) else self.x[index], int(self.y[index])


class SeededByIndex(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index] + np.random.default_rng(index).normal(size=16).astype(np.float32), int(self.y[index])


class OwnGenerator(Map):
    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + self.random.normal(size=16).astype(np.float32), int(self.y[index])


class Clock(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index] * (1 + time.time_ns() % 1000), int(self.y[index])


class Remembers(Map):
    """Results depend on what was read before."""

    count = 0

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        return self.x[index] * self.count, int(self.y[index])


class Whole(Stream):
    shard = None  # type: ignore[assignment]


class Everything(Whole):
    """Asks, and gives each worker everything."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is None or info.num_workers
        yield from super().__iter__()


class Holds(Map):
    def __init__(self) -> None:
        super().__init__()
        self.file = open(HERE, "rb")  # noqa: SIM115

    def __del__(self) -> None:
        self.file.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "file": None}


class Unsendable(Map):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Records(Map):
    def __init__(self) -> None:
        super().__init__()
        self.records = [(f"photos/{number}.jpg", number) for number in range(60_000)]


class Heavy(Map):
    def __init__(self) -> None:
        super().__init__()
        self.all = np.ones(64 << 20, np.uint8)


class Damaged(Images):
    def __getitem__(self, index: int) -> Any:
        if index in (3, 50):
            raise OSError(f"cannot identify image file {self.paths[index]!r}")
        return super().__getitem__(index)


class Broken(Map):
    def __getitem__(self, index: int) -> Any:
        raise KeyError("image")


class Stuck(Images):
    def __getitem__(self, index: int) -> Any:
        if index == 95:
            while True:
                pass
        return super().__getitem__(index)


class Deadly(Images):
    def __getitem__(self, index: int) -> Any:
        if index == 95:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__getitem__(index)


class SlowOnes(Images):
    def __getitem__(self, index: int) -> Any:
        if index in (40, 41):
            time.sleep(0.4)  # the slow line
        return super().__getitem__(index)


class Slow(Map):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.015)  # the slow line
        return super().__getitem__(index)


class VerySlow(Map):
    """So slow that a batch, or a sample read twice, would seem to be stuck."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.6)
        return super().__getitem__(index)


def slow_collate(samples: list[Any]) -> Any:
    for _ in samples:
        time.sleep(0.002)  # the slow line
    return np.stack([x for x, _ in samples])


class Keeps(Map):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        self.kept.append(np.ones(1 << 17))
        return super().__getitem__(index)


class Large(Map):
    """Seems to be larger than any memory; takes none."""

    def __getitem__(self, index: int) -> Any:
        return np.broadcast_to(np.uint8(1), (1 << 20,)), int(self.y[index])


SICK: dict[str, tuple[str, Callable[[], Any], tuple[str, ...]]] = {
    "constant label": ("constant-label", ConstantLabel, ("labels", "samples")),
    "overwritten labels": ("labels-all-zero", Overwritten, ("labels", "samples")),
    "sorted": ("sorted-by-label", Sorted, ("labels", "samples")),
    "sorted and read in order": ("sorted-by-label", lambda: DataLoader(Sorted(), 16), ("labels", "samples")),
    "unbalanced": ("class-imbalance", Unbalanced, ("labels", "samples")),
    "unbalanced, unseen": ("class-imbalance", UnbalancedUnseen, ("labels", "samples")),
    "not finite": ("not-finite", NotFinite, ("samples",)),
    "None": ("none-samples", Nones, ("samples",)),
    "fields": ("varying-fields", OtherFields, ("samples",)),
    "a grey image": ("odd-shapes", Grey, ("samples",)),
    "lengths": ("varying-shapes", Text, ("samples", "batches")),
    "dtypes": ("varying-dtypes", OtherTypes, ("samples", "batches")),
    "float64": ("float64", Doubles, ("samples",)),
    "float images": ("float-images", FloatImages, ("samples",)),
    "writes": ("changes-dataset", Writes, ("samples", "repeats")),
    "fixed seed": ("fixed-seed", FixedSeed, ("samples", "repeats")),
    "fixed global seed": ("fixed-seed", FixedGlobalSeed, ("samples", "repeats")),
    "fixed state": ("fixed-seed", FixedState, ("samples", "repeats")),
    "fixed random": ("fixed-seed", FixedRandom, ("samples", "repeats")),
    "copies": ("duplicate-samples", Copies, ("samples",)),
    "blank": ("zero-inputs", Blank, ("samples",)),
    "seeded by index": ("same-every-epoch", SeededByIndex, ("samples", "repeats")),
    "own generator": ("stored-generator", OwnGenerator, ("held", "samples", "repeats")),
    "clock": ("non-deterministic", Clock, ("samples", "repeats")),
    "remembers": ("non-deterministic", Remembers, ("samples", "repeats")),
    "read whole": ("read-whole", Whole, ()),
    "duplicates": ("stream-duplicates", Everything, ()),
    "open file": ("held-open", Holds, ("held",)),
    "lock": ("unpicklable", Unsendable, ("held",)),
    "records": ("large-list", Records, ("held",)),
    "damaged": ("failing-samples", Damaged, ("samples",)),
    "broken": ("failing-samples", Broken, ()),
    "empty": ("empty-dataset", lambda: Map(0), ()),
    "deadly": ("deadly-samples", Deadly, ()),
    "very slow": ("slow-reading", VerySlow, ()),
    "slow collate": (
        "slow-collate",
        lambda: DataLoader(Map(), 16, shuffle=True, collate_fn=slow_collate),
        ("samples", "collate", "batches"),
    ),
    "keeps": ("memory-growth", Keeps, ("samples", "rounds")),
    "large": ("batch-too-large", lambda: DataLoader(Large(), 10_000_000, shuffle=True), ("memory", "samples")),
    "collate fails": (
        "collate-fails",
        lambda: DataLoader(Map(), 16, shuffle=True, collate_fn=lambda samples: samples[99]),
        ("samples", "collate", "batches"),
    ),
    "last of one": ("last-batch-of-one", lambda: DataLoader(Map(97), 16, shuffle=True), ("samples",)),
    "padding": ("padding", lambda: text_loader(bucketed=False), ("samples", "batches")),
}
"""What is found, in what, and which parts of the examination it takes; none named: all of them."""
