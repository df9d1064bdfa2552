"""`feedline tune` as a process; its page and picture in a real browser; its page in the docs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser
from test_tune import made
from warm_host import host

from feedline import FeedlineError, TuneResult, cli
from feedline.diagnose import deadline
from feedline.diagnose.rendering import write_or_say
from feedline.diagnose.tune import running, search
from feedline.diagnose.tune.trial import Trial
from feedline.diagnose.tune.tune_verdict import Bottleneck
from feedline.observe.window import Setting

DOCS = Path(__file__).parents[2] / "docs" / "tuning.md"
PAGE = DOCS.read_text() if DOCS.exists() else ""

DATA = """
import numpy as np
print("importing")

class Fine:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return np.full((8, 8), index, np.float32), index % 3

class Bad(Fine):
    def __getitem__(self, index):
        raise ValueError("no such image")

number = 3
"""
QUICK = ["--kinds", "thread", "--max-workers", "1", "--seconds", "13"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data_to_tune.py").write_text(DATA)
    return tmp_path


SHORT = """
import sys
from feedline.cli import main
from feedline.diagnose.tune import running, search
search.SHORTEST, search.SHARE, search.NOISY_ROUNDS, running.WINDOW = 0.1, 0.001, 0, 0.02
sys.exit(main(["tune", *sys.argv[1:]]))
"""


@pytest.fixture
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long and how often is measured changes nothing of what is tested here."""
    monkeypatch.setattr(search, "SHORTEST", 0.1)
    monkeypatch.setattr(search, "SHARE", 0.001)
    monkeypatch.setattr(search, "NOISY_ROUNDS", 0)
    monkeypatch.setattr(running, "WINDOW", 0.02)


