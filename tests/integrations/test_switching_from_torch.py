"""Each difference from torch's loader that docs/switching-from-torch.md names: what torch does, and what we do."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import warnings
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.datapipes.iter import IterableWrapper

import feedline
import feedline.torch

ROOT = Path(__file__).parent.parent.parent
BOTH = TORCHS, OURS = torch.utils.data.DataLoader, feedline.torch.DataLoader


class Plain(torch.utils.data.Dataset):
    """Twelve tensors that it keeps."""

    def __init__(self) -> None:
        self.tensors = [torch.full((3,), float(number)) for number in range(12)]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return self.tensors[index]


def so_far(batches: Iterator[Any]) -> list[Any]:
    """All batches as lists, and the names of exceptions on the way."""
    found: list[Any] = []
    while len(found) < 10:
        try:
            found.append(next(batches).tolist())
        except StopIteration:
            break
        except Exception as error:
            found.append(type(error).__name__)
    return found


class Drawing(Plain):
    """Draws from all three global generators, as many an augmentation does."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()).item()], dtype=torch.float64)


def seed_all() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def epoch(loader_class: Any, dataset: Any, **options: Any) -> torch.Tensor:
    """All batches of one epoch, from the same seed."""
    seed_all()
    return torch.cat(list(loader_class(dataset, batch_size=3, shuffle=True, **options)))


def next_draws() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_draws_of_a_dataset_do_not_depend_on_the_number_of_workers():
    assert not torch.equal(epoch(TORCHS, Drawing(), num_workers=1), epoch(TORCHS, Drawing(), num_workers=2))
    ours = epoch(OURS, Drawing())
    for options in ({"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "multiprocessing_context": "spawn"}):
        assert torch.equal(epoch(OURS, Drawing(), **options), ours)
    assert torch.equal(epoch(TORCHS, Drawing())[:, 0], ours[:, 0]), "the order is torch's"


def test_draws_of_a_dataset_in_the_main_process_leave_your_random_state_alone():
    def draws_after(loader_class: Any, dataset: Any) -> tuple[float, float, float]:
        epoch(loader_class, dataset)
        return next_draws()

    assert draws_after(TORCHS, Drawing()) != draws_after(TORCHS, Plain())
    assert draws_after(OURS, Drawing()) == draws_after(OURS, Plain()) == draws_after(TORCHS, Plain())


def seed_with_five(worker: int) -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)


def test_seeding_in_worker_init_fn_does_not_make_workers_alike():
    options = {"num_workers": 2, "worker_init_fn": seed_with_five}
    theirs, ours = (epoch(loader_class, Drawing(), **options)[:, 1:] for loader_class in (TORCHS, OURS))
    assert torch.equal(theirs[:3], theirs[3:6]), "the first batches of both workers: the same draws"
    assert len(ours[:, 0].unique()) == 12


class Seeds(Plain):
    def __getitem__(self, index: int) -> int:
        return torch.initial_seed() % 2**31


def test_initial_seed_in_a_worker_is_the_batchs():
    theirs = epoch(TORCHS, Seeds(), num_workers=2)
    assert len(theirs.unique()) == 2, "one per worker"
    ours = epoch(OURS, Seeds(), num_workers=2)
    assert len(ours.unique()) == 4, "one per batch"


def test_thread_workers_share_torchs_generator_but_not_the_others():
    ours = epoch(OURS, Drawing())
    in_threads = epoch(OURS, Drawing(), num_workers=2, workers="thread")
    assert torch.equal(in_threads[:, :3], ours[:, :3])
    assert not torch.equal(in_threads[:, 3], ours[:, 3])


class OurDraws(Plain):
    def __getitem__(self, index: int) -> float:
        return feedline.torch.rng().random()


def test_rng_is_the_same_in_every_kind_of_worker():
    ours = epoch(OURS, OurDraws())
    for options in ({"num_workers": 2}, {"num_workers": 2, "workers": "thread"}):
        assert torch.equal(epoch(OURS, OurDraws(), **options), ours)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(6))


def test_a_stream_that_does_not_shard_itself_is_read_once_with_a_warning():
    def elements(loader_class: Any) -> list[int]:
        return torch.cat(list(loader_class(Stream(), batch_size=2, num_workers=2))).tolist()

    assert sorted(elements(TORCHS)) == sorted([*range(6), *range(6)])
    with pytest.warns(UserWarning, match="reads the whole stream and keeps one of every 2 batches"):
        assert elements(OURS) == list(range(6))


class Sharding(torch.utils.data.IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        return iter(range(info.id, 6, info.num_workers))


def test_a_stream_that_shards_itself_is_read_as_by_torch():
    theirs, ours = (list(loader_class(Sharding(), batch_size=2, num_workers=2)) for loader_class in (TORCHS, OURS))
    assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs]


