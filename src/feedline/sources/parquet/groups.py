"""Several Parquet or Arrow files as one list of groups of rows.

Takes: files, the requested columns and filters. Gives: `Groups`: the list of groups, and the rows of each.
Promises: all files have the requested columns with the same types, or an error names the file that does not; groups
that the files' statistics rule out are not listed. It can be pickled; files are opened where it is used, few at a time,
and again after forks.
Not its job: decoding (opening, columns), caching, order.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from feedline.datasets import IntArray
from feedline.errors import OptionError, OptionTypeError, SourceError
from feedline.errors.missing_packages import extra
from feedline.sources.located import locate
from feedline.sources.parquet.opening import GroupFile, open_file

OPEN = 16
"""Files that a process keeps open: a shuffle window rarely has more, and the system's limit is 1024."""
ROW = "__feedline_row__"
_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")


class Group(NamedTuple):
    """A group of rows."""

    file: int
    number: int
    rows: int
    first: int
    """The number of its first row in the file."""


class Groups:
    """The groups of all files, and how to read them."""

    def __init__(self, urls: Any, columns: Iterable[str] | None, filters: Any) -> None:
        extra("pyarrow", "arrow", "ParquetDataset")
        self.files = locate(urls, "Parquet files")
        self.filters = _checked(filters)
        self._opened: OrderedDict[int, GroupFile] = OrderedDict()
        self._known: dict[int, str] = {}
        self._pid = os.getpid()
        first = self.file(0)
        self.columns = _names("columns", columns, first.schema, self.files[0].url)
        tested = sorted({test[0] for tests in self.filters or [] for test in tests})
        self._needed = list(dict.fromkeys([*self.columns, *_names("filters", tested, first.schema, self.files[0].url)]))
        self._tested = tested
        self._check_filters(first.schema)
        self.list = [group for number in range(len(self.files)) for group in self._of(number, first.schema)]

    def _of(self, number: int, schema: Any) -> Iterator[Group]:
        file = self.file(number)
        self._check_schema(number, schema, file.schema)
        self._known[number] = self._looks(file)
        wanted = set(range(len(file.sizes)) if self.filters is None else file.candidates(self.filters))
        firsts = np.cumsum([0, *file.sizes]).tolist()
        for group in sorted(wanted):
            if file.sizes[group]:
                yield Group(number, group, file.sizes[group], firsts[group])

    def _check_filters(self, schema: Any) -> None:
        if self.filters is None:
            return
        try:
            self._passed(schema.empty_table(), np.empty(0, np.int64))
        except Exception as error:  # pyarrow has several errors for "a text cannot be compared with a number"
            kinds = ", ".join(f"{name} is {schema.field(name).type}" for name in self._tested)
            raise OptionError(f"filters do not fit the columns ({kinds}): {error}") from error

    def _check_schema(self, number: int, first: Any, other: Any) -> None:
        for name in self._needed:
            if name not in other.names or other.field(name).type != first.field(name).type:
                what = (
                    f"has it as {other.field(name).type}" if name in other.names else f"has {_some(other.names)} only"
                )
                raise SourceError(
                    f"the column {name!r} differs between files: {self.files[0].url} has it as "
                    f"{first.field(name).type}, and {self.files[number].url} {what}. Choose other columns=, or write "
                    "the files with the same types"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": OrderedDict(), "_pid": 0}

    def file(self, number: int) -> GroupFile:
        """A file, opened in this process."""
        if self._pid != os.getpid():
            self._opened, self._pid = OrderedDict(), os.getpid()
        if number not in self._opened:
            file = open_file(self.files[number])
            if number in self._known and self._known[number] != self._looks(file):
                raise SourceError(
                    f"{self.files[number].url}: the file has changed since it was opened: it has other columns or "
                    "groups of rows. Make the dataset again"
                )
            self._opened[number] = file
        self._opened.move_to_end(number)
        while len(self._opened) > OPEN:
            self._opened.popitem(last=False)
        return self._opened[number]

    def _looks(self, file: GroupFile) -> str:
        """What must be the same when a file is opened again, in few bytes."""
        kinds = [str(file.schema.field(name).type) if name in file.schema.names else "" for name in self._needed]
        return blake2b(repr((file.sizes, kinds)).encode(), digest_size=8).hexdigest()

    def read(self, group: Group) -> Any:
        """All rows of a group, as a table."""
        return self.file(group.file).read(group.number, self.columns)

    def slices(self, group: Group) -> Iterator[tuple[Any, IntArray]]:
        """The rows of a group that pass the filters, a few at a time, and the number of each in the group."""
        at = 0
        for table in self.file(group.file).slices(group.number, self._needed):
            numbers = np.arange(at, at + table.num_rows, dtype=np.int64)
            at += table.num_rows
            yield self._passed(table, numbers)

    def passing(self, group: Group) -> IntArray:
        """The numbers of the rows in the group that pass the filters; reads only the columns that are tested."""
        numbers = np.arange(group.rows, dtype=np.int64)
        return self._passed(self.file(group.file).read(group.number, self._tested), numbers)[1]

    def _passed(self, table: Any, numbers: IntArray) -> tuple[Any, IntArray]:
        if self.filters is None:
            return table, numbers
        arrow = extra("pyarrow", "arrow", "ParquetDataset")
        expression = extra("pyarrow.parquet", "arrow", "ParquetDataset").filters_to_expression(self.filters)
        kept = table.append_column(ROW, arrow.array(numbers)).filter(expression)
        chosen = [name for name in self.columns if name in kept.column_names]
        return kept.select(chosen), kept.column(ROW).to_numpy()

    def where(self, group: Group) -> str:
        """The name of a group for messages."""
        return f"{self.files[group.file].url}: rows {group.first} to {group.first + group.rows - 1}"


def _names(option: str, wanted: Iterable[str] | None, schema: Any, url: str) -> list[str]:
    if wanted is None:
        wanted = list(schema.names)
        _check_single(option, wanted, schema, url)
        return wanted
    if isinstance(wanted, str):
        raise OptionTypeError(f"{option} must be a list of names; got the text {wanted!r}: pass [{wanted!r}]")
    names = list(dict.fromkeys(wanted))
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise OptionError(
            f"{option}: there is no column {', '.join(map(repr, missing))} in {url}; it has {_some(schema.names)}"
        )
    if not names and option == "columns":
        raise OptionError("columns is empty: name at least one")
    _check_single(option, names, schema, url)
    return names


def _check_single(option: str, names: list[str], schema: Any, url: str) -> None:
    twice = [name for name in dict.fromkeys(names) if schema.names.count(name) > 1]
    if twice:
        raise OptionError(
            f"{option}: {url} has several columns with the name {', '.join(map(repr, twice))}; choose others with "
            "columns=[…]"
        )


def _some(names: list[str], most: int = 30) -> str:
    return ", ".join(names[:most]) + (f", … ({len(names)} in all)" if len(names) > most else "")


def _checked(filters: Any) -> list[list[tuple[str, str, Any]]] | None:
    """All tests of one list must hold: (column, operator, value); of a list of such lists, one list must hold."""
    if filters is None:
        return None
    if not isinstance(filters, list | tuple) or not filters:
        raise OptionTypeError(f"filters must be a list such as [('label', '=', 3)]; got {filters!r:.100}")
    either = filters if isinstance(filters[0], list) else [filters]
    for tests in either:
        for test in tests:
            if not (isinstance(test, tuple) and len(test) == 3 and isinstance(test[0], str)):
                raise OptionTypeError(f"filters must hold (column, operator, value); got {test!r:.100}")
            if test[1] not in _OPERATORS:
                raise OptionError(f"filters: the operator must be one of {' '.join(_OPERATORS)}; got {test[1]!r}")
    return [list(tests) for tests in either]
