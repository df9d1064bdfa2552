"""What a reader with fresh eyes found broken, each once."""

from __future__ import annotations

import gc
import os
import pickle
import random
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from kinds import FORK, THREADS, every_process, every_worker

from feedline import (
    ArrayDataset,
    ChainDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    SequentialSampler,
    WorkerError,
    get_worker_info,
    rng,
)


class Numbers(Dataset[int]):
    def __init__(self, length: int = 10) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))


class OwnShare(Stream):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(self.start + first, self.stop, step))


def elements(loader: DataLoader) -> list[int]:
    return [int(value) for batch in loader for value in batch]


def look(worker: int) -> None:
    assert str(get_worker_info())


@every_worker
@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
def test_looking_at_the_worker_info_in_worker_init_fn_shares_nothing(kind: dict[str, Any]) -> None:
    assert elements(DataLoader(Stream(0, 8), 2, worker_init_fn=look, **kind)) == list(range(8))


def open_something(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.connection = object()


@every_worker
@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
def test_opening_something_on_the_dataset_in_worker_init_fn_shares_nothing(kind: dict[str, Any]) -> None:
    assert elements(DataLoader(Stream(0, 8), 2, worker_init_fn=open_something, **kind)) == list(range(8))


def cut(worker: int) -> None:
    """The way torch's documentation shares a stream."""
    info = get_worker_info()
    assert info is not None
    dataset = info.dataset
    portion = -(-(dataset.stop - dataset.start) // info.num_workers)
    dataset.start += info.id * portion
    dataset.stop = min(dataset.start + portion, dataset.stop)


@every_worker
def test_a_worker_init_fn_that_sets_the_bounds_shares_the_stream(kind: dict[str, Any]) -> None:
    dataset = Stream(0, 20)
    assert sorted(elements(DataLoader(dataset, 3, worker_init_fn=cut, **kind))) == list(range(20))
    assert type(dataset) is Stream


@every_worker
@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
@pytest.mark.parametrize("streams", [(Stream, OwnShare), (OwnShare, Stream)])
def test_chained_streams_must_agree_on_sharing(kind: dict[str, Any], streams: Any) -> None:
    chained: Any = ChainDataset([streams[0](0, 10), streams[1](10, 20)])
    assert sorted(elements(DataLoader(chained, 2))) == list(range(20))
    with pytest.raises(RuntimeError, match=r"Let all ask, or none|only after its first element"):
        elements(DataLoader(chained, 2, **kind))


class Backwards(SequentialSampler):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9, -1, -1))


class Classic(Sampler):
    """As every tutorial for torch writes one."""

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        return iter(range(9, -1, -1))


class Narrow(Sampler):
    def order(self, seed: int, epoch: int) -> Any:
        return np.arange(9, -1, -1, dtype=np.int32)


@pytest.mark.parametrize("kind", [{}, THREADS, FORK])
@pytest.mark.parametrize("sampler", [Backwards(range(10)), Classic(), Narrow()])
def test_a_sampler_may_be_written_either_way(kind: dict[str, Any], sampler: Any) -> None:
    assert elements(DataLoader(Numbers(), 4, sampler=sampler, **kind)) == list(range(9, -1, -1))


def test_loading_in_another_thread_leaves_everybodys_randomness_alone() -> None:
    class Drawing(Numbers):
        def __getitem__(self, index: int) -> Any:
            return random.random(), np.random.rand(), rng().random()

    def load() -> list[bytes]:
        return [np.stack(batch).tobytes() for batch in DataLoader(Drawing(200), 2, shuffle=True, seed=1)]

    alone = load()
    random.seed(5)
    expected = [random.random() for _ in range(300)]
    results: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: results.append(load())) for _ in range(2)]
    random.seed(5)
    for thread in threads:
        thread.start()
    drawn = [random.random() for _ in range(300)]
    for thread in threads:
        thread.join()
    assert results == [alone, alone]
    assert drawn == expected
    assert random.random.__self__ is random._inst  # the module's own functions are back


class Hiccup:
    """Fails once and goes on."""

    def __iter__(self) -> Hiccup:
        self.at = -1
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 5:
            raise ValueError("bad element")
        if self.at >= 20:
            raise StopIteration
        return self.at


def test_an_error_in_the_stream_does_not_empty_the_shuffle_buffer() -> None:
    iterator = iter(DataLoader(Hiccup(), batch_size=None, shuffle_buffer=8))
    found, errors = [], 0
    while True:
        try:
            found.append(next(iterator))
        except ValueError:
            errors += 1
        except StopIteration:
            break
    assert errors == 1
    assert sorted(found) == [i for i in range(20) if i != 5]


