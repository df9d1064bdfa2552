"""Options: every wrong one is refused when the loader is made, by name and with what would be right."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kinds import named

from feedline import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    OptionError,
    OptionTypeError,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

TEN = list(range(10))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(TEN)


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


class NegativeLength(NoLength):
    def __len__(self) -> int:
        return -1


class OddLength(NoLength):
    def __len__(self) -> Any:
        return 2.5


NOT_WHOLE = ["4", 2.0, None, True, np.bool_(True)]
NOT_A_FLAG = [1, ""]

WRONG: list[tuple[dict[str, Any], type[OptionError], list[str]]] = [
    # batch_size
    *(
        ({"batch_size": size}, OptionError, ["batch_size", "at least 1", "None", str(size)])
        for size in (0, -1, np.int8(-3))
    ),
    *(
        ({"batch_size": size}, OptionTypeError, ["batch_size", "whole number", "None", repr(size)])
        for size in NOT_WHOLE
        if size is not None
    ),
    # the numbers of workers, of batches ahead, of elements buffered
    ({"num_workers": -1}, OptionError, ["num_workers", "at least 0", "-1"]),
    *(({"num_workers": count}, OptionTypeError, ["num_workers", "whole number", repr(count)]) for count in NOT_WHOLE),
    ({"prefetch_factor": 2}, OptionError, ["prefetch_factor", "num_workers > 0"]),
    ({"prefetch_factor": 0, "num_workers": 1}, OptionError, ["prefetch_factor", "at least 1", "0"]),
    ({"prefetch_factor": -1, "num_workers": 1}, OptionError, ["prefetch_factor", "at least 1", "-1"]),
    ({"prefetch_factor": 1.5, "num_workers": 1}, OptionTypeError, ["prefetch_factor", "whole number", "1.5"]),
    ({"stall_warning": -1}, OptionError, ["stall_warning", "0 (never warn)", "-1"]),
    ({"stall_warning": "soon"}, OptionTypeError, ["stall_warning", "seconds", "'soon'"]),
    ({"stall_warning": float("nan")}, OptionError, ["stall_warning", "nan"]),
    ({"on_stall": "kill"}, OptionError, ["on_stall", "'wait', 'restart'", "'kill'"]),
    ({"on_error": "ignore"}, OptionError, ["on_error", "'raise', 'skip', 'replace'", "'ignore'"]),
    ({"on_error": None}, OptionTypeError, ["on_error", "'raise', 'skip', 'replace'", "None"]),
    ({"max_errors": 5}, OptionError, ["max_errors", "on_error", "'raise'"]),
    ({"max_errors": -1, "on_error": "skip"}, OptionError, ["max_errors", "at least 0", "-1"]),
    ({"max_errors": 1.5, "on_error": "skip"}, OptionError, ["max_errors", "share between 0 and 1", "1.5"]),
    ({"max_errors": "few", "on_error": "skip"}, OptionTypeError, ["max_errors", "share", "'few'"]),
    ({"on_stall": "restart", "stall_warning": 0}, OptionError, ["on_stall", "timeout or stall_warning"]),
    ({"max_deaths": 0}, OptionError, ["max_deaths", "at least 1", "0"]),
    ({"error_log": 3}, OptionTypeError, ["error_log", "path", "3"]),
    ({"dataset": Stream(), "shuffle_buffer": -1}, OptionError, ["shuffle_buffer", "at least 0", "-1"]),
    ({"dataset": Stream(), "shuffle_buffer": "big"}, OptionTypeError, ["shuffle_buffer", "whole number", "'big'"]),
    ({"dataset": Stream(), "shuffle_buffer": True}, OptionTypeError, ["shuffle_buffer", "whole number", "True"]),
    # flags
    *(
        ({name: value, "num_workers": 1}, OptionTypeError, [name, "True or False", repr(value)])
        for name in ("shuffle", "drop_last", "persistent_workers", "in_order")
        for value in NOT_A_FLAG
    ),
    *(
        ({name: None}, OptionTypeError, [name, "True or False"])
        for name in ("drop_last", "persistent_workers", "in_order")
    ),
    ({"persistent_workers": True}, OptionError, ["persistent_workers", "num_workers > 0"]),
    # functions
    ({"collate_fn": [1]}, OptionTypeError, ["collate_fn", "function", "[1]"]),
    ({"worker_init_fn": 3, "num_workers": 1}, OptionTypeError, ["worker_init_fn", "function", "3"]),
    # time
    ({"timeout": -1, "num_workers": 1}, OptionError, ["timeout", "positive", "-1"]),
    ({"timeout": float("nan"), "num_workers": 1}, OptionError, ["timeout", "positive", "nan"]),
    ({"timeout": float("inf"), "num_workers": 1}, OptionError, ["timeout", "0 (wait as long as it takes)", "inf"]),
    *(({"timeout": time}, OptionTypeError, ["timeout", "seconds", repr(time)]) for time in ("5", None, True, [5], 1j)),
    # kinds of workers
    ({"workers": "processes"}, OptionError, ["workers", "'process'", "'thread'", "'processes'"]),
    ({"workers": 2}, OptionTypeError, ["workers", "'process'", "'thread'", "num_workers"]),
    ({"workers": None}, OptionTypeError, ["workers", "'process'", "'thread'", "num_workers"]),
    ({"multiprocessing_context": "fork"}, OptionError, ["multiprocessing_context", "num_workers > 0"]),
    (
        {"multiprocessing_context": "thread", "num_workers": 1},
        OptionError,
        ["multiprocessing_context", "fork, forkserver, spawn", "'thread'"],
    ),
    (
        {"multiprocessing_context": 5, "num_workers": 1},
        OptionTypeError,
        ["multiprocessing_context", "start method", "5"],
    ),
    # seed
    ({"seed": -1}, OptionError, ["seed", "at least 0", "-1"]),
    ({"seed": 2**63}, OptionError, ["seed", "below 2**63", str(2**63)]),
    *(({"seed": seed}, OptionTypeError, ["seed", "whole number", repr(seed)]) for seed in ("7", 7.0, True)),
    # samplers, and what excludes what
    ({"sampler": 3}, OptionTypeError, ["sampler", "iterate", "3"]),
    ({"batch_sampler": 3}, OptionTypeError, ["batch_sampler", "iterate", "3"]),
    ({"sampler": RandomSampler}, OptionTypeError, ["sampler", "instance", "RandomSampler(…)"]),
    ({"batch_sampler": BatchSampler}, OptionTypeError, ["batch_sampler", "instance", "BatchSampler(…)"]),
    ({"sampler": TEN, "shuffle": True}, OptionError, ["sampler", "shuffle", "drop one"]),
    ({"batch_sampler": [[0]], "batch_size": 2}, OptionError, ["batch_sampler", "leave out batch_size=2"]),
    ({"batch_sampler": [[0]], "batch_size": None}, OptionError, ["batch_sampler", "leave out batch_size=None"]),
    ({"batch_sampler": [[0]], "shuffle": True}, OptionError, ["batch_sampler", "leave out shuffle=True"]),
    ({"batch_sampler": [[0]], "drop_last": True}, OptionError, ["batch_sampler", "leave out drop_last=True"]),
    ({"batch_sampler": [[0]], "sampler": TEN}, OptionError, ["batch_sampler", "leave out sampler"]),
    ({"batch_sampler": [[0]], "sampler": np.arange(10)}, OptionError, ["batch_sampler", "leave out sampler"]),
    (
        {"batch_sampler": [[0]], "batch_size": 3, "shuffle": True, "drop_last": True, "sampler": TEN},
        OptionError,
        ["leave out batch_size=3, shuffle=True, sampler, drop_last=True"],
    ),
    ({"batch_size": None, "drop_last": True}, OptionError, ["drop_last", "batch_size"]),
    ({"shuffle_buffer": 5}, OptionError, ["shuffle_buffer", "IterableDataset", "shuffle=True"]),
    # streams
    ({"dataset": Stream(), "shuffle": True}, OptionError, ["shuffle", "IterableDataset", "shuffle_buffer"]),
    ({"dataset": Stream(), "sampler": TEN}, OptionError, ["sampler", "IterableDataset", "leave sampler out"]),
    ({"dataset": Stream(), "batch_sampler": [[0]]}, OptionError, ["batch_sampler", "leave batch_sampler out"]),
    ({"dataset": Stream(), "batch_size": None, "drop_last": True}, OptionError, ["drop_last", "batch_size"]),
    # dataset
    ({"dataset": None}, OptionTypeError, ["dataset", "NoneType", "__getitem__", "__iter__"]),
    ({"dataset": 5}, OptionTypeError, ["dataset", "int", "__getitem__", "__iter__"]),
    ({"dataset": Stream}, OptionTypeError, ["dataset", "class Stream", "instance"]),
    ({"dataset": NoLength()}, OptionTypeError, ["dataset", "NoLength", "no __len__", "sampler", "IterableDataset"]),
    ({"dataset": NoLength(), "shuffle": True}, OptionTypeError, ["dataset", "NoLength", "no __len__"]),
    ({"dataset": NegativeLength()}, OptionError, ["dataset", "NegativeLength", "__len__", ">= 0", "sample count"]),
    ({"dataset": OddLength()}, OptionTypeError, ["dataset", "OddLength", "__len__", "'float'", "sample count"]),
]


@pytest.mark.parametrize(("options", "error", "words"), WRONG, ids=[named(options) for options, _, _ in WRONG])
def test_a_wrong_option_is_refused_at_construction(
    options: dict[str, Any], error: type[OptionError], words: list[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        DataLoader(**{"dataset": TEN, **options})
    assert caught.type is error
    assert [word for word in words if word not in str(caught.value)] == []


def test_option_errors_are_what_torch_users_catch() -> None:
    with pytest.raises(ValueError):
        DataLoader(TEN, batch_size=0)
    with pytest.raises(TypeError):
        DataLoader(TEN, batch_size="4")  # type: ignore[arg-type]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="bach_size"):
        DataLoader(TEN, bach_size=4)  # type: ignore[call-arg]


def test_a_huge_sampler_is_not_written_out_in_the_message() -> None:
    with pytest.raises(OptionError) as caught:
        DataLoader(TEN, sampler=list(range(100_000)), batch_sampler=[[0]])
    assert len(str(caught.value)) < 200


# --- what is right is taken ---


@pytest.mark.parametrize("size", [1, 4, np.int64(4), np.uint8(4), np.int8(4)], ids=named)
def test_whole_numbers_of_any_type_are_taken(size: Any) -> None:
    loader = DataLoader(TEN, batch_size=size, num_workers=size, prefetch_factor=size, seed=size)
    kept = loader.options
    assert [kept.batch_size, kept.num_workers, kept.prefetch_factor, kept.seed] == [size] * 4
    assert {type(kept.batch_size), type(kept.num_workers), type(kept.prefetch_factor), type(kept.seed)} == {int}


@pytest.mark.parametrize("value", [True, False, np.bool_(True), np.bool_(False)], ids=named)
def test_flags_of_either_type_are_taken(value: Any) -> None:
    loader = DataLoader(TEN, 2, shuffle=value, drop_last=value, num_workers=1, persistent_workers=value, in_order=value)
    kept = loader.options
    for flag in (kept.shuffle, kept.drop_last, kept.persistent_workers, kept.in_order):
        assert flag is bool(value)


@pytest.mark.parametrize("seconds", [0, 5, 0.5, np.float32(0.5), np.int64(5)], ids=named)
def test_seconds_of_any_type_are_taken(seconds: Any) -> None:
    kept = DataLoader(TEN, num_workers=1, timeout=seconds).options.timeout
    assert kept == seconds
    assert type(kept) is float


def test_torchs_defaults() -> None:
    kept = DataLoader(TEN).options
    assert (kept.batch_size, kept.shuffle, kept.sampler, kept.batch_sampler) == (1, False, None, None)
    assert (kept.num_workers, kept.collate_fn, kept.drop_last, kept.timeout) == (0, None, False, 0)
    assert (kept.worker_init_fn, kept.multiprocessing_context, kept.persistent_workers) == (None, None, False)
    assert kept.in_order
    assert kept.batched
    assert DataLoader(TEN, num_workers=3).options.prefetch_factor == 2


def test_torchs_order_of_arguments() -> None:
    def collate(samples: Any) -> Any:
        return samples

    kept = DataLoader(TEN, 3, False, TEN, None, 2, collate).options
    assert (kept.batch_size, kept.shuffle, kept.sampler, kept.batch_sampler) == (3, False, TEN, None)
    assert (kept.num_workers, kept.collate_fn) == (2, collate)
    with pytest.raises(TypeError, match="positional"):
        DataLoader(TEN, 3, False, TEN, None, 2, collate, True)  # type: ignore[misc]  # torch's pin_memory


def test_a_loader_says_what_it_is() -> None:
    class Vague(Stream):
        def __len__(self) -> int:
            raise OSError("nobody knows")

    assert repr(DataLoader(TEN, 3, num_workers=1)).endswith("list of 10 samples, 4 batches of 3, 1 worker process>")
    assert repr(DataLoader(Vague())).endswith("Vague, batches of 1, no workers>")
    assert repr(DataLoader(TEN, batch_size=None, num_workers="auto", workers="thread")).endswith(
        "list of 10 samples, 10 batches, worker threads, as many as are needed>"
    )


@pytest.mark.parametrize("shuffle", [None, False])
def test_a_stream_takes_shuffle_that_is_off(shuffle: Any) -> None:
    kept = DataLoader(Stream(), shuffle=shuffle, batch_size=3, drop_last=True, shuffle_buffer=5).options
    assert kept.stream
    assert not kept.shuffle


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_start_method_is_taken_by_name_or_as_a_context(method: str) -> None:
    for context in (method, multiprocessing.get_context(method)):
        assert (
            DataLoader(TEN, num_workers=1, multiprocessing_context=context).options.multiprocessing_context is context
        )


@pytest.mark.parametrize("options", [{"sampler": [3, 1]}, {"batch_sampler": [[3], [1]]}], ids=named)
def test_a_dataset_without_length_is_taken_with_a_sampler(options: dict[str, Any]) -> None:
    assert [batch.tolist() for batch in DataLoader(NoLength(), **options)] == [[3], [1]]


@pytest.mark.parametrize(
    "sampler", [TEN, tuple(TEN), np.arange(10), range(10), SequentialSampler(10), dict.fromkeys(TEN, 0)], ids=named
)
def test_any_iterable_of_indices_is_a_sampler(sampler: Any) -> None:
    loader = DataLoader(TEN, batch_size=4, sampler=sampler)
    assert len(loader) == 3
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_batch_sampler_alone_decides_the_batches() -> None:
    loader = DataLoader(TEN, batch_sampler=[[3, 1], [4]])
    assert loader.options.batch_size is None
    assert loader.options.batched
    assert len(loader) == 2
    assert [batch.tolist() for batch in loader] == [[3, 1], [4]]


def test_without_batches_samples_come_as_they_are() -> None:
    loader = DataLoader(TEN, batch_size=None)
    assert not loader.options.batched
    assert list(loader) == TEN


def test_a_dataset_with_getitem_and_iter_is_read_by_index() -> None:
    assert not DataLoader(TEN).options.stream


@pytest.mark.parametrize("dataset", [Stream(), {3, 4}, iter([1])], ids=lambda dataset: type(dataset).__name__)
def test_what_can_only_be_iterated_is_a_stream(dataset: Any) -> None:
    assert DataLoader(dataset).options.stream


def test_a_foreign_class_named_iterable_dataset_is_a_stream_even_with_getitem() -> None:
    foreign = type("IterableDataset", (NoLength,), {"__iter__": lambda self: iter(TEN)})
    assert DataLoader(type("Mine", (foreign,), {})()).options.stream


def test_without_a_seed_each_loader_draws_its_own() -> None:
    seeds = {DataLoader(TEN).options.seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_user_made_sampler_class_with_a_getitem_is_taken() -> None:
    class Old:
        def __getitem__(self, place: int) -> int:
            return [5, 6][place]

    class Ours(Sampler):
        def order(self, seed: int, epoch: int) -> Any:
            return np.array([5, 6])

    for sampler in (Old(), Ours()):
        assert [batch.tolist() for batch in DataLoader(TEN, sampler=sampler)] == [[5], [6]]


def test_a_start_method_for_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="multiprocessing_context is for worker processes"):
        DataLoader([1, 2], num_workers=1, workers="thread", multiprocessing_context="fork")


def test_workers_auto_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(OptionError, match=r"workers='auto' no longer exists.*workers='thread'.*feedline doctor"):
        DataLoader(np.arange(4), num_workers=2, workers="auto")
