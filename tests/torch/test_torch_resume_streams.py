"""feedline.torch: streams that stop and go on, with other workers, other options, other ways of sharing."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, THREADS

import feedline.torch as ours
from feedline import StateError
from feedline.machine.worker_info import WorkerInfo, of_this_thread, set_worker_info

pytestmark = [
    pytest.mark.filterwarnings("ignore:the IterableDataset neither asks"),
    pytest.mark.filterwarnings("ignore:to continue with batch"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes"),  # torch's, on two cores
]


class Elements(Iterator[int]):
    """Those of a range, without a place of their own."""

    def __init__(self, numbers: range) -> None:
        self.numbers, self.given = numbers, 0

    def __next__(self) -> int:
        if self.given == len(self.numbers):
            raise StopIteration
        self.given += 1
        return self.numbers[self.given - 1]


class Kept(Elements):
    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


class Stream(torchs.IterableDataset[int]):
    def __init__(self, elements: type[Elements] = Kept, end: int = 24) -> None:
        self.elements, self.begin, self.end = elements, 0, end

    def __iter__(self) -> Iterator[int]:
        return self.elements(range(self.begin, self.end))


class SharesItself(Stream):
    def __iter__(self) -> Iterator[int]:
        info = torchs.get_worker_info()
        numbers = range(self.end)
        return self.elements(numbers if info is None else numbers[info.id :: info.num_workers])


class SharesItselfLate(Stream):
    """A generator, which asks when its first element is wanted; the dataset itself keeps the place."""

    given = 0

    def __iter__(self) -> Iterator[int]:
        info: Any = torchs.get_worker_info()
        for number in range(self.end)[info.id :: info.num_workers][self.given :]:
            self.given += 1
            yield number
        self.given = 0

    state_dict = Kept.state_dict
    load_state_dict = Kept.load_state_dict


def begun(dataset: Any, batches: int, **options: Any) -> tuple[list[int], Any]:
    """So many batches of it, and the state then."""
    with ours.DataLoader(dataset, **options) as loader:
        seen = [element for batch in itertools.islice(loader, batches) for element in batch.tolist()]
        return seen, json.loads(json.dumps(loader.state_dict()))


def rest(dataset: Any, state: Any, **options: Any) -> list[int]:
    with ours.DataLoader(dataset, **options) as loader:
        loader.load_state_dict(state)
        return [element for batch in loader for element in batch.tolist()]


@pytest.mark.parametrize("elements", [Elements, Kept])
@pytest.mark.parametrize(
    "changed", [{"batch_size": 2}, {"shuffle_buffer": 5}, {"shuffle_buffer": 0}, {"batch_size": None}], ids=str
)
def test_a_stream_read_in_another_way_is_refused(elements: type[Elements], changed: dict[str, Any]) -> None:
    options = {"batch_size": 3, "shuffle_buffer": 8}
    _, state = begun(Stream(elements), 3, **options)
    name = next(iter(changed))
    with pytest.raises(StateError, match=rf"{name}={options[name]}.*, and now .*{name}={changed[name]}"):
        rest(Stream(elements), state, **options | changed)


KINDS = {"threads": THREADS, "fork": FORK, "inline": INLINE, "three": {"num_workers": 3, "workers": "thread"}}


@pytest.mark.parametrize("dataset", [SharesItself, SharesItselfLate])
@pytest.mark.parametrize(
    ("then", "now"), [("threads", "fork"), ("fork", "threads"), ("fork", "inline"), ("fork", "three")]
)
def test_a_stream_that_asks_torch_goes_on_with_any_kind_of_worker(dataset: type[Stream], then: str, now: str) -> None:
    wanted, _ = begun(dataset(), 99, batch_size=3, **THREADS)
    assert sorted(wanted) == list(range(24))
    first, state = begun(dataset(), 3, batch_size=3, **KINDS[then])
    assert first + rest(dataset(), state, batch_size=3, **KINDS[now]) == wanted


@pytest.mark.parametrize("dataset", [SharesItself, SharesItselfLate])
def test_with_a_shuffle_buffer_too(dataset: type[Stream]) -> None:
    options = {"batch_size": 2, "shuffle_buffer": 3, "generator": torch.Generator().manual_seed(1)}
    wanted, _ = begun(dataset(), 99, **options, **THREADS)
    options["generator"].manual_seed(1)
    first, state = begun(dataset(), 8, **options, **THREADS)
    assert first + rest(dataset(), state, **options, **THREADS) == wanted


def test_one_that_cannot_say_where_it_stands_too() -> None:
    wanted, _ = begun(SharesItself(Elements), 99, batch_size=3, **THREADS)
    first, state = begun(SharesItself(Elements), 3, batch_size=3, **FORK)
    assert first + rest(SharesItself(Elements), state, batch_size=3, **THREADS) == wanted


class NoLonger(SharesItself):
    __iter__ = Stream.__iter__


NoLonger.__name__ = NoLonger.__qualname__ = "SharesItself"
NowLate = type("SharesItself", (SharesItselfLate,), {"state_dict": Kept.state_dict})


@pytest.mark.parametrize("buffer", [0, 4])
def test_one_that_does_not_share_itself_any_more_is_refused_before_its_first_batch(buffer: int) -> None:
    options = {"batch_size": 2, "shuffle_buffer": buffer, **THREADS}
    _, state = begun(SharesItself(), 7, **options)
    with pytest.raises(StateError, match="each worker read its own share, and now each reads the whole"):
        rest(NoLonger(), state, **options)


@pytest.mark.parametrize("now", [SharesItself, NowLate])
def test_one_that_shares_itself_only_now_is_refused_before_its_first_batch(now: type[Stream]) -> None:
    _, state = begun(NoLonger(), 3, batch_size=3, **THREADS)
    for record in state["streams"].values():
        record["of"] = "dataset" if now is NowLate else "iterator"
    with pytest.raises(StateError, match="each worker read the whole stream, and now each reads its own"):
        rest(now(), state, batch_size=3, **THREADS)


def cut(number: int) -> None:
    info: Any = torchs.get_worker_info()
    dataset = info.dataset
    size = dataset.end // info.num_workers
    dataset.begin, dataset.end = number * size, (number + 1) * size


def test_one_that_worker_init_fn_shared_out_goes_on_only_with_it() -> None:
    options = {"batch_size": 3, "worker_init_fn": cut}
    wanted, _ = begun(Stream(), 99, **options, **THREADS)
    assert sorted(wanted) == list(range(24))
    first, state = begun(Stream(), 3, **options, **FORK)
    assert first + rest(Stream(), state, **options, **THREADS) == wanted
    with pytest.raises(StateError, match="each worker read its own share, and now"):
        rest(Stream(), state, batch_size=3, **THREADS)


def look(number: int) -> None:
    info: Any = torchs.get_worker_info()
    assert info.id == number


def test_looking_at_torchs_answer_in_a_worker_thread_is_no_sharing() -> None:
    found, _ = begun(Stream(), 99, batch_size=3, worker_init_fn=look, **THREADS)
    assert found == list(range(24))


def test_a_process_that_a_worker_thread_has_forked_is_not_that_worker() -> None:
    set_worker_info(WorkerInfo(1, 2, 0, None), own_process=False)
    try:
        assert of_this_thread() is not None
        child = os.fork()
        if not child:
            os._exit(of_this_thread() is not None)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        set_worker_info(None, own_process=False)


def stacked(samples: list[int]) -> torch.Tensor:
    """By torch's own collating, which in a worker process of torch's would be in a file of /dev/shm."""
    found: torch.Tensor = torchs.default_collate([torch.tensor([sample]) for sample in samples])
    return found if not found.is_shared() else torch.full_like(found, -1)


def test_a_worker_thread_has_torchs_answer_and_the_loop_has_none() -> None:
    class Where(torchs.Dataset[int]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> int:
            info: Any = torchs.get_worker_info()
            return info.num_workers * 10 + len(info.dataset)

    with ours.DataLoader(Where(), 2, collate_fn=stacked, **THREADS) as loader:
        for batch in loader:
            assert torchs.get_worker_info() is None
            assert batch.tolist() == [[26], [26]]
    theirs = torchs.DataLoader(Where(), 2, num_workers=2)  # forked from a process whose answer looks at the thread
    assert [batch.tolist() for batch in theirs] == [[26, 26]] * 3
