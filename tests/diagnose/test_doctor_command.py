"""`feedline doctor` as a process, and its page in the docs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sick import Map
from warm_host import host

import feedline
from feedline import cli
from feedline.diagnose import deadline
from feedline.errors import OptionError

DOCS = Path(__file__).parents[2] / "docs" / "doctor.md"
DOCTOR = Path(__file__).parents[2] / "src" / "feedline" / "diagnose" / "doctor"

DATA = """
import numpy as np
print("importing")

class Photos:
    def __len__(self):
        return 200

    def __getitem__(self, index):
        print("reading")
        if index == 120:
            raise OSError("truncated")
        return np.full((8, 8, 3), 1 + index, np.uint8), index % 3

    def describe(self, index):
        return f"photos/{index}.jpg"

class Fine(Photos):
    def __getitem__(self, index):
        return np.full((8, 8, 3), 1 + index, np.uint8), index % 3
"""


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "data.py").write_text(DATA)
    return host("feedline.cli").run(["-m", "feedline", "doctor", "--seconds", "30", *arguments], 600, folder)


def test_for_people(tmp_path: Path) -> None:
    done = doctor(tmp_path, "data:Photos")
    assert done.returncode == 1
    assert "problem  Reading fails for 1 of 200 samples: 120 (photos/120.jpg)\n" in done.stdout
    assert 'on_error="skip"' in done.stdout
    assert "reading" not in done.stdout.splitlines()
    assert "Traceback" not in done.stderr


def test_for_machines(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(DATA)
    command = [sys.executable, "-m", "feedline", "doctor", "data.py:Fine", "--seconds", "30", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    document: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, document["command"], document["worst"]) == (0, "doctor", "ok")
    assert [finding["id"] for finding in document["findings"]] == ["examined"]


def test_bad_usage(tmp_path: Path) -> None:
    done = doctor(tmp_path, "nowhere:data")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("feedline doctor: ")
    assert "Traceback" not in done.stderr


def test_bad_usage_for_machines(tmp_path: Path) -> None:
    done = doctor(tmp_path, "data:np", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"], document["command"]) == (2, 2, "doctor")
    assert done.stderr.splitlines()[-1] == f"feedline doctor: {document['error']}"


ITS_OWN = """
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
given = parser.parse_args()
assert sys.argv == ["train.py", "--lr", "0.1"], sys.argv

def make():
    assert sys.argv == ["train.py", "--lr", "0.1"], sys.argv
    return [(index, index % 3) for index in range(40)]
"""


def test_a_scripts_arguments_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ITS_OWN)
    done = doctor(tmp_path, "train.py:make", "--json", "--", "--lr", "0.1")
    assert json.loads(done.stdout)["findings"], done.stdout
    done = doctor(tmp_path, "train.py:make", "--json")
    assert done.returncode == 2
    assert "ended with SystemExit(2)" in json.loads(done.stdout)["error"]
    assert "as in `-- --lr 0.1`" in json.loads(done.stdout)["error"]


def test_every_finding_is_in_the_docs_and_every_one_there_is_made() -> None:
    sources = "".join(path.read_text() for path in DOCTOR.glob("*.py"))
    made = set(re.findall(r'(?:Finding\(\s*|\*\()"([a-z0-9-]+)"', sources))
    assert len(made) > 30
    told = set(re.findall(r"^\| `([a-z][a-z0-9-]+)`", DOCS.read_text(), re.MULTILINE))
    assert told == made


@pytest.mark.parametrize(
    "example", re.findall(r"```python\n(.*?)```", DOCS.read_text() if DOCS.exists() else "", re.DOTALL)
)
def test_the_docs_examples_run(example: str) -> None:
    exec(example, {"__name__": "example"})


class NoLength(Map):
    def __len__(self) -> int:
        raise RuntimeError("the database is gone")


def test_a_length_that_fails_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in (NoLength(), NoLength):
        with pytest.raises(OptionError, match=r"NoLength cannot be loaded.*RuntimeError: the database is gone"):
            feedline.doctor(what)
    assert cli.main(["doctor", f"{__file__}:NoLength"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_import_that_hangs_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deadline, "LEAST", 0.1)
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    assert cli.main(["doctor", f"{tmp_path}/endless.py:data", "--seconds", "0.01"]) == 1
    assert "endless.py: not done after" in capsys.readouterr().err
