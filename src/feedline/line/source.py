"""The elements of a stream as its dataset gives them, one after the other, and where the dataset stands.

Takes: an iterable, and perhaps a record of where it stood. Gives: numbered elements; a record of where it stands now.
Promises: each element is read with its own number announced. One that keeps its own place by torchdata's convention
(`state_dict` and `load_state_dict` on what `iter()` gives, else on the iterable itself) goes on there, and nothing is
read again. A record is plain data and does not change afterwards; what `json` cannot write is named in it, and is an
error only for who wants to save it.
Not its job: sharing and batches (stream), the shuffle buffer (shuffled).

What a record holds: `read`, the elements read so far; `own`, whether this part was a share of the dataset's own (with
several parts); `next`, the number of the batch that comes next; `of`, whose state it is ("iterator" or "dataset");
`state`, that state as JSON; `shuffle`, what shuffled says of its buffer; `failures`, how many of the last elements
failed; or `problem`, why there is no state; or nothing but `ended`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from feedline.errors import StateError
from feedline.line.replay import is_stateful
from feedline.messages import error_line

Record = dict[str, Any]


class Source:
    """Elements, each read with its own number announced: `rng()` belongs to the element, not to its place in a batch.

    No generator: an iterator may raise for one element and go on with the next.

    >>> source = Source(iter("abc"), print)
    >>> next(source), next(source), source.number
    0
    1
    ('a', 'b', 1)
    """

    def __init__(
        self, elements: Iterator[Any], announce: Callable[[int], None], keeper: Any = None, read: int = 0
    ) -> None:
        self._elements = elements
        self._announce = announce
        self._keeper = keeper
        self.number = read - 1
        """Of the element read last."""
        self.died = False
        """Has it raised, and is one of those that cannot go on after an error?"""

    @classmethod
    def opened(cls, iterable: Any, announce: Callable[[int], None], record: Record | None = None) -> Source:
        """From its beginning, or from where a record says it stood."""
        of = record["of"] if record is not None else None
        if of == "dataset":
            _load(iterable, iterable, record)
        elements = iter(iterable)
        if of == "iterator":
            _load(elements, iterable, record)
        keeper = elements if is_stateful(elements) else iterable if is_stateful(iterable) else None
        return cls(elements, announce, keeper, 0 if record is None else record["read"])

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.number += 1
        self._announce(self.number)
        try:
            return next(self._elements)
        except StopIteration:
            raise
        except Exception:
            self.died = self.is_generator
            raise

    @property
    def is_generator(self) -> bool:
        """Is it one of those that cannot go on after an error?"""
        return isinstance(self._elements, GeneratorType)

    @property
    def of(self) -> str:
        """Who can say where it stands; empty if nobody can."""
        if self._keeper is None:
            return ""
        return "iterator" if self._keeper is self._elements else "dataset"

    def record(self) -> Record:
        """Where it stands."""
        found: Record = {"read": self.number + 1}
        if self._keeper is not None:
            found["of"] = self.of
            found |= _saved(self._keeper)
        return found


def _load(keeper: Any, iterable: Any, record: Any) -> None:
    if not is_stateful(keeper):
        raise StateError(
            f"the state was saved by the state_dict() of {type(iterable).__name__} or its iterator, which cannot load "
            "it now: continue with the code that saved it"
        )
    keeper.load_state_dict(json.loads(record["state"]))


def _saved(keeper: Any) -> Record:
    """Its state as JSON, which is a copy and travels as it is; or why there is none."""
    name = type(keeper).__name__
    try:
        state = keeper.state_dict()
    except Exception as error:  # whoever never saves need not care
        return {"problem": f"{name}.state_dict() failed: {error_line(error)}"}
    try:
        return {"state": json.dumps(state)}
    except (TypeError, ValueError, RecursionError) as error:
        return {"problem": f"{name}.state_dict() gave what json cannot write{_culprit(state)}: {error}"}


def _culprit(state: Any, path: str = "", depth: int = 0) -> str:
    """Where in a state the first thing lies that json cannot write.

    >>> _culprit({"at": 3, "files": [{"open": {1, 2}}]})
    " at ['files'][0]['open'] (a set)"
    """
    if depth < 20 and isinstance(state, (dict, list, tuple)):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            try:
                json.dumps({key: value} if isinstance(state, dict) else value)
            except (TypeError, ValueError, RecursionError):
                return _culprit(value, f"{path}[{key!r}]", depth + 1)
    return f" at {path} (a {type(state).__name__})" if path else ""
