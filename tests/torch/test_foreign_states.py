"""A checkpoint never ends the run: states of any kind, and objects that cannot be asked for theirs. Both fronts."""

from __future__ import annotations

import copy
import io
import json
import pickle
import threading
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, SPAWN, THREADS, ours, thorough

import feedline
import feedline.torch
from feedline import StateError

FRONTS = [pytest.param(feedline.DataLoader, id="core"), pytest.param(feedline.torch.DataLoader, id="torch")]
KINDS = [pytest.param(INLINE, id="inline"), pytest.param(FORK, id="fork")]
both = pytest.mark.parametrize("front", FRONTS)
kinds = pytest.mark.parametrize("kind", KINDS)
LACKS = "the loader's state lacks that of"
AGAIN = "to continue with batch"


class Streaming(feedline.IterableDataset[int], torchs.IterableDataset[int]):
    """Shares itself out over workers, as the streams of these libraries do."""

    def __iter__(self) -> Iterator[int]:
        info: Any = torchs.get_worker_info() or feedline.get_worker_info()
        return iter(range(24) if info is None else range(info.id, 24, info.num_workers))

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError("there is no state to load")


class Mosaics(Streaming):
    """As MosaicML's StreamingDataset."""

    def state_dict(self, num_samples: int, from_beginning: bool) -> dict[str, Any]:
        return {"epoch": 0, "sample_in_epoch": num_samples}


class LitDatas(Streaming):
    """As LitData's StreamingDataset."""

    def state_dict(self, num_samples_yielded: int, num_workers: int, batch_size: int) -> dict[str, Any]:
        if torchs.get_worker_info() is not None:
            raise RuntimeError("The method `state_dict` should only be called in the main process.")
        return {"num_samples_yielded": num_samples_yielded}


class Locked(Streaming):
    def state_dict(self) -> dict[str, Any]:
        return {"lock": threading.Lock()}


class Refusing(Streaming):
    def __getattr__(self, name: str) -> Any:
        if name == "state_dict":
            raise KeyError(name)
        raise AttributeError(name)


def listed(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def begun(front: Any, dataset: Any, batches: int, **options: Any) -> tuple[list[list[int]], Any, list[str]]:
    """So many batches, the state then, and what was warned of."""
    with warnings.catch_warnings(record=True) as warned, front(dataset, **options) as loader:
        warnings.simplefilter("always")
        iterator = iter(loader)
        got = listed(islice(iterator, batches))
        state = loader.state_dict()
        loader.state_dict()
    return got, state, [str(each.message) for each in ours(warned)]


def rest(front: Any, dataset: Any, state: Any, **options: Any) -> tuple[list[list[int]], list[str]]:
    with warnings.catch_warnings(record=True) as warned, front(dataset, **options) as loader:
        warnings.simplefilter("always")
        loader.load_state_dict(state)
        return listed(loader), [str(each.message) for each in ours(warned)]


@both
@kinds
@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Mosaics, "Mosaics.state_dict() failed: TypeError: "),
        (LitDatas, "LitDatas.state_dict() failed: "),
        (Locked, "the result of Locked.state_dict() cannot be pickled: TypeError: cannot pickle '_thread.lock' object"),
    ],
)
@pytest.mark.parametrize("buffer", [0, pytest.param(3, marks=thorough)])
def test_a_stream_that_cannot_be_asked_is_read_again_and_named(
    front: Any, kind: dict[str, Any], dataset: Any, why: str, buffer: int
) -> None:
    options = {"batch_size": 2, "shuffle_buffer": buffer, **kind}
    if front is feedline.DataLoader:
        options["seed"] = 5
    else:
        torch.manual_seed(0)
    whole, _, _ = begun(front, dataset(), 99, **options)
    torch.manual_seed(0)
    first, state, saving = begun(front, dataset(), 5, **options)
    assert [f"{LACKS} its IterableDataset, because {why}" in each for each in saving] == [True]  # said once
    json.dumps(state)
    last, loading = rest(front, dataset(), state, **options)
    assert first + last == whole
    assert [AGAIN in each and why in each for each in loading] == [True]


