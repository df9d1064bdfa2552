"""Too little of something: memory, /dev/shm, descriptors. An error that helps, or no difference at all."""

from __future__ import annotations

from pathlib import Path

import inside
import pytest

MB = 1 << 20
LIMIT = 200 * MB

NUMPY_FRONT = """
    import os, sys
    import numpy as np
    from feedline import DataLoader, Dataset
    from feedline.errors import MemoryShortage

    MB = 1 << 20

    class Images(Dataset):
        "Samples that take no memory until they are in a batch."
        def __init__(self, length, size):
            self.length, self.size = length, size
        def __len__(self):
            return self.length
        def __getitem__(self, index):
            return np.broadcast_to(np.uint8(index % 251), (self.size,))

    def right(batch, index):
        return bool((batch[..., ::999] == index % 251).all())  # looking at all of it would take memory, too

    def big(samples):
        return [np.full(MB // 4, samples[0][0], float) for _ in range(3)]

    def large(value):
        return np.full(20_000, value)
"""
TORCH_FRONT = """
    import os, sys
    import torch
    from feedline.torch import DataLoader
    from feedline.errors import MemoryShortage

    MB = 1 << 20

    class Images(torch.utils.data.Dataset):
        "Samples that take no memory until they are in a batch."
        def __init__(self, length, size):
            self.length, self.size = length, size
        def __len__(self):
            return self.length
        def __getitem__(self, index):
            return torch.tensor(index % 251, dtype=torch.uint8).expand(self.size)

    def right(batch, index):
        return bool((batch[..., ::999] == index % 251).all())  # looking at all of it would take memory, too

    def big(samples):
        return [torch.full((MB // 4,), samples[0][0], dtype=torch.float64) for _ in range(3)]

    def large(value):
        return torch.full((20_000,), value)
"""
CODE = {"feedline": NUMPY_FRONT, "feedline.torch": TORCH_FRONT}
KINDS = {
    "inline": "",
    "threads": "num_workers=2, workers='thread'",
    "fork": "num_workers=2, multiprocessing_context='fork'",
    "spawn": "num_workers=2, multiprocessing_context='spawn'",
}
every_kind = pytest.mark.parametrize(
    ("front", "kind"), [*(("feedline", kind) for kind in KINDS), ("feedline.torch", "fork")]
)
every_process = pytest.mark.parametrize(
    ("front", "kind"), [("feedline", "fork"), ("feedline", "spawn"), ("feedline.torch", "fork")]
)


# A container's limit, which kills whoever goes beyond it


@every_kind
def test_a_batch_larger_than_the_container_is_an_error_and_the_loader_goes_on(
    front: str, kind: str, tmp_path: Path
) -> None:
    with inside.container(LIMIT) as afflict:
        said = inside.run(
            CODE[front]
            + f"""
    if __name__ == "__main__":
        with DataLoader(Images(600, MB), batch_size={LIMIT // MB}, {KINDS[kind]}) as loader:
            try:
                next(iter(loader))
            except MemoryShortage as error:
                print(error)
        small = DataLoader(Images(60, 4 * MB), batch_size=1, {KINDS[kind]})
        assert sum(right(batch, index) for index, batch in enumerate(small)) == 60
    """,
            tmp_path,
            afflict,
            front,
        )
    assert f"no memory for a batch of {LIMIT:,} bytes" in said
    assert f"of the {LIMIT:,} that the container (cgroup v" in said
    for option in ("batch_size", "prefetch_factor", "num_workers", "still hold take memory"):
        assert option in said


