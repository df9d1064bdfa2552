"""Mixtures of streams promise what every stream promises: divided among workers, and read whole by each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from contract import StreamContract
from pyarrow import parquet

from feedline import IterableDataset, MixtureStream
from feedline.sources import ParquetStream

NO_SPAWN = ("inline", "threads", "fork")


class TestDivided(StreamContract):
    """Each worker mixes its parts, and none of them is without an end."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> MixtureStream:
        sources = {}
        for name, first, count in (("a", 0, 14), ("b", 1000, 5)):
            table = pyarrow.table({"number": range(first, first + count)})
            parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=3)
            sources[name] = ParquetStream(str(tmp_path / f"{name}.parquet"))
        return MixtureStream(sources, {"a": 3, "b": 1}, when_ended="drop")

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [{"number": number} for number in (*range(14), *range(1000, 1005))]

    ordered = False
    kinds = NO_SPAWN


class Again(IterableDataset[int]):
    """Has no state, so it is read again to continue."""

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)


@pytest.mark.filterwarnings("ignore:the IterableDataset neither asks", "ignore:to continue with batch")
class TestReadWhole(StreamContract):
    kinds = NO_SPAWN

    @pytest.fixture
    def source(self) -> MixtureStream:
        sources = {"a": Again(range(16)), "b": Again(range(1000, 1002))}
        ends = {"a": "stop", "b": "repeat"}
        return MixtureStream(sources, {"a": 3, "b": 1}, when_ended=ends, num_samples=16, with_source=True)

    @pytest.fixture
    def expected(self, source: MixtureStream) -> list[Any]:
        found = list(source)
        of_b = [number for number, place in found if place == 1]
        assert [number for number, place in found if place == 0] == list(range(16 - len(of_b)))
        assert of_b == [1000 + at % 2 for at in range(len(of_b))]
        return found
