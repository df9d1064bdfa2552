"""Asking an object of the user's for something that it may not have, and may fail to say.

Takes: any object. Gives: an attribute, or what stands for none. Promises: whatever the object does when it is asked (a
`__getattr__` that raises KeyError, a property that fails), it does not reach the user's loop: the interest is ours.
Not its job: methods that the user's contract with us says we call.
"""

from __future__ import annotations

from typing import Any

_NOTHING = object()


def ask(thing: Any, name: str, default: Any = None) -> Any:
    """The attribute; `default` if there is none, or it cannot be had.

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
    """Can the attribute be had?

    >>> has([], "append"), has([], "add")
    (True, False)
    """
    return ask(thing, name, _NOTHING) is not _NOTHING
