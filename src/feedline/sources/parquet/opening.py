"""One Parquet or Arrow file, as groups of rows: row groups, or record batches.

Takes: a `Located` file. Gives: a `GroupFile`: its schema, the number of rows of each group, a group's rows as a table,
the groups in which a filter may find something.
Promises: what cannot be read is a `SourceError` that names file and group. Files in a folder are opened by their path,
Arrow files in a folder are mapped, and others are read by ranges through their place.
Not its job: several files together (groups), rows as samples (columns).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from math import inf
from typing import Any, Protocol

from feedline.errors import SourceError
from feedline.errors.missing_packages import extra
from feedline.machine.worker_info import is_one_of_many
from feedline.sources.located import Located
from feedline.sources.places import Folder

PARQUET, ARROW = b"PAR1", b"ARROW1"
SLICE = 4096
"""Rows of a stream decoded at a time: more was no faster (benchmarks/parquet_rows.py)."""


class GroupFile(Protocol):
    """A file that is made of groups of rows."""

    schema: Any
    sizes: list[int]

    def read(self, group: int, columns: list[str]) -> Any:
        """A group's rows, as a table of those columns."""

    def slices(self, group: int, columns: list[str]) -> Iterator[Any]:
        """The same in several tables of a few thousand rows."""

    def candidates(self, filters: Any) -> list[int]:
        """The groups in which the filters may find something, by the file's statistics."""


def open_file(file: Located) -> GroupFile:
    """A file of either kind, recognised by its first bytes."""
    head = file.read(0, 6)
    if head.startswith(ARROW):
        return _ArrowFile(file)
    if head.startswith(PARQUET):
        return _ParquetFile(file)
    what = "is empty" if not head else f"begins with {head!r}"
    raise SourceError(f"{file.url} is neither a Parquet nor an Arrow file: it {what}")


class _ParquetFile:
    def __init__(self, file: Located) -> None:
        self._url = file.url
        self._parquet = extra("pyarrow.parquet", "arrow", "ParquetDataset")
        with _named(self._url, "cannot be opened as a Parquet file; it is damaged or not complete"):
            self._source = _source(file)
            self._file = self._parquet.ParquetFile(self._source, pre_buffer=not isinstance(file.place, Folder))
            self.schema = self._file.schema_arrow
            about = self._file.metadata
            self.sizes: list[int] = [about.row_group(number).num_rows for number in range(about.num_row_groups)]

    def read(self, group: int, columns: list[str]) -> Any:
        with _named(self._url, f"row group {group} cannot be read"):
            table = self._file.read_row_group(group, columns=columns, use_threads=not is_one_of_many())
            return table.select(columns)  # pyarrow also uses "a.b" for a field of the column "a"

    def slices(self, group: int, columns: list[str]) -> Iterator[Any]:
        arrow = extra("pyarrow", "arrow", "ParquetStream")
        with _named(self._url, f"row group {group} cannot be read"):
            options = {"row_groups": [group], "columns": columns, "use_threads": not is_one_of_many()}
            for batch in self._file.iter_batches(SLICE, **options):
                yield arrow.Table.from_batches([batch]).select(columns)

    def candidates(self, filters: Any) -> list[int]:
        dataset = extra("pyarrow.dataset", "arrow", "ParquetDataset")
        expression = self._parquet.filters_to_expression(filters)
        with _named(self._url, "its statistics cannot be read"):
            fragment = dataset.ParquetFileFormat().make_fragment(self._source)
            return sorted(group.id for group in fragment.subset(filter=expression).row_groups)


class _ArrowFile:
    def __init__(self, file: Located) -> None:
        self._url = file.url
        self._arrow = extra("pyarrow", "arrow", "ParquetDataset")
        self._ipc = extra("pyarrow.ipc", "arrow", "ParquetDataset")
        with _named(self._url, "cannot be opened as an Arrow file; it is damaged or not complete"):
            folder = file.place
            self._source = (
                self._arrow.memory_map(str(folder.path / file.name)) if isinstance(folder, Folder) else _source(file)
            )
            whole = self._ipc.open_file(self._source)
            self.schema = whole.schema
            self._fields: tuple[tuple[int, ...], Any] = ((), whole)
            some = (_shortest(self.schema),)
            numbers = range(whole.num_record_batches)
            self.sizes: list[int] = [self._batch(number, some).num_rows for number in numbers]

    def read(self, group: int, columns: list[str]) -> Any:
        fields = tuple(sorted(self.schema.get_field_index(name) for name in columns))
        return self._arrow.Table.from_batches([self._batch(group, fields)]).select(columns)

    def slices(self, group: int, columns: list[str]) -> Iterator[Any]:
        table = self.read(group, columns)
        return (table.slice(start, SLICE) for start in range(0, table.num_rows, SLICE))

    def candidates(self, filters: Any) -> list[int]:
        return list(range(len(self.sizes)))

    def _batch(self, group: int, fields: tuple[int, ...]) -> Any:
        """The batch with those fields only: the others are neither read nor decompressed."""
        with _named(self._url, f"record batch {group} cannot be read"):
            kept, reader = self._fields
            if kept != fields:
                options = self._ipc.IpcReadOptions(included_fields=list(fields))
                reader = self._ipc.open_file(self._source, options=options)
                self._fields = fields, reader
            return reader.get_batch(group)


def _shortest(schema: Any) -> int:
    """The field that gives the number of rows with the fewest bytes; 0 if there is none."""

    def bits(field: int) -> float:
        try:
            return int(schema.field(field).type.bit_width)
        except ValueError:  # texts and lists have no fixed width
            return inf

    return min(range(len(schema)), key=bits, default=0)


class _named:
    """Turns pyarrow's errors into errors of a file."""

    def __init__(self, url: str, what: str) -> None:
        self._said = f"{url}: {what}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # pyarrow's exceptions are subclasses of these.
        if isinstance(error, (ValueError, OSError, KeyError, NotImplementedError, MemoryError)):
            raise SourceError(f"{self._said}: {type(error).__name__}: {str(error).strip()[:500]}") from error


def _source(file: Located) -> Any:
    arrow = extra("pyarrow", "arrow", "ParquetDataset")
    if isinstance(file.place, Folder):
        return arrow.OSFile(str(file.place.path / file.name), "r")
    return arrow.PythonFile(PlaceFile(file), "r")


class PlaceFile(io.RawIOBase):
    """A file in a place as a Python file object, from which pyarrow can read."""

    def __init__(self, file: Located) -> None:
        super().__init__()
        self._file = file
        self._size = file.size()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """The size in bytes; pyarrow asks for it."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        end = self._size if count is None or count < 0 else self._at + count
        data = self._file.read(self._at, end) if end > self._at else b""
        self._at += len(data)
        return data
