"""Workers that are threads: what becomes of those that fail at once, and of those a fork has left behind."""

from __future__ import annotations

import os

import numpy as np
import pytest
from kinds import THREADS
from made_datasets import Numbers

from feedline import DataLoader, WorkerError


def interrupted(worker: int) -> None:
    raise KeyboardInterrupt


def test_a_thread_that_fails_before_its_first_task_says_so() -> None:
    with pytest.raises(TypeError, match="masked"):
        list(DataLoader(np.ma.array(np.arange(4)), 2, **THREADS))
    with pytest.raises(KeyboardInterrupt):
        list(DataLoader(Numbers(), worker_init_fn=interrupted, **THREADS))


def test_threads_of_a_forked_copy_are_refused() -> None:
    iterator = iter(DataLoader(Numbers(1000), **THREADS))
    next(iterator)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            next(iterator)
        except WorkerError:
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert os.read(reading, 100) == b"refused"
    os.close(reading)
