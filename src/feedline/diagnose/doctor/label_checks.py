"""Labels: all the same, sorted, or some classes rare.

Takes: evidence. Gives: findings "constant-label", "labels-all-zero", "sorted-by-label", "class-imbalance".
Promises: silent about what may be chance, and about samples without a field that looks like a label.
Not its job: the rest of a sample (sample_values).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import sqrt
from typing import Any

from feedline.diagnose.doctor.evidence import ARRAY, NUMBER, TEXT, Column, Evidence
from feedline.diagnose.findings import NOTE, PROBLEM, WARNING, Finding

LEAST = 16
"""With fewer labels nothing is said: a class of one half is missed by chance once in 65,000 times."""
NAMES = {"label", "labels", "target", "targets", "y", "class", "category", "class_id", "label_id", "cls"}
SORTED = 0.2
"""The number of changes from one sample to the next, as a share of that in a shuffled order."""
LEAST_CHANGES = 8
UNBALANCED = 10.0
"""The ratio of the largest class to the smallest; below this, weighting changes little."""


def label_path(seen: Evidence) -> str | None:
    """The path of the field that is the label; None if no field looks like one."""
    chosen = seen.setting.label
    if chosen is not None:
        forms = {chosen, f"[{chosen!r}]", f".{chosen}", f"[{chosen}]"}
        return next((path for path in seen.paths if path in forms), None)
    return _likeliest(seen, [path for path in seen.paths if _seems(seen, path)])


def _likeliest(seen: Evidence, paths: list[str]) -> str | None:
    """The field with a label's name; or, in a tuple, the field with the fewest values, but with more than one."""
    named = [path for path in paths if re.sub(r"\W+", "", path.rpartition(".")[2].rpartition("[")[2]).lower() in NAMES]
    if named:
        return named[0]
    placed = {path: len(set(_values(seen, path))) for path in paths if re.fullmatch(r"\[[1-9]\d*\]", path)}
    varying = {path: count for path, count in placed.items() if count > 1} or placed
    return min(reversed(varying), key=varying.__getitem__) if varying else None


def _values(seen: Evidence, path: str) -> list[Any]:
    return [each.value for _, each in seen.column_of(path)]