class Lying(torch.utils.data.IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return 4

    def __iter__(self):
        return iter(range(self.count))


@pytest.mark.parametrize("count", [3, 6])
def test_a_wrong_length_of_a_stream_is_pointed_out_whether_or_not_anybody_asked_for_it(count):
    assert len(list(TORCHS(Lying(count)))) == count
    with pytest.warns(UserWarning, match=rf"__len__ says 4, but it gave {count}"):
        assert len(list(OURS(Lying(count)))) == count


@pytest.mark.parametrize("options", [{"batch_size": None}, {"batch_size": 2, "collate_fn": list}])
def test_writing_into_a_batch_never_changes_the_dataset(options):
    def changed_by(loader_class: Any) -> bool:
        dataset = Plain()
        for batch in loader_class(dataset, **options):
            for tensor in batch if isinstance(batch, list) else [batch]:
                tensor.add_(100)
        return bool((torch.stack(dataset.tensors) >= 100).any())

    assert changed_by(TORCHS)
    assert not changed_by(OURS)


def views(samples: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.zeros(50_000)
    return whole, whole[:25_000]


@pytest.mark.parametrize("workers", [0, 2])
def test_tensors_on_one_storage_arrive_as_separate_tensors(workers):
    def is_second_changed_with_the_first(loader_class: Any) -> bool:
        whole, part = next(iter(loader_class(Plain(), num_workers=workers, collate_fn=views)))
        whole[0] = 5
        return part[0].item() == 5

    assert is_second_changed_with_the_first(TORCHS)
    assert not is_second_changed_with_the_first(OURS)


def test_a_delivered_tensor_is_not_torchs_shared_memory():
    theirs, ours = (next(iter(loader_class(Plain(), 2, num_workers=1))) for loader_class in (TORCHS, OURS))
    assert theirs.is_shared()
    assert not ours.is_shared()


class Missing(Plain):
    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise FileNotFoundError(2, "No such file or directory", "/nowhere/2.jpg")
        return index


def test_an_exception_keeps_its_object_and_gets_notes():
    def error_of(loader_class: Any) -> Any:
        try:
            list(loader_class(Missing(), batch_size=2, num_workers=2))
        except FileNotFoundError as error:
            return error.with_traceback(None)  # which would keep torch's workers alive

    theirs, ours = error_of(TORCHS), error_of(OURS)
    assert theirs.filename is None
    assert str(theirs).startswith("Caught FileNotFoundError in DataLoader worker process")
    assert ours.filename == "/nowhere/2.jpg"
    assert ours.__notes__[0] == "feedline: raised by dataset[2]"
    assert "__getitem__" in str(ours.__cause__), "the worker's traceback"


class Ragged(Plain):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(index)


def test_a_ragged_batch_is_a_runtime_error_that_names_dataset_indices():
    with pytest.raises(RuntimeError, match=r"\[7\] at dataset index 7 .* \[3\] at dataset index 3 "):
        list(OURS(Ragged(), batch_sampler=[[7, 3]], num_workers=1))


class Connected(Plain):
    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")


def test_what_cannot_be_sent_to_a_worker_is_named_and_lambdas_travel():
    spawned = {"num_workers": 1, "multiprocessing_context": "spawn"}
    dataset = Connected()
    with pytest.raises(TypeError, match=r"dataset\.db: sqlite3\.Connection"):
        list(OURS(dataset, **spawned))
    dataset.db.close()
    assert list(OURS(range(2), collate_fn=lambda samples: samples, **spawned)) == [[0], [1]]


class Parents(Plain):
    def __getitem__(self, index: int) -> int:
        return os.getppid()


def test_spawned_workers_come_from_one_clean_helper_process():
    def parents(loader_class: Any) -> set[int]:
        loader = loader_class(Parents(), batch_size=6, num_workers=1, multiprocessing_context="spawn")
        return {parent for batch in loader for parent in batch.tolist()}

    assert parents(TORCHS) == {os.getpid()}
    (ours,) = parents(OURS)
    assert ours != os.getpid()


class Where(Plain):
    def __getitem__(self, index: int) -> tuple[int, int]:
        torchs, ours = torch.utils.data.get_worker_info(), feedline.get_worker_info()
        return -1 if torchs is None else torchs.id, -1 if ours is None else ours.id


def test_torchs_get_worker_info_and_ours_answer_in_processes_and_in_threads():
    for torchs, ours in OURS(Where(), num_workers=2):
        assert torchs == ours >= 0
    for torchs, ours in OURS(Where(), num_workers=2, workers="thread"):
        assert torchs == ours >= 0


def test_data_pipes_go_through_torchs_own_iterator():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about data pipes
        loader = OURS(IterableWrapper([1, 2, 3]))
        iterator = iter(loader)
    assert isinstance(iterator, _BaseDataLoaderIter)
    assert [int(batch) for batch in iterator] == [1, 2, 3]


def test_the_iterator_is_ours_and_has_none_of_torchs_inner_parts():
    iterator = iter(OURS(Plain()))
    assert not isinstance(iterator, _BaseDataLoaderIter)
    assert not hasattr(iterator, "_dataset_kind")


class Stops(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise StopIteration
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stray_stop_iteration_of_a_dataset_does_not_end_the_epoch(workers: int) -> None:
    theirs, mine = (so_far(iter(loader(Stops(), num_workers=workers))) for loader in BOTH)
    assert theirs[:2] == [[0], [1]]
    assert mine == [[0], [1], "RuntimeError", [3]]


class Tears:
    """A sampler that fails after two indices."""

    def __iter__(self) -> Iterator[int]:
        yield 0
        yield 1
        raise LookupError("torn")


def test_an_error_of_the_sampler_comes_after_the_batches_before_it() -> None:
    options = {"sampler": Tears(), "num_workers": 2}
    with pytest.raises(LookupError, match="torn"):
        iter(TORCHS(range(4), **options))
    assert so_far(iter(OURS(range(4), **options))) == [[0], [1], "LookupError"]


class Opened(torch.utils.data.IterableDataset[int]):
    opened = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        return iter(range(3))


def test_without_workers_a_stream_is_opened_by_the_first_next() -> None:
    counts = []
    for loader in BOTH:
        stream = Opened()
        batches = iter(loader(stream))
        counts.append([stream.opened, next(batches).item(), stream.opened])
    assert counts == [[1, 0, 1], [0, 0, 1]]


def test_a_batch_of_no_samples_is_another_error() -> None:
    found = [so_far(iter(loader(range(4), batch_sampler=[[]]))) for loader in BOTH]
    assert found == [["IndexError"], ["CollateError"]]


class InAGraph(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return torch.ones(2, requires_grad=True) * 2


def test_a_worker_sends_a_tensor_that_has_a_graph_as_a_leaf() -> None:
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        next(iter(TORCHS(InAGraph(), num_workers=1)))
    batch = next(iter(OURS(InAGraph(), num_workers=1)))
    assert batch.requires_grad
    assert batch.is_leaf


def test_a_large_batch_cannot_be_resized_in_place() -> None:
    data = [torch.zeros(40_000)] * 2
    assert next(iter(TORCHS(data, 2))).resize_(4, 40_000).shape == (4, 40_000)
    assert next(iter(OURS(data, 2))).resize_(4, 40_000).shape == (4, 40_000)  # without workers it is torch's memory
    for options in ({"num_workers": 1}, {"workers": "thread", "num_workers": 1}):
        with OURS(data, 2, **options) as loader, pytest.raises(RuntimeError, match="not resizable"):
            next(iter(loader)).resize_(4, 40_000)


class Odd:
    """Pickles only by the recipe that ForkingPickler is given."""

    def __reduce__(self) -> Any:
        raise TypeError("no plain pickle")


class GivesOdd(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return Odd()


def test_batches_are_pickled_by_pickle_and_not_by_forking_pickler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ForkingPickler, "_extra_reducers", {**ForkingPickler._extra_reducers, Odd: lambda odd: (int, ())}
    )  # type: ignore[attr-defined]
    options = {"batch_size": None, "num_workers": 1}
    assert next(iter(TORCHS(GivesOdd(), **options))) == 0
    with pytest.raises(TypeError, match="no plain pickle"):
        next(iter(OURS(GivesOdd(), **options)))


def test_a_second_iterator_of_persistent_workers_is_another_object_and_ends_the_first() -> None:
    options = {"batch_size": 2, "num_workers": 1, "persistent_workers": True}
    loader = TORCHS(range(6), **options)
    one, two = iter(loader), iter(loader)
    assert one is two
    loader._iterator = None
    with OURS(range(6), **options) as mine:
        one = iter(mine)
        next(one)
        two = iter(mine)
        assert next(two).tolist() == [0, 1]
        with pytest.raises(RuntimeError, match="given up when iter"):
            next(one)


class Forwards:
    """A transform around a dataset, which forwards what it has not got."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return -index

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


class ReadsMany(torch.utils.data.Dataset[int]):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [100 + index for index in indices]


def test_a_transform_is_not_bypassed_by_the_getitems_it_forwards() -> None:
    found = [so_far(iter(loader(Forwards(ReadsMany()), 4))) for loader in BOTH]
    assert found == [[[100, 101, 102, 103]], [[0, -1, -2, -3]]]


def test_a_dataset_of_tensors_is_read_as_it_was_when_the_epoch_began() -> None:
    found = []
    for loader in BOTH:
        dataset = torch.utils.data.TensorDataset(torch.arange(4))
        batches = iter(loader(dataset, 2))
        first = next(batches)
        dataset.tensors = (torch.arange(4) * 10,)
        found.append([first[0].tolist(), next(batches)[0].tolist()])
    assert found == [[[0, 1], [20, 30]], [[0, 1], [2, 3]]]


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "switching-from-torch.md").read_text()
    named = set(re.findall(r"\btest_\w+(?!\.py)\b", page))
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    missing = {name for name in named - files if f"def {name}(" not in tests}
    assert named - files
    assert not missing
