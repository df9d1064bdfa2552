"""Which line of user code takes the time: a thread looks regularly where the reading thread is.

Takes: nothing. Gives: `WatchedLines`, which counts the lines it saw and runs in worker processes; the line of user code
in a stack, which may also be a text.
Promises: user code is slowed down only by the looks (0.1 % at 2 ms); the line counted is in the innermost file that is
neither a library's nor feedline's, because the user can change that file.
Not its job: what counts as slow (speed).
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterable
from types import FrameType

from feedline.diagnose.doctor.evidence import CodeLine

EVERY = 0.002
"""Seconds between two looks. A look takes 2 µs."""
MOST = 5
"""How many lines are passed on."""
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_LIBRARIES = tuple(
    {os.path.abspath(path) + os.sep for name, path in sysconfig.get_paths().items() if "lib" in name}
    | {os.path.abspath(os.path.dirname(os.__file__)) + os.sep}
)


class WatchedLines:
    """Looks at the thread that calls `begin`, from then until `take`."""

    def __init__(self) -> None:
        self._met: Counter[CodeLine] = Counter()
        self._watched = 0
        self._started = False

    def begin(self) -> None:
        """Look from now on."""
        self._met = Counter()
        self._watched = threading.get_ident()
        if not self._started:
            self._started = True
            threading.Thread(target=self._look, name="feedline-lines", daemon=True).start()

    def take(self) -> tuple[tuple[CodeLine, int], ...]:
        """The lines seen; no more looks until the next `begin`."""
        self._watched = 0
        return tuple(self._met.most_common(MOST))

    def _look(self) -> None:
        pause = threading.Event()
        while not pause.wait(EVERY):
            met, watched = self._met, self._watched
            frame = sys._current_frames().get(watched) if watched else None
            line = users_line(frame)
            if line is not None:
                met[line] += 1


def users_line(frame: FrameType | None) -> CodeLine | None:
    """The innermost line of user code; if the dataset itself is a library's, the line that was called."""
    outermost = None
    while frame is not None:
        file = frame.f_code.co_filename
        if os.path.abspath(file).startswith(_OURS + os.sep) and outermost is not None:
            return outermost
        here = CodeLine(file, frame.f_lineno or 0, frame.f_code.co_name)
        if not is_librarys(file):
            return here
        outermost = here
        frame = frame.f_back
    return None


def line_in(said: Iterable[str], index: object) -> CodeLine | None:
    """The innermost line of user code in the stack that a warning about that sample shows."""
    for text in said:
        if f"{index}" in text:
            for file, number, function in re.findall(r'File "(.+?)", line (\d+) in (\S+)', text):
                if not is_librarys(file):
                    return CodeLine(file, int(number), function)
    return None


def is_librarys(file: str) -> bool:
    """Is it a file that the user cannot change: installed, Python's, or feedline's?"""
    path = os.path.abspath(file)
    return file.startswith("<") or path.startswith((*_LIBRARIES, _OURS + os.sep))