def _seems(seen: Evidence, path: str) -> bool:
    """Are they integers or short texts, and not nearly all different, as an index would be?"""
    found = list(seen.column_of(path))
    values = [each.value for _, each in found]
    if len(found) < len(seen.good) or not all(_is_class(each.kind, each.value) for _, each in found):
        return False
    return len(set(values)) <= max(2, len(values) // 2)


def _is_class(kind: str, value: Any) -> bool:
    return (kind in (NUMBER, ARRAY) and isinstance(value, int)) or (kind == TEXT and isinstance(value, str))


def _labels(seen: Evidence) -> list[Any]:
    path = label_path(seen)
    return [] if path is None else _values(seen, path)


def _target_path(seen: Evidence) -> str | None:
    """The label; or else a target that is a fraction, as torch.zeros(…) makes."""
    fractions = [path for path in seen.paths if all(isinstance(value, float) for value in _values(seen, path))]
    everywhere = [path for path in fractions if len(_values(seen, path)) == len(seen.good)]
    return label_path(seen) or _likeliest(seen, everywhere)


def _column(seen: Evidence, labels: list[Any]) -> Column | None:
    """The dataset's own column, if it has the same labels as the samples."""
    return seen.column if seen.column is not None and all(label in seen.column.counts for label in labels) else None


def check_choice(seen: Evidence) -> Iterator[Finding]:
    """The user has named a label that does not exist."""
    if seen.setting.label is not None and seen.paths and label_path(seen) is None:
        yield Finding(
            "could-not-examine",
            WARNING,
            f"Could not examine labels: no sample has a field {seen.setting.label!r}",
            {"what": "labels", "label": seen.setting.label, "fields": seen.paths},
            f"There are {', '.join(path or 'the sample itself' for path in seen.paths)}.",
            "name one of these: a key, an attribute, or a place as 1.",
        )


def check_constant(seen: Evidence) -> Iterator[Finding]:
    """All samples have one label."""
    path = _target_path(seen)
    labels, column = [] if path is None else _values(seen, path), seen.column
    if len(labels) < LEAST or len(set(labels)) > 1:
        return
    label, count = labels[0], len(labels)
    evidence = {"label": label, "read": count, "field": path, "column": column.path if column else None}
    title = f"The label is {label!r} in all {count:,} samples read"
    if seen.setting.stream:
        yield Finding(
            *("constant-label", WARNING, f"{title}, the first of the stream", evidence),
            "Either the label does not depend on the element, or the stream is sorted and its first class is long.",
            "check where the label comes from; shuffle the stream's files, and then its elements.",
            "loader = DataLoader(dataset, shuffle_buffer=10_000)",
        )
    elif column is not None and len(column.counts) > 1:
        yield Finding(
            *("constant-label", PROBLEM, f"{title}, though {column.path} has {len(column.counts):,}", evidence),
            "__getitem__ gives the same label whatever the index: a fixed index, a variable left over from a loop in "
            "__init__, or a return of the wrong thing. A model learns to give that answer, and its loss looks good.",
            "use the index of the sample.",
            f"def __getitem__(self, index):\n    …\n    return image, {column.path.replace('dataset', 'self')}[index]",
        )
    elif not isinstance(label, str) and label == 0:
        words = f" {column.path} holds nothing else." if column else ""
        yield Finding(
            *("labels-all-zero", PROBLEM, f"{title}", evidence),
            f"Labels that were never filled in, or were overwritten after they had been read.{words} (If the dataset "
            "really has a single class, ignore this finding.)",
            "look for a second assignment to the labels, such as np.zeros(…) after loading them.",
        )
    else:
        yield Finding(
            *("constant-label", PROBLEM, title, evidence),
            "The label does not depend on the index. (If the dataset really has a single class, ignore this finding.)",
            "check where __getitem__ takes the label from.",
        )


def check_sorted(seen: Evidence) -> Iterator[Finding]:
    """Samples are stored class by class."""
    labels, setting = _labels(seen), seen.setting
    column = _column(seen, labels)
    if setting.balanced or len(labels) < LEAST or len(set(labels)) < 2 or (setting.loader and not setting.in_order):
        return
    if column is not None:
        counts, changes, count = column.counts, column.changes, sum(column.counts.values())
    else:
        counts, count = dict(Counter(labels)), len(labels)
        changes = sum(before != after for before, after in pairwise(labels))
    expected = (count - 1) * (1 - sum((size / count) ** 2 for size in counts.values()))
    if expected < LEAST_CHANGES or changes > SORTED * expected:
        return
    run = (setting.length or count) // (changes + 1)
    evidence = {"classes": len(counts), "changes": changes, "expected_if_mixed": round(expected), "run_length": run}
    size = setting.batch_size or 0
    title = f"Samples are stored class by class: about {run:,} of one label in a row"
    if setting.loader:
        title += ", and read in that order" + (f", so a batch of {size} has one class" if 0 < size <= run else "")
    stream = setting.stream
    yield Finding(
        *("sorted-by-label", WARNING if setting.loader else NOTE, title, evidence),
        "In training every batch then pulls towards its own class, and the model forgets the others. (For "
        "evaluation it does not matter.)",
        "shuffle the samples.",
        f"loader = DataLoader(dataset, {'shuffle_buffer=10_000' if stream else 'shuffle=True'})",
    )


def check_imbalance(seen: Evidence) -> Iterator[Finding]:
    """Classes of very different size."""
    labels = _labels(seen)
    column = _column(seen, labels)
    if seen.setting.balanced or len(labels) < LEAST or len(set(labels)) < 2:
        return
    exact = column is not None
    counts = column.counts if column is not None else dict(Counter(labels))
    most, fewest = max(counts, key=lambda label: counts[label]), min(counts, key=lambda label: counts[label])
    high, low = counts[most], counts[fewest]
    # Counts from a sample of the data are uncertain: three standard deviations are given in favour of balance.
    sure = high / low if exact else (high - 3 * sqrt(high)) / (low + 3 * sqrt(low))
    if sure < UNBALANCED or len(counts) * LEAST > sum(counts.values()):
        return
    place = column.path if column is not None else "labels"
    read = (
        ""
        if exact
        else f"labels = [dataset[index]{label_path(seen)} for index in range(len(dataset))]  # once; keep it\n"
    )
    about = "" if exact else "about "
    yield Finding(
        "class-imbalance",
        WARNING,
        f"Label {most!r} is {about}{high / low:,.0f} times as frequent as {fewest!r}",
        {"largest": most, "smallest": fewest, "ratio": round(high / low, 1), "classes": len(counts), "exact": exact},
        "A model reaches a low loss by ignoring the rare class, and many batches have none of it.",
        "draw rare classes more often, or have each class in each batch.",
        f"{read}weights = feedline.weights_from_labels({place})\n"
        "sampler = feedline.WeightedRandomSampler(weights, len(dataset))\n"
        "loader = DataLoader(dataset, sampler=sampler)\n"
        f"# or: batch_sampler=feedline.StratifiedBatchSampler({place}, batch_size=64)",
    )


CHECKS = (check_choice, check_constant, check_sorted, check_imbalance)
