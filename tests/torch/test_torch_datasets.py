"""Datasets of tensors: gathered at once as they would be read one by one, and sent to workers once, not once each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, SPAWN, few
from sameness import DTYPES, Trees, array, assert_same, filled
from warm_host import host

import feedline
import feedline.torch as ours
from feedline.datasets import SMALL_LEAF
from feedline.torch.reading import batch_reader

rows = st.builds(
    lambda count, shape, dtype: filled(count, (count, *shape), dtype),
    st.integers(1, 12),
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from(DTYPES),
)
KINDS_OF_INDICES = [list, tuple, np.array, torch.tensor, lambda places: [np.int32(place) for place in places]]


@st.composite
def in_memory(draw: st.DrawFn) -> Any:
    """A TensorDataset, or a part of one, or a part of that."""
    first = draw(rows)
    others = [filled(7, (len(first), 2), draw(st.sampled_from(DTYPES))) for _ in range(draw(st.integers(0, 2)))]
    dataset: Any = torchs.TensorDataset(first, *others)
    for _ in range(draw(st.integers(0, 2))):
        least = -len(dataset) if draw(st.booleans()) else 0
        places = draw(st.lists(st.integers(least, len(dataset) - 1), min_size=1, max_size=12))
        dataset = torchs.Subset(dataset, draw(st.sampled_from(KINDS_OF_INDICES))(places))
    return dataset


@settings(max_examples=few(150))
@given(dataset=in_memory(), data=st.data(), batch_size=st.integers(1, 5))
def test_gathering_is_the_same_as_torchs_reading_one_by_one(dataset: Any, data: st.DataObject, batch_size: int) -> None:
    order = data.draw(st.lists(st.integers(-len(dataset), len(dataset) - 1), min_size=1, max_size=9))
    for sampler in (None, order, [abs(place) % len(dataset) for place in order]):
        options = {"batch_size": batch_size, "sampler": sampler}
        wanted = list(torchs.DataLoader(dataset, **options))
        assert_same(list(ours.DataLoader(dataset, **options)), wanted, strides=True)


# A worker gathers with the same code, and that every dtype travels is in test_torch_differential.
@pytest.mark.parametrize(("dtype", "kind"), [*((dtype, INLINE) for dtype in DTYPES), (torch.bfloat16, FORK)], ids=str)
def test_gathering_large_batches_of_every_dtype(dtype: torch.dtype, kind: dict[str, Any]) -> None:
    dataset = torchs.TensorDataset(filled(1, (7, SMALL_LEAF // dtype.itemsize), dtype), torch.arange(7))
    part = torchs.Subset(dataset, [6, 0, 3, 3, 1])
    for data in (dataset, part):
        wanted = list(torchs.DataLoader(data, batch_size=3))
        assert_same(list(ours.DataLoader(data, batch_size=3, **kind)), wanted)


def test_tensors_laid_out_in_other_ways_are_gathered_too() -> None:
    dataset = torchs.TensorDataset(
        torch.randn(40, 6, 300).transpose(0, 1),
        torch.randn(1, 5000).expand(6, 5000),
        torch.randn(12, 50)[::2],
        torch.complex(torch.randn(6, 9), torch.randn(6, 9)).conj(),
    )
    assert_same(list(ours.DataLoader(dataset, batch_size=4)), list(torchs.DataLoader(dataset, batch_size=4)))


class Doubling(torchs.TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return [2 * tensor for tensor in super().__getitem__(index)]


class Shifted(torchs.Subset[Any]):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)[0] + 1

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


def test_a_subclass_that_changes_reading_is_asked() -> None:
    numbers = torch.arange(6.0)
    for dataset in (Doubling(numbers), Shifted(torchs.TensorDataset(numbers), range(6))):
        assert batch_reader(dataset) is None
        assert_same(list(ours.DataLoader(dataset, batch_size=4)), list(torchs.DataLoader(dataset, batch_size=4)))


def test_tensors_that_need_gradients_are_read_one_by_one() -> None:
    weights = torch.ones(4, 2, requires_grad=True)
    for (batch,) in ours.DataLoader(torchs.TensorDataset(weights), batch_size=2):
        batch.sum().backward()
    assert weights.grad is not None
    assert (weights.grad == 1).all()


@pytest.mark.parametrize("places", [[0.5, 1.5], [7], [-8], ["a"]])
def test_indices_that_make_no_sense_are_torchs_errors(places: Any) -> None:
    dataset = torchs.Subset(torchs.TensorDataset(torch.arange(6)), places)
    with pytest.raises(Exception) as wanted:
        list(torchs.DataLoader(dataset, batch_size=2))
    with pytest.raises(type(wanted.value)):
        list(ours.DataLoader(dataset, batch_size=2))


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [*((dtype, INLINE) for dtype in ("?", "u1", "i2", "i8", "u2", "f2", "f4", "f8", "c8")), ("f2", FORK)],
)
def test_feedlines_datasets_of_arrays_give_what_torchs_loader_makes_of_them(dtype: str, kind: dict[str, Any]) -> None:
    wide, narrow = array(1, (7, 30_000), dtype), array(2, (7,), dtype)
    datasets = [feedline.ArrayDataset(wide, narrow), feedline.ArrayDataset(x=wide, y=narrow), wide, narrow]
    for dataset in [*datasets, torchs.Subset(datasets[0], [5, 1, 1])]:
        wanted = list(torchs.DataLoader(dataset, batch_size=3))
        assert_same(list(ours.DataLoader(dataset, batch_size=3, **kind)), wanted)


@pytest.mark.parametrize(
    "join",
    [
        lambda data: torchs.ConcatDataset([data, data]),
        lambda data: torchs.StackDataset(data, data),
        lambda data: torchs.StackDataset(a=data, b=torchs.Subset(data, range(9))),
        lambda data: torchs.random_split(data, [4, 5], torch.Generator().manual_seed(1))[1],
    ],
    ids=["concat", "stack", "named stack", "split"],
)
@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_torchs_joined_and_split_datasets_load_as_in_torch(join: Any, kind: dict[str, Any]) -> None:
    for data in (torchs.TensorDataset(torch.arange(9)), Trees(9, lambda n: {"x": n, "y": str(n)})):
        wanted = list(torchs.DataLoader(join(data), batch_size=4))
        assert_same(list(ours.DataLoader(join(data), batch_size=4, **kind)), wanted)


@pytest.mark.parametrize(
    "wrap",
    [lambda data: torchs.Subset(data, range(12)), lambda data: torchs.StackDataset(x=data)],
    ids=["subset", "stack"],
)
def test_a_sample_in_torchs_wrappers_has_a_generator_of_its_own(wrap: Any) -> None:
    dataset = wrap(Trees(12, lambda n: {"drawn": ours.rng().random()}))

    def drawn(batch_size: int) -> list[float]:
        torch.manual_seed(2)
        batches = [batch.get("x", batch) for batch in ours.DataLoader(dataset, batch_size=batch_size)]
        return [number for batch in batches for number in batch["drawn"].tolist()]

    assert drawn(1) == drawn(5)
    assert len(set(drawn(5))) == 12


# Sent to spawned workers


def lies_in_shared_memory(tensor: torch.Tensor) -> bool:
    with open("/proc/self/maps") as maps:
        places = [line.split()[0].split("-") for line in maps if "memfd:feedline" in line]
    return any(int(start, 16) <= tensor.data_ptr() < int(end, 16) for start, end in places)


class Holder(torchs.Dataset[Any]):
    """Holds tensors of many kinds, and writes into its own copy of one."""

    def __init__(self) -> None:
        self.large = filled(1, (8, SMALL_LEAF), torch.bfloat16)
        self.strided = torch.randn(300, 200).t()
        self.small = torch.tensor([1, 2, 3])
        self.sparse = torch.eye(3).to_sparse()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.counts = torch.zeros(SMALL_LEAF, dtype=torch.int64)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.counts += 1
        shared = [lies_in_shared_memory(tensor) for tensor in (self.large, self.strided, self.counts)]
        kept = [self.large[index], self.strided, self.small, self.sparse.to_dense(), self.weight.detach()]
        return {"shared": shared, "kept": kept, "stride": self.strided.stride(), "count": self.counts[0].item()}


def test_tensors_of_a_dataset_are_sent_once_and_mapped_by_every_spawned_worker() -> None:
    dataset = Holder()
    samples = list(ours.DataLoader(dataset, batch_size=None, collate_fn=lambda sample: sample, **SPAWN))
    for index, sample in enumerate(samples):
        assert sample["shared"] == [True] * 3
        assert sample["stride"] == dataset.strided.stride()
        wanted = [dataset.large[index], dataset.strided, dataset.small, torch.eye(3), torch.ones(2)]
        assert_same(sample["kept"], wanted)
        assert 1 <= sample["count"] <= 8  # its own copy's count, not everybody's
    assert (dataset.counts == 0).all()


class Shared(torchs.Dataset[Any]):
    """Tells its workers the epoch, and is told what they read, through tensors in torch's shared memory."""

    def __init__(self) -> None:
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.rows = torch.zeros(4, SMALL_LEAF).share_memory_()
        self.second = self.rows[1]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        if index == 1:
            self.second.fill_(7)
        else:
            self.rows[index] = index
        return int(self.epoch), self.rows[index]


