"""The answer of a command: data for machines, lines with a style for people, an exit code for the shell.

Takes: findings, or the result of another command. Gives: `Findings`, a list that prints itself; `Answer`; its lines as
one string, coloured if the stream is a terminal and rich is installed (`pip install feedline[cli]`), plain otherwise;
`write` and `write_file`.
Promises: the same words with and without rich; lines to paste are never broken; NO_COLOR and TERM=dumb are respected.
Exit code 0: fine, warnings allowed; 1: a problem, or with `strict` a warning. (2 is bad usage: cli.) A file appears
complete, or not at all.
Not its job: what is found (preflight, doctor), when it is printed (cli).
"""

from __future__ import annotations

import importlib
import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from feedline.diagnose.findings import OK, PROBLEM, SEVERITIES, WARNING, Finding, worst
from feedline.errors import FeedlineError
from feedline.errors.counting import counted
from feedline.observe.terminal import refused

FINE, BAD = 0, 1
WIDEST, NARROWEST = 100, 40
"""Columns: longer lines are hard to read; with fewer there is no room for words next to the labels."""
_LABEL = max(map(len, SEVERITIES)) + 2
_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


class PageLine(NamedTuple):
    """A line of a page: a label, then text, each with a style that rich knows."""

    text: str = ""
    style: str = ""
    label: str = ""
    label_style: str = ""


@dataclass(frozen=True)
class Answer:
    """What a command says."""

    data: dict[str, Any]
    """For --json; everything in it can be written as JSON."""
    page: Callable[[int], list[PageLine]]
    """For people: lines for a terminal of that many columns."""
    exit_code: int = FINE


class Findings(list[Finding]):
    """Findings in a list that prints as the command does.

    >>> found = Findings([Finding("clock", "ok", "The clock runs")], "a look")
    >>> print(found)
    a look
    <BLANKLINE>
    ok       The clock runs
    <BLANKLINE>
    1 ok
    >>> found.worst
    'ok'
    """

    def __init__(self, findings: list[Finding], heading: str) -> None:
        super().__init__(findings)
        self.heading = heading

    @property
    def worst(self) -> str:
        """The worst severity."""
        return worst(self)

    def __str__(self) -> str:
        return plain(page(self.heading, self, WIDEST)).rstrip("\n")

    def answer(self, command: str, strict: bool = False) -> Answer:
        """The same for the command line; with `strict`, warnings count as problems."""
        bad = self.worst == PROBLEM or (strict and self.worst == WARNING)
        data = {"command": command, "worst": self.worst, "findings": [finding.to_json() for finding in self]}
        return Answer(data, lambda width: page(self.heading, self, width), BAD if bad else FINE)


def width_of_terminal() -> int:
    """The width of a page."""
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)


def page(heading: str, findings: Sequence[Finding], width: int) -> list[PageLine]:
    """Heading, every finding, and the summary; without control characters: user data must not control the terminal."""
    lines = [PageLine(heading, "bold"), PageLine()]
    for finding in findings:
        lines += _finding(finding, width)
    lines += [PageLine(), PageLine(_sum(findings), "bold")]
    return [line._replace(text=_printable(line.text)) for line in lines]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _finding(finding: Finding, width: int) -> Iterator[PageLine]:
    label, is_ok = finding.severity.ljust(_LABEL), finding.severity == OK
    for text in textwrap.wrap(finding.title, width - _LABEL):
        yield PageLine(text, "" if is_ok else "bold", label, _STYLES[finding.severity])
        label = " " * _LABEL
    if not is_ok:
        yield from wrapped(finding.explanation, width, label=label)
        yield from wrapped(finding.remedy and f"Do: {finding.remedy}", width, label=label)
        yield from (PageLine("    " + text, "cyan", label) for text in finding.code.splitlines())


def wrapped(text: str, width: int, style: str = "", label: str = "") -> Iterator[PageLine]:
    """The text in as many lines as it needs, each with the label before it."""
    for part in textwrap.wrap(text, max(20, width - len(label)), break_long_words=False, break_on_hyphens=False):
        yield PageLine(part, style, label)


def _sum(findings: Sequence[Finding]) -> str:
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
    said = [f"{count} ok" if name == OK else counted(count, name) for name, count in counts.items() if count]
    return ", ".join(said) or "no findings"


def plain(lines: Iterable[PageLine]) -> str:
    """The lines as one string, without colours."""
    return "".join(f"{line.label}{line.text}".rstrip() + "\n" for line in lines)


def painted(lines: Iterable[PageLine], stream: TextIO) -> str:
    """The lines as one string, in colours that fit the stream."""
    # Neither colours nor bold: rich would keep bold with NO_COLOR, and takes 0.1 s to import.
    if refused() or not (stream.isatty() or os.environ.get("FORCE_COLOR")):
        return plain(lines)
    try:
        console: Any = importlib.import_module("rich.console")
        text: Any = importlib.import_module("rich.text")
    except ImportError:
        return plain(lines)
    # Captured, not printed: for a closed pipe, rich would end with an exit code of its own.
    ink = console.Console(file=stream, soft_wrap=True)
    with ink.capture() as captured:
        for line in lines:
            ink.print(text.Text.assemble((line.label, line.label_style), (line.text.rstrip(), line.style)))
    return str(captured.get())


def write(text: str, stream: TextIO) -> None:
    """Write a text in the characters that the stream supports; a reader that has gone away changes nothing."""
    try:
        stream.write(text.encode(stream.encoding or "utf-8", "replace").decode(stream.encoding or "utf-8"))
        stream.flush()
    except BrokenPipeError:
        _drop_rest(stream)  # the reader has closed the pipe
    except OSError as error:  # a full disk, say
        _drop_rest(stream)
        raise FeedlineError(f"the answer could not be written: {error}") from error


def _drop_rest(stream: TextIO) -> None:
    """Discard the rest: Python would try to write it at exit, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that appears complete, or not at all."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def write_or_say(save: Callable[[str], None], path: str) -> None:
    """Write a file that belongs to an answer; if it cannot be written (a full disk), the error is a sentence."""
    try:
        save(path)
    except OSError as error:
        raise FeedlineError(f"{path} could not be written: {error}") from error
