"""How findings look: lines with a style, then colours.

Takes: findings and a width. Gives: lines of text; these as one string, coloured if the stream is a terminal and rich
is installed (`pip install feedline[cli]`), plain otherwise; `write`, which writes them.
Promises: the same words with and without rich; lines to paste are never broken; NO_COLOR and TERM=dumb are respected.
Not its job: what is found (preflight, doctor), when it is printed (cli).
"""

from __future__ import annotations

import importlib
import os
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TextIO

from feedline.diagnose.findings import OK, SEVERITIES, Finding
from feedline.errors import FeedlineError
from feedline.observe.terminal import refused

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


def width_of_terminal() -> int:
    """The width of a page."""
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)


def page(heading: str, findings: Sequence[Finding], width: int) -> list[PageLine]:
    """Heading, every finding, and the summary.

    >>> for line in page("a look", [Finding("clock", "ok", "The clock runs")], 60):
    ...     print((line.label + line.text).rstrip())
    a look
    <BLANKLINE>
    ok       The clock runs
    <BLANKLINE>
    1 ok
    """
    lines = [PageLine(heading, "bold"), PageLine()]
    for finding in findings:
        lines += _finding(finding, width)
    return [
        line._replace(text=_printable(line.text)) for line in (*lines, PageLine(), PageLine(_sum(findings), "bold"))
    ]


def _printable(text: str) -> str:
    """The text without control characters: the user's data and errors must not control the terminal.

    >>> _printable("a\x1b[31m b")
    'a�[31m b'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def _finding(finding: Finding, width: int) -> Iterator[PageLine]:
    label = finding.severity.ljust(_LABEL)
    title_style = "" if finding.severity == OK else "bold"
    for text in textwrap.wrap(finding.title, width - _LABEL):
        yield PageLine(text, title_style, label, _STYLES[finding.severity])
        label = " " * _LABEL
    if finding.severity == OK:
        return
    yield from _wrapped(finding.explanation, "", width)
    yield from _wrapped(finding.remedy and f"Do: {finding.remedy}", "", width)
    for text in finding.code.splitlines():
        yield PageLine("    " + text, "cyan", " " * _LABEL)


def _wrapped(text: str, style: str, width: int) -> Iterator[PageLine]:
    for part in textwrap.wrap(text, width - _LABEL, break_long_words=False, break_on_hyphens=False):
        yield PageLine(part, style, " " * _LABEL)


def _sum(findings: Sequence[Finding]) -> str:
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
    words = {"ok": "ok", "note": "note(s)", "warning": "warning(s)", "problem": "problem(s)"}
    said = [f"{count} {_in_number(words[severity], count)}" for severity, count in counts.items() if count]
    return ", ".join(said) or "nothing to say"


def _in_number(word: str, count: int) -> str:
    return word.replace("(s)", "" if count == 1 else "s")


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
