"""Has a stream asked which of several ranks it is read on? Then it shares itself out over them.

Takes: the stream's code, while it runs. Gives: whether it asked for its rank, and for the number of ranks.
Promises: nothing of the user's, or of a framework's, is changed. A profile function sees the calls of one thread while
a stream gives its first batch (200,000 calls and returns at most, and none where somebody else profiles).
Not its job: which rank this is (world), what follows from it (workers.rank_sharing).

Seen are torch.distributed, JAX, mpi4py, the variables that launchers set, and our own sources. Whoever asks before the
stream is opened, or in a thread of its own, is not seen. JAX remembers how many processes it has, without a call: of a
stream that asks it for both, only the question for its rank is seen.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

VARIABLES = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Lightning, Accelerate
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # before SLURM: mpirun may have been started by sbatch or srun
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # srun
    ("SLURM_PROCID", "SLURM_NTASKS"),  # set by hand; in a job this is what sbatch was asked for (world)
)
"""In which a launcher says which rank a process is, and how many there are. The first pair that is set counts."""
MOST_EVENTS = 200_000
"""Calls and returns looked at: a tenth of a second on a free CPU. Who asks later is not seen."""
_FUNCTIONS = {"get_rank": 0, "get_world_size": 1, "process_index": 0, "process_count": 1}
_METHODS = {"Get_rank": 0, "Get_size": 1}
_LIBRARIES = ("torch.distributed", "jax")
_VARIABLES = {name: kind for pair in VARIABLES for kind, name in enumerate(pair)}
_LOOKUP = type(os.environ).__getitem__.__code__
_WALK = type(os.environ).__iter__.__code__


class Questions:
    """What has been asked while it watched.

    >>> questions = Questions()
    >>> with questions.watched():
    ...     _ = os.environ.get("WORLD_SIZE")
    >>> questions.rank, questions.count
    (False, True)
    """

    def __init__(self) -> None:
        self.rank = False
        self.count = False
        self._left = MOST_EVENTS
        self._walked: deque[str] = deque()  # names of variables that somebody goes through, and will look up next

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch this thread."""
        before, _thread.questions = _thread.questions, self
        profiles = sys.getprofile() is None
        if profiles:
            sys.setprofile(self._see)
        try:
            yield
        finally:
            if profiles and sys.getprofile() == self._see:  # else the user's code has begun to profile
                sys.setprofile(None)
            _thread.questions = before

    def _see(self, frame: FrameType, event: str, arg: Any) -> None:
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
        elif event == "call":
            code = frame.f_code
            if code is _LOOKUP:
                self._look_up(frame.f_locals.get("key", ""), frame)
            elif code.co_name in _FUNCTIONS and _is_librarys(frame) and not _is_librarys(frame.f_back):
                self._note(_FUNCTIONS[code.co_name])
        elif event == "return" and frame.f_code is _WALK and isinstance(arg, str):
            self._walked.append(arg)
        elif event == "c_call" and (name := getattr(arg, "__name__", "")) in _METHODS:
            self._note(_METHODS[name])

    def _look_up(self, name: str, frame: FrameType) -> None:
        """To copy all variables, for a child process say, is no question; nor is what a library does at its import."""
        if self._walked and self._walked[0] == name:
            self._walked.popleft()
            return
        self._walked.clear()
        if name in _VARIABLES and not _is_importing(frame):
            self._note(_VARIABLES[name])

    def _note(self, kind: int) -> None:
        self.rank, self.count = self.rank or kind == 0, self.count or kind == 1


def _is_librarys(frame: FrameType | None) -> bool:
    """JAX asks itself whenever it computes, which a stream may do that knows nothing of ranks."""
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(_LIBRARIES)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class _Thread(threading.local):
    questions: Questions | None = None


_thread = _Thread()


def note_sharing(ranks: int) -> None:
    """Something of ours shares itself out over so many ranks."""
    if ranks > 1 and _thread.questions is not None:
        _thread.questions.rank = _thread.questions.count = True
