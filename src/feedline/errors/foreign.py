"""Asking a user's object for an attribute that it may not have, or that may fail.

Takes: any object. Gives: an attribute, or a default. Promises: whatever the object does when it is asked (a
`__getattr__` that raises KeyError, a property that fails), no error reaches the user's loop: only we wanted to know.
Not its job: methods that the user has agreed to have called.
"""

from __future__ import annotations

from typing import Any

_NOTHING = object()


def ask(thing: Any, name: str, default: Any = None) -> Any:
    """The attribute; `default` if there is none, or if reading it fails.

    >>> class Batch(dict):
    ...     __getattr__ = dict.__getitem__
    >>> ask(Batch(x=1), "x"), ask(Batch(x=1), "nbytes"), ask(3, "real")
    (1, None, 3)
    """
    try:
        return getattr(thing, name, default)
    except Exception:
        return default


def has(thing: Any, name: str) -> bool:
    """Does the attribute exist, and can it be read?

    >>> has([], "append"), has([], "add")
    (True, False)
    """
    return ask(thing, name, _NOTHING) is not _NOTHING