def check_sharing(kind: dict[str, Any]) -> None:
    dataset = Shared()
    with ours.DataLoader(dataset, batch_size=2, persistent_workers=True, **kind) as loader:
        for epoch in range(3):
            dataset.epoch.fill_(epoch)
            for epochs, rows in loader:
                assert epochs.tolist() == [epoch] * 2
                rows.fill_(-1)  # a batch is a copy all the same
    assert dataset.rows[:, 5].tolist() == [0, 7, 2, 3]


@pytest.mark.parametrize("kind", [FORK, SPAWN], ids=["fork", "spawn"])
def test_tensors_the_user_has_shared_stay_shared(kind: dict[str, Any]) -> None:
    check_sharing(kind)


def test_tensors_shared_by_torchs_other_strategy_stay_shared() -> None:
    code = f"""if __name__ == "__main__":
        import sys
        sys.path = {sys.path}
        import torch, test_torch_datasets
        torch.multiprocessing.set_sharing_strategy("file_system")
        test_torch_datasets.check_sharing(test_torch_datasets.SPAWN)
    """  # in a process of its own: torch leaves a server of shared memory behind
    host("feedline.torch").run(["-c", code], timeout=400, check=True)


# what a batch sampler gives, and what __getitems__ returns


class TellsWhatItGot(torchs.Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("not one by one")

    def __getitems__(self, indices: Any) -> list[Any]:
        if isinstance(indices, slice):
            return [[type(indices).__name__, index] for index in range(6)[indices]]
        return [[type(indices).__name__, int(index)] for index in indices]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "batches",
    [
        [slice(0, 3), slice(3, 6)],
        [(0, 1), (2, 3)],
        [torch.tensor([0, 1])],
        [np.array([4, 5])],
        [range(2)],
        [[1, 2]],
    ],
    ids=["slice", "tuple", "tensor", "array", "range", "list"],
)
def test_getitems_gets_what_the_batch_sampler_gave(batches: list[Any], workers: int) -> None:
    wanted = list(torchs.DataLoader(TellsWhatItGot(), batch_sampler=batches))  # its workers would leave a thread behind
    assert_same(list(ours.DataLoader(TellsWhatItGot(), batch_sampler=batches, num_workers=workers)), wanted)


