"""Has a stream asked for its rank and the number of ranks? Then it divides itself among them.

Takes: the stream's code, while it runs. Gives: whether it asked for its rank, and for the number of ranks.
Promises: no object of the user or a framework is changed. A profile function sees the calls of one thread while a
stream gives its first batch (at most 200,000 calls and returns, and none if another profiler is active).
Not its job: which rank this is (this_rank), what to do about it (workers.rank_sharing).

It sees questions to torch.distributed, JAX, mpi4py, launchers' variables, and our own sources. It does not see
questions asked before the stream is opened, or in another thread. JAX stores its number of processes and needs no call
to give it: if a stream asks JAX for both numbers, only the question for its rank is seen.
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
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # before SLURM, because sbatch or srun may have started mpirun
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # srun
    ("SLURM_PROCID", "SLURM_NTASKS"),  # set by hand; in a job this is what sbatch was asked for (this_rank)
)
"""Pairs of variables in which a launcher gives the rank and the number of ranks. The first pair that is set counts."""
MOST_EVENTS = 200_000
"""How many calls and returns are watched: a tenth of a second on a free CPU. Later questions are not seen."""
_FUNCTIONS = {"get_rank": 0, "get_world_size": 1, "process_index": 0, "process_count": 1}
_METHODS = {"Get_rank": 0, "Get_size": 1}
_LIBRARIES = ("torch.distributed", "jax")
_VARIABLES = {name: kind for pair in VARIABLES for kind, name in enumerate(pair)}
_LOOKUP = type(os.environ).__getitem__.__code__
_WALK = type(os.environ).__iter__.__code__


class Questions:
    """The questions asked while this was watching.

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
        self._walked: deque[str] = deque()  # names from an iteration over all variables, looked up next

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
            if profiles and sys.getprofile() == self._see:  # else user code has started a profiler
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
        """Copying all variables (for a child process) is no question, and neither is a lookup during an import."""
        if self._walked and self._walked[0] == name:
            self._walked.popleft()
            return
        self._walked.clear()
        if name in _VARIABLES and not _is_importing(frame):
            self._note(_VARIABLES[name])

    def _note(self, kind: int) -> None:
        self.rank, self.count = self.rank or kind == 0, self.count or kind == 1


def _is_librarys(frame: FrameType | None) -> bool:
    """Is the call from a library itself? JAX asks itself whenever it computes, even for a stream without ranks."""
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
    """One of our own sources divides itself among this many ranks."""
    if ranks > 1 and _thread.questions is not None:
        _thread.questions.rank = _thread.questions.count = True
