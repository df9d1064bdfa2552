"""What runs in worker processes: reads the user's samples and returns what can be said about them.

Takes: the user's dataset. Gives: datasets whose samples are `Reading`s, `Collating`s or `Looks`, and a collate_fn
that makes `Reading`s from a stream's elements.
Promises: samples are read and never written to (they may be in a file, or in shared memory); an error of user code is a
reading like any other. feedline's own supervision sees what hangs or dies.
Not its job: which indices, how long (examine); judging (the checks).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from feedline.datasets import described
from feedline.diagnose.doctor.evidence import Collating, Reading
from feedline.diagnose.doctor.fields import as_array, content, digest, is_blank, leaves, look_at
from feedline.diagnose.doctor.lines import WatchedLines, users_line
from feedline.diagnose.doctor.seeding import Seeding
from feedline.machine.cpu_clock import now, since
from feedline.machine.gil import Looks, Rival
from feedline.machine.worker_info import get_worker_info
from feedline.supervise.shutdown import TOLD_TO_LEAVE
from feedline.supervise.worker_memory import own_memory

TWICE = 8
"""How many samples a worker reads a second time, to see whether both are in the same memory."""
LONG = 0.05
"""After this many seconds the dataset is asked to describe the sample, which is then not read a second time."""
LOOKS = 64
"""Looks at a worker that reads: after this many, its share of the GIL is known to about a tenth."""

_lines, _seeding = WatchedLines(), Seeding()


def same(value: Any) -> Any:
    """A collate_fn that returns readings unchanged."""
    return value


class Wrapped:
    """The user's map-style dataset, read in another way. Which samples there are is left to the loader's sampler."""

    def __init__(self, dataset: Any, indices: Sequence[Any] = ()) -> None:
        self.dataset, self._indices = dataset, indices

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError


class Watched(Wrapped):
    """Its samples are readings."""

    def __init__(self, dataset: Any, twice: bool = False) -> None:
        super().__init__(dataset)
        self._twice = TWICE if twice else 0

    def describe(self, index: Any) -> str:
        """The user's own description, for samples that hang or kill."""
        return described(self.dataset, index)

    def __getitem__(self, index: Any) -> Reading:
        _seeding.begin(type(self.dataset).__module__)
        _lines.begin()
        began = now()
        try:
            sample = self.dataset[index]
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if isinstance(error, SystemExit) and error.code == TOLD_TO_LEAVE:  # feedline's own
                raise
            _lines.take(), _seeding.take()
            words = f"{type(error).__name__}: {error}"[:300]
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
            line = users_line(frames[-1]) if frames else None
            return Reading(index, error=words, where=line, what=described(self.dataset, index))
        seconds = since(began)
        reading = _read(index, sample, seconds, described(self.dataset, index) if seconds > LONG else "")
        if self._twice and seconds < LONG:
            self._twice -= 1
            shared, changed = self._read_twice(index, sample)
            return Reading(**{**vars(reading), "shared": shared, "changed": changed})
        return reading

    def _read_twice(self, index: Any, sample: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        first = [(path, array) for path, value in leaves(sample) if (array := as_array(value)) is not None]
        before = [digest(array) for _, array in first]
        try:
            again = dict(leaves(self.dataset[index]))
        except Exception:
            return (), ()
        shared = [
            (path, digest(array) != old)
            for (path, array), old in zip(first, before, strict=True)
            if array.size > 1 and _same_memory(array, as_array(again.get(path)))
        ]
        return tuple(path for path, _ in shared), tuple(path for path, changed in shared if changed)


def _same_memory(first: Any, second: Any) -> bool:
    return second is not None and first.flags.writeable and bool(np.may_share_memory(first, second))


def _read(index: Any, sample: Any, seconds: float, what: str) -> Reading:
    lines, seeds = _lines.take(), _seeding.take()
    fields = tuple(look_at(path, value) for path, value in leaves(sample))
    made = digest(sample), content(sample), is_blank(sample)
    return Reading(index, seconds, fields, *made, what=what, lines=lines, seeds=seeds)


class Observed:
    """A collate_fn for a stream that is not batched: elements become readings."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._since = 0.0

    def __call__(self, element: Any) -> Reading:
        seconds = since(self._since) if self._since else 0.0  # for the first element, opening the stream is included
        reading = _read(None, element, seconds, "")
        _seeding.begin(self._module)
        _lines.begin()
        self._since = now()
        return reading


class Contents(Wrapped):
    """Only the contents of the samples, for comparing with another dataset."""

    def __getitem__(self, index: Any) -> tuple[Any, str]:
        return index, content(self.dataset[index])


def content_of(element: Any) -> tuple[None, str]:
    """A collate_fn for a stream that is not batched."""
    return None, content(element)


class Rounds(Wrapped):
    """The same samples round after round; a sample of this dataset is the worker's memory after a round."""

    def __getitem__(self, number: Any) -> int:
        for index in self._indices:
            self.dataset[index]
        return own_memory(os.getpid())


class Batched(Wrapped):
    """Batches made by the user's collate_fn; a sample of this dataset says how long making one took."""

    def __init__(self, dataset: Any, batches: Sequence[Sequence[Any]], collate_fn: Callable[[Any], Any]) -> None:
        super().__init__(dataset, batches)
        self._collate_fn = collate_fn

    def __getitem__(self, number: int) -> Collating:
        samples = [self.dataset[index] for index in self._indices[number]]
        _lines.begin()
        began = now()
        batch = self._collate_fn(samples)
        seconds = since(began)
        return Collating(seconds, len(samples), _lines.take(), *filled(samples, batch), aliases(samples, batch))


def filled(samples: Sequence[Any], batch: Any) -> tuple[int, int]:
    """Elements of a field whose length varies, and of the batch's array that holds them; else zeros.

    >>> filled([{"a": [1, 2]}, {"a": [3]}], [np.zeros((2, 2))])
    (3, 4)
    """
    arrays = {array.size for _, value in leaves(batch) if (array := as_array(value)) is not None}
    columns: dict[str, list[int]] = {}
    for sample in samples:
        for path, value in leaves(sample):
            array = as_array(value)
            size = len(value) if isinstance(value, list) else None if array is None else array.size
            if size is not None:
                columns.setdefault(path, []).append(size)
    for sizes in columns.values():
        full = len(samples) * max(sizes)
        if len(sizes) == len(samples) and len(set(sizes)) > 1 and full in arrays:
            return sum(sizes), full
    return 0, 0


def aliases(samples: Sequence[Any], batch: Any) -> bool:
    """Does an array of the batch share memory with a sample?

    >>> sample = np.zeros(3)
    >>> aliases([sample], {"x": [sample]}), aliases([sample], np.stack([sample]))
    (True, False)
    """
    first = _arrays(samples[:1])
    return any(np.may_share_memory(one, other) for one in first for other in _arrays(batch))


def _arrays(tree: Any) -> list[Any]:
    """All arrays, including those in lists."""
    found = []
    for _, value in leaves(tree):
        array = as_array(value)
        if array is not None:
            found.append(array)
        elif isinstance(value, list) and value is not tree:
            found += [each for part in value for each in _arrays(part)]
    return found


class Beside(Wrapped):
    """Reads the samples, and regularly looks whether reading holds the GIL. A sample of this dataset is `Looks`."""

    def __getitem__(self, number: Any) -> Looks:
        self.dataset[self._indices[0]]  # so that one-time work is done
        rival = Rival()
        rival.begin()
        for index in self._indices:
            self.dataset[index]
            if rival.looked >= LOOKS:
                break
        rival.end()
        rival.stop()
        return rival.take()


class Initialising:
    """The user's worker_init_fn; it sees the user's dataset, and not our wrapper around it."""

    def __init__(self, own: Callable[[int], object]) -> None:
        self._own = own

    def __call__(self, worker: int) -> None:
        torch = sys.modules.get("torch")
        for info in (get_worker_info(), torch.utils.data.get_worker_info() if torch else None):
            if isinstance(getattr(info, "dataset", None), Wrapped):
                object.__setattr__(info, "dataset", info.dataset.dataset)  # type: ignore[union-attr]
        self._own(worker)