class ReturnsAnything(TellsWhatItGot):
    def __init__(self, make: Any) -> None:
        self.make = make

    def __getitems__(self, indices: Any) -> Any:
        return self.make(torch.tensor(indices))


@dataclass
class Whole:
    x: Any


def as_it_is(batch: Any) -> Any:
    return batch.x if isinstance(batch, Whole) else list(batch)


@pytest.mark.parametrize(
    "make", [Whole, iter, lambda x: x, lambda x: {"x": x}], ids=["object", "iterator", "t", "dict"]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_getitems_returns_is_the_collate_functions_affair(make: Any, workers: int) -> None:
    options = {"batch_size": 2, "collate_fn": as_it_is, "num_workers": workers}
    found = [list(library.DataLoader(ReturnsAnything(make), **options)) for library in (torchs, ours)]
    assert_same(found[1], found[0])


class Endless(torchs.Dataset[int]):
    def __len__(self) -> int:
        return 10**12

    def __getitem__(self, index: int) -> int:
        return index


def test_a_dataset_may_be_longer_than_memory() -> None:
    batches = iter(ours.DataLoader(Endless(), batch_size=30_000))
    assert [(int(batch[0]), int(batch[-1])) for batch, _ in zip(batches, range(4), strict=False)] == [
        (start, start + 29_999) for start in range(0, 120_000, 30_000)
    ]


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(
    "rows",
    [
        np.arange(4, dtype=">i4"),
        np.eye(3).view(np.matrix),
        np.ma.masked_array(np.arange(4), [0, 1, 0, 1]),
        np.zeros((3, 2), ">f4"),
        np.arange(4.0),
        np.arange(6)[::-1],
    ],
    ids=["big-endian", "matrix", "masked", "big-endian rows", "plain", "backwards"],
)
def test_a_bare_array_of_any_kind_gives_what_torch_gives(rows: Any) -> None:
    found: list[Any] = []
    for library in (torchs, ours):
        try:
            found.append(list(library.DataLoader(rows, 2)))
        except Exception as error:
            found.append([type(error).__name__])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("workers", [0, 1])
def test_dtypes_that_differ_are_made_one_for_any_number_of_workers(workers: int) -> None:
    data = [torch.zeros(2), torch.ones(2, dtype=torch.float64)]
    assert_same(next(iter(ours.DataLoader(data, 2, num_workers=workers))), next(iter(torchs.DataLoader(data, 2))))


# the default device


@pytest.mark.parametrize("make", [list, lambda rows: torchs.TensorDataset(torch.stack(rows))], ids=["list", "tensors"])
def test_batches_of_cpu_tensors_are_on_the_cpu_whatever_the_default_device(make: Any) -> None:
    wide = [torch.full((20_000,), float(number)) for number in range(4)]
    for rows in (wide, [row[:2] for row in wide]):
        iterators = [iter(library.DataLoader(make(rows), 2)) for library in (torchs, ours)]
        torch.set_default_device("meta")
        try:
            found = [list(iterator) for iterator in iterators]
        finally:
            torch.set_default_device(None)
        assert_same(found[1], found[0])


def use_meta(worker_id: int) -> None:
    torch.set_default_device("meta")


def test_a_worker_may_have_another_default_device() -> None:
    options = {"batch_size": 2, "num_workers": 1, "worker_init_fn": use_meta}
    data = [torch.ones(20_000), torch.zeros(20_000)]
    found = [list(library.DataLoader(data, **options)) for library in (torchs, ours)]
    assert_same(found[1], found[0])


def test_a_permutation_may_be_drawn_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnDevice:
        def __init__(self, values: torch.Tensor) -> None:
            self.values = values

        def cpu(self) -> torch.Tensor:
            return self.values

    draw = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda size, generator: OnDevice(draw(size, generator=generator)))
    loader = ours.DataLoader(range(5), 5, shuffle=True, generator=torch.Generator().manual_seed(1))
    assert sorted(next(iter(loader)).tolist()) == list(range(5))
