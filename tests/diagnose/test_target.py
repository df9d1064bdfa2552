"""What a command is about: found by its words, or a sentence on what there is instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feedline.diagnose.target import constructed, loaded
from feedline.errors import OptionError, OptionTypeError

SCRIPT = """
import feedline

class Data:
    def __init__(self, count=3): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, index): return index

def make(count): return Data(count)
def broken(): raise FileNotFoundError("train.csv")
def wrong(): return 7
numbers = [1, 2, 3]
"""


@pytest.fixture(autouse=True)
def imports_are_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(tmp_path: Path, more: str = "", name: str = "training.py") -> str:
    (tmp_path / name).write_text(SCRIPT + more)
    return str(tmp_path / name)


def test_a_module_and_a_script(tmp_path: Path) -> None:
    path = write(tmp_path, "data = Data()\n")
    assert loaded("training:data").count == 3
    assert loaded(f"{path}:data").count == 3
    assert loaded("training:Data.__len__").__name__ == "__len__"


def test_a_script_with_one_dataset_or_one_loader(tmp_path: Path) -> None:
    assert type(loaded(write(tmp_path, "data = Data()\n"))).__name__ == "Data"
    both = "data = Data()\nother = Data()\nloader = feedline.DataLoader(data)\n"
    assert type(loaded(write(tmp_path, both, "loads.py"))).__name__ == "DataLoader"
    with pytest.raises(OptionError, match=r"has several: say which one, as .*:data \(there are data, other\)"):
        loaded(write(tmp_path, "data = Data()\nother = Data()\n", "two.py"))
    with pytest.raises(OptionError, match="has no dataset or loader at its top level"):
        loaded(write(tmp_path, "", "none.py"))


def test_a_script_whose_name_is_taken(tmp_path: Path) -> None:
    assert loaded(write(tmp_path, "data = Data(9)\n", "random.py") + ":data").count == 9
    assert loaded(write(tmp_path, "data = Data(8)\n", "my-script.py") + ":data").count == 8


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:data", "there is no module 'nowhere'"),
        ("nowhere.deep:data", "there is no module 'nowhere.deep'"),
        ("none.py", "there is no file 'none.py'"),
        ("training:nothing", "training has no 'nothing'; it has no dataset or loader"),
        ("raises:data", "importing raises failed: ZeroDivisionError"),
        ("leaves:data", "importing leaves ended with SystemExit"),
        ("needs:data", "importing needs failed: No module named 'nowhere'"),
        ("raises.py:data", "running raises.py failed: ZeroDivisionError"),
    ],
)
def test_what_is_not_there(tmp_path: Path, target: str, words: str) -> None:
    write(tmp_path)
    write(tmp_path, "1 / 0\n", "raises.py")
    write(tmp_path, "raise SystemExit(3)\n", "leaves.py")
    write(tmp_path, "import nowhere\n", "needs.py")
    with pytest.raises(OptionError, match=words):
        loaded(target)


def test_factories(tmp_path: Path) -> None:
    write(tmp_path)
    made, construction = constructed(loaded("training:Data"))
    assert (made.count, construction.name) == (3, "Data")  # type: ignore[union-attr]
    with pytest.raises(OptionTypeError, match=r"make\(count\) needs arguments"):
        constructed(loaded("training:make"))
    with pytest.raises(OptionError, match=r"broken\(\) raised FileNotFoundError: train.csv"):
        constructed(loaded("training:broken"))
    with pytest.raises(OptionTypeError, match=r"wrong\(\) gave a int"):
        constructed(loaded("training:wrong"))
