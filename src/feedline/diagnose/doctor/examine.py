"""The examination: reads and runs the patient within a time limit, and records what it saw.

Takes: a `Patient` and seconds. Gives: `Evidence`.
Promises: the user's samples are read in worker processes under feedline's own supervision, so a sample that hangs or
kills is seen, named and left out; a part of the examination that fails does not stop the others. It takes about the
given seconds, and more if samples hang: each may take a sixth of them.
Not its job: what runs in the workers (probe), judging (the checks).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from feedline.arena.limits import room
from feedline.diagnose.doctor.against import compared
from feedline.diagnose.doctor.evidence import Carried, DeadlySample, Evidence, Reading, Run
from feedline.diagnose.doctor.lines import line_in
from feedline.diagnose.doctor.patient import GUESSED_BATCH, SEED, Patient, column_of, spread
from feedline.diagnose.doctor.probe import Batched, Beside, Observed, Rounds, Watched, same
from feedline.diagnose.quiet import quietly
from feedline.errors import ShippingError, StalledSample, TooManyErrors, WorkerDied
from feedline.messages.outcome import BadSample
from feedline.reading.stream_words import READ_WHOLE
from feedline.supervise.fork_hazards import running
from feedline.supervise.records import largest
from feedline.workers.carried import hazards
from feedline.workers.held_generators import generators, module_generators
from feedline.workers.shipping import weigh

MOST = 1000
"""The most samples read: enough to see a class of 1 % (0.99 ** 1000 = 0.00004)."""
REPEATED = 48
"""…of which this many are read again."""
PARTS = {
    "held": "what the dataset holds",
    "labels": "its labels",
    "memory": "memory",
    "samples": "samples",
    "repeats": "samples read again",
    "slow": "slow samples",
    "rounds": "a worker's memory",
    "threads": "threads",
    "collate": "collate_fn",
    "batches": "a run with workers",
    "against": "what it has in common with the other dataset",
}
"""In order, with their names for messages."""
SHARES = {
    "samples": 0.3,
    "repeats": 0.11,
    "slow": 0.08,
    "rounds": 0.1,
    "threads": 0.1,
    "collate": 0.07,
    "batches": 0.13,
}
"""Shares of the time. (There are two kinds of repeats.)"""
COMPARING = 0.4
"""The share of the time for comparing, if there is another dataset; the other parts share the rest."""
OF_SAMPLES = ("samples", "repeats", "slow")
"""Parts whose tasks are samples. In other parts a long task is our own: on a busy machine it may seem stuck."""
ROUND = 16
WORTH_A_TRIAL = 0.001
"""Seconds that a sample must take for threads to matter."""
MOST_BESIDE = 256
"""Samples read while we sometimes look: at 1 ms each, they take as long as 32 looks next to Python code."""
MOST_ROUNDS, LEAST_ROUNDS, ENOUGH = 40, 8, 128 << 20
"""The most rounds over the same samples; and the rounds and bytes after which growth is seen well enough."""
PICKLE = 64 << 20
"""Bytes of a pickle after which counting stops: some seconds of starting workers that are not forked."""
SUSPECTS = 8


class Examination:
    """The examination of one patient, part after part."""

    def __init__(self, patient: Patient, seconds: float, num_workers: int, other: Patient | None = None) -> None:
        self._patient = patient
        self._other = other
        self._comparing = 0.0 if other is None else COMPARING * seconds
        self._seconds = seconds = seconds - self._comparing
        self._workers = num_workers
        self._limit = max(0.5, seconds / 6)
        self._indices = spread(patient.setting.length or 0, MOST)
        self._found = Evidence(setting=patient.setting, limit=self._limit, construction=patient.construction)

    def run(self, *parts: str) -> Evidence:
        """Run all parts, or those named."""
        began = time.monotonic()
        with quietly(collect=True) as said:
            for name, words in PARTS.items():
                if not parts or name in parts:
                    self._guarded(words, getattr(self, name))
        whole = [number for number in (2, self._workers) for text in said if READ_WHOLE.format(shards=number) in text]
        deadly = tuple(
            each._replace(where=line_in([*said, each.error], each.index)) for each in self._found.deadly_samples
        )
        took = time.monotonic() - began
        return replace(self._found, read_whole=max(whole, default=0), deadly_samples=deadly, seconds=took)

    def _guarded(self, name: str, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"[:500]
            self._note(troubles=(*self._found.troubles, (name, words)))

    def _note(self, **seen: Any) -> None:
        self._found = replace(self._found, **seen)

    # Without reading

    def held(self) -> None:
        """What is carried into workers."""
        dataset, job = self._patient.dataset, self._patient.job
        weight, refused = 0, ""
        try:
            weight = weigh(job, PICKLE)
        except ShippingError as error:
            refused = str(error)
        held = tuple((what, tuple(paths)) for what, paths in hazards(dataset))
        drawn = tuple(each.path for each in (*generators(job), *module_generators(job)))
        method, threads = multiprocessing.get_context().get_start_method(), tuple(running())
        large = largest(dataset) or ""
        self._note(carried=Carried(held, refused, weight, weight < PICKLE, large, drawn, method, threads))

    def labels(self) -> None:
        """The dataset's own column of labels."""
        self._note(column=column_of(self._patient.dataset, self._patient.setting.length))

    def memory(self) -> None:
        """How much memory there is."""
        left = room()
        if left is not None:
            self._note(free=left.free, limit_of_memory=left.limit)

    # Samples

    def samples(self) -> None:
        """Samples spread over the dataset; of a stream, its beginning."""
        if self._patient.setting.stream:
            read = self._elements("samples", 1)
        else:
            self._begin()
            read = sorted(self._readings("samples", self._indices), key=lambda reading: reading.index)
        self._note(readings=(*read, *self._found.readings))

    def _begin(self) -> None:
        """Read one sample without a short time limit: a worker that loads something first is not stuck."""
        limit, deadly_samples = self._limit, self._found.deadly_samples
        self._limit = max(limit, self._seconds / 2)
        read: list[Reading] = []
        with contextlib.suppress(Exception):  # if something is wrong, the samples will show it
            read = self._readings("slow", self._indices[:1])
        first = read[0].seconds if read else 0.0
        self._limit = max(limit, 2 * first)
        self._note(deadly_samples=deadly_samples, first=first, limit=self._limit)

    def repeats(self) -> None:
        """Some samples again, by two workers; and with another seed."""
        if self._found.deadly_samples or not self._found.good:  # no time for those to happen again
            return
        if self._patient.setting.stream:
            self._note(again=tuple(self._elements("repeats", 2)))
        elif self._patient.seeds_all:  # in the same order as before: then each has the same seed
            few = self._indices[: min(REPEATED, len(self._found.readings))]
            self._note(again=tuple(self._readings("repeats", few, workers=2)))
            self._note(reseeded=tuple(self._readings("repeats", few, seed=SEED + 1)))

    def slow(self) -> None:
        """Samples that took long, again."""
        long = self._found.long
        # The slowest: on a busy machine many a sample may have waited for a core.
        slow = sorted((each for each in self._found.good if each.seconds > long), key=lambda each: -each.seconds)
        suspects = [reading.index for reading in slow[:SUSPECTS]]
        quick = [reading.index for reading in self._found.good if reading.seconds <= long][:1]
        if suspects and not self._patient.setting.stream:
            # After others: the first sample of a worker may be slow, because modules are imported and files opened.
            self._note(reread=tuple(self._readings("slow", [*quick, *suspects])[len(quick) :]))

    def _elements(self, part: str, workers: int) -> list[Reading]:
        dataset = self._patient.dataset
        got = self._loaded(part, dataset, workers, collate_fn=Observed(type(dataset).__module__))
        failed = {reading.index for reading in self._found.readings if reading.error}
        places = (place for place in itertools.count() if place not in failed)  # elements that failed have numbers, too
        return [replace(each, index=place) for place, each in zip(places, got, strict=False)]

    def _readings(self, part: str, indices: list[Any], workers: int = 1, seed: int = SEED) -> list[Reading]:
        if not indices:
            return []
        watched = Watched(self._patient.dataset, twice=part == "samples")
        return self._loaded(part, watched, workers, seed, sampler=indices)

    def _loaded(self, part: str, dataset: Any, workers: int = 1, seed: int = SEED, **options: Any) -> list[Any]:
        """What the loader gives in the part's time. It begins with the first sample: workers may start slowly."""
        until = math.inf
        options = {"batch_size": None, "collate_fn": same, **options}
        loader = self._patient.loader(dataset, seed, workers, self._limit, **options)
        got: list[Any] = []
        try:
            for value in loader:
                got.append(value)
                until = min(until, time.monotonic() + SHARES[part] * self._seconds)
                # Has memory grown enough to be sure? The machine need not be filled.
                grown = part == "rounds" and len(got) >= LEAST_ROUNDS and got[-1] - got[0] > ENOUGH
                if time.monotonic() > until or len(got) >= MOST or grown:
                    break
        except TooManyErrors:
            pass  # all of them are in loader.errors()
        except (StalledSample, WorkerDied) as error:
            if not self._patient.setting.stream:
                raise
            place = len(got) + sum(bool(each.trace) for each in loader.errors())
            deadly_sample = DeadlySample(place, "", str(error), isinstance(error, StalledSample))  # nothing follows
            self._note(deadly_samples=(*self._found.deadly_samples, deadly_sample))
        finally:
            self._take_down(part, loader.errors())
            loader.close()
        return got

    def _take_down(self, part: str, bad: list[BadSample]) -> None:
        """Record what hung or died; in a stream, also what failed. (In a map-style dataset that is a reading.)"""
        if part in OF_SAMPLES:
            deadly = (DeadlySample.of(each) for each in bad if not each.trace)
            self._note(deadly_samples=(*self._found.deadly_samples, *deadly))
        if part == "samples" and self._patient.setting.stream:
            failed = [Reading(each.place, error=each.error, what=each.what) for each in bad if each.trace]
            self._note(readings=(*self._found.readings, *failed))

    # Other work, where each task is long: it must not be taken for stuck

    def _readable(self) -> list[Any]:
        """The indices of a map-style dataset that can be read again."""
        return [] if self._patient.setting.stream else [reading.index for reading in self._found.good]

    def _affordable(self, seconds: float) -> int:
        """How many samples can be read in that time."""
        return int(seconds / max(self._found.usual, 1e-6))

    def rounds(self) -> None:
        """A worker's memory, while it reads the same samples repeatedly."""
        few = self._readable()[: min(ROUND, self._affordable(self._limit / 4))]
        if few:
            rounds = self._loaded("rounds", Rounds(self._patient.dataset, few), sampler=range(MOST_ROUNDS))
            self._note(rounds=tuple(rounds), round_size=len(few))

    def threads(self) -> None:
        """Does reading hold the GIL?"""
        few = self._readable()[: min(MOST_BESIDE, self._affordable(SHARES["threads"] * self._seconds))]
        if self._found.usual >= WORTH_A_TRIAL and len(few) >= 4:
            for looks in self._loaded("threads", Beside(self._patient.dataset, few), sampler=[0]):
                self._note(looks=looks)

    def collate(self) -> None:
        """The user's own collate_fn, by itself."""
        patient = self._patient
        batches = self._some_batches(8, self._affordable(self._limit / 4))
        if patient.setting.collates == "own" and patient.collate_fn is not None and batches:
            batched = Batched(patient.dataset, batches, patient.collate_fn)
            self._note(collating=tuple(self._loaded("collate", batched, sampler=range(len(batches)))))

    def _some_batches(self, most: int, longest: int) -> list[list[Any]]:
        indices = self._readable()
        mixed = random.Random(SEED).sample(indices, len(indices))
        size = max(1, min(self._patient.setting.batch_size or GUESSED_BATCH, longest))
        return [mixed[start : start + size] for start in range(0, min(len(mixed), most * size), size)]

    def batches(self) -> None:
        """A run with workers and the user's own way to collate."""
        patient, setting = self._patient, self._patient.setting
        longest = self._affordable(SHARES["batches"] * self._seconds)  # the time is checked only between batches
        if not self._found.good or setting.collates == "none" or longest < 2:
            return
        options: dict[str, Any] = {"collate_fn": patient.collate_fn}
        if setting.stream:
            options["batch_size"] = min(setting.batch_size or GUESSED_BATCH, longest)
        elif patient.batch_sampler is not None and longest >= GUESSED_BATCH:
            options["batch_sampler"] = patient.batch_sampler
        else:
            options["batch_sampler"] = self._some_batches(64, longest)
        self._note(run=self._run(patient.loader(patient.dataset, SEED, self._workers, self._limit, **options)))

    def against(self) -> None:
        """Samples that are also in another dataset."""
        if self._other is not None:
            self._note(overlap=compared(self._patient, self._other, self._comparing, self._workers, self._limit))

    def _run(self, loader: Any) -> Run:
        until = time.monotonic() + SHARES["batches"] * self._seconds
        error = ""
        try:
            for _ in loader:
                if time.monotonic() > until:
                    break
        except TooManyErrors:
            pass  # those have been reported
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        finally:
            stats = loader.stats()
            loader.close()
        return Run(stats.total.batches, stats.collate.padding, error)
