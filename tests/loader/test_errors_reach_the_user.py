"""An exception of the user's code arrives at `next()` with its type, its traceback and the sample it was about."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import every_kind, every_process, every_worker, quick_kinds
from made_datasets import Numbers

from feedline import ArrayDataset, CollateError, DataLoader, Dataset, RemoteError, Subset, WorkerDied, WorkerTimeout


class Failing(Dataset[Any]):
    """Sample 5 raises what `make` makes."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise self.make()
        return index


class Awkward(Exception):
    """Cannot be rebuilt from its args."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)) + "".join(
        getattr(error, "__notes__", [])
    )


@every_kind
def test_type_message_sample_and_traceback_arrive_and_iteration_goes_on(kind: dict[str, Any]) -> None:
    iterator = iter(DataLoader(Failing(lambda: ValueError("broken file")), batch_size=2, **kind))
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="broken file") as caught:
        next(iterator)
    text = told(caught.value)
    assert "raised by dataset[5]" in text
    assert "batch 2 of epoch 0" in text
    assert "in __getitem__" in text
    if kind.get("num_workers"):
        assert "worker" in text
    assert next(iterator).tolist() == [6, 7]
    assert list(iterator) == []


@every_process
@pytest.mark.parametrize("make", [lambda: Awkward(1, 2), Unpicklable])
def test_what_cannot_travel_arrives_as_text_of_the_same_name(kind: dict[str, Any], make: Any) -> None:
    with pytest.raises(RemoteError) as caught:
        list(DataLoader(Failing(make), batch_size=2, **kind))
    assert type(caught.value).__name__ == type(make()).__name__
    assert str(caught.value) == str(make())
    assert "raised by dataset[5]" in told(caught.value)


@quick_kinds
@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration])
def test_a_stop_iteration_does_not_end_the_loop_silently(kind: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(RuntimeError, match="raised Stop"):
        list(DataLoader(Failing(error), batch_size=2, **kind))


@every_worker
def test_a_dataset_that_calls_sys_exit_is_reported(kind: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"raised SystemExit\(3\)") as caught:
        list(DataLoader(Failing(lambda: SystemExit(3)), batch_size=2, **kind))
    assert "making batch 2" in told(caught.value)


class TooLong(Failing):
    def __init__(self) -> None:
        super().__init__(lambda: IndexError("list index out of range"))

    def __len__(self) -> int:
        return 640


@every_kind
def test_a_length_that_is_too_large_is_named(kind: dict[str, Any]) -> None:
    with pytest.raises(IndexError) as caught:
        list(DataLoader(TooLong(), batch_size=4, **kind))
    assert "dataset[5]" in told(caught.value)
    assert "feedline: __len__ says 640, index 5 failed: IndexError: list index out of range" in told(caught.value)


@quick_kinds
def test_an_index_outside_the_dataset_is_named(kind: dict[str, Any]) -> None:
    with pytest.raises(IndexError) as caught:
        list(DataLoader(ArrayDataset(np.arange(5)), sampler=[1, 17], batch_size=2, **kind))
    assert "17" in told(caught.value)
    assert "5" in told(caught.value)


def bad_collate(samples: list[Any]) -> Any:
    raise KeyError("no such field")


@every_kind
def test_a_collate_function_that_raises_names_the_indices(kind: dict[str, Any]) -> None:
    loader = DataLoader(Failing(ValueError), sampler=[7, 1, 3], batch_size=2, collate_fn=bad_collate, **kind)
    with pytest.raises(KeyError) as caught:
        next(iter(loader))
    assert "raised by collate_fn for dataset indices [7, 1]" in told(caught.value)
    loader.close()


class Ragged(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {"image": np.zeros((3, 4 if index == 3 else 2))}


@every_kind
def test_a_wrong_shape_names_field_index_and_both_shapes(kind: dict[str, Any]) -> None:
    with pytest.raises(CollateError) as caught:
        list(DataLoader(Subset(Ragged(), [0, 3]), batch_size=2, **kind))
    assert "field 'image'" in str(caught.value)
    assert "dataset index 1 " in str(caught.value)
    assert "(3, 4)" in str(caught.value)
    assert "(3, 2)" in str(caught.value)


def failing_sampler() -> Iterator[int]:
    yield from (3, 2, 1)
    raise OSError("the index file is gone")


class FailingSampler:
    def __iter__(self) -> Iterator[int]:
        return failing_sampler()


@every_kind
def test_a_sampler_that_raises_mid_epoch_does_so_after_the_batches_before_it(kind: dict[str, Any]) -> None:
    iterator = iter(DataLoader(Failing(ValueError), sampler=FailingSampler(), batch_size=1, **kind))
    assert [next(iterator).item() for _ in range(3)] == [3, 2, 1]
    with pytest.raises(OSError, match="the index file is gone") as caught:
        next(iterator)
    assert "raised by the sampler" in told(caught.value)
    with pytest.raises(StopIteration):
        next(iterator)


def bad_init(worker: int) -> None:
    raise RuntimeError(f"no licence for worker {worker}")


@every_worker
def test_a_worker_init_function_that_raises_is_reported(kind: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="no licence for worker") as caught:
        list(DataLoader(Failing(ValueError), worker_init_fn=bad_init, **kind))
    assert "raised by worker_init_fn(" in told(caught.value)


def exiting_init(worker: int) -> None:
    sys.exit("no licence")


@every_worker
def test_a_worker_init_function_that_exits_is_reported(kind: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"SystemExit\('no licence'\)"):
        list(DataLoader(Failing(ValueError), worker_init_fn=exiting_init, **kind))


def unpicklable_batch(samples: list[Any]) -> Any:
    return {"lock": threading.Lock(), "values": samples}


@every_process
def test_a_batch_that_cannot_be_pickled_is_an_error_not_a_hang(kind: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="pickle") as caught:
        next(iter(DataLoader(Failing(ValueError), collate_fn=unpicklable_batch, **kind)))
    assert "could not be sent to the main process" in told(caught.value)


class Tricky:
    def __reduce__(self) -> Any:
        return _only_in_worker, ()


def _only_in_worker() -> Any:
    raise ImportError("this class exists in the worker only")


def tricky_batch(samples: list[Any]) -> Any:
    return Tricky()


@every_process
def test_a_batch_that_cannot_be_rebuilt_is_an_error_not_a_hang(kind: dict[str, Any]) -> None:
    iterator = iter(DataLoader(Failing(ValueError), collate_fn=tricky_batch, **kind))
    with pytest.raises(ImportError, match="in the worker only") as caught:
        next(iterator)
    assert "could not be rebuilt" in told(caught.value)


@every_process
def test_errors_that_nobody_asks_for_keep_nobody_alive(kind: dict[str, Any]) -> None:
    iterator: Any = iter(DataLoader(Failing(ValueError), collate_fn=tricky_batch, **kind))
    while iterator._ledger.back < 2:  # by its traceback each refers to the loop that has received it
        iterator.fill()
        iterator._receive()
    gone = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert gone() is None


class Dying(Dataset[int]):
    """Sample 5 ends its process, until there is a file."""

    def __init__(self, how: str, spared: Path) -> None:
        self.how = how
        self.spared = spared

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        if index == 5 and not self.spared.exists():
            if self.how == "exit":
                os._exit(7)
            os.kill(os.getpid(), getattr(signal, self.how))
        return index


@every_process
@pytest.mark.parametrize(("how", "words"), [("exit", "exit code 7"), ("SIGKILL", "out of memory"), ("SIGSEGV", "SEGV")])
def test_a_sample_that_kills_is_an_error_that_says_how(
    kind: dict[str, Any], how: str, words: str, tmp_path: Path
) -> None:
    loader = DataLoader(Dying(how, tmp_path / "spared"), batch_size=2, persistent_workers=True, **kind)
    with pytest.raises(WorkerDied, match=words), pytest.warns(UserWarning, match=words):
        list(loader)
    # The loader can be used again. Its workers read ahead: sample 5 may be reached before batch 0 is taken.
    (tmp_path / "spared").touch()
    assert [batch.tolist() for batch in loader] == [[first, first + 1] for first in range(0, 50, 2)]
    loader.close()


class Stuck(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            threading.Event().wait(6000)
        return index


@every_process
def test_the_timeout_is_an_error(kind: dict[str, Any]) -> None:
    iterator = iter(DataLoader(Stuck(), timeout=1000, **kind))
    assert [next(iterator).item() for _ in range(2)] == [0, 1]  # workers may take long to start
    iterator._waiting.set_timeout(0.5)  # type: ignore[attr-defined]
    with pytest.raises(WorkerTimeout, match=r"timeout=0\.5"):
        next(iterator)


def test_errors_can_be_pickled_by_whoever_runs_us() -> None:
    assert isinstance(pickle.loads(pickle.dumps(WorkerDied("gone"))), WorkerDied)


def test_a_traceback_shows_the_note() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 keeps notes but does not print them")
    with pytest.raises(ValueError) as caught:
        list(DataLoader(Failing(lambda: ValueError("x")), batch_size=8))
    assert "feedline: raised by dataset[5]" in "".join(traceback.format_exception(caught.value))


def test_an_exception_that_cannot_be_written_to_arrives() -> None:
    class Frozen(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(name)

    class Failing(Numbers):
        def __getitem__(self, index: int) -> int:
            raise Frozen("as it is")

    with pytest.raises(Frozen, match="as it is"):
        list(DataLoader(Failing()))
