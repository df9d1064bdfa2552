"""The answer of a command: data for machines, a page for people, an exit code for the shell.

Takes: findings, or the result of another command. Gives: `Findings`, a list that prints itself; `Answer`, which the
command line prints.
Promises: exit code 0: fine, warnings allowed; 1: a problem, or with `strict` a warning. (2 is bad usage: cli.)
Not its job: finding (preflight, doctor), printing (cli).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedline.diagnose.findings import PROBLEM, WARNING, Finding, worst
from feedline.diagnose.rendering import WIDEST, PageLine, page, plain
from feedline.errors import FeedlineError

FINE, BAD = 0, 1


@dataclass(frozen=True)
class Answer:
    """What a command says."""

    data: dict[str, Any]
    """For --json; everything in it can be written as JSON."""
    page: Callable[[int], list[PageLine]]
    """For people: lines for a terminal of that many columns."""
    exit_code: int = FINE


def write_or_say(save: Callable[[str], None], path: str) -> None:
    """Write a file that belongs to an answer; if it cannot be written (a full disk), the error is a sentence."""
    try:
        save(path)
    except OSError as error:
        raise FeedlineError(f"{path} could not be written: {error}") from error


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that appears complete, or not at all."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


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
