"""Folders and files in object storage: real requests to a real server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from contract import as_list, plain
from kinds import FORK, INLINE, THREADS
from made_files import encoded, natural, saved
from object_fixtures import *  # noqa: F403
from object_server import ObjectServer

from feedline import DataLoader
from feedline.sources import FilesDataset, FolderDataset, ObjectStore

PICTURES = {f"train/{name}/{n}.png": natural(12, 8, n) for n in range(3) for name in ("cat", "dog")}


@pytest.fixture(scope="module")
def stored(objects: ObjectServer) -> ObjectServer:
    others = {"train/readme.png": b"in no class", "train/dog/.x.png": b"", "arrays/1.npy": saved(np.arange(3))}
    files = {name: encoded(pixels, "png") for name, pixels in PICTURES.items()} | others
    objects.put("samples", {f"files/{name}": data for name, data in files.items()})
    return objects


@pytest.fixture
def place(stored: ObjectServer) -> Iterator[ObjectStore]:
    stored.befall()
    made = ObjectStore("s3://samples/files/train", **stored.options)
    yield made
    made.close()


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
def test_a_folder_in_a_bucket(place: ObjectStore, kind: dict[str, Any]) -> None:
    data = pickle.loads(pickle.dumps(FolderDataset(place)))
    assert data.classes == ["cat", "dog"]
    assert data.describe(3) == "s3://samples/files/train/dog/0.png"
    with DataLoader(data, batch_size=4, collate_fn=as_list, **kind) as loader:
        got = [sample for batch in loader for sample in batch]
    assert got == [plain((PICTURES[f"train/{name}"], int(name[0] == "d"))) for name in data.paths]


def test_what_is_missing_in_a_bucket_is_named_and_left_out(stored: ObjectServer, place: ObjectStore) -> None:
    """…and is all that is asked for twice."""
    data = FilesDataset(["cat/0.png", "cat/none.png", "cat/1.png"], root=place)
    with DataLoader(data, batch_size=3, on_error="skip") as loader:
        assert [len(batch) for batch in loader] == [2]
    assert [error.what for error in loader.errors()] == ["s3://samples/files/train/cat/none.png"]
    asked = [each.rpartition("/")[2] for each in stored.requested()]
    assert sorted(asked) == ["0.png", "1.png", "none.png", "none.png"]


def test_urls_of_one_bucket(objects: ObjectServer, place: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in objects.options.items():
        if isinstance(value, str):
            monkeypatch.setenv(f"AWS_{name.upper()}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    data = FilesDataset(["s3://samples/files/arrays/1.npy", "s3://samples/files/train/cat/0.png"], labels=[5, 6])
    assert data[0][0].tolist() == [0, 1, 2]
    assert data[1][1] == 6
    assert data.describe(0) == "s3://samples/files/arrays/1.npy"
