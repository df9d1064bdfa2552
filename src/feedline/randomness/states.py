"""Where the global generators stand, for this thread.

Takes: nothing. Gives: a state of each of `random`, `numpy.random` and torch, to be compared with a later one.
Promises: nothing is drawn or changed. torch's generator, which threads share, is looked at in the main thread only.
Not its job: seeding, saving and restoring them (global_generators).
"""

from __future__ import annotations

import pickle
import random
import threading
from typing import Any

import numpy as np

from feedline.errors.foreign import ask
from feedline.machine import loaded_torch


def global_states() -> dict[str, Any]:
    """By the name of each generator: something that changes when it is drawn from.

    >>> before = global_states()
    >>> _ = random.random()
    >>> [name for name, state in global_states().items() if state != before[name]]
    ['random']
    """
    states: dict[str, Any] = {
        "random": random.getstate(),
        "numpy.random": pickle.dumps(np.random.get_state(legacy=False)),
    }
    generator = loaded_torch.default_generator()
    if generator is not None and threading.current_thread() is threading.main_thread():
        state = ask(generator, "get_state")
        states["torch"] = None if state is None else state().numpy().tobytes()
    return states
