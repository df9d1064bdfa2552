"""What feedline's own supervision reports about a sample that hung or killed its worker.

Takes: bad samples of a loader, and its warnings. Gives: `DeadlySample`s, with the line of user code.
Promises: during the examination, none of these warnings reach the screen.
Not its job: the supervision (engine, supervise), judging (failures).
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator

from feedline.diagnose.doctor.evidence import CodeLine, DeadlySample
from feedline.diagnose.doctor.lines import is_librarys
from feedline.messages.outcome import BadSample


@contextlib.contextmanager
def quietly() -> Iterator[list[str]]:
    """Warnings and logged deadly samples are evidence here, and are not shown."""
    log = logging.getLogger("feedline")
    disabled = log.disabled
    said: list[str] = []
    log.disabled = True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield said
            finally:
                said += [str(each.message) for each in caught]
    finally:
        log.disabled = disabled


def deadly_sample_of(bad: BadSample) -> DeadlySample:
    """What happened to the sample: it never ended, or it ended its worker.

    >>> deadly_sample_of(BadSample(3, 0, "", "1 worker ended at it; the last was stuck for 2.0 s")).stuck
    True
    """
    return DeadlySample(bad.index, bad.what, bad.error, "stuck for" in bad.error)


def place_in(said: list[str], deadly_sample: DeadlySample) -> CodeLine | None:
    """The line where it was, from the warning about it: the innermost line that is not a library's."""
    for text in said:
        if f"{deadly_sample.index}" in text:
            for file, number, function in re.findall(r'File "(.+?)", line (\d+) in (\S+)', text):
                if not is_librarys(file):
                    return CodeLine(file, int(number), function)
    return None