@both
def test_who_cannot_be_asked_is_asked_once_and_not_for_every_batch(front: Any) -> None:
    asked: list[str] = []

    class Stream(Streaming):
        def state_dict(self) -> Any:
            asked.append("stream")
            raise RuntimeError("not now")

    class Indices(WantsArguments):
        def state_dict(self) -> Any:  # type: ignore[override]
            asked.append("sampler")
            raise RuntimeError("not now")

    for _ in front(Stream(), batch_size=2):
        pass
    assert asked == ["stream"] * 2  # before anything is read, and after the first batch
    asked.clear()
    for _ in front(list(range(20)), batch_size=2, sampler=Indices()):
        pass
    assert asked == ["sampler", "sampler"]  # before the epoch, and in it


@both
def test_a_stream_that_fails_when_it_is_looked_at_has_no_state(front: Any) -> None:
    first, state, warned = begun(front, Refusing(), 2, batch_size=4)
    assert warned == []
    last, _ = rest(front, Refusing(), state, batch_size=4)
    assert [number for batch in first + last for number in batch] == list(range(24))


class Kept:
    """What a state may be made of: tensors, bytes, sets, numbers as keys, a class of one's own."""

    def __init__(self, at: int) -> None:
        self.at = at


class Drawing(Iterator[int]):
    def __init__(self, numbers: range) -> None:
        self.numbers, self.at = numbers, 0
        self.generator = torch.Generator().manual_seed(len(numbers))

    def __next__(self) -> int:
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        return self.numbers[self.at - 1] * 1000 + int(torch.randint(1000, (), generator=self.generator))

    def state_dict(self) -> Any:
        at = self.at.to_bytes(4, "little")
        return {"generator": self.generator.get_state(), 7: at, "seen": {self.at}, "kept": Kept(self.at)}

    def load_state_dict(self, state: Any) -> None:
        assert isinstance(state["kept"], Kept)
        assert state["seen"] == {state["kept"].at}
        self.at = int.from_bytes(state[7], "little")
        self.generator.set_state(state["generator"])


class Drawn(Streaming):
    def __iter__(self) -> Iterator[int]:
        info: Any = torchs.get_worker_info() or feedline.get_worker_info()
        return Drawing(range(24) if info is None else range(info.id, 24, info.num_workers))

    state_dict = None  # type: ignore[assignment]


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@both
@pytest.mark.parametrize("kind", [*KINDS, pytest.param(THREADS, id="thread"), pytest.param(SPAWN, marks=thorough)])
def test_a_state_is_whatever_pickles(front: Any, kind: dict[str, Any]) -> None:
    whole, _, _ = begun(front, Drawn(), 99, batch_size=2, **kind)
    for through in (copy.deepcopy, pickle.loads, through_a_file):
        first, state, warned = begun(front, Drawn(), 5, batch_size=2, **kind)
        assert warned == []
        loaded = through(pickle.dumps(state)) if through is pickle.loads else through(state)
        last, warned = rest(front, Drawn(), loaded, batch_size=2, **kind)
        assert first + last == whole
        assert warned == []


@both
def test_a_state_is_json_if_all_of_it_is(front: Any) -> None:
    _, state, _ = begun(front, Drawn(), 2, batch_size=2)
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({name: value for name, value in state["streams"]["0"]["state"].items() if name != 7})


@both
def test_what_is_saved_and_what_is_loaded_belong_to_nobody_else(front: Any) -> None:
    _, state, _ = begun(front, Drawn(), 5, batch_size=2)
    before = pickle.dumps(state)
    again = front(Drawn(), batch_size=2)
    again.load_state_dict(state)
    state["streams"]["0"]["state"].clear()
    expected, _ = rest(front, Drawn(), pickle.loads(before), batch_size=2)
    assert listed(again) == expected


@both
@kinds
def test_a_state_that_does_not_fit_is_still_refused(front: Any, kind: dict[str, Any]) -> None:
    _, state, _ = begun(front, Drawn(), 3, batch_size=2, **kind)
    state["sampler"] = "Mosaics"
    with pytest.raises(StateError, match="Mosaics or its iterator, which cannot load it now"):
        rest(front, Mosaics(), state, batch_size=2, **kind)
    with pytest.raises(StateError, match="another sampler was used when it was saved: 'Mosaics', and now 'Drawn'"):
        rest(front, Drawn(), state, batch_size=2, **kind)
    state["streams"]["0"]["state"] = threading.Lock()
    with pytest.raises(StateError, match="damaged"):
        rest(front, Mosaics(), state, batch_size=2, **kind)


