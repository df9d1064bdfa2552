"""Gradient accumulation: several small batches count as one large batch.

Takes: any iterable of batches (a loader of any kind, a list) and the number of batches in a group. Gives:
`accumulate`, which passes on the same batches, each with the divisor of its loss and whether it ends its group.
Promises: with a mean loss, the gradients summed over a group are those of one batch of all its samples, also for a
short last group and a short last batch. A group is read whole before its first batch is given, because its size is
known only then; so at the end of a group the loader's own `state_dict()` is exact.
Samples are counted by a batch's arrays if these are unambiguous, else feedline's loaders are asked. Nothing is
guessed: a list of arrays may be a list of samples, or the fields of a batch.
Not its job: calling backward or the optimizer; making layers that mix samples (batch norm) see the large batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_function, check_whole


@dataclass(frozen=True)
class MicroBatch:
    """One batch of a group."""

    batch: Any
    is_last: bool
    """Does its group end here? Then it is time for the optimizer's step."""
    count: float
    """The number of samples (or whatever is counted) in it."""
    total: float
    """The number in its whole group."""

    @property
    def divisor(self) -> float:
        """What to divide its mean loss by: the number of batches in the group, if all have the same size.

        >>> MicroBatch(None, is_last=True, count=8, total=32).divisor
        4.0
        """
        return self.total / self.count if self.count else math.inf


def accumulate(loader: Iterable[Any], steps: int, count: Callable[[Any], float] | None = None) -> MicroBatches:
    """The loader's batches in groups of `steps`, each with the divisor of its loss.

        for micro in accumulate(loader, steps=4):
            loss = mean_loss(model(micro.batch)) / micro.divisor
            loss.backward()
            if micro.is_last:
                optimizer.step()
                optimizer.zero_grad()

    `count(batch)` returns what the mean loss is averaged over, if not samples: for instance, tokens that are not
    padding. It is also needed if neither the batch nor its loader says how many samples there are.

    >>> import numpy as np
    >>> from feedline import DataLoader
    >>> loader = DataLoader(np.arange(11), batch_size=2)
    >>> for micro in accumulate(loader, steps=4):
    ...     print(micro.batch, micro.divisor, micro.is_last)
    [0 1] 4.0 False
    [2 3] 4.0 False
    [4 5] 4.0 False
    [6 7] 4.0 True
    [8 9] 1.5 False
    [10] 3.0 True
    """
    return MicroBatches(loader, steps, count)


