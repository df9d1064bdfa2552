"""Batches of tensors in the user's hands: in shared memory, never overwritten, nobody else's."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, SPAWN, THREADS
from sameness import Trees

import feedline
import feedline.torch as ours
from feedline.datasets import SMALL_LEAF

pytestmark = pytest.mark.usefixtures("one_thread", "everything_in_slots")
MB = 1 << 20
kinds = pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])


class Images(torchs.Dataset[Any]):
    """Everything in sample `i` is filled with `i`."""

    def __init__(self, length: int, large: int = MB) -> None:
        self.length, self.large = length, large

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": torch.full((self.large,), index % 251, dtype=torch.uint8), "label": index}


def shared_places() -> list[range]:
    with open("/proc/self/maps") as maps:
        lines = [line.split()[0] for line in maps if "memfd:feedline" in line]
    return [range(*(int(end, 16) for end in line.split("-"))) for line in lines]


def is_shared(tensor: torch.Tensor) -> bool:
    return any(tensor.data_ptr() in place for place in shared_places())


def shared_bytes() -> int:
    """What the one open segment occupies."""
    gc.collect()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:feedline" in os.readlink(f"/proc/self/fd/{fd}"):
                return os.stat(int(fd)).st_blocks * 512
        except OSError:
            continue
    return 0


def own_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK, SPAWN], ids=["inline", "threads", "fork", "spawn"])
def test_large_leaves_lie_where_the_worker_collated_them_and_small_ones_do_not(kind: dict[str, Any]) -> None:
    for batch in ours.DataLoader(Images(6), batch_size=2, **kind):
        assert is_shared(batch["image"])
        assert not is_shared(batch["label"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.float8_e5m2], ids=str)
def test_leaves_of_any_dtype_lie_in_shared_memory(dtype: torch.dtype) -> None:
    data = torchs.TensorDataset(torch.ones(4, SMALL_LEAF).to(dtype))
    for loader in (ours.DataLoader(data, batch_size=2, **FORK), ours.DataLoader(list(data), batch_size=2, **FORK)):
        for (batch,) in loader:
            assert is_shared(batch)


def test_nothing_is_copied_between_collation_and_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    from feedline.arena import packing

    def refuse(*args: Any) -> Any:
        raise AssertionError("a large leaf was copied")

    monkeypatch.setattr(packing.np, "copyto", refuse)  # inherited by the forked worker
    (batch,) = ours.DataLoader(Trees(2, lambda n: torch.full((MB,), n)), batch_size=2, **FORK)
    assert batch.sum() == MB


@kinds
@pytest.mark.parametrize("batch_size", [None, 2])
def test_all_batches_kept_are_right_even_after_the_loader_is_gone(kind: dict[str, Any], batch_size: int | None) -> None:
    loader = ours.DataLoader(Images(60 * (batch_size or 1), MB // 4), batch_size=batch_size, **kind)
    batches = list(loader)
    loader.close()
    del loader
    gc.collect()
    assert len(batches) == 60
    for number, batch in enumerate(batches):
        labels = torch.arange(number * (batch_size or 1), (number + 1) * (batch_size or 1))
        assert torch.equal(torch.as_tensor(batch["label"]).reshape(-1), labels)
        assert torch.equal(
            batch["image"].reshape(len(labels), -1), (labels % 251).to(torch.uint8)[:, None].expand(-1, MB // 4)
        )


@kinds
def test_batches_kept_over_epochs_of_the_same_workers_are_right(kind: dict[str, Any]) -> None:
    lasting = {"persistent_workers": True} if kind else {}
    with ours.DataLoader(Images(12, SMALL_LEAF), batch_size=None, **kind, **lasting) as loader:
        epochs = [list(loader) for _ in range(4)]
    for epoch in epochs:
        assert all((batch["image"] == number).all() for number, batch in enumerate(epoch))


@kinds
def test_a_part_that_is_kept_is_right_and_keeps_only_itself(kind: dict[str, Any]) -> None:
    image = torch.zeros(4 * MB, dtype=torch.uint8)  # made once: malloc would not give back what lies between labels
    before = own_bytes()
    iterator = iter(ours.DataLoader(Trees(130, lambda n: {"image": image, "label": n}), batch_size=2, **kind))
    kept = [next(iterator)["label"] for _ in range(60)]
    assert shared_bytes() + max(0, own_bytes() - before) < 0.2 * 60 * 8 * MB  # with those made ahead
    del iterator
    assert torch.cat(kept).tolist() == list(range(120))


@kinds
def test_memory_comes_back_when_tensors_are_dropped(kind: dict[str, Any]) -> None:
    with ours.DataLoader(Images(50, 4 * MB), batch_size=None, **kind) as loader:
        iterator = iter(loader)
        kept = [next(iterator)["image"] for _ in range(40)]
        assert shared_bytes() >= 40 * 4 * MB
        views = [image[5:10] for image in kept[:3]]
        kept.clear()
        assert shared_bytes() < 20 * 4 * MB
        assert all((view == number).all() for number, view in enumerate(views))
        del iterator


# Whose memory it is


class Store(torchs.Dataset[Any]):
    """Hands out its own memory, as plain datasets do."""

    def __init__(self) -> None:
        self.large = torch.arange(6 * 2 * SMALL_LEAF, dtype=torch.int32).reshape(6, -1)
        self.small = torch.arange(12.0).reshape(6, 2)
        self.array = np.arange(18).reshape(6, 3)
        self.flat = torch.arange(6)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return {"large": self.large[index], "rest": (self.small[index], [self.array[index]]), "flat": self.flat[index]}

    def everything(self) -> list[Any]:
        return [self.large, self.small, torch.from_numpy(self.array), self.flat]


def leaves(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, np.ndarray):
        return [torch.from_numpy(tree)]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for part in tree for leaf in leaves(part)]


def as_they_are(samples: Any) -> Any:
    return samples


class FromStore:
    """A collate_fn that hands out the dataset's own memory."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __call__(self, samples: Any) -> Any:
        return {"all": self.store.large, "one": samples[0]}


