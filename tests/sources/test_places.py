"""Folders as places: the promises that shards, Parquet and images rely on."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from feedline import OptionError, SourceError
from feedline.sources.places import Folder, StoredFile, place_of


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    (tmp_path / "b" / "c.bin").write_bytes(b"xyz")
    return Folder(tmp_path)


def test_a_folder(folder: Folder) -> None:
    again = pickle.loads(pickle.dumps(folder))
    assert again.list() == [StoredFile("a.bin", 10), StoredFile("b/c.bin", 3)]
    assert again.list("b/") == [StoredFile("b/c.bin", 3)]
    assert again.read("b/c.bin") == b"xyz"
    assert again.read_range("a.bin", 2, 5) == b"234"
    assert again.read_range("a.bin", 8, 20) == b"89"
    assert again.read_many(["b/c.bin", "a.bin"]) == [b"xyz", b"0123456789"]
    assert again.size("a.bin") == 10
    assert again.url_of("b/c.bin") == str(folder.path / "b" / "c.bin")


def test_what_is_not_there(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.bin"):
        folder.read("missing.bin")
    with pytest.raises(SourceError, match="no folder"):
        Folder(tmp_path / "nowhere").list()


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "b/../../x"])
def test_names_stay_inside(folder: Folder, name: str) -> None:
    with pytest.raises(OptionError, match="leads out of"):
        folder.read(name)


def test_places_by_url(folder: Folder) -> None:
    assert place_of(folder) is folder
    assert isinstance(place_of(f"file://{folder.path}"), Folder)
    with pytest.raises(OptionError, match="ftp://"):
        place_of("ftp://host/x")
