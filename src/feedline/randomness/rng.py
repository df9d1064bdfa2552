"""Randomness as a function of (seed, epoch, place), never of which worker ran.

Takes: a loader's seed, an epoch, a task's number, a sample's index.
Gives: `mix` (one 64-bit number from several), `spread` (its last step, for many numbers at once) and `rng()` (a NumPy
generator for the sample being read).
Promises: the same numbers give the same draws, in every kind of worker.
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
    """One well-mixed unsigned 64-bit number from several non-negative ones (splitmix64's finaliser, chained).

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
    """Make all 64 bits of each word depend on each of its bits, in place: splitmix64's finaliser, a bijection.

    >>> words = np.array([1, 2], np.uint64)
    >>> spread(words)
    >>> [hex(word) for word in words.tolist()]
    ['0x5692161d100b05e5', '0xdbd238973a2b148a']
    """
    words ^= words >> _SPREAD_SHIFTS[0]
    words *= _SPREAD_FACTORS[0]
    words ^= words >> _SPREAD_SHIFTS[1]
    words *= _SPREAD_FACTORS[1]
    words ^= words >> _SPREAD_SHIFTS[2]


# NumPy is quickest with one number if that is an array without axes.
_SPREAD_SHIFTS = [np.array(by, np.uint64) for by in (30, 27, 31)]
_SPREAD_FACTORS = [np.array(factor, np.uint64) for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]


def task_seed(seed: int, epoch: int, seq: int) -> int:
    """The 64-bit seed of a task. Even its lower half alone is different for every task of a run.

    `numpy.random.seed` is fast with 32 bits. Hashed seeds would collide within about 10,000 batches; these are a
    bijection of epoch × φ·2³² + seq, so no two are equal while batches per epoch × epochs stays below about 10⁹.

    >>> len({task_seed(1, epoch, seq) & 0xFFFFFFFF for epoch in range(10) for seq in range(1000)})
    10000
    """
    if seq < ONE_BY_ONE or seq >> 63:  # the numbers of other ranks' shares are below zero, and have gaps
        return _one_seed(seed, epoch, seq)
    return _seeds(seed, epoch, seq // TOGETHER)[seq % TOGETHER]


ONE_BY_ONE, TOGETHER = 8, 64
"""After an epoch's first tasks seeds are computed for so many tasks at once, which takes as long as for 9 tasks one by
one, each of which takes 12,000 instructions; a batch of one text without workers takes 60,000 besides."""


def _one_seed(seed: int, epoch: int, seq: int) -> int:
    low_key, epoch_key = _keys(seed, epoch)
    low = epoch * 0x9E3779B1 + seq ^ low_key
    low = (low & 0xFFFFFFFF) * 0x85EBCA6B & 0xFFFFFFFF
    low = (low ^ low >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return _with(epoch_key, seq) & 0xFFFFFFFF00000000 | low ^ low >> 16


@lru_cache(16)
def _seeds(seed: int, epoch: int, block: int) -> list[int]:
    """The seeds of that block of tasks: what `_one_seed` says for each of them."""
    low_key, epoch_key = _keys(seed, epoch)
    first = block * TOGETHER
    lows = _NUMBERS.astype(np.uint32)
    lows += np.array(epoch * 0x9E3779B1 + first & 0xFFFFFFFF, np.uint32)
    lows ^= np.array(low_key, np.uint32)
    lows *= _LOW_FACTORS[0]
    lows ^= lows >> _SHIFTS[0]
    lows *= _LOW_FACTORS[1]
    lows ^= lows >> _SHIFTS[1]
    highs = _NUMBERS + np.array(first & _MASK, np.uint64)
    highs ^= np.array(epoch_key, np.uint64)
    highs += _STEP
    spread(highs)
    highs &= _HIGH_HALF
    highs |= lows
    found: list[int] = highs.tolist()
    return found


_NUMBERS, _STEP = np.arange(TOGETHER, dtype=np.uint64), np.array(0x9E3779B97F4A7C15, np.uint64)
_HIGH_HALF, _SHIFTS = np.array(0xFFFFFFFF << 32, np.uint64), [np.array(by, np.uint32) for by in (13, 16)]
_LOW_FACTORS = [np.array(factor, np.uint32) for factor in (0x85EBCA6B, 0xC2B2AE35)]


@lru_cache(64)
def _keys(seed: int, epoch: int) -> tuple[int, int]:
    """Keys that are the same for all tasks of an epoch: half of `mix(seed, 0x5EED)`, and `mix(seed, epoch)`."""
    mixed, low_key = _keys_of_seed(seed)
    return low_key, _with(mixed, epoch)


@lru_cache(16)
def _keys_of_seed(seed: int) -> tuple[int, int]:
    mixed = mix(seed)
    return mixed, _with(mixed, 0x5EED) & 0xFFFFFFFF


class SamplePlace:
    """Which sample is being read. Its generator is made only if the dataset asks for it."""

    # Defaults are class attributes, because there is a new place for each batch.
    task: Key | None = None
    sample: Key = ()
    generators: dict[Key, np.random.Generator] | None = None
    find: Callable[[], tuple[int, Key]] | None = None
    """Returns the place and the key of the sample being read, while samples are read one after the other: most never
    ask, so the loop that reads them need not say so at each of them."""
    latest = -1
    """The place that it returned last."""
    asked = 0
    """How often `rng()` was called here, outside a loader, too."""
    many: tuple[int, Callable[[int], Key]] | None = None
    """How many samples are being read at once, and a function from a sample's place to its key."""
    aside: object = None
    """What a dataset has read for this task, and may need again before its end."""

    def enter(self, key: Key) -> None:
        """From now on `rng()` belongs to that sample."""
        self.sample, self.generators, self.find = key, None, None

    def look(self) -> None:
        """Find out which sample is being read now."""
        if self.find is not None:
            place, key = self.find()
            if place != self.latest:
                self.latest, self.sample, self.generators = place, key, None


class _Reading:
    """What one thread reads."""

    __slots__ = ("outer", "place")

    def __init__(self) -> None:
        self.place = SamplePlace()
        self.outer: list[tuple[SamplePlace, SamplePlace | None]] = []  # a sample may load from another loader


class _OfThread(threading.local):
    """Asked once in each step: looking into it takes three times as long as looking into another object."""

    def __init__(self) -> None:
        self.reading = _Reading()


_thread = _OfThread()
_coroutine: ContextVar[SamplePlace | None] = ContextVar("feedline's sample", default=None)
"""The sample that a coroutine reads: many coroutines take turns in one thread, so each has its own."""


def enter_task(seed: int, epoch: int) -> None:
    """From now on this thread reads samples of that epoch."""
    coroutine, reading = _coroutine.get(), _thread.reading
    reading.outer.append((reading.place, coroutine))
    if coroutine is not None:  # a coroutine that loads from another loader and waits
        _coroutine.set(None)
    place = reading.place = SamplePlace()
    place.task = seed, epoch


def thread_place() -> SamplePlace:
    """This thread's place; valid until it enters or leaves a task."""
    return _thread.reading.place


def follow_samples(find: Callable[[], tuple[int, Key]]) -> None:
    """From now on `rng()` in this thread belongs to the sample that this function finds, to the end of the task."""
    place = _thread.reading.place
    place.find = find
    place.latest = -1


def enter_sample(*key: int) -> None:
    """From now on `rng()` in this thread belongs to that sample."""
    _thread.reading.place.enter(key)


def enter_element_of(*key: int) -> None:
    """From now on `rng()` in this thread belongs to an element of one of the streams that this element is from.

    What comes before it, the shard of the whole stream, still counts.
    """
    place = _thread.reading.place
    place.enter((*place.sample[:1], *key))


@contextmanager
def another_pass(*key: int) -> Iterator[None]:
    """Within this context `rng()` draws other numbers, as if it were another epoch: a stream is read once more."""
    place = _here()
    before = place.task, place.generators
    if place.task is not None:
        place.task, place.generators = (mix(place.task[0], *key), *place.task[1:]), None
    try:
        yield
    finally:
        place.task, place.generators = before


def leave_task() -> None:
    """This thread has left that task, and is back in the outer one, if there is one."""
    reading = _thread.reading
    reading.place, coroutine = reading.outer.pop()
    if coroutine is not None:
        _coroutine.set(coroutine)


def enter_in_coroutine(task: Key, sample: Key) -> None:
    """From now on `rng()` in this coroutine, and in tasks it starts, belongs to that sample."""
    _coroutine.set(_place_at(task, sample))


def place_of_thread() -> SamplePlace:
    """A copy of this thread's place, for a coroutine that continues from there."""
    now = _thread.reading.place
    now.look()
    place = _place_at(now.task, now.sample)
    place.many = now.many
    return place


def _place_at(task: Key | None, sample: Key) -> SamplePlace:
    place = SamplePlace()
    place.task, place.sample = task, sample
    return place


def follow(place: SamplePlace) -> None:
    """From now on this coroutine is at that place."""
    _coroutine.set(place)


def _here() -> SamplePlace:
    return _coroutine.get() or _thread.reading.place


@contextmanager
def reading_many(count: int, key_of: Callable[[int], Key]) -> Iterator[None]:
    """Within this context `count` samples are read at once; the function gives the key of each from its place."""
    here = _here()
    before, here.many = here.many, (count, key_of)
    try:
        yield
    finally:
        here.many = before


@contextmanager
def reading_some(places: Sequence[int]) -> Iterator[None]:
    """Within this context only the samples at these places are read, of those that were to be read at once."""
    many = _here().many
    if many is None:
        yield
        return
    _, key_of = many
    with reading_many(len(places), lambda place: key_of(places[place])):
        yield


def enter_one_of(place: int, indices: Sequence[int]) -> None:
    """In `__getitems__(indices)`: from now on `rng()` belongs to the sample at that place, as if it were read alone.

    It goes by place, not by index: an index may be different in a dataset that wraps this one, or come twice.
    """
    here = _here()
    here.look()
    if here.many is not None and here.many[0] == len(indices):
        here.sample = here.many[1](place)
    elif len(indices) > 1:  # a user's dataset around it reads other samples than it was asked for
        here.sample = (indices[place],)


def times_asked() -> int:
    """How often this thread or coroutine has asked for a generator: if it is more than before, something was drawn."""
    return _here().asked


def rng(index: SupportsIndex | None = None) -> np.random.Generator:
    """The random generator of the sample being read: a function of (seed, epoch, index) and of nothing else.

    Call it inside `__getitem__` (or `__iter__`) wherever you would call `numpy.random`: the augmentation of a
    sample is then the same for any batch size, number and kind of workers, and differs from sample to sample
    and epoch to epoch. Calls within one sample continue the same generator. In `__getitems__`, which reads
    many samples at once, pass the `index` you are working on. An index that a sampler repeats within an epoch
    gets a new draw each time (but not if `index` is given: then only the index counts). Outside a loader it is
    seeded from the operating system.

    >>> from feedline import DataLoader
    >>> class Noisy:
    ...     def __len__(self): return 4
    ...     def __getitem__(self, i): return i + rng().random()
    >>> a = [b.tolist() for b in DataLoader(Noisy(), batch_size=2, seed=1)]
    >>> b = [b.tolist() for b in DataLoader(Noisy(), batch_size=4, seed=1)]
    >>> a[0] + a[1] == b[0]
    True
    """
    here = _coroutine.get() or _thread.reading.place
    here.asked += 1
    if (task := here.task) is None:
        return np.random.default_rng()
    here.look()
    generators = here.generators
    key = task + (here.sample if index is None else (operator.index(index),))
    if generators is None:
        generators = here.generators = {}
    if key not in generators:
        generators[key] = np.random.Generator(np.random.Philox(key=mix(*key, 1) << 64 | mix(*key, 2)))
    return generators[key]
