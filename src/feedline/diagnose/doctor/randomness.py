"""Randomness and shared memory: repeated draws, results that cannot be reproduced, samples that alias the data.

Takes: evidence. Gives: findings "changes-dataset", "aliases-dataset", "fixed-seed", "same-every-epoch",
"stored-generator", "non-deterministic", "stream-duplicates", "read-whole".
Not its job: what feedline prevents itself; but if torch's own loader would not prevent it, the finding says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from feedline.diagnose.doctor.evidence import Evidence, Reading
from feedline.diagnose.doctor.wording import field_name, indices, some
from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding
from feedline.observe.report.report_verdict import percent

LEAST = 4
"""The fewest samples for a statement about seeds."""
DUPLICATED, CHANCE = 0.4, 0.05
"""The share of elements that came before: with two workers, half of them; and what one worker alone may show."""
RNG = """rng = feedline.rng()          # a NumPy generator: a function of seed, epoch and sample
noise = rng.normal(size=shape)"""


def check_aliasing(seen: Evidence) -> Iterator[Finding]:
    """Samples that share memory with the dataset, and reading that writes to it."""
    changed = [reading for reading in seen.good if reading.changed]
    shared = [reading for reading in seen.good if reading.shared]
    if changed:
        path = changed[0].changed[0]
        yield Finding(
            "changes-dataset",
            PROBLEM,
            f"Reading changes the data: {field_name(path)} of {some(indices(changed))} was different when read again",
            {"field": path, "indices": indices(changed)},
            "The sample is a view on the dataset's own memory, and __getitem__ writes to it (+=, *=, out=, a transform "
            "in place). Every epoch starts from what the one before has left; workers each change their own copy.",
            "copy the sample before you change it.",
            "x = self.data[index].copy()     # torch: .clone()",
        )
    elif shared:
        as_they_are = seen.setting.collates == "none" or any(each.aliases for each in seen.collating)
        path, aliases = shared[0].shared[0], seen.setting.aliases and as_they_are
        handed_on = "and so is what the loader hands out" if aliases else "feedline's batches are copies of it"
        yield Finding(
            "aliases-dataset",
            WARNING if aliases else OK,
            f"{field_name(path)} is a view on the dataset's memory; {handed_on}",
            {"field": path, "indices": indices(shared)},
            "Whoever writes to a sample (in a transform, in collate_fn) changes the dataset, and every later epoch. "
            "With torch's own loader and no workers, that goes for batches that are not stacked, too.",
            "copy a sample before you change it.",
            "x = self.data[index].copy()     # torch: .clone()",
        )


def check_seeds(seen: Evidence) -> Iterator[Finding]:
    """Generators seeded while a sample is read."""
    seeding = [reading for reading in seen.good if reading.seeds]
    if len(seeding) < LEAST or len(seeding) < len(seen.good) // 2:
        return
    known = Counter(pair for reading in seeding for pair in reading.seeds)
    (function, seed), count = known.most_common(1)[0]
    if count > len(seeding) // 2:
        yield Finding(
            "fixed-seed",
            WARNING,
            f"{function}({seed}) is called while samples are read: all draw the same random numbers",
            {"function": function, "seed": seed, "samples": count, "read": len(seen.good)},
            "Every sample gets the same augmentation, in every worker and in every epoch.",
            "leave the seeding to the loader. For random numbers of a sample, use feedline.rng().",
            RNG,
        )
    elif _same_in_any_epoch(seen):
        function = seeding[0].seeds[0][0]
        yield Finding(
            "same-every-epoch",
            NOTE,
            f"{function}(…) is called with a seed that depends on the sample alone",
            {"function": function, "samples": len(seeding)},
            "A sample then gets the same augmentation in every epoch. For evaluation that is right; in training most "
            "of what augmentation is for is lost.",
            "use feedline.rng(): it differs from epoch to epoch, and is the same when a run is repeated.",
            RNG,
        )


def _same_in_any_epoch(seen: Evidence) -> bool:
    before = {reading.index: reading.seeds for reading in seen.good}
    pairs = [(before.get(reading.index), reading.seeds) for reading in seen.reseeded if reading.seeds]
    return len(pairs) >= LEAST and all(first == second for first, second in pairs)


def check_generators(seen: Evidence) -> Iterator[Finding]:
    """Generators among the dataset's attributes."""
    paths = seen.carried.generators
    if paths:
        yield Finding(
            "stored-generator",
            WARNING if seen.setting.threads or _differing(seen.readings, seen.again) else NOTE,
            f"{some(paths)} is a random generator, of which every worker gets a copy",
            {"paths": paths},
            "All copies begin in the same state: if samples draw from it, worker processes draw the same numbers, and "
            "so does every epoch whose workers are started anew; worker threads draw from one in an order that depends "
            "on timing. (An order that is drawn once is the same in all workers: that is as it should be.)",
            "draw from feedline.rng() instead: it belongs to the sample, not to the worker.",
            RNG,
        )


