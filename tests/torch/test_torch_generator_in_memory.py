"""torch's default generator is not asked for its state if its memory shows that nobody has drawn from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from feedline.randomness import global_generators
from feedline.randomness.task_generators import BorrowedGenerators
from feedline.randomness.twister import found_in_torch

DRAWS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "a number": lambda: torch.rand(()),
    "all words": lambda: torch.rand(624),
    "a normal number": lambda: torch.randn((), dtype=torch.float64),
    "another kind of normal number": lambda: torch.empty(1).normal_(),
    "many normal numbers": lambda: torch.randn(33),
    "a seed": lambda: torch.manual_seed(3),
    "another's state": lambda: torch.default_generator.set_state(torch.Generator().manual_seed(8).get_state()),
}


@pytest.fixture(autouse=True)
def _same_afterwards() -> object:
    before = torch.default_generator.get_state()
    yield
    torch.default_generator.set_state(before)


def a_batch(generators: BorrowedGenerators, seed: int) -> list[float]:
    generators.enter(seed)
    drawn = [torch.rand(()).item(), torch.randn((), dtype=torch.float64).item()]
    generators.leave()
    return drawn


@pytest.mark.parametrize("is_found", [True, False])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_users_state_is_put_back_whatever_was_drawn_between_batches(
    draw: Callable[[], object], is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_found:
        monkeypatch.setattr(global_generators._torchs, "_found", (torch.default_generator, None))
    generators = BorrowedGenerators()
    torch.manual_seed(1)
    first = [a_batch(generators, seed) for seed in (5, 6)]
    for _ in range(4):
        draw()  # with every second normal number only the stored one is used, and no word is drawn
        before = torch.default_generator.get_state()
        assert [a_batch(generators, seed) for seed in (5, 6)] == first
        assert torch.default_generator.get_state().equal(before)


def test_it_is_not_asked_if_nobody_has_drawn() -> None:
    torchs, generators = global_generators._torchs, BorrowedGenerators()
    for _ in range(2):
        a_batch(generators, 5)
    state = torchs.state_of(torch.default_generator)
    a_batch(generators, 6)
    assert torchs.state_of(torch.default_generator) is state
    torch.rand(())
    assert torchs.state_of(torch.default_generator) is not state


def test_memory_that_holds_something_else_is_not_taken_for_it() -> None:
    class Other:
        """Like torch, but its generators keep other words."""

        default_generator = torch.default_generator

        class Generator(torch.Generator):
            def get_state(self) -> torch.Tensor:
                return torch.Generator().manual_seed(9).get_state()

    assert found_in_torch(torch) is not None
    assert found_in_torch(Other) is None
    assert found_in_torch(None) is None
