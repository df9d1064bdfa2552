"""The command line, as a person, a script and a broken pipe meet it."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm_host import host

import feedline
from feedline import cli
from feedline.cli import main
from feedline.diagnose.findings import Finding
from feedline.diagnose.rendering import Answer, Findings
from feedline.errors import MemoryShortage, OptionError

PYPROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text()
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
QUICK = ["preflight", "--no-trial"]


def run(*arguments: str, stdout: Any, env: dict[str, str] | None = None) -> tuple[int, str]:
    """In a process of its own that writes there: how it ended, and what it said on standard error."""
    with tempfile.TemporaryFile("w+") as err:
        started = host("feedline.cli").start(["-m", "feedline", *arguments], stdout.fileno(), err.fileno(), env=env)
        with started as script:
            code = script.wait(600)
        err.seek(0)
        return code, err.read()


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said to a command line that is wrong, and nothing on standard output."""
    try:
        code = main(arguments)
    except SystemExit as left:  # argparse's way
        code = left.code  # type: ignore[assignment]
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    return said.err


# As a process


def test_preflight_for_machines_from_beginning_to_end() -> None:
    command = [sys.executable, "-m", "feedline", "preflight", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    document = json.loads(done.stdout)
    assert done.stderr == ""
    assert document["command"] == "preflight"
    assert document["feedline"] == feedline.__version__
    assert done.returncode == document["exit_code"] == (document["worst"] == "problem")
    trial = document["findings"][-1]
    assert (trial["id"], trial["severity"]) == ("trial", "ok"), trial
    assert set(trial) == {"id", "severity", "title", "evidence", "explanation", "remedy", "code"}


def test_a_reader_that_goes_away_changes_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    # Short enough to stay in Python's buffer, if it has one: what is left there is written again at the end.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open(writing, "w") as nobody:
        assert run(*QUICK, stdout=nobody, env=buffered) == (main_quietly(QUICK), "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to be had")
def test_an_answer_that_cannot_be_written_is_said_in_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        code, said = run(*QUICK, stdout=full)
    assert said == "feedline preflight: the answer could not be written: [Errno 28] No space left on device\n"
    assert code == 1


def main_quietly(arguments: list[str]) -> int:
    with contextlib.redirect_stdout(io.StringIO()):
        return main(arguments)


def test_the_entry_point_is_this() -> None:
    (target,) = re.findall(r'^\[project\.scripts\]\nfeedline = "(.*)"$', PYPROJECT, re.MULTILINE)
    module, _, name = target.partition(":")
    assert getattr(importlib.import_module(module), name) is main


# Usage


def test_bad_usage_is_told_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "preflight" in usage_error(capsys)
    assert "invalid choice: 'takeoff'" in usage_error(capsys, "takeoff")
    assert "--batch-bytes: not a size: '38 apples'" in usage_error(capsys, "preflight", "--batch-bytes", "38 apples")
    assert "invalid int value" in usage_error(capsys, "preflight", "--num-workers", "two")
    assert "unrecognized arguments: --jso" in usage_error(capsys, "preflight", "--jso")
    said = usage_error(capsys, "preflight", "--num-workers", "-1")
    assert said == "feedline preflight: num_workers must be at least 0; got -1\n"
    assert "batch_bytes" in usage_error(capsys, "preflight", "--batch-bytes", "0")


@pytest.mark.parametrize("arguments", [["--help"], ["preflight", "--help"], ["--version"]])
def test_help_and_version_are_no_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert ("exit codes: 0 fine" in said.out) or said.out == f"feedline {feedline.__version__}\n"


@pytest.mark.parametrize("text", ["", "M", "-1", "1e3", "5 PB", "1,5G", "0x10"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(cli.argparse.ArgumentTypeError, match="not a size"):
        cli.size(text)


def test_options_reach_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*QUICK, "--json", "--num-workers", "3", "--prefetch-factor", "4", "--batch-bytes", "1 TiB"])
    document = json.loads(capsys.readouterr().out)
    (memory,) = [finding for finding in document["findings"] if finding["id"] == "memory-limit"]
    assert (code, document["worst"], memory["severity"]) == (1, "problem", "problem")
    assert memory["evidence"]["batches"] == int((3 * 4 + 2) * 1.25 * (1 << 40))
    assert not [finding for finding in document["findings"] if finding["id"] in ("trial", "cuda")]


# The frame, with commands of the test's own


def command(monkeypatch: pytest.MonkeyPatch, run: Callable[[Any], Answer]) -> None:
    made = cli.Command("look", "looks", lambda parser: parser.add_argument("--strict", action="store_true"), run)
    monkeypatch.setattr(cli, "COMMANDS", (made,))


@pytest.mark.parametrize(
    ("severity", "code", "strict"), [("ok", 0, 0), ("note", 0, 0), ("warning", 0, 1), ("problem", 1, 1)]
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, severity: str, code: int, strict: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Findings([Finding("a", "ok", "A"), Finding("b", severity, "B"), Finding("c", "ok", "C")], "x")
    command(monkeypatch, lambda given: found.answer("look", given.strict))
    assert main(["look"]) == code
    assert f"\n{severity.ljust(9)}B\n" in capsys.readouterr().out
    assert main(["look", "--strict"]) == strict


def test_what_goes_wrong_has_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: BaseException) -> Callable[[Any], Answer]:
        def run(given: Any) -> Answer:
            raise error

        return run

    command(monkeypatch, fail(MemoryShortage("none left")))
    assert main(["look"]) == 1
    assert capsys.readouterr() == ("", "feedline look: none left\n")
    command(monkeypatch, fail(KeyboardInterrupt()))
    assert main(["look"]) == 130
    assert capsys.readouterr() == ("", "")


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["feedline"] == feedline.__version__
    return found


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (MemoryShortage("none left"), "none left", 1),
        (OptionError("no such thing"), "no such thing", 2),
        (KeyboardInterrupt(), "interrupted", 130),
    ],
)
def test_what_goes_wrong_is_a_document_for_machines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, words: str, code: int
) -> None:
    def fail(given: Any) -> Answer:
        raise error

    command(monkeypatch, fail)
    assert main(["look", "--json"]) == code
    found = document(capsys)
    assert (found["command"], found["error"], found["exit_code"]) == ("look", words, code)


