"""`feedline demo`, as a person, a script and a Ctrl-C meet it; and that it notices when what it shows is not true."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image
from warm_host import host

from feedline.cli import main
from feedline.demonstration.images import CLASSES, DAMAGED, RARE, claim, damaged_indices, draw_images, shapes
from feedline.demonstration.screen import Screen
from feedline.demonstration.training import BATCH, Training, balanced
from feedline.errors import OptionError, SourceError

COUNT = 100
# A worker that is told to leave may be just opening a file, which nobody is left to close.
STRICT = ["-W", "error", "-W", "ignore::ResourceWarning"]
COMMAND = [*STRICT, "-m", "feedline", "demo"]
WARM = ("feedline.cli", "feedline.demonstration.run", "PIL.JpegImagePlugin")
LIVE = "\r\x1b[K"


def demo(
    *arguments: str, sabotage: str = "", warm: tuple[str, ...] = WARM, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it as a process, in which something may be broken beforehand; and which nothing has warmed, if wanted so."""
    command = COMMAND
    if sabotage:
        code = f"import sys\n{sabotage}\nfrom feedline.cli import main\nsys.exit(main(['demo', *sys.argv[1:]]))"
        command = [*STRICT, "-c", code]
    command = [*command, *arguments, "--images", str(COUNT)]
    environment = os.environ | {"TERM": "xterm"}  # where it is no terminal, nothing is live all the same
    if warm:
        return host(*warm).run(command, 600, cwd, environment)
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, cwd=cwd)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def drawn(folder: Path, count: int = COUNT) -> Path:
    claim(folder)
    assert list(draw_images(folder, count)) == list(range(count))
    return folder


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where it was run, without a folder being named, and what it said."""
    place = tmp_path_factory.mktemp("place")
    done = demo("--epochs", "2", warm=(), cwd=place)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return place, done.stdout


# What it shows


def test_it_shows_all_in_order(told: tuple[Path, str]) -> None:
    place, said = told
    assert "\x1b" not in said
    expected = [
        rf"Drawing {COUNT} images in build/demo",
        r"ring and cross are 8 times rarer",
        r" \d\.\d shuffled.*shuffle=True",
        r" \d?\d\.\d drawn by weight.*WeightedRandomSampler",
        r"weights_from_labels\(labels\)",
        r"5 training files are cut short.*on_error=\"skip\"",
        r"epoch  1 +[\d,]+ images/s  waited +\d+%  loss \d\.\d+  validation +\d+%",
        r"Stopped after 2 of the 4 batches of epoch 2\.",
        r"Saved: build/demo/state\.json +loader\.state_dict\(\)",
        r"The loader is deleted, with its 1 worker\.",
        r"A new loader with 2 workers continues\. +loader\.load_state_dict\(state\)",
        r"epoch  2 ",
        r"Checked: the 2 batches after the stop, and the 2 before it,\n  are bit for bit",
        r"images/s\.\n  Training waited \d+% of its time .*loader\.stats\(\)",
        r"5 damaged files came up \d+ times: +loader\.errors",
        r"index +0  images/00020\.jpg  image file is truncated",
        r"% of the validation images are classified correctly; of the rare classes",
        rf"{re.escape(str(place))}/build/demo/report\.html +loader\.report\(path\)",
    ]
    position = 0
    for pattern in expected:
        found = re.compile(pattern).search(said, position)
        assert found, f"{pattern} is missing after:\n{said[:position]}\nin:\n{said[position:]}"
        position = found.end()


def test_it_writes_to_its_folder_only(told: tuple[Path, str]) -> None:
    place, _ = told
    assert os.listdir(place) == ["build"]
    assert os.listdir(place / "build") == ["demo"]
    assert set(os.listdir(place / "build" / "demo")) == {
        *("README.txt", "images", "metadata.sqlite", "report.html", "state.json")
    }
    assert "</html>" in (place / "build" / "demo" / "report.html").read_text()
    assert json.loads((place / "build" / "demo" / "state.json").read_text())["epoch"] == 1


def test_it_names_just_the_files_that_cannot_be_read(told: tuple[Path, str]) -> None:
    place, said = told
    folder = place / "build" / "demo"
    damaged = set()
    for path in (folder / "images").iterdir():
        try:
            with Image.open(path) as image:
                image.load()
        except OSError:
            damaged.add(f"images/{path.name}")
    assert len(damaged) == DAMAGED
    assert set(re.findall(r"index +\d+  (\S+)", said)) == damaged


def test_a_second_run_for_machines(told: tuple[Path, str]) -> None:
    place, _ = told
    folder = place / "build" / "demo"
    before = contents(folder / "images")
    done = demo("--epochs", "1", "--workers", "1", "--json", cwd=place)
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr, document["exit_code"], document["problems"]) == (0, "", 0, [])
    assert document["command"] == "demo"
    assert contents(folder / "images") == before
    stop = {"epoch": 1, "before": 2, "batches": 4, "exact": True, "workers_before": 2, "workers_after": 1}
    assert document["resumption"] == stop
    training = shapes(folder, "train")
    times = Counter(int(index) for index in balanced(training.labels))
    expected = {str(index): times[index] for index in damaged_indices(len(training)) if times[index]}
    assert document["unreadable"] == expected
    assert document["images"] == 4 * BATCH - sum(expected.values())
    assert len(document["epochs"]) == 1
    assert set(document["epochs"][0]) >= {"images_per_second", "waited", "loss", "validation"}


def test_the_classifier_learns(told: tuple[Path, str]) -> None:
    training = Training(told[0] / "build" / "demo", Screen(None))
    training.run(epochs=6, workers=0)
    assert training.problems == []
    assert training.right.mean() > 2 / len(CLASSES)
    assert training.epochs[-1]["loss"] < training.epochs[0]["loss"]


# It notices


SABOTAGE = """
import feedline
feedline.DataLoader.load_state_dict = lambda self, state: None
feedline.DataLoader.errors = lambda loader: []
"""


def test_it_fails_if_what_it_shows_is_not_true(told: tuple[Path, str]) -> None:
    done = demo("--workers", "0", "--epochs", "2", sabotage=SABOTAGE, cwd=told[0])
    assert (done.returncode, done.stderr) == (1, "")
    assert "Checked" not in done.stdout
    resumed, errors = re.findall(r"^problem  (.*)$", done.stdout, re.MULTILINE)
    assert re.search("^Epoch 2 did not continue .* [24] of 4 batches differ, from batch 3 on", resumed)
    assert re.search(r"just the damaged files; missing or too many: \[0, ", errors)


# On a terminal


def test_live_lines_on_a_terminal_and_ctrl_c(told: tuple[Path, str]) -> None:
    pid, screen = pty.fork()
    if pid == 0:
        try:
            os.chdir(told[0])
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
            command = [sys.executable, *COMMAND, "--epochs", "100000", "--images", str(COUNT)]
            environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
            os.execve(sys.executable, command, environment)
        finally:
            os._exit(1)
    shown = ""
    with contextlib.suppress(OSError):  # the terminal's end: nobody has it open any more, no worker either
        while piece := os.read(screen, 1 << 16):
            before, shown = shown, shown + piece.decode(errors="replace")
            if "epoch  3" in shown and "epoch  3" not in before:
                os.write(screen, b"\x03")
    os.close(screen)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert "Traceback" not in shown
    lines = shown.replace("\r\n", "\n").split("\n")
    assert lines[-1] == ""
    live = [text for line in lines for text in line.split(LIVE)[1:-1]]
    assert any("images/s  waited" in text for text in live)
    assert max(map(len, live)) == 39


def test_ctrl_c_while_it_draws(tmp_path: Path) -> None:
    command = [*COMMAND, "--folder", str(tmp_path / "demo"), "--images", "100000"]
    reading, writing = os.pipe()
    with open(reading) as said, tempfile.TemporaryFile("w+") as complaint:
        with host(*WARM).start(command, writing, complaint.fileno()) as process:
            os.close(writing)
            while "Drawing" not in said.readline():
                pass
            process.send_signal(signal.SIGINT)
            assert process.wait(600) == 130
        complaint.seek(0)
        assert complaint.read() == ""
    assert os.listdir(tmp_path) == ["demo"]


def test_a_reader_that_goes_away_changes_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream, Screen(stream) as screen:
        screen.say("one")
        screen.say("two")


# The images


def test_what_another_or_an_interrupted_run_has_left_is_drawn_anew(tmp_path: Path) -> None:
    folder = drawn(tmp_path / "again", 70)
    interrupted = draw_images(folder, 50)
    next(interrupted), next(interrupted)
    interrupted.close()
    assert contents(drawn(folder, 60)) == contents(drawn(tmp_path / "fresh", 60))


def test_training_is_imbalanced_and_validation_is_not(tmp_path: Path) -> None:
    folder = drawn(tmp_path, 213)
    training, validation = shapes(folder, "train"), shapes(folder, "validation")
    counts = {name: training.labels.tolist().count(label) for label, name in enumerate(CLASSES)}
    rare = {name: count for name, count in counts.items() if name in RARE}
    common = [count for name, count in counts.items() if name not in RARE]
    assert 7 <= min(common) / max(rare.values()) <= max(common) / min(rare.values()) <= 9
    even = Counter(validation.labels.tolist()).values()
    assert max(even) - min(even) <= 1
    assert len(training) + len(validation) == 213
    damaged = damaged_indices(len(training))
    assert len(damaged) == DAMAGED
    with pytest.raises(SourceError, match="truncated"):
        training[damaged[1]]
    assert training.describe(damaged[1]) == f"{folder}/images/{damaged[1] + 42:05}.jpg"


# Bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--epochs", "0"], "epochs must be at least 1; got 0"),
        (["--images", "99"], "images must be at least 100; got 99"),
        (["--workers", "-1"], "workers must be at least 0; got -1"),
        (["--folder", __file__], f"folder must be one that can be written to, but {__file__} is not: "),
        (["--folder", "/proc/nowhere"], "folder must be one that can be written to, but /proc/nowhere is not: "),
        (["--folder", f"{__file__}/x"], f"folder must be one that can be written to, but {__file__}/x is not: "),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"feedline demo: {sentence}")
    assert said.err.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["thesis.txt", "README.txt", "metadata.sqlite", "images/00001.jpg"])
def test_a_folder_with_other_things_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(OptionError, match="holds other things"):
        claim(tmp_path)
    assert contents(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("name", ["state.json", "report.html"])
def test_a_file_that_cannot_be_written(told: tuple[Path, str], name: str) -> None:
    folder = told[0] / "build" / "demo"
    (folder / name).unlink()
    (folder / name).mkdir()
    try:
        with pytest.raises(OptionError, match=f"folder must be .* is not: .*{name}"):
            Training(folder, Screen(None)).run(epochs=1, workers=0)
    finally:
        (folder / name).rmdir()


def test_without_pillow_and_sqlite_it_says_so_and_the_other_commands_are_there(tmp_path: Path) -> None:
    missing = "sys.modules['PIL'] = sys.modules['sqlite3'] = None"
    done = demo("--folder", str(tmp_path / "demo"), sabotage=missing, warm=("feedline",))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"feedline demo: .*pip install 'feedline\[images\]'.*\n", done.stderr)
    assert os.listdir(tmp_path) == []


def test_help_says_where_it_writes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    assert "default: build/demo" in " ".join(capsys.readouterr().out.split())
