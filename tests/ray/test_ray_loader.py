"""Loaders whose workers are on a Ray cluster: the batches of a local run, whatever happens to workers and machines."""

from __future__ import annotations

import re
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import thorough
from ray_datasets import Bad, Deadly, Drawing, Slow, Stream, Stuck, Writing

import feedline
import feedline.torch
from feedline.errors import OptionError, OptionTypeError, ShippingError, WorkerDied

RAY: dict[str, Any] = {"num_workers": 2, "workers": "ray"}
HERE: dict[str, Any] = {"num_workers": 2, "workers": "thread"}
"""Not processes: this one has Ray's threads, and what is forked from it may find a lock of theirs taken for ever."""


def plain(batch: Any) -> Any:
    return {name: np.asarray(leaf).tolist() for name, leaf in batch.items()}


def run(loader: Any, epochs: int = 1) -> list[Any]:
    with loader:
        return [plain(batch) for _ in range(epochs) for batch in loader]


def local(data: Any, epochs: int = 1, front: Any = feedline.DataLoader, **options: Any) -> list[Any]:
    return run(front(data, **options), epochs)


@pytest.mark.parametrize(
    ("front", "persistent"),
    [
        (feedline.DataLoader, False),
        (feedline.torch.DataLoader, True),
        pytest.param(feedline.DataLoader, True, marks=thorough),
        pytest.param(feedline.torch.DataLoader, False, marks=thorough),
    ],
)
def test_every_batch_is_that_of_a_local_run(front: Any, persistent: bool) -> None:
    options = {"batch_size": 8, "shuffle": True}
    seed = {"seed": 7} if front is feedline.DataLoader else {}

    def made(**more: Any) -> Any:
        generator = {} if seed else {"generator": feedline.torch.torch.Generator().manual_seed(7)}
        return front(Drawing(100, 5000), **options, **seed, **generator, **more)

    assert run(made(persistent_workers=persistent, **RAY), 2) == run(made(persistent_workers=persistent, **HERE), 2)


def test_batches_can_be_written_to_and_kept() -> None:
    with feedline.DataLoader(Drawing(40, 50_000), 4, **RAY) as loader:
        kept = list(loader)
    for number, batch in enumerate(kept):
        assert batch["i"].tolist() == list(range(4 * number, 4 * number + 4))
        assert (batch["x"] == batch["i"][:, None]).all()
        batch["x"] += 1
    assert all((batch["x"] == batch["i"][:, None] + 1).all() for batch in kept)


def test_going_on_after_a_stop_is_exact() -> None:
    def made(**more: Any) -> Any:
        return feedline.DataLoader(Drawing(100), 8, shuffle=True, seed=3, **more)

    whole = local(Drawing(100), 2, batch_size=8, shuffle=True, seed=3)
    with made(**RAY) as loader:
        first = [plain(batch) for _, batch in zip(range(5), loader, strict=False)]
        state = loader.state_dict()
    with made(**RAY) as loader:
        loader.load_state_dict(state)
        rest = [plain(batch) for _ in range(2) for batch in loader]
    assert first + rest == whole


@pytest.mark.filterwarnings("ignore:to continue with batch")
def test_a_stream_and_its_state() -> None:
    def made(**more: Any) -> Any:
        return feedline.DataLoader(Stream(100), 6, shuffle_buffer=10, seed=3, **more)

    whole = run(made(**HERE))
    with made(**RAY) as loader:
        first = [plain(batch) for _, batch in zip(range(7), loader, strict=False)]
        state = loader.state_dict()
    loader = made(**RAY)
    loader.load_state_dict(state)
    assert first + run(loader) == whole


