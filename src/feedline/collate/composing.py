"""Which field is collated in which way.

Takes: a mapping of fields to collators, a tuple of them by place, or a single one for whole samples. Gives: one
collator for samples of that shape.
Promises: fields that are not named are collated by default; a sample without a named field is an error with field and
dataset index; the samples' containers keep their types, as in default collation.
Not its job: how any one field is collated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from feedline.collate.collator import Collator
from feedline.collate.default import field_name, like_mapping, like_sequence
from feedline.collate.making import Making
from feedline.errors import CollateError, CollateTypeError, OptionError, OptionTypeError, add_note
from feedline.errors.counting import counted


@dataclass(frozen=True, repr=False)
class Stack(Collator):
    """Default collation."""

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The stacked values, in the slot."""
        return making.arrays.stack(values, making, path)

    def __repr__(self) -> str:
        return "stack"


@dataclass(frozen=True, repr=False)
class Keep(Collator):
    """A list of the values."""

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The values as they are, but in memory of their own."""
        return making.own(list(values))

    def __repr__(self) -> str:
        return "keep"


stack = Stack()
"""Collate by default.

>>> stack([1, 2])
array([1, 2])
"""
keep = Keep()
"""Leave the field as it is: a list with an entry for each sample.

>>> keep([[1], [2, 3]])
[[1], [2, 3]]
"""


@dataclass(frozen=True)
class Function(Collator):
    """A user's function, for one field."""

    function: Callable[[list[Any]], Any]

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The function's result; it shares memory with nothing else."""
        try:
            return making.own(self.function(list(values)))
        except Exception as error:
            add_note(error, f"feedline: raised by {self.function!r}, which collates {field_name(path)}")
            raise


@dataclass(frozen=True)
class Fields(Collator):
    """For mappings, named tuples and dataclasses: a collator for some of their fields."""

    ways: dict[Any, Collator]

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """A batch of the first sample's type."""
        names = _names(values[0])
        if names is None:
            raise CollateTypeError(
                f"{making.where(path, 0)} is a {type(values[0]).__qualname__}, but collate names fields of it "
                f"({_listed(self.ways)}). Give a tuple for samples that are tuples: collate=(…, …)."
            )
        for name in self.ways:
            if name not in names:
                raise CollateError(
                    f"collate names {field_name(f'{path}.{name}')}, but {making.where(path, 0)} has only "
                    f"{_listed(names)}"
                )
        batch = {name: self._one(name, values, making, path) for name in names}
        return _like(values[0], batch)

    def _one(self, name: Any, values: Sequence[Any], making: Making, path: str) -> Any:
        column = []
        for position, value in enumerate(values):
            try:
                column.append(value[name] if isinstance(value, Mapping) else getattr(value, name))
            except (KeyError, AttributeError, TypeError):
                raise CollateError(
                    f"{making.where(path, position)} has no field {name!r}, which the first sample has"
                ) from None
        return self.ways.get(name, stack).into(column, making, f"{path}.{name}")


@dataclass(frozen=True)
class Places(Collator):
    """For tuples and lists: a collator for each of their places."""

    ways: tuple[Collator, ...]

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """A batch of the first sample's type."""
        for position, value in enumerate(values):
            if not isinstance(value, Sequence) or isinstance(value, (str, bytes)) or len(value) != len(self.ways):
                raise CollateError(
                    f"{making.where(path, position)} is {_shape_of(value)}, but collate has "
                    f"{counted(len(self.ways), 'entry')}"
                )
        columns = [
            way.into(column, making, f"{path}[{place}]")
            for place, (way, column) in enumerate(zip(self.ways, zip(*values, strict=True), strict=True))
        ]
        first = values[0]
        return type(first)(*columns) if hasattr(first, "_fields") else like_sequence(first, columns)


@dataclass(frozen=True)
class compose(Collator):
    """A way to collate for each field: what `DataLoader(collate=…)` makes from its argument, for use anywhere.

    A mapping names fields (those left out are collated by default), a tuple goes by place, and both may be nested. A
    function may stand for a collator: it gets the list of that field's values.

    >>> from feedline.collate import pad
    >>> ways = compose({"tokens": pad(lengths=False), "boxes": keep, "name": max})
    >>> batch = ways([{"tokens": [5], "boxes": [1], "name": "a", "label": 3},
    ...               {"tokens": [6, 7], "boxes": [], "name": "b", "label": 4}])
    >>> batch["tokens"].data.tolist(), batch["boxes"], batch["name"], batch["label"]
    ([[5, 0], [6, 7]], [[1], []], 'b', array([3, 4]))
    """

    ways: Any
    _root: Collator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_root", way(self.ways, "collate"))

    def __hash__(self) -> int:
        return hash(type(self))  # its parts may be dicts

    def is_whole(self) -> bool:
        """True if its inner collator takes whole samples."""
        return self._root.is_whole()

    def make(self, samples: Sequence[Any], making: Making) -> Any:
        """The batch of whole samples."""
        return self._root.make(samples, making)

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The batch of one field."""
        return self._root.into(values, making, path)


def way(spec: Any, path: str) -> Collator:
    """The collator that `spec` means; `path` says where in the option it is."""
    check_called(spec, path)
    if isinstance(spec, Collator):
        if spec.is_whole() and path != "collate":
            name = type(spec).__name__
            raise OptionError(f"{path}: {name} collates whole samples, so it must be outermost: {name}({{…}})")
        return spec
    if isinstance(spec, Mapping):
        return Fields({name: way(inner, f"{path}[{name!r}]") for name, inner in spec.items()})
    if isinstance(spec, (tuple, list)):
        return Places(tuple(way(inner, f"{path}[{place}]") for place, inner in enumerate(spec)))
    if callable(spec):
        return Function(spec)
    raise OptionTypeError(
        f"{path} must be a way to collate (stack, pad(…), keep, a function), or a mapping or tuple of them; got "
        f"{spec!r}"
    )


def check_called(spec: Any, path: str) -> None:
    """Refuse a collator's class that was not called: it is not yet a collator."""
    if isinstance(spec, type) and issubclass(spec, Collator):
        name = spec.__name__
        raise OptionTypeError(f"{path} is the function {name} itself; call it: {name}(…)")


def check_collate(collate: Any, collate_fn: Any, composed: type[compose] = compose) -> Any:
    """A loader's collate_fn, from its options `collate` and `collate_fn`."""
    check_called(collate_fn, "collate_fn")
    if collate is None:
        return collate_fn
    if collate_fn is not None:
        raise OptionError("collate and collate_fn both say how samples become a batch: leave one of them out")
    return composed(collate)


def _names(sample: Any) -> list[Any] | None:
    if isinstance(sample, Mapping):
        return list(sample)
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return list(sample._fields)
    if is_dataclass(sample) and not isinstance(sample, type):
        return [each.name for each in fields(sample) if hasattr(sample, each.name)]
    return None


def _like(first: Any, batch: dict[Any, Any]) -> Any:
    if isinstance(first, Mapping):
        return like_mapping(first, batch)
    if isinstance(first, tuple):
        return type(first)(*batch.values())
    made = object.__new__(type(first))
    for name, value in batch.items():
        object.__setattr__(made, name, value)  # works for frozen classes, and does not run __post_init__ on arrays
    return made


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _shape_of(value: Any) -> str:
    kind = f"a {type(value).__qualname__}"
    return f"{kind} of {len(value)}" if isinstance(value, (tuple, list)) else kind
