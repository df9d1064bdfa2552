"""Objects as a dataset: the contract of sources, batches fetched at once, and objects that fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import MapContract
from kinds import FORK, INLINE, THREADS
from object_fixtures import *  # noqa: F403
from object_server import ObjectServer

from feedline import DataLoader, OptionError, SourceError, rng
from feedline.sources import CachedPlace, ObjectDataset, ObjectStore

HELD = {f"set/{number:02}.bin": bytes(range(number)) for number in range(1, 12)}
NAMES = [name.removeprefix("set/") for name in HELD]


@pytest.fixture(scope="module")
def server(objects: ObjectServer) -> ObjectServer:
    objects.put("samples", HELD)
    return objects


@pytest.fixture
def place(server: ObjectServer) -> Iterator[ObjectStore]:
    server.befall()
    made = ObjectStore("s3://samples/set", **server.options)
    yield made
    made.close()


def length_and_noise(data: Any) -> Any:
    return np.array([len(data), rng().random()])


def number_of(name: str) -> int:
    return int(name[:2])


class TestObjects(MapContract):
    """With labels, in S3."""

    @pytest.fixture
    def source(self, place: ObjectStore) -> ObjectDataset:
        return ObjectDataset(place, labels=number_of)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [(np.frombuffer(data, np.uint8), len(data)) for data in HELD.values()]


class TestOfAWebServer(MapContract):
    """By names, behind a cache."""

    @pytest.fixture
    def source(self, server: ObjectServer, tmp_path: Path) -> Iterator[ObjectDataset]:
        server.befall()
        web = ObjectStore(f"{server.files}/data")
        yield ObjectDataset(CachedPlace(web, tmp_path, max_bytes=10_000), [str(size) for size in range(20, 30)])
        web.close()

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [np.arange(size, dtype=np.uint8) for size in range(20, 30)]


def test_a_batch_is_fetched_at_once(server: ObjectServer, place: ObjectStore) -> None:
    data = ObjectDataset(place)
    server.befall(*["meet"] * len(NAMES))
    with DataLoader(data, len(data), collate_fn=list) as loader:
        (batch,) = loader
    assert [len(sample) for sample in batch] == list(range(1, 12))
    assert server.most_at_once() == len(NAMES)


def test_which_objects(server: ObjectServer, place: ObjectStore) -> None:
    assert ObjectDataset(place).names == NAMES
    assert ObjectDataset(place, prefix="1").names == ["10.bin", "11.bin"]
    chosen = ObjectDataset("s3://samples/set", ["03.bin", "01.bin"], **server.options)
    assert [len(sample) for sample in chosen] == [3, 1]
    assert chosen.describe(0) == "s3://samples/set/03.bin"
    assert chosen.describe(-1) == "s3://samples/set/01.bin"
    assert chosen.describe(2) == ""
    assert server.secret not in repr(chosen)


def test_samples_may_be_written_to(place: ObjectStore) -> None:
    sample = ObjectDataset(place)[3]
    sample += 1
    assert sample.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("kind", "fault"), [(INLINE, "missing"), (THREADS, "refused"), (INLINE, "undecodable"), (FORK, "missing")]
)
def test_only_what_fails_is_skipped(server: ObjectServer, place: ObjectStore, kind: Any, fault: str) -> None:
    names, decode = list(NAMES), as_length
    if fault == "missing":
        names[4] = "none.bin"
    elif fault == "refused":
        names[4] = "x//y.bin"
    else:
        decode = no_fives
    data = ObjectDataset(place, names, decode=decode)
    with DataLoader(data, 4, collate_fn=list, on_error="skip", **kind) as loader:
        assert list(loader) == [[1, 2, 3, 4], [6, 7, 8], [9, 10, 11]]
        (bad,) = loader.errors()
    assert bad.index == 4
    assert bad.what == f"s3://samples/set/{names[4]}"


def as_length(data: bytes, name: str) -> int:
    return len(data)


def no_fives(data: bytes, name: str) -> int:
    if len(data) == 5:
        raise ValueError("five")
    return len(data)


def test_errors_name_the_object(place: ObjectStore) -> None:
    with DataLoader(ObjectDataset(place, ["01.bin", "none.bin"]), 2) as loader:
        with pytest.raises(FileNotFoundError, match=r"s3://samples/set/none\.bin"):
            list(loader)
    with pytest.raises(ValueError, match="five") as caught:
        ObjectDataset(place, decode=no_fives).__getitems__([3, 4])
    assert "s3://samples/set/05.bin (5 bytes)" in "".join(caught.value.__notes__)


def test_the_same_augmentation_whatever_the_batches(place: ObjectStore) -> None:
    data = ObjectDataset(place, transform=length_and_noise)
    found = []
    for size in (1, 4, None):
        with DataLoader(data, size, seed=3, collate_fn=None if size is None else list) as loader:
            batches = list(loader)
        found.append(np.array(batches if size is None else [sample for batch in batches for sample in batch]))
    assert len(set(found[0][:, 1])) == len(NAMES)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_labels(place: ObjectStore) -> None:
    words = ObjectDataset(place, labels=lambda name: "even" if number_of(name) % 2 == 0 else "odd")
    assert [label for _, label in words][:3] == ["odd", "even", "odd"]
    rows = ObjectDataset(place, ["01.bin", "02.bin"], labels=np.eye(2))
    rows[1][1][:] = 7
    assert rows.labels is not None
    assert rows.labels.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"names": []}, "names is empty"),
        ({"names": "01.bin"}, "names must be a list"),
        ({"names": ["01.bin", 7]}, r"names\[1\] is 7"),
        ({"names": ["01.bin"], "prefix": "0"}, "prefix="),
        ({"decode": 3}, "decode must be a function"),
        ({"transform": 3}, "transform must be a function"),
        ({"labels": [1, 2]}, "11 objects, and labels are 2"),
        ({"labels": 3}, "labels have no length"),
        ({"region": "x"}, "region= is an option of ObjectStore"),
    ],
)
def test_options(place: ObjectStore, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        ObjectDataset(place, **options)


def test_nothing_there(place: ObjectStore) -> None:
    with pytest.raises(SourceError, match=r"s3://samples/set: there is no object whose name begins with 'z'"):
        ObjectDataset(place, prefix="z")
