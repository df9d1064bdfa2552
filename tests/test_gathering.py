"""Small batches of in-memory arrays are gathered several at a time: nobody can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline import ArrayDataset, DataLoader, Subset


@given(
    rows=st.integers(0, 60),
    batch_size=st.integers(1, 9),
    drop_last=st.booleans(),
    named=st.booleans(),
    sampler=st.sampled_from(["sequence", "shuffle", "foreign", "batches"]),
)
def test_the_batches_are_those_of_single_gathering(
    rows: int, batch_size: int, drop_last: bool, named: bool, sampler: str
) -> None:
    x, y = np.arange(rows * 3).reshape(rows, 3), np.arange(rows)
    dataset = ArrayDataset(x=x, y=y) if named else ArrayDataset(x, y)
    options: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last, "seed": 3}
    if sampler == "shuffle":
        options["shuffle"] = True
    elif sampler == "foreign":
        options["sampler"] = list(range(rows))[::-1]
    elif sampler == "batches":
        options = {"batch_sampler": [list(range(i, rows, 5)) for i in range(min(rows, 5))], "seed": 3}
    together = list(DataLoader(dataset, **options))
    # a worker gathers each batch alone
    alone = list(DataLoader(dataset, num_workers=1, workers="thread", **options))
    assert len(together) == len(alone)
    for one, other in zip(together, alone, strict=True):
        assert type(one) is type(other)
        for name in one if named else range(2):
            np.testing.assert_array_equal(one[name], other[name])


def test_writing_to_one_batch_changes_no_other_nor_the_data() -> None:
    x = np.arange(64)
    batches = []
    for (batch,) in DataLoader(ArrayDataset(x), batch_size=4):
        batches.append(batch)
        batch[:] = -1
        assert (x == np.arange(64)).all()
    loader = iter(DataLoader(ArrayDataset(x), batch_size=4))
    first, second, third = next(loader)[0], next(loader)[0], next(loader)[0]
    second[:] = -1
    assert first.tolist() == [0, 1, 2, 3]
    assert third.tolist() == [8, 9, 10, 11]


def test_a_bad_index_is_reported_by_its_own_batch_after_those_before_it() -> None:
    iterator = iter(DataLoader(ArrayDataset(np.arange(10)), batch_size=2, sampler=[0, 1, 2, 3, 4, 99, 5, 6]))
    assert [next(iterator)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(IndexError, match="99"):
        next(iterator)
    assert next(iterator)[0].tolist() == [5, 6]
    assert list(iterator) == []


def test_large_batches_are_gathered_one_at_a_time() -> None:
    """Eight of them at once would be eight times the memory."""
    asked: list[int] = []

    class Watched(ArrayDataset):
        def __getbatch__(self, indices: Any, empty: Any) -> Any:
            asked.append(len(indices))
            return super().__getbatch__(indices, empty)

    list(DataLoader(Watched(np.zeros((64, 10_000))), batch_size=4))
    assert set(asked) == {4}
    wide = ArrayDataset(np.zeros((64, 10_000)))
    batches = [batch for (batch,) in DataLoader(Subset(wide, range(64)), batch_size=4)]
    assert all(batch.base is not batches[0].base for batch in batches[1:])
