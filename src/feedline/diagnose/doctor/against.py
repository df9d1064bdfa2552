"""Two datasets compared: which samples are in both?

Takes: two `Patient`s and seconds. Gives: `Overlap`.
Promises: samples are read in worker processes, as everywhere in the examination; half of the time is for the smaller
dataset, the rest for the larger one. Parts of one dataset are compared by their indices.
Not its job: judging (overlap). Samples that are changed at random when they are read are not recognised.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from feedline.datasets import IntArray
from feedline.diagnose.doctor.evidence import Overlap
from feedline.diagnose.doctor.patient import SEED, Patient, spread
from feedline.diagnose.doctor.probe import Contents, content_of, same
from feedline.errors import FeedlineError, StalledSample, TooManyErrors, WorkerDied
from feedline.errors.foreign import ask

MOST = 50_000
"""The most samples read from each: what is remembered of them takes 10 MB."""


def compared(one: Patient, other: Patient, seconds: float, workers: int, limit: float) -> Overlap:
    """What both have in common."""
    lengths = one.setting.length, other.setting.length
    shared = _shared_indices(one.dataset, other.dataset)
    if shared:
        return Overlap(other.name, tuple(shared), (lengths[0] or 0, lengths[1] or 0), lengths, by_index=True)
    patients = (one, other)
    smaller = 1 if (lengths[1] or math.inf) <= (lengths[0] or math.inf) else 0
    until = time.monotonic() + seconds
    found: dict[int, tuple[dict[str, Any], int, int]] = {}
    for place, share in ((smaller, seconds / 2), (1 - smaller, seconds)):
        found[place] = _contents(patients[place], max(share - seconds + until - time.monotonic(), 0), workers, limit)
    (here, mine, mute), (there, theirs, other_mute) = found[0], found[1]
    pairs = tuple((here[key], index) for key, index in there.items() if key in here)
    return Overlap(other.name, pairs, (mine, theirs), lengths, alike=(mute, other_mute))


def _contents(patient: Patient, seconds: float, workers: int, limit: float) -> tuple[dict[str, Any], int, int]:
    """The contents of samples that can be told apart, with their indices (of equal ones, the first); how many such
    samples were read, and how many others."""
    stream = patient.setting.stream
    options: dict[str, Any] = {"batch_size": None, "collate_fn": content_of if stream else same}
    if not stream:
        options["sampler"] = spread(patient.setting.length or 0, MOST)
    data = patient.dataset if stream else Contents(patient.dataset)
    loader = patient.loader(data, SEED, workers, limit, **options)
    found: dict[str, Any] = {}
    until, read, telling = math.inf, 0, 0
    try:
        for index, key in loader:
            until = min(until, time.monotonic() + seconds)  # from the first sample on: workers may start slowly
            if key:
                found.setdefault(key, read + len(loader.errors()) if stream else index)  # failed ones have numbers, too
                telling += 1
            read += 1
            if time.monotonic() > until or read >= MOST:
                break
    except (TooManyErrors, StalledSample, WorkerDied) as error:
        if not found:
            raise FeedlineError(f"{patient.name} could not be read: {error}") from error
    finally:
        loader.close()
    return found, telling, read - telling


def _shared_indices(one: Any, other: Any) -> list[tuple[int, int]]:
    """If both are parts of one dataset: the positions, in each, of the samples that both have."""
    (base, here), (same_base, there) = _resolved(one), _resolved(other)
    if base is not same_base or here is None or there is None:
        return []
    _, first, second = np.intersect1d(here, there, return_indices=True)
    return list(zip(first.tolist(), second.tolist(), strict=True))


def _resolved(dataset: Any) -> tuple[Any, IntArray | None]:
    """The dataset that this is a part of, and the indices there; None if that is unknown."""
    try:
        indices: IntArray = np.arange(len(dataset))
        while type(dataset).__name__ == "Subset":  # ours and torch's
            indices = np.asarray(ask(dataset, "indices"), np.int64)[indices]
            dataset = ask(dataset, "dataset")
    except Exception:
        return dataset, None
    return dataset, indices
