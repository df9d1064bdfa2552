"""The same sample more than once: in another dataset, or in this one; and samples without content.

Takes: evidence. Gives: findings "overlap", "overlap-unseen", "no-overlap", "duplicate-samples", "zero-inputs".
Not its job: comparing (against); a stream's elements that come once per worker (randomness).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from feedline.diagnose.doctor.evidence import Evidence, Overlap
from feedline.diagnose.doctor.wording import agree, indices, some
from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding

BY_CHANCE = 0.01
"""The share of duplicates in large public datasets; above this, a split went wrong."""
MANY = 0.05
"""The share of duplicates from which on they affect training."""
LEAST = 4
LISTED = 50


def check_overlap(seen: Evidence) -> Iterator[Finding]:
    """Training samples in the validation data."""
    found = seen.overlap
    if found is None:
        return
    here, there = found.compared
    evidence = {
        "other": found.other,
        "pairs": [list(pair) for pair in found.pairs[:LISTED]],
        "count": len(found.pairs),
        "compared": list(found.compared),
        "lengths": list(found.lengths),
        "alike": list(found.alike),
    }
    if found.pairs:
        share = _share(found)
        yield Finding(
            "overlap",
            PROBLEM if share > BY_CHANCE else WARNING,
            f"{len(found.pairs):,} of {there:,} samples of {found.other} {agree(len(found.pairs), 'is', 'are')} among "
            f"{here:,} of this dataset: {some([f'{mine} (there {theirs})' for mine, theirs in found.pairs])}",
            {**evidence, "share": round(share, 4)},
            f"{_whole(found, share)}A model that is validated on what it was trained on seems to be better than it is. "
            "A split drawn anew in each run, or one by files of which some are copies of others, does that.",
            "split once, by something that belongs to the sample (its file's name, its patient), and not by chance.",
            "parts = feedline.split(dataset, {'train': 0.9, 'val': 0.1}, keys=names)",
        )
    elif _is_augmented(seen):
        yield Finding(
            "overlap-unseen",
            NOTE,
            f"It is unknown what {found.other} has in common with it: samples are changed at random when they are read",
            evidence,
            "Samples are compared by their content, and that differs each time.",
            "compare the datasets without their augmentation.",
        )
    elif min(here, there) == 0:
        yield Finding(
            "overlap-unseen",
            NOTE,
            f"It is unknown what {found.other} has in common with it: samples cannot be told apart",
            evidence,
            "Samples are compared by their arrays, lists of numbers, numbers with fractions or texts; these have none, "
            "or very few or short ones.",
            "compare what identifies a sample (paths, keys) by hand.",
        )
    else:
        title = f"None of {there:,} samples of {found.other} is among {here:,} of this dataset"
        left = sum(found.alike)
        more = f"; {left:,} more were read that cannot be told apart, and may be in both" if left else ""
        yield Finding("no-overlap", NOTE if left else OK, title + more, evidence)


def _share(found: Overlap) -> float:
    """The share of the other dataset that is in both, if the samples not compared are like those that were."""
    (here, there), length = found.compared, found.lengths[0]
    seen = here / length if length else 1.0
    return min(1.0, len(found.pairs) / max(there, 1) / max(seen, 1e-9))


def _whole(found: Overlap, share: float) -> str:
    if found.by_index or found.compared == found.lengths:
        return ""
    return f"Not all samples were compared: in all, about {100 * max(share, 0.001):.1f} % of {found.other} would be. "


def _is_augmented(seen: Evidence) -> bool:
    before = {reading.index: reading.content for reading in seen.good}
    pairs = [(before[each.index], each.content) for each in seen.reseeded if each.index in before and not each.error]
    return len(pairs) >= LEAST and sum(first != second for first, second in pairs) > len(pairs) // 2


def check_repeated(seen: Evidence) -> Iterator[Finding]:
    """The same sample at several indices."""
    if seen.setting.stream:
        return
    places: dict[str, list[Any]] = defaultdict(list)
    for reading in seen.good:
        if reading.content and not reading.seeds:  # otherwise the seed may make them equal, which is reported elsewhere
            places[reading.content].append(reading.index)
    groups = sorted((group for group in places.values() if len(group) > 1), key=len, reverse=True)
    extra = sum(len(group) - 1 for group in groups)
    if not extra:
        return
    total = sum(map(len, places.values()))
    yield Finding(
        "duplicate-samples",
        WARNING if extra > MANY * total else NOTE,
        f"{extra:,} of {total:,} samples read {agree(extra, 'is a copy', 'are copies')} of another: "
        f"{some([' = '.join(map(str, group[:3])) for group in groups])}",
        {"groups": groups[:LISTED], "copies": extra, "compared": total},
        "Inputs are compared, not labels. Copies count more than once in training; if samples are split at random, "
        "validation knows them from training. Does __getitem__ use its index?",
        "leave copies out, or keep them together when splitting. (Rare classes are better drawn more often by a "
        "sampler than copied.)",
        "parts = feedline.split(dataset, {'train': 0.9, 'val': 0.1}, groups=originals)",
    )


def check_blank(seen: Evidence) -> Iterator[Finding]:
    """Samples that are all zeros."""
    blank = [reading for reading in seen.good if reading.blank]
    if blank:
        yield Finding(
            "zero-inputs",
            WARNING,
            f"{len(blank):,} of {len(seen.good):,} samples {agree(len(blank), 'is', 'are')} all zeros: "
            f"{some(indices(blank))}",
            {"indices": indices(blank), "read": len(seen.good)},
            "A file that could not be read and was replaced by zeros, or an array that was made and never filled. The "
            "model learns their labels from nothing.",
            "raise an error in __getitem__ instead; the loader then leaves the sample out, and lists it.",
            'loader = DataLoader(dataset, on_error="skip", error_log="bad-samples.jsonl")',
        )


CHECKS = (check_overlap, check_repeated, check_blank)
