"""Random generators that belong to a dataset or a collate_fn: attributes, or globals that its code names. They are the
user's and are never seeded here.

Takes: a job. Gives: its generators with their paths; in a worker process, `HeldGenerators`: which of them samples draw
from, and the state of each when the worker began; in the parent, `Repeats`: which of them repeat the same draws.
The rule: a dataset that draws an order once, when it is first read, needs all workers to draw the same, and they do. A
dataset that draws for each sample needs them to draw differently, and they do not: each worker has a copy in the same
state. Draws in two successive batches count as draws for samples. If two workers (of one epoch or of two) began in the
same state and both draw for samples, there is a warning with the remedy.
Promises: a generator's state is only read; a generator whose state cannot be read is left alone.
Not its job: the global generators (randomness); streams, whose workers must draw the same to divide files.
"""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.datasets import awaits
from feedline.machine import loaded_torch
from feedline.messages.outcome import Drawing, Notice, Outcome
from feedline.supervise.named_globals import named_globals
from feedline.supervise.walking import Found, is_a, names_of, plain_attribute, walk
from feedline.workers.copying import with_own_generators
from feedline.workers.job import Job

IN_THREADS = (
    "is a random generator that all worker threads share: if samples draw from it, the timing decides which sample "
    "gets which number. Draw from feedline.rng() instead: each sample has its own."
)
SEVERAL = (
    "is a random generator that samples draw from while several are read at a time (fetch_threads, async datasets), "
    "so the timing decides which sample gets which number. Draw from feedline.rng() instead: each sample has its own."
)
REPEATED = (
    "a random generator that samples draw from, and each worker process has a copy of it that began in the same "
    "state: all workers draw the same numbers, and so do all epochs if each starts new workers. Draw from "
    "feedline.rng() instead: each sample has its own; or give each worker its own generator in worker_init_fn, seeded "
    "by get_worker_info().seed."
)
NOT_IN_A_STATE = (
    "the epoch continues with batch {batch}, but a loader's state does not hold the random generators of the dataset "
    "or of collate_fn: {names}. Samples may now draw the same numbers from them as the epoch's first batches did. "
    "Draw from feedline.rng() instead: each sample has its own."
)
NAMED = 3
"""A warning names at most this many generators: a pipeline of augmentations may have one for each step."""
TASKS = 64
"""Only this many tasks of each worker are checked: a check takes 5 to 30 µs per generator, and a generator that samples
draw from shows in the first tasks."""

_NUMPY = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)


class HeldGenerators:
    """The generators of one worker process, made after `worker_init_fn` was called."""

    def __init__(self, job: Job) -> None:
        found = [] if job.stream else [*generators(job), *module_generators(job)]
        first: dict[int, Found[Any]] = {}  # one that is an attribute and a global is named once
        for each in found:
            first.setdefault(id(each.what), each)
        states = {each.path: (each.what, _state_of(each.what)) for each in first.values()}
        self._watched = {path: _Watched(what, state) for path, (what, state) in states.items() if state is not None}
        self._left = TASKS

    def __bool__(self) -> bool:
        return bool(self._watched)

    def told(self, outcome: Outcome, epoch: int) -> Outcome:
        """The outcome of a task, with what was found about the generators."""
        made = outcome.failure is None
        drawing = tuple(Drawing(path, each.began) for path, each in self._watched.items() if each.draws(epoch, made))
        for path, _ in drawing:
            del self._watched[path]
        self._left -= 1
        if not self._left:
            self._watched.clear()
        return outcome._replace(notice=(outcome.notice or Notice())._replace(drawing=drawing)) if drawing else outcome


class _Watched:
    def __init__(self, generator: Any, state: bytes) -> None:
        self._generator = generator
        self.began = self._last = state
        self._drawn_in = -1  # the epoch of the previous task, if that task has drawn

    def draws(self, epoch: int, made: bool) -> bool:
        """Have this task and the one before it, in the same epoch, both drawn? A task that failed does not count: an
        order that it should have drawn once is drawn again by the next task."""
        state = _state_of(self._generator)
        if not made:
            self._last = state or self._last
            return False
        if state is None or state == self._last:
            self._drawn_in = -1
            return False
        again = self._drawn_in == epoch
        self._last, self._drawn_in = state, epoch
        return again