class Made:
    """Pickles, and does not come back."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class Poisoned(Streaming):
    def state_dict(self) -> Any:
        return Made()


@both
@kinds
def test_a_state_that_does_not_come_back_is_none(front: Any, kind: dict[str, Any]) -> None:
    first, state, warned = begun(front, Poisoned(), 4, batch_size=2, **kind)
    assert ["not unpickled" in each for each in warned] == [True]
    last, _ = rest(front, Poisoned(), state, batch_size=2, **kind)
    assert sorted(number for batch in first + last for number in batch) == list(range(24))


class Indexed:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return index

    def state_dict(self) -> Any:
        return {"read": 3}

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError("it is not kept")


@both
def test_a_state_of_a_dataset_that_is_read_by_indices_is_not_kept_and_that_is_said(front: Any) -> None:
    _, state, warned = begun(front, Indexed(), 2, batch_size=2)
    assert ["its dataset: Indexed has a state_dict(), but is read by indices" in each for each in warned] == [True]
    assert rest(front, Indexed(), state, batch_size=2) == ([[4, 5]], [])


# ---- samplers


class Sampler:
    """In an order of its own, the same each time."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return 20

    def __iter__(self) -> Iterator[int]:
        while self.at < 20:
            self.at += 1
            yield self.at * 7 % 20
        self.at = 0

    def load_state_dict(self, state: Any) -> None:
        self.at = int(state["at"])


class OfTensors(Sampler):
    def state_dict(self) -> Any:
        return {"at": torch.tensor(self.at), "raw": b"\x00"}


class DoesNotComeBack(Sampler):
    def state_dict(self) -> Any:
        return Made()


class WantsArguments(Sampler):
    def state_dict(self, of: str) -> Any:
        return {"at": self.at}


class HoldsALock(Sampler):
    def state_dict(self) -> Any:
        return {"at": self.at, "lock": threading.Lock()}


@both
@kinds
def test_a_samplers_state_is_whatever_pickles(front: Any, kind: dict[str, Any]) -> None:
    options: dict[str, Any] = {"batch_size": 3, **kind}
    first, state, warned = begun(front, list(range(20)), 3, sampler=OfTensors(), **options)
    last, more = rest(front, list(range(20)), through_a_file(state), sampler=OfTensors(), **options)
    assert [number for batch in first + last for number in batch] == [at * 7 % 20 for at in range(1, 21)]
    assert warned == more == []


@both
@kinds
@pytest.mark.parametrize("sampler", [WantsArguments, HoldsALock, DoesNotComeBack])
@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_a_sampler_that_cannot_be_asked_is_asked_again_for_its_indices(
    front: Any, kind: dict[str, Any], sampler: Any, name: str
) -> None:
    class InBatches(sampler):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return iter([list(batch) for batch in zip(*[super().__iter__()] * 4, strict=True)])

    made = sampler if name == "sampler" else InBatches
    options: dict[str, Any] = {**kind, **({"batch_size": 4} if name == "sampler" else {})}
    first, state, warned = begun(front, list(range(20)), 2, **{name: made()}, **options)
    assert [f"{LACKS} its sampler, because " in each for each in warned] == [True]
    last, more = rest(front, list(range(20)), state, **{name: made()}, **options)
    assert [number for batch in first + last for number in batch] == [at * 7 % 20 for at in range(1, 21)]
    assert more == []


@both
def test_a_sampler_that_gives_another_order_when_it_is_asked_again_is_refused(front: Any) -> None:
    class Another(WantsArguments):
        def __iter__(self) -> Iterator[int]:
            return iter(range(19, -1, -1))

    _, state, _ = begun(front, list(range(20)), 2, sampler=WantsArguments(), batch_size=4)
    state["sampler"] = state["sampler"].replace("WantsArguments", "Another")
    with pytest.raises(StateError, match="before batch 2 the sampler now gives other indices"):
        rest(front, list(range(20)), state, sampler=Another(), batch_size=4)
