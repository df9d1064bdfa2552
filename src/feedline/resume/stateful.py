"""What an object of the user's says of its own place, by torchdata's convention: `state_dict`, `load_state_dict`.

Takes: a dataset, an iterator, a sampler. Gives: its state as bytes, which nobody can change; or why there is none.
Promises: asking never fails. A state may be anything that pickles. What cannot be asked (its `state_dict` raises, wants
arguments, returns what does not pickle) is named, and is no error: its owner is read again from the beginning.
Not its job: what a loader's state looks like (state), what follows if there is none (source, replay).
"""

from __future__ import annotations

import pickle
from typing import Any

from feedline.errors.foreign import ask
from feedline.messages.outcome import error_line
from feedline.resume.state import Unsaid


def is_stateful(thing: Any) -> bool:
    """Does it keep its own place?"""
    return callable(ask(thing, "state_dict")) and callable(ask(thing, "load_state_dict"))


def saved(thing: Any) -> bytes | Unsaid:
    """Its state as of now, or why there is none.

    >>> class Streaming:
    ...     def state_dict(self, num_samples, from_beginning): return {}
    >>> saved(Streaming())[:36]
    'Streaming.state_dict() failed: TypeE'
    """
    name = type(thing).__name__
    try:
        state = thing.state_dict()
    except Exception as error:
        return Unsaid(f"{name}.state_dict() failed: {error_line(error)}")
    try:
        return pickle.dumps(state)
    except Exception as error:  # what pickling calls is the user's, too
        return Unsaid(f"{name}.state_dict() gave what cannot be pickled: {error_line(error)}")


def load(thing: Any, state: bytes) -> None:
    """Have it go on where it said this; what it raises is the user's to see."""
    thing.load_state_dict(pickle.loads(state))
