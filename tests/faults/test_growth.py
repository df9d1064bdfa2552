"""Workers that grow: a cache without a limit, a list copied by reading it; and those that merely seem to."""

from __future__ import annotations

from pathlib import Path

import inside
import pytest

FRONTS = {
    "feedline": "from feedline import DataLoader, Dataset, SharedList",
    "feedline.torch": "from feedline import SharedList; from feedline.torch import DataLoader, Dataset",
}
DATASETS = """
    import math
    import warnings
    import numpy as np
    from feedline.supervise import worker_memory as memory

    memory.SHARE = math.inf  # a look that a busy machine makes last would put off the next ones until all is over

    class Leaky(Dataset):
        def __init__(self):
            self.cache = []
        def __len__(self):
            return 100
        def __getitem__(self, index):
            self.cache.append(np.ones(400_000, np.uint8))
            return index

    class WarmingUp(Leaky):
        "Keeps each sample, once."
        def __init__(self):
            self.cache = {}
        def __getitem__(self, index):
            if index not in self.cache:
                self.cache[index] = np.ones(400_000, np.uint8)
            return self.cache[index][:1]

    class Arrays(Dataset):
        "Much to read, large batches, nothing kept."
        def __init__(self):
            self.data = np.ones((100, 50_000))
        def __len__(self):
            return 100
        def __getitem__(self, index):
            return self.data[index]

    class Records(Dataset):
        def __init__(self, kind=list):
            self.records = kind(f"{i:400}" for i in range(100_000))  # 46 MB, eight on a page
        def __len__(self):
            return 1000
        def __getitem__(self, index):
            return sum(map(len, self.records[index::1000]))

    def run(dataset, epochs, **options):
        "The warnings, and the memory of the workers at the end."
        options = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork", **options}
        with warnings.catch_warnings(record=True) as caught, DataLoader(dataset, batch_size=10, **options) as loader:
            warnings.simplefilter("always")
            warnings.filterwarnings("ignore", "This DataLoader will create")  # torch, where there is one CPU
            for _ in range(epochs):
                for batch in loader:
                    pass
            stats = loader.stats()
        assert all(warning.filename == __file__ for warning in caught), caught
        return [str(warning.message) for warning in caught], stats.workers
"""


def run(code: str, tmp_path: Path, front: str = "feedline") -> str:
    return inside.run(
        f"\n    {FRONTS[front]}\n{DATASETS}\n    if __name__ == '__main__':\n{code}", tmp_path, front=front
    )


@pytest.mark.parametrize(("front", "method"), [("feedline", "fork"), ("feedline", "spawn"), ("feedline.torch", "fork")])
def test_a_cache_without_a_limit_is_told_once(front: str, method: str, tmp_path: Path) -> None:
    run(
        f"""
        words, workers = run(Leaky(), 6, num_workers=1, multiprocessing_context={method!r})
        assert len(words) == 1, words
        assert "MB per epoch" in words[0] and "cache" in words[0], words
        (one,) = workers
        grown = words[0].partition(f"worker 0 (pid {{one.pid}}) grows by ")[2][:1]
        assert grown in ("3", "4"), words  # 40 million bytes are 38 MB, and Python adds something
        assert one.total > one.own > 228 << 20, workers
        """,
        tmp_path,
        front,
    )


@pytest.mark.parametrize("front", list(FRONTS))
def test_a_list_that_is_copied_by_reading_it_is_named(front: str, tmp_path: Path) -> None:
    run(
        """
        words, workers = run(Records(), 2)
        assert len(words) == 1, words
        assert "dataset.records: list of 100,000" in words[0], words
        assert "feedline.SharedList" in words[0], words
        assert any(f"worker {one.worker} (pid {one.pid}) has copied" in words[0] for one in workers), words
        """,
        tmp_path,
        front,
    )


def test_the_first_epoch_is_enough_to_see_it_without_persistent_workers(tmp_path: Path) -> None:
    run(
        """
        words, workers = run(Records(), 2, persistent_workers=False)
        assert len(words) == 1 and "dataset.records" in words[0], words
        assert len(workers) == 2, workers  # as they were last seen
        """,
        tmp_path,
    )


@pytest.mark.parametrize(
    ("dataset", "epochs", "options"),
    [
        ("Arrays()", 6, ""),
        ("WarmingUp()", 12, ""),
        ("WarmingUp()", 12, "shuffle=True"),
        ("Records(SharedList)", 2, ""),
        ("Records()", 2, "multiprocessing_context='spawn'"),
        ("Records()", 2, "workers='thread', multiprocessing_context=None"),
    ],
)
def test_the_well_behaved_are_not_accused(dataset: str, epochs: int, options: str, tmp_path: Path) -> None:
    run(
        f"""
        words, workers = run({dataset}, {epochs}, {options})
        assert not words, words
        assert len(workers) == {0 if "thread" in options else 2}
        assert all(one.total >= one.own > 1 << 20 and one.private > 1 << 20 for one in workers), workers
        """,
        tmp_path,
    )


def test_batches_that_are_kept_are_not_the_workers_growth(tmp_path: Path) -> None:
    run(
        """
        kept = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with DataLoader(Arrays(), batch_size=10, num_workers=2, persistent_workers=True) as loader:
                for _ in range(6):
                    kept += list(loader)
                assert len(loader.stats().workers) == 2
                assert loader.stats().workers[0].pid != loader.stats().workers[1].pid
        assert len(loader.stats().workers) == 2  # as they were last seen
        assert DataLoader(Arrays()).stats().workers == ()
        """,
        tmp_path,
    )