class Repeats:
    """Collects what the workers of all epochs report about their generators."""

    def __init__(self) -> None:
        self._seen: set[Drawing] = set()
        self._told = False

    def take(self, drawing: tuple[Drawing, ...]) -> str | None:
        """The warning, if any: a worker reports a generator once, so the same report twice comes from two workers. One
        warning is enough: generators that are found later have the same remedy.

        >>> repeats = Repeats()
        >>> repeats.take((Drawing("dataset.rng", b"1"), Drawing("dataset.rng", b"2")))
        >>> repeats.take((Drawing("dataset.rng", b"1"),))[:42]
        'dataset.rng is a random generator that sam'
        >>> repeats.take((Drawing("dataset.rng", b"2"),))
        """
        known = [each.path for each in drawing if each in self._seen]
        self._seen.update(drawing)
        if self._told or not known:
            return None
        self._told = True
        return f"{_named(known)} {'is' if len(known) == 1 else 'are each'} {REPEATED}"


def not_in_a_state(job: Job, batch: int) -> str | None:
    """The warning for an epoch that resumes in its middle: its generators are not restored to their state then."""
    if not batch or job.stream:  # nobody looks through the dataset of an epoch that begins at its beginning
        return None
    found = list(dict.fromkeys(each.path for each in generators(job)))
    if not found:
        return None
    return NOT_IN_A_STATE.format(batch=batch, names=_named(found))


def _named(paths: list[str]) -> str:
    more = f" (and {len(paths) - NAMED} more)" if len(paths) > NAMED else ""
    return f"{', '.join(paths[:NAMED])}{more}"


def still_shared(job: Job) -> list[str]:
    """The paths of generators that a stream's worker threads share although each has a copy of the dataset."""
    found = generators(job)
    if not found:
        return []
    copied = {id(each.what) for each in walk(with_own_generators(job.dataset), "dataset", _recognise)}
    return [each.path for each in found if id(each.what) in copied or each.path.startswith("collate_fn")]


def several_read(job: Job) -> bool:
    """Does a worker read several samples at a time?"""
    return job.fetch_threads > 1 or (not job.stream and awaits(job.dataset))


def generators(job: Job) -> list[Found[Any]]:
    """All generators among the attributes, with their paths; they are not changed."""
    return walk(job.dataset, "dataset", _recognise) + walk(job.collate_fn, "collate_fn", _recognise)


def module_generators(job: Job) -> list[Found[Any]]:
    """Generators that are globals of modules, named by the code of the dataset, the collate_fn and their attributes."""
    found: list[Found[Any]] = []
    for path, value in named_globals(job.dataset, job.collate_fn):
        if _recognise(type(value)) is not None:  # most are modules and classes
            found += walk(value, path, _recognise, most=1)
    return found


def _recognise(kind: type) -> Callable[[Any], Any] | None:
    if is_a(kind, *_NUMPY):
        return _unless_global(_bits, np.random.mtrand._rand._bit_generator)
    if is_a(kind, random.Random):
        return None if is_a(kind, random.SystemRandom) else _unless_global(_itself, random._inst)
    if ("torch", "Generator") in names_of(kind):
        return _unless_global(_itself, loaded_torch.default_generator())
    return None


def _unless_global(inner: Callable[[Any], Any], known: Any) -> Callable[[Any], Any]:
    """A check that returns the generator, unless it is a global one: those are seeded by us."""
    return lambda generator: None if inner(generator) is known else generator


def _itself(generator: Any) -> Any:
    return generator


def _bits(generator: Any) -> Any:
    own = is_a(type(generator), np.random.BitGenerator)
    return generator if own else plain_attribute(generator, "_bit_generator")


def _state_of(generator: Any) -> bytes | None:
    """A digest of its state; None if that cannot be read."""
    try:
        if is_a(type(generator), np.random.RandomState):
            state: Any = generator.get_state(legacy=False)  # includes the stored second value of a pair of normal draws
        elif is_a(type(generator), *_NUMPY):
            state = _bits(generator).state
        elif is_a(type(generator), random.Random):
            state = generator.getstate()
        elif generator.device.type == "cpu":  # a forked worker must not touch another device
            state = generator.get_state().numpy().tobytes()
        else:
            return None
        return hashlib.blake2b(pickle.dumps(state), digest_size=8).digest()
    except Exception:  # a foreign subclass may keep its state in another way
        return None