@pytest.mark.parametrize(
    ("front", "kind", "size"),
    [
        ("feedline", "inline", MB // 2),
        ("feedline", "inline", 10 * MB),
        ("feedline", "threads", 10 * MB),
        ("feedline", "fork", MB // 2),
        ("feedline", "fork", 10 * MB),
        ("feedline", "spawn", MB // 2),
        ("feedline.torch", "fork", 10 * MB),
    ],
)
def test_keeping_more_batches_than_the_container_holds_is_an_error(
    front: str, kind: str, size: int, tmp_path: Path
) -> None:
    with inside.container(LIMIT) as afflict:
        said = inside.run(
            CODE[front]
            + f"""
    if __name__ == "__main__":
        kept = []
        loader = DataLoader(Images(2000, {size}), batch_size=1, {KINDS[kind]})
        try:
            for batch in loader:
                kept.append(batch)
        except MemoryShortage as error:
            print(error)
        assert len(kept) * {size} < {LIMIT}
        assert all(right(batch, index) for index, batch in enumerate(kept))
        loader.close()
        kept.clear()
        batches = iter(loader)
        assert all(right(next(batches), index) for index in range(20))  # the memory is there again
    """,
            tmp_path,
            afflict,
            front,
        )
    assert "still hold take memory" in said


@pytest.mark.parametrize("kind", list(KINDS))
def test_far_more_batches_than_fit_pass_through_a_small_container(kind: str, tmp_path: Path) -> None:
    with inside.container(LIMIT) as afflict:
        inside.run(
            NUMPY_FRONT
            + f"""
    if __name__ == "__main__":
        loader = DataLoader(Images(60, 5 * MB), batch_size=1, {KINDS[kind]})
        assert sum(right(batch, index) for index, batch in enumerate(loader)) == 60
    """,
            tmp_path,
            afflict,
        )


def test_a_dataset_too_large_to_be_sent_is_an_error_that_names_it(tmp_path: Path) -> None:
    with inside.container(LIMIT) as afflict:
        said = inside.run(
            NUMPY_FRONT
            + """
    if __name__ == "__main__":
        from feedline import ArrayDataset
        data = ArrayDataset(np.ones((100, MB), np.uint8))
        try:
            next(iter(DataLoader(data, num_workers=2, multiprocessing_context="spawn")))
        except MemoryShortage as error:
            print(error)
        assert next(iter(DataLoader(data, num_workers=2, multiprocessing_context="fork")))[0][0, 0] == 1
    """,
            tmp_path,
            afflict,
        )
    assert "no memory for the dataset that is sent to the workers" in said
    assert "multiprocessing_context='fork'" in said


# A small /dev/shm, as containers have by default


@every_process
def test_a_small_dev_shm_makes_no_difference(front: str, kind: str, tmp_path: Path) -> None:
    inside.run(
        CODE[front]
        + f"""
    if __name__ == "__main__":
        assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 16 * MB
        options = dict({KINDS[kind]})
        kept = list(DataLoader(Images(16, 2 * MB), batch_size=2, **options))  # 32 MB
        assert all(right(batch[row], 2 * number + row) for number, batch in enumerate(kept) for row in (0, 1))
        kept = list(DataLoader(Images(12, MB), batch_size=2, collate_fn=big, **options))  # 6 MB each
        assert all(right(leaf, 2 * number) for number, batch in enumerate(kept) for leaf in batch)
    """,
        tmp_path,
        inside.small_shm(16),
        front,
    )


# Few descriptors


@every_process
def test_64_descriptors_are_enough_for_40_kept_batches_of_16_tensors(front: str, kind: str, tmp_path: Path) -> None:
    inside.run(
        CODE[front]
        + f"""
    class Many(Images):
        def __getitem__(self, index):
            return tuple(large(index + part) for part in range(16))

    if __name__ == "__main__":
        loader = DataLoader(Many(80, 1), batch_size=2, {KINDS[kind]})
        kept = list(loader)
        assert len(kept) == 40
        for number, batch in enumerate(kept):
            assert len(batch) == 16
            assert all(right(leaf[row], 2 * number + row + part) for part, leaf in enumerate(batch) for row in (0, 1))
    """,
        tmp_path,
        inside.few_descriptors(64),
        front,
    )
