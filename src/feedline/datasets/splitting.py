"""Train, validation and test: a dataset split into named parts.

Takes: a map-style dataset, fractions by name, and perhaps something per sample (a label, a group or a key).
Gives: `split`, and `split_indices` for users who make their own subsets.
Promises: every sample is in exactly one part, and each part keeps the dataset's order; the same arguments give the same
parts. Ten million samples take seconds; indices are arrays, not lists.
Not its job: unnamed parts (random_split), shuffling what is read (order/samplers).

Each method gives every sample the number of its part; everything else is common to all methods.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from feedline.datasets.apportioning import apportion, fractions_of
from feedline.datasets.joining import length_of
from feedline.datasets.labels import classes_of
from feedline.datasets.per_sample import array_of
from feedline.datasets.reading import Array, Indexable, IntArray, T_co
from feedline.datasets.selecting import Subset
from feedline.datasets.stable_hash import stable_words
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_whole

PerSample = Sequence[Any] | Array | None
Numbers = npt.NDArray[np.uint16]
"""The number of the part that each sample belongs to."""


def split(
    dataset: Indexable[T_co],
    fractions: Mapping[str, float],
    *,
    labels: PerSample = None,
    groups: PerSample = None,
    keys: PerSample = None,
    seed: int = 0,
) -> dict[str, Subset[T_co]]:
    """Disjoint parts of a dataset by name, with the given fractions, which sum to 1.

    The split is random; or, with one value per sample:

    - `labels`: each label is in each part in proportion, to within one sample.
    - `groups`: no group is in two parts. Sizes are near the fractions: off by at most the largest group.
    - `keys`: by a hash of the key, the same on every machine. A sample's part depends only on its key, the fractions
      and the seed, so new samples do not move old ones. Sizes are near the fractions, not exact.

    A part keeps the dataset's order.

    >>> parts = split(range(10), {"train": 0.8, "test": 0.2}, seed=1)
    >>> {name: list(part) for name, part in parts.items()}
    {'train': [0, 1, 2, 4, 5, 7, 8, 9], 'test': [3, 6]}
    >>> parts = split(range(10), {"train": 0.5, "test": 0.5}, labels=list("aaaaaabbbb"))
    >>> {name: "".join("aaaaaabbbb"[i] for i in part) for name, part in parts.items()}
    {'train': 'aaabb', 'test': 'aaabb'}
    """
    size = length_of(dataset, "dataset")
    indices = split_indices(size, fractions, labels=labels, groups=groups, keys=keys, seed=seed)
    return {name: Subset(dataset, part) for name, part in indices.items()}


def split_indices(
    size: int,
    fractions: Mapping[str, float],
    *,
    labels: PerSample = None,
    groups: PerSample = None,
    keys: PerSample = None,
    seed: int = 0,
) -> dict[str, IntArray]:
    """The indices of each part of `split`, in ascending order.

    >>> split_indices(4, {"train": 0.5, "test": 0.5}, groups=[7, 7, 8, 8])
    {'train': array([0, 1]), 'test': array([2, 3])}
    """
    weights = fractions_of("fractions", fractions)
    seed = check_whole("seed", seed, least=0)
    given = {"labels": labels, "groups": groups, "keys": keys}
    numbers = _numbers(size, weights, {name: value for name, value in given.items() if value is not None}, seed)
    parts = {name: np.flatnonzero(numbers == number) for number, name in enumerate(fractions)}
    _tell_of_empty(parts, fractions)
    return cast("dict[str, IntArray]", parts)


def _numbers(size: int, weights: list[int], given: dict[str, Any], seed: int) -> Numbers:
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} exclude each other: pass one of them")
    given = {name: _checked(name, values, size) for name, values in given.items()}
    if "labels" in given:
        return _by_label(classes_of(given["labels"]).codes, weights, _shuffle(size, seed))
    if "groups" in given:
        return _by_group(classes_of(given["groups"], "groups").codes, weights, seed)
    if "keys" in given:
        return _by_key(given["keys"], weights, seed)
    numbers = np.empty(size, np.uint16)
    numbers[_shuffle(size, seed)] = _runs(apportion(size, weights))
    return numbers


def _shuffle(size: int, seed: int) -> IntArray:
    return np.random.default_rng(seed).permutation(size)


def _runs(counts: Sequence[int] | IntArray) -> Numbers:
    """`counts[0]` zeros, then `counts[1]` ones, and so on."""
    return np.repeat(np.arange(len(counts), dtype=np.uint16), counts)


# --- by label ---


def _by_label(codes: IntArray, weights: list[int], shuffle: IntArray) -> Numbers:
    counts = _counts_by_label(np.bincount(codes), weights)
    # Sorted by label, and shuffled within each label. Short integers: NumPy sorts 16 bits in one pass.
    short = codes.astype(np.min_scalar_type(len(counts)))
    order = shuffle[np.argsort(short[shuffle], kind="stable")]
    numbers = np.empty(len(codes), np.uint16)
    numbers[order] = np.tile(np.arange(len(weights), dtype=np.uint16), len(counts)).repeat(counts.ravel())
    return numbers


def _counts_by_label(sizes: IntArray, weights: list[int]) -> IntArray:
    """How many samples of each label (row) go to each part (column).

    Each quota is rounded down. The few samples left of a label go one each to parts whose quota was rounded, first to
    those that have got too little so far: a thousand labels of three samples each must not all round the same way.
    Labels of one size are handled together; there are few different sizes, however many labels there are.
    """
    share = np.array(weights, np.float64) / sum(weights)
    counts = np.empty((len(sizes), len(weights)), np.int64)
    owed = np.zeros(len(weights))
    labels = np.argsort(-sizes, kind="stable")
    ends = [*np.flatnonzero(np.diff(sizes[labels])) + 1, len(labels)] if len(labels) else []
    for start, end in pairwise([0, *ends]):
        size, many = int(sizes[labels[start]]), int(end - start)
        quota = size * share
        # A quota that is an integer except for the error of a float64 counts as an integer.
        whole = np.floor(quota + 1e-9 * np.maximum(quota, 1))
        cut = np.where(quota - whole > 1e-9, quota - whole, 0)
        left = many * (size - int(whole.sum()))
        owed += many * cut
        more = _rounded(np.where(cut > 0, owed, -np.inf), left, most=many)
        owed -= more
        counts[labels[start:end]] = whole.astype(np.int64) + _one_each(more, many)
    return counts


def _rounded(wanted: npt.NDArray[np.float64], total: int, most: int) -> IntArray:
    """Integers from 0 to `most` that sum to the total, close to `wanted`; 0 where `wanted` is −inf."""
    found = np.where(np.isfinite(wanted), np.clip(np.floor(wanted), 0, most), 0).astype(np.int64)
    for _ in range(abs(total - int(found.sum()))):
        up = total > found.sum()
        possible = np.isfinite(wanted) & (found < most if up else found > 0)
        missing = np.where(possible, wanted - found if up else found - wanted, -np.inf)
        found[np.argmax(missing)] += 1 if up else -1
    return found


def _one_each(more: IntArray, many: int) -> IntArray:
    """Which of `many` labels gives one more to which part: every label to equally many parts, and to none twice.

    The parts' shares form one row, which is wrapped around the labels.
    """
    ends = np.cumsum(more)
    around = np.arange(many)[:, None]
    found: IntArray = (ends - around + many - 1) // many - (ends - more - around + many - 1) // many
    return found


# --- by group ---


def _by_group(codes: IntArray, weights: list[int], seed: int) -> Numbers:
    """Groups of one size at a time, the largest first: small groups fill what is left.

    Groups of one size are shared out at random, in proportion to the room that the parts still have: so all parts get
    large and small groups alike.
    """
    random = np.random.default_rng(seed)
    sizes = np.bincount(codes)
    groups = random.permutation(len(sizes))
    groups = groups[np.argsort(-sizes[groups], kind="stable")]
    room = apportion(len(codes), weights)
    ends = [*np.flatnonzero(np.diff(sizes[groups])) + 1, len(groups)] if len(groups) else []
    part_of = np.empty(len(groups), np.uint16)
    for start, end in pairwise([0, *ends]):
        size = int(sizes[groups[start]])
        counts = _share_groups(int(end - start), size, room, random)
        part_of[groups[start:end]] = _runs(counts)
        room = [left - count * size for left, count in zip(room, counts, strict=True)]
    return part_of[codes]


def _share_groups(count: int, size: int, room: list[int], random: np.random.Generator) -> list[int]:
    """How many of `count` groups of one size each part takes."""
    open_room = [max(left, 0) for left in room]
    whole = sum(open_room)
    quotas = [divmod(count * left, whole) for left in open_room]
    counts = [quota for quota, _ in quotas]
    cut = np.array([remainder / whole for _, remainder in quotas])
    for _ in range(count - sum(counts)):
        left = [each - taken * size for each, taken in zip(room, counts, strict=True)]
        chance = cut * (np.array(left) >= size)
        if chance.any():
            part = int(random.choice(len(room), p=chance / chance.sum()))
        else:  # it fits nowhere; it does least harm in the part that lacks most
            part = int(np.argmax(left))
        counts[part] += 1
        cut[part] = 0
    return counts


# --- by key ---


def _by_key(keys: Any, weights: list[int], seed: int) -> Numbers:
    """Each part has a range of all possible hash words, in the order of the fractions.

    So a part that grows takes samples from the next one, and a part whose range stays the same keeps its samples.
    """
    words = stable_words(keys, seed)
    whole, passed, ends = sum(weights), 0, []
    for weight in weights[:-1]:
        passed += weight
        ends.append((passed << 64) // whole)
    numbers = np.zeros(len(words), np.uint16)
    for end in ends:
        numbers += words >= np.uint64(end) if end < 1 << 64 else np.uint16(0)
    return numbers


# --- one value per sample ---


def _checked(name: str, values: Any, size: int) -> Any:
    """The values unchanged, or as an array if possible: a tensor, a column of a table."""
    if isinstance(values, (str, bytes)) or not (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
        raise OptionTypeError(f"{name} must be an array or list with one value per sample; got {type(values).__name__}")
    if len(values) != size:
        raise OptionError(f"{name} must have one value per sample: the dataset has {size}, and {name} {len(values)}")
    return array_of(name, values) if hasattr(values, "__array__") else values


def _tell_of_empty(parts: dict[str, Any], fractions: Mapping[str, float]) -> None:
    for name, part in parts.items():
        if fractions[name] and not len(part):
            few = f"there are too few samples, groups or keys for a fraction of {fractions[name]}"
            warnings.warn(f"part {name!r} is empty: {few}", UserWarning, stacklevel=4)