@pytest.mark.parametrize("index", [2.7, "2"])
def test_an_index_that_is_none_is_refused(index: Any) -> None:
    with pytest.raises(TypeError):
        list(DataLoader(ArrayDataset(np.arange(5)), sampler=[index]))


class Unopenable(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        raise OSError("no such tape")


@pytest.mark.parametrize("kind", [{}, THREADS, FORK])
def test_a_stream_that_cannot_be_opened_ends(kind: dict[str, Any]) -> None:
    iterator = iter(DataLoader(Unopenable(), **kind))
    errors = 0
    for _ in range(50):
        try:
            next(iterator)
        except OSError:
            errors += 1
        except StopIteration:
            break
    assert 1 <= errors <= 8  # those that were out when the first came


def interrupted(worker: int) -> None:
    raise KeyboardInterrupt


def test_a_thread_that_fails_before_its_first_task_says_so() -> None:
    with pytest.raises(TypeError, match="masked"):
        list(DataLoader(np.ma.array(np.arange(4)), 2, **THREADS))
    with pytest.raises(KeyboardInterrupt):
        list(DataLoader(Numbers(), worker_init_fn=interrupted, **THREADS))


def test_threads_of_a_forked_copy_are_refused() -> None:
    iterator = iter(DataLoader(Numbers(1000), **THREADS))
    next(iterator)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            next(iterator)
        except WorkerError:
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert os.read(reading, 100) == b"refused"
    os.close(reading)


class Trainer:
    """Refers to its loader, which refers to it: as people write them."""

    def __init__(self, **options: Any) -> None:
        self.loader = DataLoader(Numbers(), collate_fn=self.collate, **options)
        self.iterator = iter(self.loader)

    def collate(self, samples: list[Any]) -> Any:
        return samples


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", [{}, FORK])
def test_a_job_that_refers_to_its_loader_does_not_keep_it(kind: dict[str, Any], persistent: bool) -> None:
    trainer = Trainer(persistent_workers=persistent and bool(kind), **kind)
    next(trainer.iterator)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
    assert not [child for child in psutil.Process().children() if "feedline" in child.name()]


@every_process
def test_many_tasks_ahead_cost_little_memory(kind: dict[str, Any]) -> None:
    before = psutil.Process().memory_info().shared
    with DataLoader(Numbers(4000), 8, prefetch_factor=100, **kind) as loader:
        next(iter(loader))
        assert psutil.Process().memory_info().shared - before < 200 * 64 * 1024


class Slow(Numbers):
    def __init__(self, gate: Any) -> None:
        super().__init__(400)
        self.gate = gate

    def __getitem__(self, index: int) -> int:
        if index:
            self.gate.acquire()
        return index


@pytest.mark.parametrize("kind", [THREADS, FORK])
def test_tasks_of_an_iteration_that_was_left_are_not_done(kind: dict[str, Any]) -> None:
    import multiprocessing

    gate = multiprocessing.get_context("fork").Semaphore(0)
    with DataLoader(Slow(gate), persistent_workers=True, prefetch_factor=50, timeout=600, **kind) as loader:
        next(iter(loader))  # 100 tasks more are out, of which two are waiting at the gate
        again = iter(loader)
        for _ in range(2 + 2):  # lets those two go, and samples 1 and 2 of the new iteration, whoever is first
            gate.release()
        assert [next(again).item(), next(again).item()] == [0, 1]
        for _ in range(200):
            gate.release()


def test_a_loader_can_be_pickled_and_shows_its_options() -> None:
    loader = DataLoader(Numbers(), batch_size=3, num_workers=2, seed=4)
    again = pickle.loads(pickle.dumps(loader))
    assert (again.batch_size, again.num_workers, again.seed, again.dataset.length) == (3, 2, 4, 10)
    with pytest.raises(AttributeError, match="colour"):
        again.colour


class Lying(OwnShare):
    def __len__(self) -> int:
        return 1000


@pytest.mark.parametrize("kind", [{}, THREADS])
def test_a_lying_length_is_noticed_with_drop_last_too(kind: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="__len__ says 1000"):
        list(DataLoader(Lying(0, 8), 2, drop_last=True, **kind))


def test_a_length_that_cannot_be_had_is_no_error() -> None:
    class Shy(Stream):
        def __len__(self) -> int:
            raise NotImplementedError

    assert elements(DataLoader(Shy(0, 4), 2)) == [0, 1, 2, 3]


def test_an_exception_that_cannot_be_written_to_arrives() -> None:
    class Frozen(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(name)

    class Failing(Numbers):
        def __getitem__(self, index: int) -> int:
            raise Frozen("as it is")

    with pytest.raises(Frozen, match="as it is"):
        list(DataLoader(Failing()))