def tune(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a process of its own, whose trials are short."""
    return host("feedline.cli").run(["-c", SHORT, *arguments], 600, folder)


def test_for_machines_with_a_picture_and_a_page(folder: Path) -> None:
    pytest.importorskip("matplotlib.font_manager")  # whoever is first on a machine looks for fonts, and may say so
    files = ["--plot", "curve.svg", "--report", "page.html"]
    command = [sys.executable, "-m", "feedline", "tune", "data_to_tune:Fine", "--step-ms", "20", "--json"]
    done = subprocess.run([*command, *QUICK, *files], capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "importing\n"), "no bar where nobody watches"
    document: dict[str, Any] = json.loads(done.stdout)
    assert (document["command"], document["name"], document["exit_code"]) == ("tune", "Fine", 0)
    assert document["best"] in document["trials"]
    assert (folder / "curve.svg").read_text().startswith("<?xml")
    assert "feedline tune: Fine" in (folder / "page.html").read_text()


PRINTING = """
from feedline import DataLoader

class Loud:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        print("read", index, flush=True)
        return index

loader = DataLoader(Loud(), num_workers=1, multiprocessing_context="spawn")
"""


def test_what_workers_print_is_no_part_of_the_answer(folder: Path) -> None:
    (folder / "loud.py").write_text(PRINTING)
    done = tune(folder, "loud.py", "--json", "--max-workers", "1", "--kinds", "process", "--seconds", "300")
    assert json.loads(done.stdout)["name"] == "Loud"
    assert "read 3\n" in done.stderr


def test_a_file_that_cannot_be_written_is_a_sentence() -> None:
    def save(path: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(FeedlineError, match=r"curve.svg could not be written: .*No space left"):
        write_or_say(save, "curve.svg")


@pytest.mark.usefixtures("short_trials")
def test_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", str(folder / "data_to_tune.py:Fine"), "--no-shuffle", "--batch-size", "8", *QUICK]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("feedline tune: Fine, for as many batches as possible\n\nUse ")
    assert "loader = DataLoader(dataset, batch_size=8, num_workers=" in said.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["data_to_tune:Bad", *QUICK], 1, r"reading failed: ValueError: no such image \(raised by dataset\[\d+\]; "),
        (["nowhere:data"], 2, "there is no module 'nowhere'"),
        (["data_to_tune:number"], 2, "neither"),
    ],
)
def test_what_goes_wrong_is_one_sentence(folder: Path, arguments: list[str], code: int, words: str) -> None:
    done = tune(folder, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("feedline tune: ")
    assert re.search(words, last), last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--step-ms", "-20"], "step_ms must be more than 0 and less than an hour; got -20"),
        (["--kinds", "fibre"], "kinds must be one of 'process', 'thread'; got 'fibre'"),
        (["--report", "nowhere/page.html"], "--report must be a file that can be written to, but there is no folder"),
        (["--plot", "."], "--plot must be a file that can be written to"),
    ],
)
def test_bad_usage(folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune", str(folder / "data_to_tune.py:Fine"), *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"feedline tune: {words}" in said.err


def test_an_import_that_hangs_is_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deadline, "LEAST", 0.1)
    (folder / "endless.py").write_text("while True:\n    pass\n")
    assert cli.main(["tune", f"{folder}/endless.py:data", "--seconds", "0.01"]) == 1
    assert "endless.py: not done after" in capsys.readouterr().err


# In a browser


def trials() -> Iterator[Trial]:
    yield made(Setting(0), step=0.02, waited=9.0)
    for workers, waited in ((1, 5.0), (2, 2.0), (4, 0.5), (6, 0.05), (8, 0.04)):
        yield made(Setting(workers), step=0.02, waited=waited)
    for workers, waited in ((2, 2.5), (4, 2.4)):
        yield made(Setting(workers, kind="thread"), step=0.02, waited=waited)
    yield made(Setting(4, prefetch=8), step=0.02, waited=0.2)


@pytest.fixture(scope="module")
def tuning() -> TuneResult:
    tried = tuple(trials())
    words = Bottleneck("step", "The step itself.", "nothing; a faster loader would not help.")
    code = "from feedline import DataLoader\n\nloader = DataLoader(dataset, num_workers=6)"
    return TuneResult(
        "Photos", 0.02, tried, tried[4], True, "It is enough.", words, code, 31.0, True, 8.0, ("A note.",)
    )


@pytest.fixture(scope="module")
def page(tuning: TuneResult, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("tuning") / "page.html"
    tuning.report(path)
    with browser() as opened:
        opened.size(1000, 900)
        opened.media()
        opened.open(path)
        yield opened


def test_the_chart_is_drawn_and_nobody_is_asked_for_anything(page: Page) -> None:
    assert page.complaints() == []
    assert len(page.requests()) == 1
    lines = "[...document.querySelectorAll('svg path')].filter(each => each.getBoundingClientRect().width > 100)"
    assert page.js(f"{lines}.filter(each => getComputedStyle(each).stroke === 'rgb(0, 114, 178)').length") == 3
    dots = "[...document.querySelectorAll('svg use')].filter(each => each.getBoundingClientRect().width > 3).length"
    assert page.js(dots) == 3 * (len(list(trials())) + 1) + 5, "five are in the legend"
    assert page.js("document.querySelector('#trials strong').textContent") == "6 processes"
    assert page.js("getComputedStyle(document.querySelector('#verdict')).borderLeftColor") == "rgb(31, 110, 79)"


@pytest.mark.parametrize("width", [320, 375, 1000])
def test_nothing_sticks_out_of_the_screen(page: Page, width: int) -> None:
    page.size(width, 800, mobile=width < 500)
    assert page.js("document.documentElement.scrollWidth") <= width
    outside = "e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1"
    assert page.js(f"[...document.querySelectorAll('main *')].filter({outside}).length") == 0
    assert page.js("document.querySelector('svg text').getBoundingClientRect().height") >= 9, "can be read"


def test_dark_mode_and_paper(page: Page) -> None:
    page.media(dark=True)
    assert page.js("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    ground = "getComputedStyle(document.querySelector('svg path')).fill"
    assert page.js(ground) == "rgb(251, 250, 247)", "its letters are dark"
    page.media()
    assert page.pdf().startswith(b"%PDF-")


# In the docs


def test_every_option_is_on_the_page_and_no_other() -> None:
    parser = cli._parser()
    said = parser._subparsers._group_actions[0].choices["tune"].format_help()  # type: ignore[union-attr, index]
    options = set(re.findall(r"--[a-z-]+", said)) - {"--help"}
    assert set(re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE)) == options


def test_every_bottleneck_is_on_the_page() -> None:
    from feedline.diagnose.tune import tune_verdict as verdict

    names = {verdict.STEP, verdict.COLLATE, verdict.TRANSFER, verdict.PYTHON, verdict.CPU, verdict.DISK}
    assert set(re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.MULTILINE)) == {*names, verdict.HANDING_OVER}


@pytest.mark.usefixtures("short_trials")
def test_the_docs_examples_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert examples
    names: dict[str, Any] = {"__name__": "example"}
    for example in examples:
        exec(example, names)
