"""A dataset put back to what it was, but for what was set on it while nobody read it: an epoch's number, by the user.

Takes: a dataset, whenever reading stops and before it goes on; a copy of how it was. Gives: nothing, it changes them.
Promises: no code of the user's is run. A dataset, and what it holds in attributes, stay the objects they are: others
have them, too (a wrapper passes the epoch on). What is changed inside of a list or dict is not seen.
Not its job: when that is needed (parts).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from feedline.supervise.walking import class_attribute, own_attributes, own_slots, walk

MOST = 100
"""Objects that are looked at: 0.3 ms a look at most, and only where a state has been loaded."""

Held = Mapping[str, dict[str, Any]]
"""Of each object, by its path, the attributes."""


def held_by(dataset: Any) -> Held:
    """What it holds now, when nobody reads it for a while."""
    return {path: _held(each) for path, each in _objects(dataset).items()}


def repeat(left: Held, dataset: Any, copy: Any) -> None:
    """What has been set on it since it was left so is set in the copy, too."""
    changed = [
        (path, name, value)
        for path, each in (_objects(dataset) if left else {}).items()
        for name, value in _held(each).items()
        if path in left and left[path].get(name, _MISSING) is not value
    ]
    copies = _objects(copy) if changed else {}
    for path, name, value in changed:
        with contextlib.suppress(AttributeError, TypeError):  # it is made in another way
            object.__setattr__(copies.get(path), name, value)


def put_back(dataset: Any, copy: Any) -> None:
    """Have it as the copy is, which is nobody's afterwards."""
    objects, copies = _objects(dataset), _objects(copy)
    same = {id(each): objects[path] for path, each in copies.items() if type(objects.get(path)) is type(each)}
    for path, each in copies.items():
        if id(each) in same:
            _put(objects[path], {name: same.get(id(value), value) for name, value in _held(each).items()})


_MISSING = object()


def _put(value: Any, attributes: dict[str, Any]) -> None:
    for name in _held(value).keys() - attributes.keys():
        object.__delattr__(value, name)
    for name, each in attributes.items():
        object.__setattr__(value, name, each)


def _held(value: Any) -> dict[str, Any]:
    return {**own_slots(value), **own_attributes(value)}


def _objects(dataset: Any) -> dict[str, Any]:
    found = walk(dataset, "", _recognise, through=True, most=MOST)
    return {each.path: each.what for each in reversed(found)}


def _recognise(kind: type) -> Callable[[Any], Any] | None:
    can_hold = any(class_attribute(kind, name) is not None for name in ("__dict__", "__slots__"))
    return (lambda value: value) if can_hold else None
