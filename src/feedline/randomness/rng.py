"""Randomness as a function of (seed, epoch, place), never of which worker ran.

Takes: a loader's seed, an epoch, a task's number, a sample's index.
Gives: `mix` (one 64-bit number out of several), `spread` (its last step, for many at once) and `rng()` (a NumPy
generator for the sample being read).
Promises: the same numbers in, the same draws out, in every kind of worker.
Not its job: the order of samples (order/sampler) or the global generators (global_generators).
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
Key = tuple[int, ...]


def mix(*parts: int) -> int:
    """One well-mixed unsigned 64-bit number out of several non-negative ones (splitmix64's finaliser, chained).

    >>> mix(7, 0, 1) == mix(7, 0, 1), mix(7, 0, 1) == mix(7, 1, 0)
    (True, False)
    """
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = _with(state, part)
    return state


def _with(state: int, part: int) -> int:
    state = (state ^ part) + 0x9E3779B97F4A7C15 & _MASK
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
    return state ^ state >> 31


def spread(words: npt.NDArray[np.uint64]) -> None:
    """Let each bit of each word have its say in all 64 of them, in place: splitmix64's finaliser, a bijection.

    >>> words = np.array([1, 2], np.uint64)
    >>> spread(words)
    >>> [hex(word) for word in words.tolist()]
    ['0x5692161d100b05e5', '0xdbd238973a2b148a']
    """
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)


def task_seed(seed: int, epoch: int, seq: int) -> int:
    """The 64-bit seed of a task, whose lower half alone differs from task to task within a run.

    `numpy.random.seed` takes 32 bits cheaply. Hashed ones would meet by chance within some 10,000 batches; these are a
    bijection of epoch × φ·2³² + seq, so no two are equal while batches per epoch × epochs stays below about 10⁹.

    >>> len({task_seed(1, epoch, seq) & 0xFFFFFFFF for epoch in range(10) for seq in range(1000)})
    10000
    """
    low_key, epoch_key = _keys(seed, epoch)
    low = epoch * 0x9E3779B1 + seq ^ low_key
    low = (low & 0xFFFFFFFF) * 0x85EBCA6B & 0xFFFFFFFF
    low = (low ^ low >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return _with(epoch_key, seq) & 0xFFFFFFFF00000000 | low ^ low >> 16


@lru_cache(64)
def _keys(seed: int, epoch: int) -> tuple[int, int]:
    """What is the same for all tasks of an epoch."""
    return mix(seed, 0x5EED) & 0xFFFFFFFF, mix(seed, epoch)


class SamplePlace:
    """Which sample is being read; the generator is made only if the dataset asks for it."""

    __slots__ = ("generators", "many", "sample", "task")

    def __init__(self, task: Key | None = None, sample: Key = ()) -> None:
        self.task = task
        self.sample = sample
        self.generators: dict[Key, np.random.Generator] | None = None
        self.many: tuple[int, Callable[[int], Key]] | None = None
        """How many samples are being read at once, and the key of each by its place among them."""

    def enter(self, key: Key) -> None:
        """From now on `rng()` belongs to that sample. (Who reads one after the other stores both by itself.)"""
        self.sample = key
        self.generators = None


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.place = SamplePlace()
        self.outer: list[
            tuple[SamplePlace, SamplePlace | None]
        ] = []  # a sample may be read by loading from another loader


_thread = _OfThread()
_coroutine: ContextVar[SamplePlace | None] = ContextVar("feedline's sample", default=None)
"""What a coroutine reads: many of them take turns in one thread, so it is not the thread's."""


def enter_task(seed: int, epoch: int) -> None:
    """From now on this thread reads samples of that epoch."""
    coroutine = _coroutine.get()
    _thread.outer.append((_thread.place, coroutine))
    if coroutine is not None:  # one that loads from another loader, and waits for it
        _coroutine.set(None)
    _thread.place = SamplePlace((seed, epoch))


def thread_place() -> SamplePlace:
    """Where this thread is, until it enters or leaves a task."""
    return _thread.place


def enter_sample(*key: int) -> None:
    """From now on `rng()` in this thread belongs to that sample."""
    _thread.place.enter(key)


def leave_task() -> None:
    """This thread reads no sample of that epoch any more, but goes on with what it was at before, if anything."""
    _thread.place, coroutine = _thread.outer.pop()
    if coroutine is not None:
        _coroutine.set(coroutine)


def enter_in_coroutine(task: Key, sample: Key) -> None:
    """From now on `rng()` in this coroutine, and in what it starts, belongs to that sample."""
    _coroutine.set(SamplePlace(task, sample))


def place_of_thread() -> SamplePlace:
    """A copy of where this thread is, for a coroutine that goes on from there."""
    now = _thread.place
    place = SamplePlace(now.task, now.sample)
    place.many = now.many
    return place


def follow(place: SamplePlace) -> None:
    """From now on this coroutine is there."""
    _coroutine.set(place)


def _here() -> SamplePlace:
    return _coroutine.get() or _thread.place


@contextmanager
def reading_many(count: int, key_of: Callable[[int], Key]) -> Iterator[None]:
    """Meanwhile so many samples are read at once here; the function tells the key of each by its place."""
    here = _here()
    before, here.many = here.many, (count, key_of)
    try:
        yield
    finally:
        here.many = before


@contextmanager
def reading_some(places: Sequence[int]) -> Iterator[None]:
    """Meanwhile, of the samples that are read at once, only those at these places are."""
    many = _here().many
    if many is None:
        yield
        return
    _, key_of = many
    with reading_many(len(places), lambda place: key_of(places[place])):
        yield


def enter_one_of(place: int, indices: Sequence[int]) -> None:
    """In `__getitems__(indices)`: from now on `rng()` belongs to the sample at that place, as if read by itself.

    By its place and not by its index: that may be another one in a dataset around this one, or come twice.
    """
    here = _here()
    if here.many is not None and here.many[0] == len(indices):
        here.sample = here.many[1](place)
    elif len(indices) > 1:  # by a dataset of the user's, that asks for others than it is asked for
        here.sample = (indices[place],)


def rng(index: SupportsIndex | None = None) -> np.random.Generator:
    """The random generator of the sample being read: a function of (seed, epoch, index) and of nothing else.

    Call it inside `__getitem__` (or `__iter__`) wherever you would call `numpy.random`: the augmentation of a
    sample is then the same for any batch size, number and kind of workers, and differs from sample to sample
    and epoch to epoch. Calls within one sample continue the same generator. In `__getitems__`, which reads
    many samples at once, pass the `index` you are working on. An index that a sampler repeats within an epoch
    gets a new draw each time (with `index` given it does not: that is then all there is to go by). Outside a
    loader it is seeded from the operating system.

    >>> from feedline import DataLoader
    >>> class Noisy:
    ...     def __len__(self): return 4
    ...     def __getitem__(self, i): return i + rng().random()
    >>> a = [b.tolist() for b in DataLoader(Noisy(), batch_size=2, seed=1)]
    >>> b = [b.tolist() for b in DataLoader(Noisy(), batch_size=4, seed=1)]
    >>> a[0] + a[1] == b[0]
    True
    """
    here = _coroutine.get() or _thread.place
    task, generators = here.task, here.generators
    if task is None:
        return np.random.default_rng()
    key = task + (here.sample if index is None else (operator.index(index),))
    if generators is None:
        generators = here.generators = {}
    if key not in generators:
        generators[key] = np.random.Generator(np.random.Philox(key=mix(*key, 1) << 64 | mix(*key, 2)))
    return generators[key]