def test_a_class_of_this_function_travels() -> None:
    class Here:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> Any:
            if index == 8:
                raise Unheard("eight")
            return index

    class Unheard(Exception):
        pass

    with feedline.DataLoader(Here(), 2, **RAY) as loader:
        found = iter(loader)
        assert [next(found).tolist() for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        with pytest.raises(Unheard, match="eight"):
            next(found)


def test_bad_samples_are_left_out_and_told() -> None:
    options: dict[str, Any] = {"batch_size": 5, "on_error": "skip", "seed": 1}
    loader = feedline.DataLoader(Bad(30), **options, **RAY)
    assert run(loader) == local(Bad(30), **options)
    assert [bad.index for bad in loader.errors()] == [3, 10, 17, 24]


def test_what_one_worker_writes_into_the_dataset_no_other_sees() -> None:
    with feedline.DataLoader(Writing(40), 4, persistent_workers=True, assignment="in_turn", **RAY) as loader:
        for epoch in range(3):
            assert [batch["count"].tolist() for batch in loader] == [[epoch + 1] * 4] * 10


def test_a_worker_that_dies_once_loses_nothing(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"worker \d \(pid \d+ on [\d.]+\) ended while reading dataset\[37\] for batch 4"
    ):
        found = run(feedline.DataLoader(Deadly(100, 37, tmp_path), 8, seed=1, **RAY))
    assert found == local(Drawing(100), batch_size=8, seed=1)


def test_a_stream_is_read_on_from_its_place(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="ended while reading element"):
        found = run(feedline.DataLoader(Stream(100, tmp_path), 6, seed=3, **RAY))
    assert found == run(feedline.DataLoader(Stream(100), 6, seed=3, **HERE))


@thorough
def test_a_sample_that_always_kills_is_named_or_left_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with feedline.DataLoader(Deadly(40, 13), 8, **RAY) as loader, pytest.raises(WorkerDied, match=r"dataset\[13\]"):
            list(loader)
        loader = feedline.DataLoader(Deadly(40, 13), 8, on_error="skip", seed=1, **RAY)
        assert run(loader) == local(_Without13(40), batch_size=8, on_error="skip", seed=1)
        assert [bad.index for bad in loader.errors()] == [13]


class _Without13(Drawing):
    def __getitem__(self, index: int) -> Any:
        if index == 13:
            raise OSError
        return super().__getitem__(index)


@thorough
def test_a_crash_leaves_its_stack(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r'(?s)Segmentation fault.*ray_datasets.py", line \d+ in __getitem__'):
        run(feedline.DataLoader(Deadly(40, 13, tmp_path, signal.SIGSEGV), 8, **RAY))


def test_a_stall_is_told_with_machine_sample_and_stack_and_the_worker_is_replaced(tmp_path: Path) -> None:
    loader = feedline.DataLoader(Stuck(40, 13, tmp_path), 8, seed=1, stall_warning=1, on_stall="restart", **RAY)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = run(loader)
    assert found == local(Drawing(40), batch_size=8, seed=1)
    text = "\n".join(str(warning.message) for warning in said)
    assert re.search(r"worker \d \(pid \d+ on [\d.]+\).*reading dataset\[13\]", text)
    assert "in wait_for_ever" in text


def test_a_machine_that_goes_away_loses_nothing(cluster: Any) -> None:
    """The headline: one of two machines is removed in the middle of an epoch."""
    node = cluster.add_node(num_cpus=4, resources={"second": 4})
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5}
    whole = local(Slow(200), **options)
    spread = {"num_workers": 3, "workers": "ray", "ray_options": {"resources": {"second": 1}}}
    found = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with feedline.DataLoader(Slow(200), **options, **spread) as loader:
            iterator = iter(loader)
            found += [plain(next(iterator)) for _ in range(10)]
            cluster.remove_node(node)
            node = cluster.add_node(num_cpus=4, resources={"second": 4})
            found += [plain(batch) for batch in iterator]
    cluster.remove_node(node)
    assert found == whole
    assert any("ended" in str(warning.message) for warning in said)


def test_the_options_that_do_not_fit_are_named() -> None:
    with pytest.raises(OptionError, match="workers='ray' needs num_workers > 0"):
        feedline.DataLoader(range(4), workers="ray")
    with pytest.raises(OptionError, match="multiprocessing_context is for worker processes"):
        feedline.DataLoader(range(4), multiprocessing_context="fork", **RAY)
    with pytest.raises(OptionError, match="ray_options is for workers='ray'"):
        feedline.DataLoader(range(4), num_workers=1, ray_options={})
    with pytest.raises(OptionError, match="must not have 'max_restarts'"):
        feedline.DataLoader(range(4), ray_options={"max_restarts": 3}, **RAY)
    with pytest.raises(OptionTypeError, match="ray_options must be a dict"):
        feedline.DataLoader(range(4), ray_options=4, **RAY)
    with pytest.raises(ValueError, match="num_cups"):
        list(feedline.DataLoader(range(4), ray_options={"num_cups": 3}, **RAY))


@pytest.mark.filterwarnings("error:This DataLoader will create")
def test_torch_does_not_count_this_machines_cpus_for_workers_elsewhere() -> None:
    feedline.torch.DataLoader(range(4), num_workers=1000, workers="ray")
    with pytest.raises(UserWarning, match="suggested max number of worker"):
        feedline.torch.DataLoader(range(4), num_workers=1000)


def test_what_cannot_travel_is_named() -> None:
    class Locked(Drawing):
        def __init__(self) -> None:
            super().__init__(4)
            import multiprocessing

            self.lock = multiprocessing.Lock()

    named = r"dataset\.lock: multiprocessing\.synchronize\.Lock cannot be sent"
    by_old_pythons = r"the dataset holds a multiprocessing\.Lock, which exists on this machine only"  # 3.11.2, say
    with pytest.raises(ShippingError, match=f"{named}|{by_old_pythons}"):
        list(feedline.DataLoader(Locked(), **RAY))


def test_a_worker_that_cannot_be_placed_is_told_and_the_others_work() -> None:
    options: dict[str, Any] = {"num_workers": 6, "workers": "ray", "seed": 1}  # there are four CPUs
    assert run(feedline.DataLoader(Drawing(40), 4, **options)) == local(Drawing(40), batch_size=4, seed=1)
    stuck = {"ray_options": {"resources": {"nowhere": 1}}, "timeout": 2}
    with pytest.raises(
        feedline.errors.WorkerTimeout,
        match="on no machine yet: it needs 1 CPU, 1 nowhere, and no machine of the cluster has more than 0 nowhere",
    ):
        list(feedline.DataLoader(Drawing(40), 4, **options | stuck))


def test_leaving_early_and_dropping_it_ends_the_actors() -> None:
    for _ in feedline.DataLoader(Drawing(400), 4, **RAY):
        break
    loader = feedline.DataLoader(Drawing(400), 4, persistent_workers=True, **RAY)
    next(iter(loader))
    del loader  # the fixture looks for what is left