class MicroBatches:
    """What `accumulate` returns: iterate it once per epoch, as its loader."""

    def __init__(self, loader: Iterable[Any], steps: int, count: Callable[[Any], float] | None = None) -> None:
        if not hasattr(loader, "__iter__"):
            raise OptionTypeError(f"loader must be an iterable of batches; got {type(loader).__name__}")
        self.loader = loader
        self.steps = check_whole("steps", steps, least=1)
        self.count: Callable[[Any], float] | None = check_function("count", count)

    def __len__(self) -> int:
        """The number of batches: as many as the loader has."""
        return len(self.loader)  # type: ignore[arg-type]  # a TypeError naming the loader's class is right

    @property
    def updates(self) -> int:
        """The number of groups, that is of optimizer steps: a learning-rate schedule needs it.

        There may be fewer if the loader skips batches with no samples left (drop_invalid, on_error="skip").

        >>> accumulate(range(10), steps=4).updates
        3
        """
        return -(-len(self) // self.steps)

    def __iter__(self) -> Iterator[MicroBatch]:
        return _Groups(iter(self.loader), self.steps, self.count, _is_stacked(self.loader), self.loader)


class _Groups(Iterator[MicroBatch]):
    """Not a generator: iteration can continue after an error of the loader, and nothing that was read is lost."""

    def __init__(
        self,
        batches: Iterator[Any],
        steps: int,
        count: Callable[[Any], float] | None,
        stacked: bool,
        loader: Any = None,
    ) -> None:
        self._batches = batches
        self._loader = loader
        self._steps = steps
        self._count = count
        self._stacked = stacked
        self._reading: list[tuple[Any, float, float]] = []
        self._ready: deque[MicroBatch] = deque()

    def __next__(self) -> MicroBatch:
        if not self._ready:
            self._read_group()
        return self._ready.popleft()  # not kept longer than the user keeps it

    def _read_group(self) -> None:
        while len(self._reading) < self._steps:
            try:
                batch = next(self._batches)
            except StopIteration:
                if not self._reading:
                    raise
                break
            self._reading.append((batch, *self._shared(batch)))
        group, self._reading = self._reading, []
        total = sum(of for _, _, of in group)
        for place, (batch, count, _) in enumerate(group, 1):
            self._ready.append(MicroBatch(batch, place == len(group), count, total))

    def _shared(self, batch: Any) -> tuple[float, float]:
        """The number in a batch, and what a rank's would be if all ranks had as many: the same without ranks."""
        share: tuple[float, float] | None = getattr(self._loader, "_share_given", None)
        if share is not None and self._count is None:
            return share
        count = self._counted(batch)
        return count, count

    def _counted(self, batch: Any) -> float:
        if self._count is not None:
            return _checked(self._count(batch))
        return samples_in(batch, getattr(self._batches, "samples_given", None), self._stacked)


def _is_stacked(loader: Any) -> bool:
    """Is it a torch loader that stacks? Then a list in a batch holds fields: samples that are tuples become a list."""
    collate = getattr(loader, "collate_fn", None)
    return getattr(collate, "__name__", "") == "default_collate" and collate.__module__.startswith("torch.")


def _checked(count: Any) -> float:
    number = float(count)
    if not 0 <= number < math.inf:
        raise OptionError(f"count(batch) must be a number of at least 0; got {count!r}")
    return int(number) if number.is_integer() else number


def samples_in(batch: Any, told: int | None = None, stacked: bool = False) -> int:
    """The number of samples in a batch: the length of the first axis of its arrays, if they agree, else `told`.

    If a list may be one of samples, its arrays are not counted, unless the batch is known to be stacked.

    >>> import numpy as np
    >>> samples_in({"image": np.zeros((8, 3, 32, 32)), "label": np.zeros(8), "path": ["…"] * 8})
    8
    >>> samples_in([np.zeros((3, 32, 32)), np.zeros((3, 32, 32))], told=2)
    2
    """
    found = _Axes(stacked)
    found.look(batch)
    if len(found.lengths) == 1:
        return found.lengths.pop()
    if told is not None:
        return told
    nothing = not found.lengths and not found.doubtful
    if nothing and isinstance(batch, (list, tuple)) and not any(isinstance(each, (list, tuple)) for each in batch):
        return len(batch)  # texts, or samples that were not collated
    reason = "it has no arrays"
    if found.lengths:
        reason = f"the first axes of its arrays are {sorted(found.lengths)}"
    elif found.doubtful:
        reason = f"its arrays are in {found.doubtful}"
    raise OptionTypeError(
        f"cannot tell how many samples a batch ({type(batch).__name__}) has: {reason}. Pass count=, a function from a "
        "batch to their number: count=len for a list of samples, count=lambda batch: len(batch[0]) for one of fields"
    )


class _Axes:
    """What the arrays of a batch say about its number of samples."""

    def __init__(self, stacked: bool) -> None:
        self.lengths: set[int] = set()
        self.doubtful = ""
        self._stacked = stacked

    def look(self, part: Any) -> None:
        """Take a part of the batch into account."""
        if (shape := getattr(part, "shape", None)) is not None:
            if len(shape):
                self.lengths.add(int(shape[0]))
        elif getattr(part, "samples_first", True) is False:
            self.doubtful = "packed rows, which hold any number of samples"
        elif not self._stacked and _may_be_samples(part):
            inside = _Axes(stacked=True)
            inside.look(part)
            if inside.lengths or inside.doubtful:
                self.doubtful = f"a {type(part).__name__} of {len(part)} alike, which may be samples or fields"
        else:
            for each in _parts(part):
                self.look(each)


def _parts(part: Any) -> Iterable[Any]:
    if isinstance(part, Mapping):
        return part.values()
    if isinstance(part, (list, tuple)):
        return part
    return [getattr(part, field.name) for field in fields(part)] if is_dataclass(part) else ()


def _may_be_samples(part: Any) -> bool:
    """Is it a list or tuple of similar things? Fields mostly differ in dtype or number of axes; samples do not."""
    if not isinstance(part, (list, tuple)) or hasattr(part, "_fields"):
        return False
    kinds = {_kind(each) for each in part}
    return len(kinds) == 1 and None not in kinds


def _kind(each: Any) -> Any:
    """What samples have in common; None for a value that cannot be a sample."""
    if hasattr(each, "samples_first"):
        return None
    if (shape := getattr(each, "shape", None)) is not None:
        return (str(each.dtype) if hasattr(each, "dtype") else "", len(shape)) if len(shape) else None
    if isinstance(each, Mapping):
        return frozenset(each)
    if isinstance(each, (list, tuple)):
        return type(each), len(each)
    return type(each) if is_dataclass(each) else None
