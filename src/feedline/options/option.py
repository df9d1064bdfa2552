"""An option, declared once, and the values of options.

Takes: classes whose body is a table: `batch_size: int | None = option(1, check, "A sentence.")`. Gives: their rows as
`Option` values; objects that have checked options as attributes.
Promises: a class derived from a table has its options as attributes that type checkers and editors know; the value is
looked up in the object itself or in its `options`.
Not its job: which options there are (table), what a value must be (single_values).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from inspect import Parameter
from typing import Any, TypeVar

REQUIRED = Parameter.empty
Check = Callable[[str, Any], Any]
"""Called with an option's name and the given value. It returns the value to use, or raises an `OptionError`."""
V = TypeVar("V")


class Option:
    """A row of the table."""

    name: str

    def __init__(self, default: Any, check: Check | None, doc: str, takes: str) -> None:
        self.default = default
        self.check = check
        """None: the code that takes the option checks it, and keeps its own form of it."""
        self.doc = doc
        self.takes = takes
        """Its type, as shown in signatures."""

    def __set_name__(self, table: type, name: str) -> None:
        self.name = name
        self.takes = self.takes or table.__annotations__[name]

    def __get__(self, owner: Any, kind: type) -> Any:
        """Called only if the object itself has no such value: an object's attributes come before those of its class."""
        if owner is None:
            return self
        options = vars(owner).get("options")
        if isinstance(options, Checked) and self.name in vars(options):
            return vars(options)[self.name]
        raise AttributeError(f"{kind.__name__} has no attribute {self.name!r}")

    def __repr__(self) -> str:
        return f"<option {self.name}: {self.doc}>"


def option(default: Any, check: Check | None, doc: str, takes: str = "") -> Any:
    """A row, in the body of a table. `takes` is its type in signatures, if another type is stored."""
    return Option(default, check, doc, takes)


def rows(table: Any) -> Mapping[str, Option]:
    """The options of a table and of its base classes.

    >>> class Plain:
    ...     size: int = option(1, None, "The size.")
    >>> class More(Plain):
    ...     size: int = option(2, None, "Another default.")
    ...     name: str = option("", None, "The name.")
    >>> [(row.name, row.takes, row.default) for row in rows(More).values()]
    [('size', 'int', 2), ('name', 'str', '')]
    """
    return _rows(table)


@cache
def _rows(table: Any) -> Mapping[str, Option]:
    found: dict[str, Option] = {}
    for each in table.__mro__:
        found |= {name: row for name, row in vars(each).items() if isinstance(row, Option) and name not in found}
    return found


def check_each(table: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Each option's value, checked by itself."""
    return {name: row.check(name, given[name]) for name, row in rows(table).items() if row.check is not None}


class Checked:
    """Checked options as read-only attributes; options that were not given have their defaults."""

    def __init__(self, **values: Any) -> None:
        usual = {name: row.default for name, row in rows(type(self)).items() if row.check is not None}
        vars(self).update(usual | values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} cannot be changed once the loader is made: make another loader")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def picked(kind: type[V], values: Mapping[str, Any], **settled: Any) -> V:
    """A dataclass's fields, or a table's options, taken from `values`; `settled` adds or replaces some of them."""
    return kind(**chosen(kind, values, **settled))


def chosen(kind: type, values: Mapping[str, Any], **settled: Any) -> dict[str, Any]:
    """The same as a dict."""
    names: tuple[str, ...] = _names(kind)
    return {**{name: values[name] for name in names if name in values}, **settled}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind)) if hasattr(kind, "__dataclass_fields__") else tuple(rows(kind))
