"""Rows of a real PostgreSQL and objects of a real S3 as one dataset: `ObjectDataset(place, rows, key=…)`."""

from __future__ import annotations

import json
import os
import pickle
import re
import runpy
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from contract import MapContract, as_list, flat, plain
from kinds import FORK, INLINE, THREADS, thorough
from object_fixtures import *  # noqa: F403
from object_server import ObjectServer
from sources.postgres import PASSWORD, USER, Server

from feedline import DataLoader, DistributedSampler, OptionError, SourceError, StateError, Subset, cached, rng
from feedline.datasets import MappedDataset
from feedline.sources import CachedPlace, Decoders, ObjectDataset, ObjectStore, SQLDataset

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.usefixtures("adbc_is_there")

COUNT = 12
SOME = 120
QUERY = "SELECT id, name AS image, label FROM pictures WHERE split = $1 ORDER BY id"
EXAMPLE = Path(__file__).parents[2] / "examples" / "sql.py"


def bytes_of(number: int) -> bytes:
    return bytes(range(number + 1))


def name_of(number: int) -> str:
    return f"{number:02}.bin"


@pytest.fixture(scope="module")
def database(postgres: Server) -> Server:
    with psycopg.connect(postgres.owner, autocommit=True) as db:
        db.execute("CREATE TABLE pictures (id bigint PRIMARY KEY, name text, label smallint, split text)")
        rows = [(number + 1000, name_of(number), number % 3, "train") for number in range(COUNT)]
        db.cursor().executemany("INSERT INTO pictures VALUES (%s, %s, %s, %s)", rows)
        db.execute(f"GRANT SELECT ON pictures TO {USER}")
    return postgres


@pytest.fixture(scope="module")
def server(objects: ObjectServer) -> ObjectServer:
    objects.put("samples", {f"rows/{name_of(number)}": bytes_of(number) for number in range(COUNT)})
    return objects


@pytest.fixture
def place(server: ObjectServer) -> Iterator[ObjectStore]:
    server.befall()
    made = ObjectStore("s3://samples/rows", **server.options)
    yield made
    made.close()


@pytest.fixture
def rows(database: Server) -> SQLDataset:
    return SQLDataset(database.url, QUERY, ("train",))


@pytest.fixture
def changed(database: Server) -> Iterator[Any]:
    """Runs SQL; what it has changed is undone afterwards."""
    with psycopg.connect(database.owner, autocommit=True) as db:
        db.execute("CREATE TABLE before AS TABLE pictures")
        yield db.execute
        db.execute("TRUNCATE pictures; INSERT INTO pictures TABLE before; DROP TABLE before")


def sample(number: int) -> dict[str, Any]:
    return {"id": number + 1000, "image": np.frombuffer(bytes_of(number), np.uint8), "label": number % 3}


class TestRowsAndObjects(MapContract):
    @pytest.fixture
    def source(self, place: ObjectStore, rows: SQLDataset) -> ObjectDataset:
        return ObjectDataset(place, rows, key="image")

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [sample(number) for number in range(COUNT)]

    # What is sent to other processes, tests of rows and of objects say, and the pickle below.
    @pytest.mark.parametrize("kind", ["inline", "threads", "fork", pytest.param("spawn", marks=thorough)])
    def test_same_batches_with_any_workers(self, source: Any, expected: list[Any], kind: str) -> None:
        super().test_same_batches_with_any_workers(source, expected, kind)


def ids(batches: Any) -> list[int]:
    return [row["id"] - 1000 for batch in batches for row in batch]


def test_a_batch_is_one_round_of_requests_and_what_a_disk_keeps_needs_none(
    server: ObjectServer, place: ObjectStore, rows: SQLDataset, tmp_path: Path
) -> None:
    data = ObjectDataset(CachedPlace(place, tmp_path, max_bytes=10**6), rows, key="image")
    server.befall(*["meet"] * 6)  # none of them goes on before all six are there
    with DataLoader(data, 6, collate_fn=as_list, **FORK) as loader:
        first = list(loader)
    assert server.most_at_once() >= 6
    assert sorted(server.requested()) == [f"GET /samples/rows/{name_of(number)}" for number in range(COUNT)]
    server.befall()
    with DataLoader(data, 5, collate_fn=as_list, **THREADS) as loader:
        assert flat(loader) == flat(first)
    assert server.requested() == []


