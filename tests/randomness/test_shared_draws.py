"""Samples that are read at the same time and draw from a generator that they share: that is said."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import drawing_elsewhere
import pytest
from kinds import ours

from feedline import DataLoader, Dataset
from feedline.workers.shared_draws import TASKS


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 1, "multiprocessing_context": "fork"}])
def test_samples_that_share_a_generator_while_several_are_read_are_warned_of(options: dict[str, Any]) -> None:
    for read, whose in ((drawing_elsewhere.fetched_by_name, "random"), (drawing_elsewhere.hidden, "numpy.random")):
        with pytest.warns(UserWarning, match=f"draw from the generator of {whose}, not through its functions") as told:
            list(DataLoader(Calling(read), batch_size=4, fetch_threads=2, **options))
        assert len(ours(told)) == 1
    list(DataLoader(Calling(drawing_elsewhere.by_the_modules_function), batch_size=4, fetch_threads=2, **options))
    list(DataLoader(Calling(drawing_elsewhere.hidden), batch_size=4, fetch_threads=1, **options))  # one after the other


class Calling(Dataset[Any]):
    def __init__(self, read: Any) -> None:
        self.read = read

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return float(self.read(index))


ONE = {"num_workers": 1, "multiprocessing_context": "fork"}


@pytest.mark.parametrize("options", [{"num_workers": 0}, ONE])
def test_a_batch_that_failed_is_no_reason_to_say_so(options: dict[str, Any]) -> None:
    """The last of the batches that are looked at, so that the next ones are not."""
    reading = partial(drawing_elsewhere.failing, bad=4 * TASKS - 1)
    batches, failed = iter(DataLoader(Calling(reading), batch_size=4, fetch_threads=2, **options)), 0
    for _ in range(8):
        try:
            next(batches)
        except ValueError:
            failed += 1
    assert failed == 1


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_collate_fn_draws_is_not_what_samples_draw(on_error: str) -> None:
    def noisy(samples: list[float]) -> list[float]:
        return [sample + random.random() for sample in samples]

    options = {"batch_size": 4, "fetch_threads": 2, "collate_fn": noisy, "on_error": on_error}
    list(DataLoader(Calling(drawing_elsewhere.by_the_modules_function), **options))
    with pytest.warns(UserWarning, match="samples draw from the generator of random"):
        list(DataLoader(Calling(drawing_elsewhere.fetched_by_name), **options))
