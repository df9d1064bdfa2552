"""Finds the module globals that an object's code names, without running that code.

Takes: objects, such as a dataset. Gives: each global that is named by a method of their classes or by a function they
hold, with its path (`train.rng`). Named functions of the same module are searched too (`augment(image)`).
Promises: it calls, imports and changes nothing; it never fails; it searches at most `MOST` functions.
Not its job: what an object holds (walking), what the results mean (held_generators).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from feedline.supervise.walking import methods_of, walk

MOST = 500


def named_globals(*roots: Any) -> Iterator[tuple[str, Any]]:
    """The globals, with their paths; each once.

    >>> import random
    >>> rng = random.Random(0)
    >>> class Data:
    ...     def __getitem__(self, index): return rng.random()
    >>> [path.rpartition(".")[2] for path, value in named_globals(Data()) if value is rng]
    ['rng']
    """
    waiting = _functions_of(roots)
    seen: set[int] = set()
    given: set[tuple[int, str]] = set()
    for function in waiting:  # the list grows during the loop
        if id(function) in seen or len(seen) >= MOST:
            continue
        seen.add(id(function))
        waiting.extend(_enclosed(function))
        known: dict[str, Any] = function.__globals__
        for name in _names_in(function.__code__):
            value = dict.get(known, name)
            if value is None or (id(known), name) in given:
                continue
            given.add((id(known), name))
            if type(value) is not FunctionType:
                yield f"{dict.get(known, '__name__', '')}.{name}", value
            elif value.__globals__ is known:
                waiting.append(value)


def _functions_of(roots: tuple[Any, ...]) -> list[FunctionType]:
    """The functions that the objects hold, and the methods of their classes."""
    found: list[FunctionType] = []

    def recognise(kind: type) -> Callable[[Any], Any] | None:
        found.extend(methods_of(kind))
        return _itself if kind is FunctionType else None

    for root in roots:
        found += [each.what for each in walk(root, "", recognise, through=True)]
    return found


def _itself(value: Any) -> Any:
    return value


def _enclosed(function: FunctionType) -> Iterator[FunctionType]:
    """Functions in the closure, such as one that a decorator has wrapped."""
    for cell in function.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # not set yet
            continue
        if type(inner) is FunctionType:
            yield inner


def _names_in(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes, including those in inner functions, lambdas and comprehensions."""
    yield from code.co_names
    for inner in code.co_consts:
        if type(inner) is CodeType:
            yield from _names_in(inner)
