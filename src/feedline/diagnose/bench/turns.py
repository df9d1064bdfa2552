"""A process that measures one side, and the order in which sides are asked.

Takes: a command whose process writes one line of JSON for each line it reads.
Gives: `SideProcess`, which asks it; `order`: who comes when.
Promises: an answer or a `SideFailed` within the given time; after closing, the process is gone, with all that it had
started.
Not its job: what is asked (bench_run, and the repository's benchmarks/contest).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from feedline.diagnose.bench.machine import Noise

GOODBYE = 10.0
"""Seconds that a process has to end its workers, unless it has already been silent for too long."""


class SideFailed(Exception):
    """A side's process ended, or was silent for too long; the text says which, and ends with its last output."""


def order(sides: Sequence[str], turn: int) -> list[str]:
    """A B, B A, A B, …: whatever slows the machine down affects both equally.

    >>> order(["a", "b"], 0), order(["a", "b"], 1)
    (['a', 'b'], ['b', 'a'])
    """
    return list(sides) if turn % 2 == 0 else list(reversed(sides))


class SideProcess:
    """A process that measures one side on request."""

    def __init__(self, command: Sequence[str], patience: float, environment: Mapping[str, str] | None = None) -> None:
        self._patience, self._goodbye = patience, GOODBYE
        self._stderr = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            start_new_session=True,  # so that close() also ends workers that a crashed side left behind
        )

    def measure(self, word: str = "go") -> dict[str, Any]:
        """The answer to a word, with the noise during it. Raises SideFailed."""
        noise = Noise(session=self._process.pid)
        self.tell(word)
        return {**self.answer(), "noise": noise.share()}

    def tell(self, word: str) -> None:
        """Send a word, so that it begins."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already: the missing answer will show that
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next line it writes. Raises SideFailed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline() if self._has_answered() else b""
        if not line:
            raise SideFailed(self._last_words())
        found: dict[str, Any] = json.loads(line)
        return found

    def _has_answered(self) -> bool:
        """Is there something to read, within the time limit and the life of the process?

        The end of its output does not show its death: workers that it leaves behind keep the output open.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            if select.select([self._process.stdout], [], [], 0.5)[0]:
                return True
            if self._process.poll() is not None:
                return False
        self._goodbye = 0.0
        return False

    def _last_words(self) -> str:
        self._stderr.seek(0)
        lines = [line.strip() for line in self._stderr.read().splitlines() if line.strip()]
        with contextlib.suppress(subprocess.TimeoutExpired):  # its output ends a moment before the process does
            self._process.wait(1)
        end = ended(self._process.returncode, self._patience)
        return f"{lines[-1]} ({end})" if lines else end

    def hurry(self) -> None:
        """Ctrl-C was pressed: close() will not wait."""
        self._goodbye = 0.0

    def close(self) -> None:
        """End it, and everything it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(self._goodbye)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdout.close()
        self._stderr.close()


def ended(code: int | None, patience: float) -> str:
    """In words, what became of a process that gave no answer.

    >>> ended(None, 60), ended(1, 60), ended(-9, 60)
    ('no answer in 60 s', 'exit code 1', 'killed by SIGKILL')
    """
    if code is None:
        return f"no answer in {patience:g} s"
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
