"""Samples that are read at the same time and draw from a generator that they share: that is said."""

from __future__ import annotations

from typing import Any

import drawing_elsewhere
import pytest
from kinds import ours

from feedline import DataLoader, Dataset


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 1, "multiprocessing_context": "fork"}])
def test_samples_that_share_a_generator_while_several_are_read_are_warned_of(options: dict[str, Any]) -> None:
    for read, whose in ((drawing_elsewhere.fetched_by_name, "random's"), (drawing_elsewhere.hidden, "numpy.random's")):
        with pytest.warns(UserWarning, match=f"samples draw from {whose} generator past its functions") as told:
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
