"""Many files by few words."""

from __future__ import annotations

from pathlib import Path

import pytest
from braceexpand import braceexpand
from hypothesis import given
from hypothesis import strategies as st

from feedline import OptionError, SourceError
from feedline.sources.located import expand, locate
from feedline.sources.places import Folder

words = st.lists(st.sampled_from(["a", "-", "{1..3}", "{08..11}", "{3..1}", "{x,yy}", "{1..9..3}"]), max_size=4)


@given(words)
def test_braces_mean_what_they_mean_to_webdataset(parts: list[str]) -> None:
    pattern = "".join(parts)
    assert expand(pattern) == list(braceexpand(pattern))


@pytest.mark.parametrize("pattern", ["{x}.tar", "a{}b", "{1..}", "}{", "{a..c}"])
def test_what_is_no_pattern_stays(pattern: str) -> None:
    assert expand(pattern) == [pattern]


@pytest.mark.parametrize("pattern", ["a{0..99999999999999999999}", "{0..9999}{0..9999}{0..9999}"])
def test_a_range_without_end(pattern: str) -> None:
    with pytest.raises(OptionError, match="more than 1,000,000"):
        expand(pattern)


def test_stars_lists_and_paths(tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "c.txt", "[1].tar"):
        (tmp_path / name).write_bytes(b"123")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "d.tar").write_bytes(b"12345")
    found = locate([f"{tmp_path}/*.tar", tmp_path / "c.txt", f"file://{tmp_path}/sub/d.tar"], "files")
    assert [each.name for each in found] == ["[1].tar", "a.tar", "b.tar", "c.txt", "d.tar"]
    assert [each.size() for each in found] == [3, 3, 3, 3, 5]
    assert found[4].read(1, 3) == b"23"
    assert found[0].url == f"{tmp_path}/[1].tar"
    assert [each.name for each in locate(f"{tmp_path}/[*.tar", "files")] == ["[1].tar"]
    assert found[1].place is found[2].place  # one place for all in a folder


def test_what_is_not_there(tmp_path: Path) -> None:
    [missing] = locate(tmp_path / "a.tar", "files")
    with pytest.raises(SourceError, match=r"a\.tar: there is no such file"):
        missing.size()
    with pytest.raises(SourceError, match=r"a\.tar: there is no such file"):
        missing.read(0, 1)
    with pytest.raises(SourceError, match="no file matches this"):
        locate(f"{tmp_path}/*.tar", "files")
    with pytest.raises(SourceError, match="no folder"):
        locate(f"{tmp_path}/none/*.tar", "files")
    [folder] = locate(tmp_path, "files")
    with pytest.raises(SourceError, match="cannot be read"):
        folder.read(0, 10)


def test_words_that_are_none() -> None:
    with pytest.raises(OptionError, match="no tar shards"):
        locate([], "tar shards")
    with pytest.raises(OptionError, match="ends without a name"):
        locate("data/", "tar shards")
    for wrong in (3, [3], Folder(".")):
        with pytest.raises(TypeError, match="urls"):
            locate(wrong, "tar shards")
