"""The examination: reads and runs the patient within a time, and writes down what it saw.

Takes: a `Patient` and seconds. Gives: `Evidence`.
Promises: the user's samples are read in worker processes under feedline's own supervision, so one that hangs or kills
is seen, named and left behind; a part of the examination that fails leaves the others alone. About the seconds given,
and some more if samples hang: each may take a sixth of them.
Not its job: what runs in the workers (probe), judging (the checks).
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from feedline.arena.limits import room
from feedline.diagnose.doctor.columns import column_of
from feedline.diagnose.doctor.evidence import Carried, Evidence, Line, Mishap, Reading, Run
from feedline.diagnose.doctor.lines import is_librarys
from feedline.diagnose.doctor.patient import GUESSED_BATCH, Patient
from feedline.diagnose.doctor.probe import Batched, Observed, Rounds, Threads, Watched, same
from feedline.errors import ShippingError, TooManyErrors
from feedline.line.stream import READ_WHOLE
from feedline.messages import BadSample
from feedline.supervise.records import largest
from feedline.workers.carried import hazards
from feedline.workers.shipping import weigh
from feedline.workers.stored_generators import generators

MOST = 1000
"""Samples that are read at most: enough for a class of 1 % to show (0.99 ** 1000 = 0.00004)."""
REPEATED = 48
"""…of which so many are read again."""
SHARES = {
    "read": 0.3,
    "again": 0.12,
    "reseeded": 0.1,
    "reread": 0.1,
    "rounds": 0.1,
    "threads": 0.1,
    "collate": 0.08,
    "run": 0.15,
}
"""Of the time, for each part."""
WORTH_A_TRIAL = 0.001
"""Seconds a sample must take for threads to matter."""
MOST_ROUNDS, LEAST_ROUNDS, ENOUGH = 40, 8, 128 << 20
"""Rounds over the same samples: at most; and after how many, and how many bytes, growth is seen well enough."""
PICKLE = 64 << 20
"""Bytes of a pickle after which counting ends: some seconds of starting workers that are not forked."""
SEED = 20_241
SUSPECTS = 8


class Examination:
    """One patient's, part after part."""

    def __init__(self, patient: Patient, seconds: float, num_workers: int) -> None:
        self._patient = patient
        self._seconds = seconds
        self._workers = num_workers
        self._limit = max(0.5, seconds / 6)
        self._found = Evidence(setting=patient.setting, limit=self._limit, construction=patient.construction)

    def run(self) -> Evidence:
        """All parts."""
        began = time.monotonic()
        with _quietly() as said:
            self._part("what the dataset holds", self._carrying)
            self._part("its labels", self.look_at_labels)
            self._part("memory", self._memory)
            self._part("reading samples", self._read_stream if self._patient.setting.stream else self._read)
            self._part("a run with workers", self._run)
        whole = [number for number in (2, self._workers) for text in said if READ_WHOLE.format(shards=number) in text]
        mishaps = tuple(each._replace(where=_place_in(said, each)) for each in self._found.mishaps)
        return replace(self._found, read_whole=max(whole, default=0), mishaps=mishaps, seconds=time.monotonic() - began)

    def _part(self, name: str, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"[:500]
            self._note(troubles=(*self._found.troubles, (name, words)))

    def _note(self, **seen: Any) -> None:
        self._found = replace(self._found, **seen)

    # Without reading

    def _carrying(self) -> None:
        dataset, job = self._patient.dataset, self._patient.job
        weight, refused = 0, ""
        try:
            weight = weigh(job, PICKLE)
        except ShippingError as error:
            refused = str(error)
        self._note(
            carried=Carried(
                tuple((what, tuple(paths)) for what, paths in hazards(dataset)),
                refused,
                weight,
                weight < PICKLE,
                largest(dataset) or "",
                tuple(each.path for each in generators(job)),
                multiprocessing.get_context().get_start_method(),
            )
        )

    def look_at_labels(self) -> None:
        """In the dataset itself."""
        self._note(column=column_of(self._patient.dataset, self._patient.setting.length))

    def _memory(self) -> None:
        left = room()
        if left is not None:
            self._note(free=left.free, limit_of_memory=left.limit)

    # Map-style

    def _read(self) -> None:
        length = self._patient.setting.length
        if not length:
            return
        indices = spread(length, MOST)
        self.read_spread(indices)
        good = [reading.index for reading in self._found.good]
        if not good:
            return
        if (
            self._patient.seeds_all and not self._found.mishaps
        ):  # in the order they were read before: then each has the same seed
            few = indices[: min(REPEATED, len(self._found.readings))]
            self._note(again=tuple(self._readings("again", few, workers=2)))
            self._note(reseeded=tuple(self._readings("reseeded", few, seed=SEED + 1)))
        self._part("slow samples", self._reread)
        self._part("memory of a worker", lambda: self._rounds(good[:16]))
        self._part("threads", lambda: self._threads(good))
        self._part("collate_fn", lambda: self._collate(good))

    def read_spread(self, indices: list[int]) -> Evidence:
        """The samples that most of the checks go by."""
        self._note(readings=tuple(sorted(self._readings("read", indices), key=lambda reading: reading.index)))
        return self._found

    def _readings(self, part: str, indices: list[int], workers: int = 1, seed: int = SEED) -> list[Reading]:
        watched = Watched(self._patient.dataset, twice=part == "read")
        return self._loaded(part, watched, workers, seed, sampler=indices)

    def _loaded(self, part: str, dataset: Any, workers: int = 1, seed: int = SEED, **options: Any) -> list[Any]:
        """What the loader gives until the part's time is up."""
        until = time.monotonic() + SHARES[part] * self._seconds
        options = {"batch_size": None, "collate_fn": same, **options}
        loader = self._patient.loader(dataset, seed, workers, self._limit, **options)
        got: list[Any] = []
        try:
            for value in loader:
                got.append(value)
                if time.monotonic() > until or len(got) >= MOST or (part == "rounds" and _grows_enough(got)):
                    break
        except TooManyErrors:
            pass  # all of them are in loader.errors
        finally:
            self._take_down(part, loader.errors)
            loader.close()
        return got

    def _take_down(self, part: str, bad: list[BadSample]) -> None:
        """What hung or died; and of a stream, what failed. (Of a map-style dataset that is a reading already.)"""
        mishaps = [Mishap(each.index, each.what, each.error, is_stuck(each)) for each in bad if not each.trace]
        self._note(mishaps=(*self._found.mishaps, *mishaps))
        if part == "read" and self._patient.setting.stream:
            failed = [Reading(each.place, error=each.error, what=each.what) for each in bad if each.trace]
            self._note(readings=(*self._found.readings, *failed))

    def _reread(self) -> None:
        long = self._found.long
        slow = [reading.index for reading in self._found.good if reading.seconds > long][:SUSPECTS]
        if slow:
            self._note(reread=tuple(self._readings("reread", slow)))

    def _rounds(self, indices: list[Any]) -> None:
        few = indices[: self._affordable(self._limit / 4)]  # a round must not seem to be stuck
        if few:
            rounds = self._loaded("rounds", Rounds(self._patient.dataset, few), sampler=range(MOST_ROUNDS))
            self._note(rounds=tuple(rounds), round_size=len(few))

    def _threads(self, indices: list[Any]) -> None:
        if self._found.usual < WORTH_A_TRIAL or len(os.sched_getaffinity(0)) < 2:
            return
        count = self._affordable(SHARES["threads"] * self._seconds / 3)  # each is read twice
        if count >= 4:
            (trial,) = self._loaded("threads", Threads(self._patient.dataset, indices[: min(count, 64)]), sampler=[0])
            self._note(trial=trial)

    def _collate(self, indices: list[Any]) -> None:
        patient = self._patient
        if patient.setting.collates != "own" or patient.collate_fn is None:
            return
        batches = self._batches(indices, 8, self._affordable(self._limit / 4))
        made = self._loaded(
            "collate", Batched(patient.dataset, batches, patient.collate_fn), sampler=range(len(batches))
        )
        self._note(collating=tuple(made))

    def _affordable(self, seconds: float) -> int:
        """So many samples can be read in that time."""
        return int(seconds / max(self._found.usual, 1e-6))

    def _batches(self, indices: list[Any], most: int, largest: int) -> list[list[Any]]:
        mixed = random.Random(SEED).sample(indices, len(indices))
        size = max(1, min(self._patient.setting.batch_size or GUESSED_BATCH, largest))
        return [mixed[start : start + size] for start in range(0, min(len(mixed), most * size), size)]

    # Streams

    def _read_stream(self) -> None:
        module = type(self._patient.dataset).__module__
        elements = self._loaded("read", self._patient.dataset, collate_fn=Observed(module))
        read = tuple(replace(each, index=place) for place, each in enumerate(elements))
        self._note(readings=(*read, *self._found.readings))
        if elements and not self._found.mishaps:
            again = self._loaded("again", self._patient.dataset, workers=2, collate_fn=Observed(module))
            self._note(again=tuple(replace(each, index=place) for place, each in enumerate(again)))

    # With the user's own collating

    def _run(self) -> None:
        patient, found = self._patient, self._found
        if not found.good or patient.setting.collates == "none":
            return
        # Time is looked at between batches.
        largest = self._affordable(SHARES["run"] * self._seconds)
        if largest < 2 or (patient.batch_sampler is not None and largest < GUESSED_BATCH):
            return
        options: dict[str, Any] = {"collate_fn": patient.collate_fn}
        if patient.setting.stream:
            options["batch_size"] = min(patient.setting.batch_size or GUESSED_BATCH, largest)
        elif patient.batch_sampler is not None:
            options["batch_sampler"] = patient.batch_sampler
        else:
            options["batch_sampler"] = self._batches([reading.index for reading in found.good], 64, largest)
        until = time.monotonic() + SHARES["run"] * self._seconds
        loader = patient.loader(patient.dataset, SEED, self._workers, self._limit, **options)
        error = ""
        try:
            for _ in loader:
                if time.monotonic() > until:
                    break
        except TooManyErrors:
            pass  # those have been told of
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        finally:
            flow, collate = loader.stats().total, loader.stats().collate
            loader.close()
        times = flow.fetching, flow.collating
        self._note(run=Run(flow.batches, flow.samples, flow.bytes, *times, collate.padding, error))


def is_stuck(bad: BadSample) -> bool:
    """Did it not come to an end? Otherwise it ended its worker."""
    return "stuck for" in bad.error


def _grows_enough(rounds: list[int]) -> bool:
    """There is no need to fill the machine."""
    return len(rounds) >= LEAST_ROUNDS and rounds[-1] - rounds[0] > ENOUGH


def _place_in(said: list[str], mishap: Mishap) -> Line | None:
    """Where it stood, as feedline's own report of it has it: the innermost line that is not a library's."""
    for text in said:
        if f"{mishap.index}" in text:
            for file, number, function in re.findall(r'File "(.+?)", line (\d+) in (\S+)', text):
                if not is_librarys(file):
                    return Line(file, int(number), function)
    return None


def spread(length: int, most: int) -> list[int]:
    """Indices over the whole dataset, one at random out of each of `most` equal parts, in a mixed order.

    >>> sorted(spread(5, 10)), len(set(spread(10_000, 100)))
    ([0, 1, 2, 3, 4], 100)
    """
    draw = random.Random(SEED)
    count = min(length, most)
    bounds = [part * length // count for part in range(count + 1)]
    chosen = [draw.randrange(low, high) for low, high in pairwise(bounds)]
    chosen[-1] = length - 1
    draw.shuffle(chosen)
    return chosen


@contextlib.contextmanager
def _quietly() -> Iterator[list[str]]:
    """Warnings and logged mishaps are evidence here, and not for the screen."""
    log = logging.getLogger("feedline")
    disabled = log.disabled
    said: list[str] = []
    log.disabled = True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield said
            finally:
                said += [str(each.message) for each in caught]
    finally:
        log.disabled = disabled


def examine(patient: Patient, seconds: float, num_workers: int) -> Evidence:
    """Examine the patient within about that many seconds."""
    return Examination(patient, seconds, num_workers).run()
