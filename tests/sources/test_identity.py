"""What a dataset is: data that differ are told apart, the same are the same in any process, or it is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

import kinds_of_values
import numpy as np
import pytest
from kinds_of_values import VALUES, Holding, identities

from feedline import OptionTypeError, cached
from feedline.datasets import MappedDataset
from feedline.sources import FilesDataset, FolderDataset, ParquetDataset, SoundDataset, TarDataset, TarWriter
from feedline.sources.samples import code_names
from feedline.sources.samples.identity import identity_of


@pytest.mark.parametrize("what", VALUES)
def test_what_differs_has_another_identity_as_attribute_and_as_global(what: str) -> None:
    ones, twos = identities(what, 1), identities(what, 2)
    assert ones == identities(what, 1)
    assert [one != two for one, two in zip(ones, twos, strict=True)] == [True, True]


def test_identities_are_the_same_in_another_process() -> None:
    code = "import kinds_of_values; kinds_of_values.tell_all()"
    known = {
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": os.pathsep.join([str(Path(kinds_of_values.__file__).parent), *sys.path]),
    }
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **known})
    assert run.returncode == 0, run.stderr
    told = {what: tuple(each) for what, each in json.loads(run.stdout).items()}
    assert told == {what: identities(what, 1) for what in VALUES}


def test_other_labels_are_not_those_of_before(tmp_path: Path) -> None:
    for codes in ({"cat": 0, "dog": 1}, {"cat": 5, "dog": 6}):
        assert list(cached(MappedDataset(["cat", "dog"], codes.get), tmp_path)) == list(codes.values())


@pytest.mark.parametrize("make", ["open(__file__)", "(each for each in ())", "np.frompyfunc(len, 1, 1)"])
def test_what_cannot_be_told_is_refused_by_name_also_as_a_global(make: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "__file__": __file__, "np": np}
    exec(f"thing = {make}\ndef read(): return thing\n", names)
    try:
        with pytest.raises(OptionTypeError, match=r"because of Holding\.held: .*Pass key="):
            identity_of(Holding(names["thing"]))
        with pytest.raises(OptionTypeError, match=r"because of Holding\.held: thing: .*Pass key="):
            identity_of(Holding(names["read"]))
    finally:
        getattr(names["thing"], "close", lambda: None)()


def test_a_module_that_is_held_counts_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def identity(value: int) -> str:
        (tmp_path / "held_here.py").write_text(f"by = {value}\n")
        monkeypatch.delitem(sys.modules, "held_here", raising=False)
        return identity_of(Holding(__import__("held_here")))

    assert identity(1) == identity(1) != identity(2)
    monkeypatch.delitem(sys.modules, "held_here")


def test_a_copy_that_is_written_on_counts_with_its_values(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(4))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="c")
    before = identity_of([rows])
    rows[0] = 7
    assert identity_of([rows]) != before


@pytest.mark.parametrize("pair", [("bfloat16", "int4"), ("float8_e4m3fn", "float8_e5m2"), ("int4", "uint4")])
def test_numbers_of_other_libraries_are_told_apart(pair: tuple[str, str]) -> None:
    types = pytest.importorskip("ml_dtypes")
    one, two = (np.zeros(2, getattr(types, name)) for name in pair)
    assert identity_of([one]) != identity_of([two])


class Files(FilesDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


class Folder(FolderDataset):
    pass


class Sounds(SoundDataset):
    pass


class Tables(ParquetDataset):
    pass


class Shards(TarDataset):
    pass


def write_table(path: Path) -> None:
    table = pytest.importorskip("pyarrow").table({"x": [1, 2]})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


def write_shard(path: Path) -> None:
    with TarWriter(path) as writer:
        writer.write({"__key__": "a", "txt": "a"})


@pytest.mark.parametrize(
    ("name", "write", "open_it"),
    [
        ("a.txt", Path.touch, lambda path: Files([path])),
        ("a/a.png", Path.touch, lambda path: Folder(path.parent.parent)),
        ("a.flac", Path.touch, lambda path: Sounds([path])),
        ("a.parquet", write_table, lambda path: Tables(str(path))),
        ("a.tar", write_shard, lambda path: Shards(str(path))),
    ],
)
def test_a_replaced_file_of_a_users_subclass_is_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    write: Callable[[Path], None],
    open_it: Callable[[Path], Any],
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    write(tmp_path / name)
    before = identity_of(open_it(tmp_path / name))
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a later run
    assert identity_of(open_it(tmp_path / name)) == before
    os.utime(tmp_path / name, (1, 1))
    assert identity_of(open_it(tmp_path / name)) != before


def test_a_users_own_local_files_are_not_asked() -> None:
    class Own(Holding):
        def local_files(self) -> Any:
            raise AssertionError("called")

    assert identity_of(Own(1)) == identity_of(Own(1)) != identity_of(Own(2))


def test_files_that_cannot_be_told_are_named() -> None:
    class Forgotten(FilesDataset):
        def __init__(self) -> None:
            pass

    with pytest.raises(OptionTypeError, match=r"Forgotten\.local_files\(\) fails: .*Pass key="):
        identity_of([Forgotten()])


def test_a_class_of_a_users_own_extension_counts_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / f"compiled_here{EXTENSION_SUFFIXES[0]}"
    file.touch()
    module = ModuleType("compiled_here")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "compiled_here", module)
    kind = type("Compiled", (), {"__module__": "compiled_here"})
    before = identity_of([kind()])
    assert identity_of([kind()]) == before
    os.utime(file, (1, 1))
    assert identity_of([kind()]) != before


def test_the_version_of_a_library_counts_where_it_does_not_say_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Python 3.10 almost none does."""
    monkeypatch.setattr(code_names, "packages_distributions", dict)
    monkeypatch.setattr(code_names, "_versions", {})
    assert code_names.version_of("numpy") == f"numpy {np.__version__}"
