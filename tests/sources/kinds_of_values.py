"""Values that a dataset may hold or name, each in two forms that must be told apart; also run in other processes."""

from __future__ import annotations

import json
from typing import Any

from feedline.sources.samples.identity import identity_of

BEFORE = """
import abc, collections, dataclasses, datetime, decimal, enum, functools, logging, operator, re, struct, threading
import types, typing, weakref
import numpy as np

class Add:
    def __init__(self, by): self.by = by
    def do(self, x): return x + self.by
class Slotted:
    __slots__ = ("by", "__weakref__")
    def __init__(self, by): self.by = by
class Tagged(np.ndarray):
    tag = 0
class TaggedBySlot(np.ndarray):
    __slots__ = ("tag",)
class Names(set):
    pass
class Abstract(abc.ABC):
    by = VALUE
class Typed(typing.NamedTuple):
    by: int = VALUE
class Filled(typing.Protocol):
    by = VALUE

class Remade:
    def __reduce__(self): return remade, ()
def remade(by=VALUE): return Remade()
def tagged(kind, tag):
    array = np.zeros(2).view(kind)
    array.tag = tag
    return array
def in_thread(by):
    found = threading.local()
    found.by = by
    return found
def dispatched(by):
    one = functools.singledispatch(lambda x: x)
    one.register(int, lambda x: x + by)
    return one
"""

VALUES = {
    "a pattern": "re.compile('VALUE')",
    "its flags": "re.compile('a', (0, re.I, re.M)[VALUE])",
    "a ufunc": "(np.cos, np.sin, np.tan)[VALUE]",
    "a method of a dict": "{'a': VALUE}.get",
    "another method": "({}.get, {}.pop, {}.update)[VALUE]",
    "a method of a text": "'VALUE'.join",
    "a method of an array": "np.array([VALUE]).take",
    "a method of numbers": "VALUE .__add__",
    "a method of a class": "(dict, dict, collections.OrderedDict)[VALUE].fromkeys",
    "a method that is bound": "Add(VALUE).do",
    "a function over many": "np.vectorize({0: VALUE}.get)",
    "a function of C": "(len, max, min)[VALUE]",
    "a mask": "np.ma.array([1., 2.], mask=[VALUE == 1, VALUE == 2])",
    "an attribute of an array": "tagged(Tagged, VALUE)",
    "a slot of an array": "tagged(TaggedBySlot, VALUE)",
    "metadata of an array's type": "np.zeros(1, np.dtype('i4', metadata={'by': VALUE}))",
    "a view": "memoryview(b'VALUE')",
    "a mapping that is only read": "types.MappingProxyType({'a': VALUE})",
    "a partial function": "functools.partial(int, base=VALUE)",
    "a kind of partial function": "type('P', (functools.partial,), {'__call__': lambda self: VALUE})(int)",
    "a getter": "operator.itemgetter(VALUE)",
    "a caller": "operator.methodcaller('a', VALUE)",
    "a form of bytes": "struct.Struct('VALUEi')",
    "a weak reference": "(weakref.ref(Abstract), VALUE)[:1]",
    "a choice": "enum.Enum('Color', {'RED': VALUE}).RED",
    "flags": "enum.IntFlag('Color', {'RED': 1, 'BLUE': 2})(VALUE)",
    "a set": "{'a', 'b', 'c', VALUE}",
    "a kind of set": "Names({'a', 'b', 'c', VALUE})",
    "a thread's own": "in_thread(VALUE)",
    "a closure": "(lambda by: lambda x: x + by)(VALUE)",
    "a default": "lambda x, by=VALUE: x",
    "a default by name": "lambda x, *, by=VALUE: x",
    "a class": "type('K', (), {'by': VALUE})",
    "a class of no module": "exec('class K: by = VALUE', made := {}) or made['K']",
    "a class's own": "Abstract",
    "a named tuple": "Typed",
    "a protocol": "Filled",
    "a class of a class": "type('Meta', (type,), {'__getattr__': lambda cls, name: VALUE})('K', (), {})",
    "a special method that is no function": "type('K', (), {'__call__': functools.partial(max, VALUE)})()",
    "a property": "type('K', (), {'by': property(lambda self: VALUE)})()",
    "slots": "Slotted(VALUE)",
    "how it is made anew": "Remade()",
    "a cached function": "functools.lru_cache(lambda x: x + VALUE)",
    "a function by type": "dispatched(VALUE)",
    "a data class": "dataclasses.make_dataclass('D', ['x'])(VALUE)",
    "a date": "datetime.date(2026, 1, VALUE)",
    "a decimal": "decimal.Decimal(VALUE)",
    "a counter": "collections.Counter(a=VALUE)",
    "a default dict": "collections.defaultdict(lambda: VALUE)",
    "a queue": "collections.deque([VALUE])",
    "a range": "range(VALUE)",
    "a slice": "slice(VALUE)",
    "a lock in it": "(threading.Lock(), threading.RLock(), threading.Event(), VALUE)",
    "nothing of note": "(object(), ..., NotImplemented, logging.getLogger('a'), list[int] | None, VALUE)",
}


class Holding:
    def __init__(self, held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return self.held


def identities(what: str, value: int) -> tuple[str, str]:
    """Of a dataset that holds it, and of one whose code names it as a global variable."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = f"{BEFORE}\nthing = {VALUES[what]}\ndef read(): return thing\n"
    exec(code.replace("VALUE", str(value)), names)
    return identity_of(Holding(names["thing"])), identity_of(Holding(names["read"]))


def tell_all() -> None:
    print(json.dumps({what: identities(what, 1) for what in VALUES}))
