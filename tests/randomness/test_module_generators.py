"""Generators that are globals of a module: worker processes each have a copy, which is the user's, and watched."""

from __future__ import annotations

import functools
import multiprocessing
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kinds import FORK, SPAWN, THREADS

from feedline import DataLoader, Dataset, IterableDataset, get_worker_info
from feedline.supervise.named_globals import named_globals

REPEATED = "is a random generator that samples draw from, and each worker process has a copy of it"
HERE = __name__

default_rng = np.random.default_rng(0)
random_state = np.random.RandomState(0)
plain = random.Random(0)
of_collate = np.random.default_rng(0)
of_transform = np.random.default_rng(0)
of_helper = np.random.default_rng(0)
of_wrapped = np.random.default_rng(0)
of_order = np.random.default_rng(0)
of_stream = np.random.default_rng(0)
unused = np.random.default_rng(0)
system = random.SystemRandom()


@pytest.fixture(autouse=True)
def the_modules_generators_stay_as_they_were() -> Iterator[None]:
    """Nobody but the workers draws, and nobody seeds."""
    yield
    assert default_rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
    assert plain.getstate() == random.Random(0).getstate()


class Turns(Dataset[Any]):
    """Each worker reads its samples only when both have begun, so that none reads them all."""

    def __init__(self, draw: Callable[[], float] | None = None) -> None:
        self.draw = draw
        self.barrier = multiprocessing.get_context("fork").Barrier(2)

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> float:
        if index % 2 == 0:  # the first of a batch
            self.barrier.wait(100)
        return self.drawn()

    def drawn(self) -> float:
        assert self.draw is not None
        return self.draw()


class FromRng(Turns):
    def drawn(self) -> float:
        return float(default_rng.random())


class FromState(Turns):
    def drawn(self) -> float:
        return float(random_state.random_sample())


class FromPlain(Turns):
    def drawn(self) -> float:
        return plain.random()


class InComprehension(Turns):
    def drawn(self) -> float:
        return sum([default_rng.random() for _ in range(2)])


def helped() -> float:
    return float(of_helper.random())


class FromHelper(Turns):
    """Calls a function of the module, which draws."""

    def drawn(self) -> float:
        return helped()


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*given: Any) -> Any:
        return function(*given)

    return around


class FromWrapped(Turns):
    @logged
    def drawn(self) -> float:
        return float(of_wrapped.random())


class Quiet(Turns):
    """Names a generator, and does not draw from it; draws what is no matter of state."""

    def drawn(self) -> float:
        return system.random() if unused is not None else 0.0


def transform() -> float:
    return float(of_transform.random())


def collate(samples: list[float]) -> Any:
    return np.array(samples) + of_collate.random()


def zero() -> float:
    return 0.0


def told(data: Any, epochs: int = 1, **options: Any) -> list[str]:
    """What is said of generators that repeat themselves; every worker has its turn."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with DataLoader(data, **{"batch_size": 2, "assignment": "in_turn", **options}) as loader:
            for _ in range(epochs):
                list(loader)
    return [str(each.message) for each in caught if "random generator" in str(each.message)]


@pytest.mark.parametrize(
    ("data", "options", "name"),
    [
        (FromRng, {}, "default_rng"),
        (FromState, {}, "random_state"),
        (FromPlain, {}, "plain"),
        (InComprehension, {}, "default_rng"),
        (FromHelper, {}, "of_helper"),
        (FromWrapped, {}, "of_wrapped"),
        (lambda: Turns(transform), {}, "of_transform"),
        (lambda: Turns(functools.partial(transform)), {}, "of_transform"),
        (lambda: Turns(zero), {"collate_fn": collate}, "of_collate"),
        (lambda: Turns(zero), {"collate_fn": functools.partial(collate)}, "of_collate"),
    ],
)
def test_workers_that_draw_the_same_from_a_modules_generator_are_warned_of_once(
    data: Callable[[], Any], options: dict[str, Any], name: str
) -> None:
    (said,) = told(data(), epochs=2, **FORK, **options)
    assert said.startswith(f"{HERE}.{name} {REPEATED}")
    assert "feedline.rng()" in said


class Simple(Dataset[float]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> float:
        return float(default_rng.random())


def test_one_worker_that_is_started_anew_repeats_its_epoch_and_one_that_stays_does_not() -> None:
    one = {**FORK, "num_workers": 1}
    assert len(told(Simple(), epochs=2, **one)) == 1
    assert told(Simple(), epochs=2, persistent_workers=True, **one) == []


def test_a_worker_that_imports_the_module_anew_is_warned_of_too() -> None:
    (said,) = told(Simple(), epochs=2, **{**SPAWN, "num_workers": 1})
    assert said.startswith(f"{HERE}.default_rng {REPEATED}")


def seeded(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    default_rng.bit_generator.state = np.random.default_rng(info.seed).bit_generator.state


class Ordered(Dataset[int]):
    """Draws an order once, when its first sample is read; every worker must draw the same."""

    order: Any = None

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        if self.order is None:
            self.order = of_order.permutation(32)
        return int(self.order[index])


class Files(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(of_stream.permutation(24)[info.id :: info.num_workers].tolist())


@pytest.mark.parametrize(
    ("data", "epochs", "options"),
    [
        (FromRng, 1, {**FORK, "worker_init_fn": seeded}),
        (Quiet, 2, FORK),
        (Ordered, 2, FORK),
        (Files, 2, FORK),
        (Simple, 2, THREADS),
    ],
)
def test_no_reason_for_a_warning(data: Callable[[], Any], epochs: int, options: dict[str, Any]) -> None:
    state = default_rng.bit_generator.state
    assert told(data(), epochs, **options) == []
    default_rng.bit_generator.state = state  # threads share it


def test_a_generator_that_is_held_and_a_global_is_named_as_held() -> None:
    class Both(FromRng):
        def __init__(self) -> None:
            super().__init__()
            self.rng = default_rng

    (said,) = told(Both(), **FORK)
    assert said.startswith("dataset.rng ")


class Odd:
    """Answers nobody."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")


odd: Any = None


class NamesOdd(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index if odd is not None else 0


def test_globals_that_answer_nobody_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "odd", Odd())
    assert any(path == f"{HERE}.odd" for path, _ in named_globals(NamesOdd()))
    assert [batch.tolist() for batch in DataLoader(NamesOdd(), batch_size=4, **FORK)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
