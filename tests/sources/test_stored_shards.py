"""Tar shards and Parquet files in object storage: real requests to a real server."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import tables
import tars
from contract import as_list, flat, plain
from kinds import FORK, INLINE, THREADS
from object_fixtures import *  # noqa: F403
from object_server import ObjectServer

from feedline import DataLoader, SourceError
from feedline.sources import ParquetDataset, ParquetStream, TarDataset, TarStream

FOLDER = "s3://samples/shards"


@pytest.fixture(scope="module")
def names(objects: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of what is in the bucket."""
    folder = tmp_path_factory.mktemp("shards")
    tars.write(folder / "a-%d.tar", max_count=4)
    (folder / "a-1.tar.idx").unlink()  # its headers will be read
    tables.write(folder)
    files = sorted(folder.iterdir())
    objects.put("samples", {f"shards/{path.name}": path.read_bytes() for path in files})
    return [path.name for path in files]


@pytest.fixture
def stored(objects: ObjectServer, names: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bucket can be reached by its URL."""
    for name, value in objects.options.items():
        if isinstance(value, str):
            monkeypatch.setenv(f"AWS_{name.upper()}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    objects.befall()
    return names


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
def test_shards_in_a_bucket(stored: list[str], kind: dict[str, Any]) -> None:
    shards = [f"{FOLDER}/{name}" for name in stored if name.endswith(".tar")]
    wanted = plain(tars.as_read([Path(shard) for shard in shards], [4, 4, 2]))
    for sample, shard in zip(wanted, [shards[0]] * 4 + [shards[1]] * 4 + [shards[2]] * 2, strict=True):
        sample["__url__"] = shard
    for source in (TarDataset(f"{FOLDER}/a-{{0..2}}.tar"), TarStream(f"{FOLDER}/a-*.tar")):
        with DataLoader(pickle.loads(pickle.dumps(source)), 4, collate_fn=as_list, **kind) as loader:
            assert sorted(flat(loader), key=lambda sample: sample["__key__"]) == wanted


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
def test_parquet_files_in_a_bucket(stored: list[str], kind: dict[str, Any]) -> None:
    files, columns = f"{FOLDER}/*.parquet", ["id", "pair"]  # each is a request for each row group
    for kind_of_source in (ParquetDataset, ParquetStream):
        source = kind_of_source(files, columns, filters=[("id", ">=", 3)])
        with DataLoader(pickle.loads(pickle.dumps(source)), 4, collate_fn=as_list, **kind) as loader:
            got = sorted(flat(loader), key=lambda sample: sample["id"])
        whole = [tables.sample(number) for number in range(3, tables.ROWS)]
        assert got == [plain({name: sample[name] for name in columns}) for sample in whole]


def test_what_is_missing_in_a_bucket(stored: list[str]) -> None:
    with pytest.raises(SourceError, match=rf"{FOLDER}/none\.tar: there is no such file"):
        TarDataset(f"{FOLDER}/none.tar")
    with pytest.raises(SourceError, match=rf"{FOLDER}/none\.parquet: there is no such file"):
        ParquetDataset(f"{FOLDER}/none.parquet")
    with pytest.raises(SourceError, match=r"none-\*\.tar: no file matches this"):
        TarStream(f"{FOLDER}/none-*.tar")