WAYS = ["default", "no batching", "no batching, own function", "own function", "the dataset's memory"]


@kinds
@pytest.mark.parametrize("way", WAYS)
def test_writing_to_a_batch_changes_neither_the_dataset_nor_another_batch(kind: dict[str, Any], way: str) -> None:
    store, untouched = Store(), Store()
    options: dict[str, Any] = {
        "default": {"batch_size": 2},
        "no batching": {"batch_size": None},
        "no batching, own function": {"batch_size": None, "collate_fn": as_they_are},
        "own function": {"batch_size": 2, "collate_fn": as_they_are},
        "the dataset's memory": {"batch_size": 2, "collate_fn": FromStore(store)},
    }[way]
    lasting = {"persistent_workers": True} if kind else {}
    with ours.DataLoader(store, **options, **kind, **lasting) as loader:
        wanted = [[leaf.clone() for leaf in leaves(batch)] for batch in loader]
        for _ in range(2):  # the second time workers have seen whatever the first one did to them
            kept = []
            for batch, right in zip(loader, wanted, strict=True):
                assert all(torch.equal(leaf, value) for leaf, value in zip(leaves(batch), right, strict=True))
                for leaf in leaves(batch):
                    leaf.fill_(77)
                kept.append(batch)
            assert all((leaf == 77).all() for batch in kept for leaf in leaves(batch))
    for mine, right in zip(store.everything(), untouched.everything(), strict=True):
        assert torch.equal(mine, right)


@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])  # a process has a copy anyway
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("kind_of_data", ["TensorDataset", "Subset", "ArrayDataset", "array", "list"])
def test_writing_to_a_batch_of_an_in_memory_dataset_does_not_change_it(
    kind: dict[str, Any], batch_size: int | None, kind_of_data: str
) -> None:
    rows = torch.arange(6 * SMALL_LEAF, dtype=torch.int32).reshape(6, -1)
    array = rows.numpy()
    dataset: Any = {
        "TensorDataset": lambda: torchs.TensorDataset(rows),
        "Subset": lambda: torchs.Subset(torchs.TensorDataset(rows), range(6)),
        "ArrayDataset": lambda: feedline.ArrayDataset(array),
        "array": lambda: array,
        "list": lambda: list(rows),
    }[kind_of_data]()
    for _ in range(2):
        for batch in ours.DataLoader(dataset, batch_size=batch_size, **kind):
            for leaf in leaves(batch):
                leaf.zero_()
    assert torch.equal(rows, torch.arange(6 * SMALL_LEAF, dtype=torch.int32).reshape(6, -1))
