"""The state of a user's object, by torchdata's convention: `state_dict`, `load_state_dict`.

Takes: a dataset, an iterator, a sampler. Gives: its state as bytes, which nobody can change; or why there is none.
Promises: asking never fails. A state may be anything that can be pickled. If there is none (`state_dict` raises, needs
arguments, or returns what cannot be pickled), that is reported but is no error: the object is read again from the
beginning.
Not its job: what a loader's state looks like (state), what to do without one (stream_source, replay).
"""

from __future__ import annotations

import pickle
from typing import Any

from feedline.errors.foreign import ask
from feedline.messages.outcome import error_line
from feedline.resume.state import NoState


def is_stateful(thing: Any) -> bool:
    """Does it keep its own state?"""
    return callable(ask(thing, "state_dict")) and callable(ask(thing, "load_state_dict"))


def saved(thing: Any) -> bytes | NoState:
    """Its present state, or why there is none.

    >>> class Streaming:
    ...     def state_dict(self, num_samples, from_beginning): return {}
    >>> saved(Streaming())[:36]
    'Streaming.state_dict() failed: TypeE'
    """
    name = type(thing).__name__
    try:
        state = thing.state_dict()
    except Exception as error:
        return NoState(f"{name}.state_dict() failed: {error_line(error)}")
    try:
        return pickle.dumps(state)
    except Exception as error:  # pickling may call user code
        return NoState(f"the result of {name}.state_dict() cannot be pickled: {error_line(error)}")


def load(thing: Any, state: bytes) -> None:
    """Load a saved state into the object; its errors are passed on to the user."""
    thing.load_state_dict(pickle.loads(state))
