"""A list of Python records that many processes can read without copying it.

Takes: any iterable of picklable records (paths, labels, small dicts: a dataset's metadata).
Gives: a read-only sequence of them, held in two arrays: the pickles end to end, and where each begins.
Promises: reading changes no shared page, so forked workers stay small; pickled with protocol 5, both arrays
are sent out of band, so spawned workers can share one copy.
Not its job: sharing the arrays between processes (workers), or records that should be arrays.

Why a plain list grows in workers: reading a Python object writes its reference count, so the kernel copies the page.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np

T = TypeVar("T")


def _dumps(record: Any) -> bytes:
    return pickle.dumps(record, protocol=pickle.HIGHEST_PROTOCOL)


class SharedList(Sequence[T]):
    """A packed, read-only list. An index gives a new copy of the record; a slice gives a list of copies.

    `dumps` and `loads` turn a record into bytes and back; both must be picklable if the list is sent to workers. While
    it is built, only the result and one record are in memory.

    >>> records = SharedList({"path": f"{i}.jpg", "label": i % 10} for i in range(1000))
    >>> len(records), records[-1], [record["label"] for record in records[8:11]]
    (1000, {'path': '999.jpg', 'label': 9}, [8, 9, 0])
    >>> records.nbytes < 60_000
    True
    """

    def __init__(
        self,
        records: Iterable[T],
        *,
        dumps: Callable[[T], bytes] = _dumps,
        loads: Callable[[Any], T] = pickle.loads,
    ) -> None:
        # Both grow in place (realloc moves pages, not bytes) and are kept as they are: no second copy.
        data, offsets = bytearray(), array("q", [0])
        for number, record in enumerate(records):
            data += _packed(record, number, dumps)
            offsets.append(len(data))
        self._loads = loads
        self._data = np.frombuffer(data, dtype=np.uint8)
        self._offsets = np.frombuffer(offsets, dtype=np.int64)
        self._prepare()

    def _prepare(self) -> None:
        self._data.flags.writeable = False
        self._offsets.flags.writeable = False
        # Faster to index than the arrays that they view.
        self._bytes, self._places = self._data.data, self._offsets.data

    @property
    def nbytes(self) -> int:
        """The size of both arrays.

        >>> SharedList([None, None]).nbytes > 3 * 8
        True
        """
        return self._data.nbytes + self._offsets.nbytes

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._record(place) for place in range(len(self))[index]]
        try:
            return self._record(range(len(self))[index])
        except IndexError:
            if -len(self) <= index < len(self):
                raise  # an error of `loads`, about the record
            raise IndexError(f"index {index} is outside this SharedList of length {len(self)}") from None

    def __getitems__(self, indices: list[int]) -> list[T]:
        return [self[index] for index in indices]

    def __iter__(self) -> Iterator[T]:
        return (self._record(place) for place in range(len(self)))

    def __repr__(self) -> str:
        return f"SharedList({len(self)} records, {self.nbytes} bytes)"

    def _record(self, place: int) -> T:
        return self._loads(self._bytes[self._places[place] : self._places[place + 1]])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_bytes", "_places")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()


def _packed(record: T, number: int, dumps: Callable[[T], bytes]) -> bytes:
    try:
        return dumps(record)
    except Exception as error:  # a record's own __reduce__ may raise anything
        raise TypeError(
            f"records[{number}] ({type(record).__name__}) cannot be pickled: {error}; leave out what cannot be "
            "pickled, or pass dumps=cloudpickle.dumps, loads=cloudpickle.loads"
        ) from error
