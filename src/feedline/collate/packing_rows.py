"""Several sequences in one row of fixed length: little padding for any lengths.

Takes: the sequences of a batch. Gives: rows and, for each place in them, its sequence and its position in that
sequence.
Promises: where a sequence goes depends on the lengths alone, so two fields of equal lengths (tokens and labels) are
packed alike; no sequence is cut unless the user asks for it.
Not its job: which sequences are in a batch (samplers), keeping attention within a sequence (the model's mask).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np

from feedline.collate.array_kinds import uniform
from feedline.collate.collator import Collator
from feedline.collate.making import Making
from feedline.collate.padding import check_value
from feedline.datasets import Array
from feedline.errors import CollateError
from feedline.errors.checks import check_choice, check_whole

ON_LONG = ("raise", "truncate", "split")


class PackedBatch(NamedTuple):
    """The result of `pack` for one field; all three arrays have the shape (rows, length).

    >>> from feedline.collate import pack
    >>> batch = pack(6)([[7, 8, 9], [5, 6]])
    >>> batch.data.tolist(), batch.segments.tolist(), batch.positions.tolist()
    ([[7, 8, 9, 5, 6, 0]], [[1, 1, 1, 2, 2, 0]], [[0, 1, 2, 0, 1, 0]])
    """

    data: Any
    segments: Any
    """The number of the sample (in the batch, from 1) that each place belongs to; 0 for padding."""
    positions: Any
    """The position of each place in its sequence, from 0; 0 for padding."""

    @property
    def samples_first(self) -> bool:
        """Are its first axes those of samples? No, they are rows. `accumulate` asks."""
        return False


class Piece(NamedTuple):
    """A part of a sequence, and where it goes."""

    sample: int
    begin: int
    size: int
    row: int
    start: int


@dataclass(frozen=True)
class pack(Collator):
    """Put the sequences of a batch into as few rows of `length` as possible, filled up with `value`.

    A sequence longer than a row is an error; `on_long="truncate"` cuts it, `"split"` continues it in further rows,
    where each piece has positions of its own.

    >>> batch = pack(4)([[1, 2, 3], [4, 5], [6]])
    >>> batch.data
    array([[1, 2, 3, 6],
           [4, 5, 0, 0]])
    >>> batch.segments
    array([[1, 1, 1, 3],
           [2, 2, 0, 0]])
    >>> batch.positions
    array([[0, 1, 2, 0],
           [0, 1, 0, 0]])
    """

    length: int
    value: Any = 0
    _: KW_ONLY
    on_long: str = "raise"

    def __post_init__(self) -> None:
        check_whole("length", self.length, least=1)
        check_value(self.value)
        check_choice("on_long", self.on_long, ON_LONG)

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The rows, in the slot."""
        arrays, dtype, filler = uniform(values, self.value, making, path)
        self._check(arrays, making, path)
        sizes = [len(array) for array in arrays]
        if self.on_long == "truncate":
            making.tally.cut += sum(size > self.length for size in sizes)
            sizes = [min(size, self.length) for size in sizes]
        pieces, rows = place(sizes, self.length)
        data = making.empty((rows, self.length, *arrays[0].shape[1:]), arrays[0].dtype)
        segments = making.empty((rows, self.length), np.dtype(np.int64))
        positions = making.empty((rows, self.length), np.dtype(np.int64))
        if rows:
            _lay(arrays, pieces, filler, data, segments, positions)
        making.tally.room += rows * self.length
        making.tally.filled += sum(piece.size for piece in pieces)
        wrap = making.arrays.wrap
        return PackedBatch(wrap(data, dtype), wrap(segments), wrap(positions))

    def _check(self, arrays: list[Array], making: Making, path: str) -> None:
        first = arrays[0]
        for position, array in enumerate(arrays):
            if array.ndim == 0:
                raise CollateError(f"{making.where(path, position)} is a single number; pack takes sequences.")
            if array.shape[1:] != first.shape[1:]:
                remedy = "; only the first axis may differ"
                raise making.differ("shape", path, position, array.shape, first.shape, remedy)
            if len(array) > self.length and self.on_long == "raise":
                raise CollateError(
                    f"{making.where(path, position)} has length {len(array)}, more than the {self.length} of a row. "
                    "Set on_long='truncate' to cut it, or 'split' to continue it in more rows."
                )


def _lay(arrays: list[Array], pieces: list[Piece], filler: Any, data: Array, segments: Array, positions: Array) -> None:
    """Write everything end to end, row after row; each place is written once."""
    rows, length, *rest = data.shape
    padding, steps, zeros = np.full((length, *rest), filler, data.dtype), np.arange(length), np.zeros(length, np.int64)
    parts, places, owners, sizes = [], [], [], []
    at = 0
    for sample, begin, size, row, start in (*sorted(pieces, key=lambda piece: piece[3:]), Piece(0, 0, 0, rows, 0)):
        gap = row * length + start - at
        if gap:
            parts.append(padding[:gap])
            places.append(zeros[:gap])
        parts.append(arrays[sample][begin : begin + size])
        places.append(steps[:size])
        owners += [0, sample + 1]
        sizes += [gap, size]
        at += gap + size
    np.concatenate(parts, out=data.reshape(rows * length, *rest))
    np.concatenate(places, out=positions.reshape(-1))
    segments.reshape(-1)[...] = np.repeat(owners, sizes)


def place(sizes: Sequence[int], length: int) -> tuple[list[Piece], int]:
    """Where each sequence goes, in the order of places in each row, and how many rows are needed.

    The longest comes first; each goes into the fullest row that has room for it.

    >>> pieces, rows = place([3, 9, 4], 8)
    >>> [(piece.sample, piece.size, piece.row, piece.start) for piece in pieces], rows
    ([(1, 8, 0, 0), (2, 4, 1, 0), (0, 3, 1, 4), (1, 1, 1, 7)], 2)
    """
    wanted = [
        (min(length, size - begin), sample, begin)
        for sample, size in enumerate(sizes)
        for begin in range(0, size, length)
    ]
    wanted.sort(key=lambda piece: -piece[0])  # stable, so sequences of equal length stay in the samples' order
    pieces, rows = [], 0
    spaces: list[tuple[int, int]] = []  # (free places, row), the fullest row first
    for size, sample, begin in wanted:
        at = bisect_left(spaces, (size, -1))
        if at < len(spaces):
            room, row = spaces.pop(at)
        else:
            room, row, rows = length, rows, rows + 1
        pieces.append(Piece(sample, begin, size, row, length - room))
        if room > size:
            insort(spaces, (room - size, row))
    return pieces, rows
