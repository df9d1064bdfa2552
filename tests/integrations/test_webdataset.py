"""Tar shards in and out of webdataset's hands. (It imports torch.)"""

from __future__ import annotations

import gc
import sys
import tarfile
import warnings
from pathlib import Path
from typing import Any

import webdataset as wds

from feedline.sources import TarDataset, TarStream

sys.path.append(str(Path(__file__).parent.parent / "sources"))
from contract import plain
from tars import SAMPLES, add, as_read, write


def by_webdataset(urls: Any, decode: bool = False) -> list[dict[str, Any]]:
    """What it reads; the files that it leaves open are no business of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = wds.WebDataset(urls, shardshuffle=False)
        found = list(data.decode() if decode else data)
        del data
        gc.collect()
    return found


def test_webdataset_reads_what_is_written_here(tmp_path: Path) -> None:
    long = [{"__key__": "d/" + "ü" * 120, "cls": 1, "a.json": {"b": [1]}}]
    shards = write(tmp_path / "w-%02d.tar", [*SAMPLES, *long], max_count=4)
    got = by_webdataset([str(each) for each in shards], decode=True)
    wanted = as_read(shards, [4, 4, 3], [*SAMPLES, *long])
    for mine, theirs in zip(wanted, got, strict=True):
        assert plain({name: theirs[name] for name in mine}) == plain(mine)


def test_what_webdataset_writes_is_read_here(tmp_path: Path) -> None:
    names = str(tmp_path / "w-%02d.tar")
    with wds.ShardWriter(names, maxcount=4, verbose=0) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    shards = sorted(tmp_path.glob("*.tar"))
    wanted = plain(as_read(shards, [4, 4, 2]))
    assert plain(list(TarStream(f"{tmp_path}/w-{{00..02}}.tar"))) == wanted
    data = TarDataset(f"{tmp_path}/w-{{00..02}}.tar")
    assert plain([data[index] for index in range(10)]) == wanted


def test_the_same_samples_as_webdataset_from_any_tool(tmp_path: Path) -> None:
    """Names of all kinds, written by Python's tarfile in each format."""
    names = [
        "a/1.jpg",
        "a/1.seg.PNG",
        "b.c/2.jpg",
        "./3.cls",
        "README",
        "d" * 150 + "/4.txt",
        "5." + "s" * 130,
        "ö.txt",
    ]
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / f"{format}.tar"
        chosen = [name for name in names if format != tarfile.USTAR_FORMAT or len(name.rpartition("/")[2]) < 100]
        with tarfile.open(path, "w", format=format) as tar:
            for name in chosen:
                add(tar, name, name.encode())
        theirs = by_webdataset(str(path))
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            mine = list(TarStream(path, decode=None))
            indexed = TarDataset(path, decode=None)
        assert [{name: each[name] for name in each if name != "__local_path__"} for each in theirs] == mine
        assert [indexed[index] for index in range(len(indexed))] == mine