def check_determinism(seen: Evidence) -> Iterator[Finding]:
    """The same index and seed give another result."""
    if seen.setting.stream or seen.carried.generators or any(reading.changed for reading in seen.good):
        return  # a generator that the dataset holds is reported by itself
    differing = _differing(seen.readings, seen.again)
    if not differing:
        return
    paths = _paths_that_differ(seen, differing)
    yield Finding(
        "non-deterministic",
        WARNING,
        f"{len(differing):,} of {len(seen.again):,} samples differed when they were read again with the same seed: "
        f"{some(indices(differing))}",
        {"indices": indices(differing), "read": len(seen.again), "fields": paths},
        "The result depends on something besides the index and the seed: the time, the operating system's "
        "randomness, a generator of a kind nobody can seed, threads, or what was read before (state that __getitem__ "
        "changes). A run cannot be repeated then, nor resumed exactly.",
        "draw from feedline.rng(), and keep no state between samples that changes results.",
        RNG,
    )


def _differing(first: tuple[Reading, ...], second: tuple[Reading, ...]) -> list[Reading]:
    before = {reading.index: reading for reading in first}
    pairs = [(before[each.index], each) for each in second if each.index in before]
    return [later for early, later in pairs if not early.error and not later.error and early.digest != later.digest]


def _paths_that_differ(seen: Evidence, differing: list[Reading]) -> list[str]:
    before = {reading.index: reading for reading in seen.readings}
    found = [
        field.path
        for reading in differing
        for field, other in zip(reading.fields, before[reading.index].fields, strict=False)
        if field != other
    ]
    return list(dict.fromkeys(found))


def check_duplicates(seen: Evidence) -> Iterator[Finding]:
    """A stream whose elements come once for each worker, or would with torch."""
    if not seen.setting.stream:
        return
    alone, together = _repeated(seen.readings), _repeated(seen.again)
    if together >= DUPLICATED and alone <= CHANCE and len(seen.again) >= 2 * LEAST:
        yield Finding(
            "stream-duplicates",
            PROBLEM,
            f"With two workers {percent(together)} of the stream's elements come twice",
            {"repeated": round(together, 3), "repeated_with_one_worker": round(alone, 3), "read": len(seen.again)},
            "__iter__ asks get_worker_info(), by which feedline takes it to share the data out among workers; but each "
            "of them gives everything.",
            "give each worker its own part.",
            _SHARING,
        )
    elif seen.read_whole:
        yield Finding(
            "read-whole",
            WARNING,
            "Every worker reads the whole stream",
            {"workers": seen.read_whole},
            "feedline keeps each element once, but reading is done by each worker: more workers are no faster. "
            "Under torch's own loader every element would come once per worker.",
            "tell workers how to share the stream: a method of the dataset, or get_worker_info() in __iter__.",
            _SHARING,
        )


_SHARING = """def shard(self, index, count):          # asked by each worker for its part
    return Stream(self.files[index::count])"""


def _repeated(readings: tuple[Reading, ...]) -> float:
    return 1 - len({reading.digest for reading in readings}) / len(readings) if readings else 0.0


CHECKS = (check_aliasing, check_seeds, check_generators, check_determinism, check_duplicates)