def test_the_default_batch_has_a_field_for_each_column(place: ObjectStore, rows: SQLDataset) -> None:
    """`transform` gets the whole row, so that columns (a box, a caption) can say what to do with the object."""

    def at_label(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "image": row["image"][: row["label"] + 1], "noise": rng().random()}

    data = ObjectDataset(place, Subset(rows, [9, 3]), key="image", transform=at_label)
    (batch,) = DataLoader(data, 2, seed=1)
    assert batch["id"].tolist() == [1009, 1003]
    assert batch["image"].tolist() == [[0], [0]]
    one_by_one = [each["noise"].item() for each in DataLoader(data, 1, seed=1)]
    assert batch["noise"].tolist() == one_by_one
    assert data.rows[0]["image"] == name_of(9)


def test_rows_may_draw_and_may_have_objects_themselves() -> None:
    """An image and its mask: two objects for each row. All draws are the same for any size of batches."""
    place = InMemory({f"{kind}{number}": b"x" for kind in "im" for number in range(6)})
    rows = MappedDataset([{"image": f"i{number}", "mask": f"m{number}"} for number in range(6)], with_noise)
    inner = ObjectDataset(place, rows, key="image", decode=read_with_noise)
    data = ObjectDataset(place, inner, key="mask", decode=read_with_noise, transform=with_noise)
    several, single = (flat(DataLoader(data, size, collate_fn=list, seed=1)) for size in (6, 1))
    assert several == single
    assert len({value for row in single for value in (row["image"][1], row["mask"][1], row["noise"])}) == 18
    del place.objects["i3"]
    with DataLoader(data, 6, collate_fn=list, seed=1, on_error="skip") as loader:
        assert flat(loader) == [*single[:3], *single[4:]]
        assert [bad.what for bad in loader.errors()] == ["memory:i3 of row 3"]


def with_noise(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "noise": rng().random()}


def read_with_noise(data: bytes, name: str) -> tuple[str, float]:
    return name, rng().random()


class InMemory(NamedTuple):
    """A place of the user's own, to which nothing can refer weakly."""

    objects: dict[str, bytes]

    def read(self, name: str) -> bytes:
        return self.objects[name]

    def read_many(self, names: Sequence[str]) -> list[bytes]:
        return [self.objects[name] for name in names]

    def url_of(self, name: str) -> str:
        return f"memory:{name}"


def test_an_object_that_is_corrected_after_an_error_is_read_anew() -> None:
    place = InMemory({"a": b"0", "b": b"?"})
    data = ObjectDataset(place, ["a", "b"], decode=lambda data, name: int(data))
    with pytest.raises(ValueError, match="invalid literal"):
        list(DataLoader(data, 2))
    place.objects.update(a=b"1", b=b"2")
    assert list(data) == [1, 2]


