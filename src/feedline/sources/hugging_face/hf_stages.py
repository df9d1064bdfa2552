"""What a stream of `datasets` is made of: its stages, from the source to the last map.

Takes: a `datasets.IterableDataset`. Gives: `obstacle`: what makes its shards, read apart, give other elements than the
whole; `apart`: the same stream with a place of its own; `keeps_place`: is its state exact? `drawn`: its generators.
Promises: a stage that is not known is an obstacle, and has no exact state, so a later version of `datasets` costs time
and no elements.
Not its job: reading (hf_stream).
"""

from __future__ import annotations

import copy
from typing import Any

_MODULE = "datasets.iterable_dataset"
_DIVISIBLE = (
    "ExamplesIterable",
    "ArrowExamplesIterable",
    "SelectColumnsIterable",
    "FormattedExamplesIterable",
    "BufferShuffledExamplesIterable",
    "InterleavedShardsExamplesIterable",  # what a shuffle buffer reads from
    "VerticallyConcatenatedMultiSourcesExamplesIterable",
)
_FUNCTIONS = ("MappedExamplesIterable", "FilteredExamplesIterable")
_WORDS = {
    "TakeExamplesIterable": "take(n)",
    "SkipExamplesIterable": "skip(n)",
    "RepeatExamplesIterable": "repeat(n)",
    "CyclingMultiSourcesExamplesIterable": "interleave_datasets(…)",
    "RandomlyCyclingMultiSourcesExamplesIterable": "interleave_datasets(…)",
    "HorizontallyConcatenatedMultiSourcesExamplesIterable": "concatenate_datasets(…, axis=1)",
}
BATCHED = "a function with batched=True"


def obstacle(dataset: Any, row_by_row: bool = False) -> str | None:
    """What in it is not the same for its shards as for the whole, in the user's words; None if nothing is.

    With `row_by_row`, functions with batched=True do to a row what they would do to it alone.

    >>> import datasets
    >>> stream = datasets.Dataset.from_dict({"x": range(8)}).to_iterable_dataset(num_shards=2)
    >>> obstacle(stream.filter(bool)), obstacle(stream.skip(3).filter(bool))
    (None, 'skip(n)')
    """
    return _obstacle(dataset._ex_iterable, row_by_row)


def _obstacle(stage: Any, row_by_row: bool) -> str | None:
    kind = _kind(stage)
    if kind in _FUNCTIONS:
        found = _of_function(stage, row_by_row)
    elif kind == "RebatchedArrowExamplesIterable":
        found = "drop_last_batch" if getattr(stage, "drop_last_batch", True) else None
    else:
        found = None if kind in _DIVISIBLE else _WORDS.get(kind, kind)
    return found or next(filter(None, (_obstacle(each, row_by_row) for each in _within(stage))), None)


def _of_function(stage: Any, row_by_row: bool) -> str | None:
    if getattr(stage, "with_indices", True):
        return "a function with_indices (add_column has one)"
    if not getattr(stage, "batched", True):
        return None
    if getattr(stage, "drop_last_batch", True):
        return "drop_last_batch"
    is_theirs = getattr(getattr(stage, "function", None), "__module__", "") == _MODULE
    if is_theirs and _kind(stage) == "MappedExamplesIterable":
        return "batch(…)"
    return None if row_by_row else BATCHED


def apart(dataset: Any) -> Any:
    """The same stream, but where it is being read is not in what the two share.

    Neither `copy` (its copy has the same attributes for ever) nor `shard(1, 0)` (it divides a take(n) in a
    concatenation, and shares the sources of axis=1) does this.
    """
    own = object.__new__(type(dataset))
    own.__dict__.update(dataset.__dict__)
    own._ex_iterable = _apart(dataset._ex_iterable)
    own._starting_state_dict = None
    return own


def _apart(stage: Any) -> Any:
    own = copy.copy(stage)
    if hasattr(stage, "ex_iterable"):
        own.ex_iterable = _apart(stage.ex_iterable)
    if hasattr(stage, "ex_iterables"):
        own.ex_iterables = [_apart(each) for each in stage.ex_iterables]
    return own


def keeps_place(dataset: Any) -> bool:
    """Does its state say all about where it is? That of a shuffle buffer does not."""
    return all(
        kind in _WORDS or kind in _FUNCTIONS or (kind in _DIVISIBLE and "Buffer" not in kind) or "Rebatched" in kind
        for kind in map(_kind, _all(dataset._ex_iterable))
    )


def drawn(dataset: Any) -> list[str]:
    """The state of every generator in it: one that was seeded from nothing is another in another process."""
    found = (getattr(stage, "generator", None) for stage in _all(dataset._ex_iterable))
    return [repr(each.bit_generator.state) for each in found if each is not None]


def _kind(stage: Any) -> str:
    kind = type(stage)
    return kind.__name__ if kind.__module__ == _MODULE else f"{kind.__module__}.{kind.__qualname__}"


def _within(stage: Any) -> list[Any]:
    one = getattr(stage, "ex_iterable", None)
    return [*([] if one is None else [one]), *(getattr(stage, "ex_iterables", None) or ())]


def _all(stage: Any) -> list[Any]:
    return [stage, *(each for inner in _within(stage) for each in _all(inner))]