def test_a_fault_of_ours_is_a_document_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(monkeypatch, lambda given: Answer({"nan": float("nan")}, lambda width: []))
    with pytest.raises(ValueError, match="JSON"):
        main(["look", "--json"])
    found = document(capsys)
    assert found["error"].startswith("ValueError: ")
    assert found["exit_code"] == 1


@pytest.mark.parametrize(
    ("arguments", "name", "words"),
    [
        (["preflight", "--json", "--num-workers", "two"], "preflight", "invalid int value: 'two'"),
        (["doctor", "--json"], "doctor", "the following arguments are required: target"),
        (["takeoff", "--json"], None, "invalid choice: 'takeoff'"),
        (["preflight", "--json", "--", "--lr"], None, "preflight runs no script"),
        (["tune", "nowhere:data", "--json"], "tune", "there is no module 'nowhere'"),
        (["bench", "--plot", "x.pdf", "--json"], "bench", "must end in .png or .svg"),
        (["demo", "--epochs", "0", "--json"], "demo", "epochs must be at least 1"),
    ],
)
def test_bad_usage_is_a_document_for_machines(
    capsys: pytest.CaptureFixture[str], arguments: list[str], name: str | None, words: str
) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as left:
        code = left.code
    found = document(capsys)
    assert (code, found["exit_code"], found["command"]) == (2, 2, name)
    assert words in found["error"]


@pytest.mark.parametrize("name", ["doctor", "tune"])
@pytest.mark.parametrize("own", [[], ["--lr", "0.1"], ["--", "--json"]])
def test_a_script_is_given_its_own_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, own: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("train.py").write_text("import sys\nraise RuntimeError(sys.argv)\n")
    before = list(sys.argv)
    assert main([name, "train.py:loader", "--json", *(["--", *own] if own else [])]) == 2
    assert document(capsys)["error"] == f"running train.py failed: RuntimeError: {['train.py', *own]}"
    assert sys.argv == before
    del sys.modules["train"]


def test_a_terminal_that_knows_few_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Findings([Finding("a", "warning", "2 × 2", code="DataLoader(…)")], "x")
    command(monkeypatch, lambda given: found.answer("look"))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["look"]) == 0
    assert b"2 ? 2" in stream.buffer.getvalue()  # type: ignore[attr-defined]


# On a terminal

FOUND = Findings(
    [
        Finding("a", "ok", "All is well here"),
        Finding("b", "problem", "Not [here] " + "long " * 20, {}, "Why " * 30, "something :smile:", "code " * 30),
    ],
    "a look",
)


def on_a_terminal(columns: int, without_rich: bool = False, **environment: str) -> str:
    """What is shown there by a process of its own."""
    pid, screen = pty.fork()
    if pid == 0:
        try:
            os.environ.update({"TERM": "xterm-256color", **environment})
            for name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"} - set(environment):
                os.environ.pop(name, None)
            if without_rich:
                sys.modules["rich.console"] = None  # type: ignore[assignment]
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
            cli.COMMANDS = (cli.Command("look", "looks", lambda parser: None, lambda given: FOUND.answer("look")),)
            main(["look"])
        finally:
            os._exit(0)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal's end
        while piece := os.read(screen, 1 << 16):
            shown += piece
    os.close(screen)
    os.waitpid(pid, 0)
    return shown.decode().replace("\r\n", "\n")


def test_colours_on_a_terminal_and_the_same_words_everywhere() -> None:
    pytest.importorskip("rich")
    coloured = on_a_terminal(70)
    bare = on_a_terminal(70, without_rich=True)
    assert "\x1b[32mok" in coloured
    assert "\x1b[1;31mproblem" in coloured
    assert "\x1b" not in bare
    assert COLOUR.sub("", coloured) == bare
    assert "something :smile:" in bare
    assert "Not [here]" in bare
    for line in bare.splitlines():
        assert len(line) <= 70 or "code code" in line
    assert " ".join(["code"] * 30) in bare


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
def test_colours_that_are_not_wanted(environment: dict[str, str]) -> None:
    pytest.importorskip("rich")
    shown = on_a_terminal(70, **environment)
    assert "problem" in shown
    assert "\x1b" not in shown


def test_a_narrow_terminal_and_none() -> None:
    narrow = on_a_terminal(20)
    assert "problem" in narrow
    assert all(len(COLOUR.sub("", line)) <= 40 or "code code" in line for line in narrow.splitlines())
    wide = on_a_terminal(400, without_rich=True)
    assert max(len(line) for line in wide.splitlines() if "code code" not in line) <= 100