def test_a_name_in_a_relative_folder_is_no_path_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may have one of its own name inside."""
    monkeypatch.chdir(tmp_path)
    Path("data/data").mkdir(parents=True)
    for name in ("data/x", "data/data/x"):
        Path(name).write_text(name)
    found = [bytes(value).decode() for value in ObjectDataset("data")]
    assert found == ["data/data/x", "data/x"]
    whole = ObjectDataset(tmp_path / "data", [f"{tmp_path}/data/x"], labels=lambda name: name)
    assert bytes(whole[0][0]) == b"data/x"
    assert whole.labels is not None
    assert whole.labels.tolist() == whole.names == ["x"]


def test_decoded_samples_are_kept_until_a_row_changes(
    server: ObjectServer, database: Server, place: ObjectStore, changed: Any, tmp_path: Path
) -> None:
    for change, requests in (("", COUNT), ("", 0), ("UPDATE pictures SET label = 7 WHERE id = 1000", COUNT)):
        if change:
            changed(change)
        data = ObjectDataset(place, SQLDataset(database.url, QUERY, ("train",)), key="image")
        server.befall()
        with DataLoader(cached(data, tmp_path, max_bytes=10**6), 4, collate_fn=list) as loader:
            samples = flat(loader)
        assert len(server.requested()) == requests
        assert plain(samples) == plain([{**sample(0), "label": samples[0]["label"]}, *map(sample, range(1, COUNT))])
        assert samples[0]["label"] == (7 if change else 0)


def test_each_row_once_over_ranks(place: ObjectStore, rows: SQLDataset) -> None:
    data = ObjectDataset(place, rows, key="image")
    found = []
    for rank in range(2):
        sampler = DistributedSampler(data, num_replicas=2, rank=rank, shuffle=True)
        with DataLoader(data, 2, sampler=sampler, collate_fn=list, **THREADS) as loader:
            found.append(ids(loader))
    assert sorted(found[0] + found[1]) == list(range(COUNT))
    assert len(found[0]) == len(found[1])


def test_new_rows_are_seen_by_the_next_run_and_not_resumed_with(
    database: Server, place: ObjectStore, rows: SQLDataset, changed: Any
) -> None:
    data = ObjectDataset(place, rows, key="image")
    with DataLoader(data, 4, collate_fn=list, shuffle=True, seed=3) as loader:
        next(batches := iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
        batches.close()
    for change, refused in (
        ("UPDATE pictures SET label = 7 WHERE id = 1000", "the dataset's fingerprint has changed"),
        ("INSERT INTO pictures VALUES (1, '00.bin', 7, 'train')", "12, and now 13"),
    ):
        changed(change)
        next_run = ObjectDataset(place, SQLDataset(database.url, QUERY, ("train",)), key="image")
        assert next_run[0]["label"] == 7
        with pytest.raises(StateError, match=refused):
            DataLoader(next_run, 4, collate_fn=list, shuffle=True, seed=3).load_state_dict(state)
    assert len(next_run) == COUNT + 1
    assert len(data) == COUNT
    assert data.rows.refresh()
    assert data.fingerprint == next_run.fingerprint
    assert len(data) == COUNT + 1


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (FORK, "name = 'none.bin'", r"s3://samples/rows/none\.bin of row 4: id = 1004, image = 'none\.bin', label = 1"),
        (INLINE, "name = NULL", "row 4: id = 1004, image = None, label = 1"),
        (THREADS, "name = 'x//y.bin'", r"s3://samples/rows/x//y\.bin of row 4: id = 1004"),
        (FORK, "name = 'broken.npy'", r"s3://samples/rows/broken\.npy of row 4: id = 1004"),
    ],
    ids=["missing", "null", "refused", "truncated"],
)
def test_what_fails_is_named_by_row_and_object_and_left_out_or_replaced(
    server: ObjectServer, database: Server, place: ObjectStore, changed: Any, change: str, words: str, kind: Any
) -> None:
    server.put("samples", {"rows/broken.npy": b"\x93NUMPY\x01\x00"})
    changed(f"UPDATE pictures SET {change} WHERE id = 1004")
    decode = Decoders(decoders={".bin": len})
    data = ObjectDataset(place, SQLDataset(database.url, QUERY, ("train",)), key="image", decode=decode)
    for policy, left in (("skip", [3, 5]), ("replace", [3, 5, 5])):
        with DataLoader(data, 6, collate_fn=list, on_error=policy, **kind) as loader:
            first, second = ids([next(batches := iter(loader))]), ids(batches)
            (bad,) = loader.errors()
        assert [number for number in first if number > 2] == left
        assert second == list(range(6, COUNT))
        assert bad.index == 4
        assert bad.what is not None
        assert re.fullmatch(words + ".*", bad.what), bad.what
    with DataLoader(data, 6, collate_fn=list, **kind) as loader:
        with pytest.raises((SourceError, FileNotFoundError, OptionError)) as caught:
            list(loader)
    assert "row 4: id = 1004" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    ("name", "again"), [("'none.bin'", 1), ("NULL", 0), ("'broken.npy'", 1)], ids=["missing", "null", "truncated"]
)
def test_beside_a_bad_object_the_others_are_not_asked_for_again(
    server: ObjectServer,
    database: Server,
    place: ObjectStore,
    changed: Any,
    tmp_path: Path,
    name: str,
    again: int,
    cached: bool,
) -> None:
    """One by one they would take as many times the latency."""
    server.put("samples", {"rows/broken.npy": b"\x93NUMPY\x01\x00"})
    changed(f"UPDATE pictures SET name = {name} WHERE id = 1004")
    kept = CachedPlace(place, tmp_path, max_bytes=10**6) if cached else place
    decode = Decoders(decoders={".bin": len})
    data = ObjectDataset(kept, SQLDataset(database.url, QUERY, ("train",)), key="image", decode=decode)
    server.befall(*["meet"] * 5)  # none of them goes on before all five are there
    with DataLoader(data, 6, collate_fn=list, on_error="skip") as loader:
        assert ids(loader) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    asked = server.requested()
    assert len(set(asked)) == COUNT - (again == 0)
    assert len(asked) == len(set(asked)) + (0 if cached and "npy" in name else again)
    server.befall()
    assert data[0]["image"] == 1  # nothing of all that is given twice
    assert len(server.requested()) == (0 if cached else 1)


def test_a_store_that_is_busy_for_a_while_and_one_that_stays_so(
    server: ObjectServer, place: ObjectStore, rows: SQLDataset
) -> None:
    data = ObjectDataset(place, rows, key="image")
    server.befall(503, "truncate", 503, "reset", 503)
    with DataLoader(data, 6, collate_fn=as_list) as loader:
        assert [row["id"] for row in flat(loader)] == list(range(1000, 1000 + COUNT))
    impatient = ObjectStore("s3://samples/rows", **server.options, retry_for=0)
    server.befall(*[503] * 100)
    with DataLoader(ObjectDataset(impatient, rows, key="image"), 6, collate_fn=as_list) as loader:
        with pytest.raises(SourceError, match="the server kept answering 503") as caught:
            list(loader)
    assert "it is the object of row 0: id = 1000" in "\n".join(caught.value.__notes__)
    impatient.close()


def test_a_killed_worker_costs_no_sample(place: ObjectStore, rows: SQLDataset, tmp_path: Path) -> None:
    def decode(data: bytes, name: str) -> int:
        if name == name_of(7) and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return len(data)

    with DataLoader(ObjectDataset(place, rows, key="image", decode=decode), 2, collate_fn=list, **FORK) as loader:
        with pytest.warns(UserWarning, match="killed by SIGKILL"):
            assert ids(loader) == list(range(COUNT))


def test_a_database_that_is_gone_is_told_before_any_object_is_asked_for(
    server: ObjectServer, database: Server, place: ObjectStore
) -> None:
    with pytest.raises(SourceError, match="the server cannot be reached") as caught:
        ObjectDataset(place, SQLDataset(database.url.replace(str(database.port), "1"), QUERY, ("train",)), key="image")
    assert PASSWORD not in str(caught.value)
    assert server.requested() == []


def test_nothing_is_kept_beside_the_rows(database: Server, place: ObjectStore, rows: SQLDataset) -> None:
    """Two hundred thousand rows: no Python object of theirs, and what workers get is the columns, once."""
    query = (
        "SELECT i AS id, 'images/train/' || i || '.jpg' AS image, i % 10 AS label FROM generate_series(1, 200000) AS i"
    )
    data = ObjectDataset(place, SQLDataset(database.url, query), key="image")
    columns: list[pickle.PickleBuffer] = []
    beside = pickle.dumps(data, protocol=5, buffer_callback=columns.append)
    assert len(beside) < 10_000
    assert data.rows.nbytes / len(data) < 32
    assert sum(len(column.raw()) for column in columns) < data.rows.nbytes + 100
    for text in (repr(data), str(ObjectDataset(place, rows, key="image").rows)):
        assert PASSWORD not in text


def test_names_may_be_whole_urls_or_a_column(place: ObjectStore, database: Server) -> None:
    query = "SELECT 's3://samples/rows/' || name AS url FROM pictures ORDER BY id"
    urls = SQLDataset(database.url, query)
    assert [len(row["url"]) for row in ObjectDataset(place, urls, key="url")] == list(range(1, COUNT + 1))
    listed = ObjectDataset(place, urls.table["url"], labels=list(range(COUNT)))
    assert listed.names[:2] == ["00.bin", "01.bin"]
    assert [(len(value), label) for value, label in listed][-1] == (COUNT, COUNT - 1)
    assert listed.fingerprint is None
    plainly = [{"image": name_of(2)}]
    assert len(ObjectDataset(place, plainly, key="image")[0]["image"]) == 3
    assert plainly == [{"image": name_of(2)}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": None}, "names is a SQLDataset: say which of its columns names the objects, such as key='path'"),
        ({"key": "path"}, "key must be one of the columns of the rows, id, image, label; got 'path'"),
        ({"key": 3}, "key must be the name of the column"),
        ({"names": None}, "names must be a dataset of rows if there is key='image'.*got a NoneType"),
        ({"names": {"image": ["a.bin"]}}, "names must be a dataset of rows if there is key='image'.*got a dict"),
        ({"names": ["a.bin"]}, "names must be a dataset of rows.*sample 0 is a str"),
        ({"names": [{"id": 3}]}, "row 0 names no object: it has only id"),
        ({"names": [{"image": 3}]}, "row 0 names no object: its image is 3"),
        ({"labels": [1]}, "labels= goes with a list of names"),
        ({"prefix": "a"}, "prefix= goes with a list of names"),
    ],
)
def test_options(place: ObjectStore, rows: SQLDataset, options: dict[str, Any], says: str) -> None:
    with pytest.raises((OptionError, SourceError), match=says):
        ObjectDataset(place, **{"names": rows, "key": "image", **options})[0]


class PlainSGD:
    """Torch's own imports its compiler first: four seconds of CPU. With it, the example is run by its own test."""

    def __init__(self, parameters: Any, lr: float) -> None:
        self._parameters, self._lr = list(parameters), lr

    def zero_grad(self) -> None:
        for each in self._parameters:
            each.grad = None

    def step(self) -> None:
        for each in self._parameters:
            each.data -= self._lr * each.grad


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # torch, on one CPU
def test_the_example_with_postgresql_and_s3(
    server: ObjectServer,
    database: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As its first lines say, with a few samples; its stand-in is run by tests/integrations/test_examples.py."""
    example = runpy.run_path(str(EXAMPLE))
    stand_in, folder = example["stand_in"](tmp_path)
    rows = [tuple(row.values()) for row in SQLDataset(stand_in, f"SELECT * FROM samples WHERE id < {SOME}")]
    server.put("pictures", {f"vectors/{row[1]}": Path(folder, row[1]).read_bytes() for row in rows})
    server.befall()
    with psycopg.connect(database.owner, autocommit=True) as db:
        db.execute("CREATE SCHEMA example")
        db.execute("CREATE TABLE example.samples (id int PRIMARY KEY, name text, label smallint, split text)")
        db.cursor().executemany("INSERT INTO example.samples VALUES (%s, %s, %s, %s)", rows)
        db.execute(f"GRANT USAGE ON SCHEMA example TO {USER}; GRANT SELECT ON example.samples TO {USER}")
    where = {"ACCESS_KEY_ID": server.key, "SECRET_ACCESS_KEY": server.secret, "ENDPOINT_URL": server.endpoint}
    for name, value in {**where, "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    url = f"{database.url}?options=-csearch_path%3Dexample"
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), url, "s3://pictures/vectors"])
    monkeypatch.setattr("torch.optim.SGD", PlainSGD)
    example["main"]()
    said = capsys.readouterr().out
    assert f"{SOME * 4 // 5} samples by one query" in said
    assert said.count(": yes\n") == 3, said
    assert len(server.requested()) == len(set(server.requested())) == SOME  # in seven epochs
