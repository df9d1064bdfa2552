"""What a command is about: found by its words, or a sentence on what there is instead."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feedline.diagnose import deadline
from feedline.diagnose.target import as_if_run, constructed, loaded, loaded_within
from feedline.errors import FeedlineError, OptionError, OptionTypeError

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
        ("training:nothing", "training has no 'nothing'; it has no dataset or loader; name a function that makes one"),
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


def test_a_script_has_its_own_arguments(tmp_path: Path) -> None:
    before = list(sys.argv)
    write(tmp_path, "import sys\nsaid = list(sys.argv)\n")
    with as_if_run("training.py:said", ["--lr", "0.1"]):
        assert loaded("training.py:said") == ["training.py", "--lr", "0.1"]
    with as_if_run("training.py", []):
        assert sys.argv == ["training.py"]
    assert sys.argv == before


TRAINING = """
def train(loader):
    for epoch in range(10**9):
        for batch in loader:
            try:
                batch.mean()
            except Exception:
                pass
"""


@pytest.mark.parametrize(("workers", "samples"), [(0, 100), (2, 10**9)])  # workers are not ended while they start
def test_a_script_that_trains_when_imported_is_told_of_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, samples: int
) -> None:
    monkeypatch.setattr(deadline, "AGAIN", 0.1)
    call = f"train(feedline.DataLoader(Data({samples}), batch_size=4, num_workers={workers}))\n"
    path = write(tmp_path, TRAINING + call)
    with pytest.raises(OptionError, match=r"goes through a loader while it is imported, at .*train\(feedline") as said:
        loaded_within(f"{path}:data", 600)
    assert "`if __name__ == '__main__':`" in str(said.value)


def test_a_script_that_takes_a_batch_or_two_when_imported_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "AGAIN", 0.02)
    peeking = """
kept = []
for count in range(20):
    kept.append(iter(feedline.DataLoader(Data(100), batch_size=4)))
    next(kept[-1]), next(kept[-1])
    end = time.monotonic() + 0.03
    while time.monotonic() < end:
        pass
kept.clear()
data = Data(7)
"""
    assert loaded_within(write(tmp_path, "import time\n" + peeking) + ":data", 600).count == 7


def test_an_import_that_takes_for_ever_is_told_of_the_guard_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "AGAIN", 0.05)
    path = write(tmp_path, "while True:\n    pass\n")
    with pytest.raises(FeedlineError, match=r"not done after 0 s; .*`if __name__ == '__main__':`"):
        loaded_within(path, 0.2)
