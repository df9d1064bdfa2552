"""Random generators that a dataset (or a collate_fn) has among its attributes, reseeded before each task.

Takes: a job, in a worker process. Gives: a `Source` for each generator: NumPy's, Python's, torch's.
Promises: what one draws in a task is a function of the state it had when the iteration began and of the task's seed, so
of no worker: no two workers draw the same, epochs differ, and any number of workers gives the same batches. One that
takes a dead worker's place draws as that would have, whatever the parent has drawn meanwhile.
Not its job: the global generators (ambient); worker threads, which share one dataset, and loading in the user's own
process, where the generator is the user's (there it is left alone).
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from feedline.ambient import Source
from feedline.datasets import awaits
from feedline.rng import mix
from feedline.supervise.walking import Found, is_a, module_of, names_of, plain_attribute, walk
from feedline.workers.job import Job

IN_THREADS = (
    "is a random generator that all worker threads draw from, so which sample gets which draw depends on their timing. "
    "Draw from feedline.rng() instead: that belongs to the sample."
)
SEVERAL = (
    "is a random generator that samples draw from while several are read at a time (fetch_threads, async datasets), so "
    "which sample gets which draw depends on timing. Draw from feedline.rng() instead: that belongs to the sample."
)
IN_PROCESSES = (
    "is a random generator of a kind feedline cannot reseed, so every worker process has a copy and all of them draw "
    "the same. Draw from feedline.rng() instead, or make one in worker_init_fn."
)

_NUMPY = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)


class Stored:
    """A generator in the dataset, as a source: how to seed it, how to draw, a number for the state it came with."""

    def __init__(self, reseed: Callable[[int, int], object], key: int, draw: Callable[[], Any]) -> None:
        self._reseed = reseed
        self.key = key
        self.draw = draw

    def seed(self, value: int) -> None:
        self._reseed(self.key, value)

    def save(self) -> Any:
        """Never called: a worker process owns what came with it."""

    def restore(self, state: Any) -> None:
        """Never called."""


def sources(job: Job) -> list[Source]:
    """One for each generator that came with the job and can be seeded; asked for before anything is drawn."""
    known, found = job.generator_keys, _stored(job)
    unchanged = set(known.values())
    for path, stored in found:
        if stored.key not in unchanged:  # by path last: what is in a set has another place there in each process
            stored.key = known.get(path, stored.key)
    return [stored for _, stored in found]


def keyed(job: Job, workers: str) -> Job:
    """The job with a key for each generator's state as it is now; in the parent, before there are workers."""
    if not job.num_workers or workers == "thread":
        return job
    return replace(job, generator_keys={path: stored.key for path, stored in _stored(job)})


def several_read(job: Job) -> bool:
    """Does a worker read several samples at a time?"""
    return job.fetch_threads > 1 or (not job.stream and awaits(job.dataset))


def _stored(job: Job) -> list[tuple[str, Stored]]:
    return [(found.path, make(found.what)) for found in generators(job) if (make := _maker(found.what)) is not None]


def generators(job: Job) -> list[Found[Any]]:
    """All of them, with their paths; they are not touched."""
    return walk(job.dataset, "dataset", _recognise) + walk(job.collate_fn, "collate_fn", _recognise)


def is_foreign(generator: Any) -> bool:
    """Of a kind that nobody here knows how to seed."""
    return _maker(generator) is None


def _recognise(kind: type) -> Callable[[Any], Any] | None:
    if is_a(kind, *_NUMPY):
        return _unless_global(_bits, np.random.mtrand._rand._bit_generator)
    if is_a(kind, random.Random):
        return None if is_a(kind, random.SystemRandom) else _unless_global(_itself, random._inst)
    if ("torch", "Generator") in names_of(kind):
        return _unless_global(_itself, sys.modules["torch"].default_generator)
    return None


def _unless_global(inner: Callable[[Any], Any], known: Any) -> Callable[[Any], Any]:
    """A check that answers with the generator itself; the global ones are ambient's to seed."""
    return lambda generator: None if inner(generator) is known else generator


def _itself(generator: Any) -> Any:
    return generator


def _maker(generator: Any) -> Callable[[Any], Stored] | None:
    """How to make a source of it."""
    kind = type(generator)
    if is_a(kind, *_NUMPY):
        # Another's bit generator may have a constructor, and a state, of another kind.
        if not module_of(type(_bits(generator))).startswith("numpy.random."):
            return None
        return _numpy_legacy if is_a(kind, np.random.RandomState) else _numpy
    if is_a(kind, random.Random):
        return _python if kind is random.Random else None
    return _torch if generator.device.type == "cpu" else None  # a forked worker must not touch another device


def _bits(generator: Any) -> Any:
    own = is_a(type(generator), np.random.BitGenerator)
    return generator if own else plain_attribute(generator, "_bit_generator")


def _numpy(generator: Any) -> Stored:
    bits = _bits(generator)
    return Stored(lambda key, seed: _seed_bits(bits, key, seed), _key(bits), bits.random_raw)


def _numpy_legacy(generator: Any) -> Stored:
    bits = _bits(generator)
    if type(bits) is np.random.MT19937:
        return Stored(lambda key, seed: generator.seed(_words(key, seed)), _key(bits), bits.random_raw)

    def reseed(key: int, seed: int) -> None:
        _seed_bits(bits, key, seed)
        # Of normal draws, which come in pairs, it keeps the second for later.
        generator.set_state({**generator.get_state(legacy=False), "has_gauss": 0})

    return Stored(reseed, _key(bits), bits.random_raw)


def _key(bits: Any) -> int:
    twin = type(bits)(0)  # the generator itself may be in use, here in the parent
    twin.state = bits.state
    return mix(*(int(word) for word in twin.random_raw(2)))


def _seed_bits(bits: Any, key: int, seed: int) -> None:
    if type(bits) is np.random.MT19937:  # made anew it would cost half a millisecond
        bits._legacy_seeding(_words(key, seed))
    else:
        bits.state = type(bits)((key, seed)).state


def _words(*numbers: int) -> list[int]:
    return [half for number in numbers for half in (number & 0xFFFFFFFF, number >> 32)]


def _python(generator: random.Random) -> Stored:
    twin = random.Random()
    twin.setstate(generator.getstate())
    draw = partial(generator.getrandbits, 64)
    return Stored(lambda key, seed: generator.seed(key << 64 | seed), twin.getrandbits(64), draw)


def _torch(generator: Any) -> Stored:
    digest = hashlib.blake2b(generator.get_state().numpy().tobytes(), digest_size=8).digest()
    # 63 bits, so that initial_seed() fits an int64, as torch's do
    return Stored(
        lambda key, seed: generator.manual_seed(mix(key, seed) & 0x7FFFFFFFFFFFFFFF),
        int.from_bytes(digest, "little"),
        partial(_draw_torch, generator),
    )


def _draw_torch(generator: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item()
