"""Gradient accumulation: several small batches count as one large one.

Takes: any iterable of batches (a loader of any kind, a list) and how many make a group. Gives: `accumulate`, which
hands on the same batches, each with what its loss is to be divided by and whether its group ends with it.
Promises: with a mean loss, the gradients added up over a group are those of one batch of all its samples, also for a
short last group and a short last batch. A group is read whole before its first batch is given, because only then
its size is known; so at the end of a group the loader's own `state_dict()` is exact.
Not its job: calling backward or the optimizer; making layers that mix samples (batch norm) see the large batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from feedline.checks import check_function, check_whole
from feedline.errors import OptionError, OptionTypeError


@dataclass(frozen=True)
class MicroBatch:
    """One batch of a group."""

    batch: Any
    is_last: bool
    """Does its group end here? Then it is time for the optimizer's step."""
    count: float
    """How many samples (or whatever was counted) it has."""
    total: float
    """How many its group has."""

    @property
    def divisor(self) -> float:
        """What to divide its mean loss by: the number of batches in the group, when all have the same size.

        >>> MicroBatch(None, is_last=True, count=8, total=32).divisor
        4.0
        """
        return self.total / self.count if self.count else math.inf


def accumulate(loader: Iterable[Any], steps: int, count: Callable[[Any], float] | None = None) -> MicroBatches:
    """The loader's batches in groups of `steps`, each with what to divide its loss by.

        for micro in accumulate(loader, steps=4):
            loss = mean_loss(model(micro.batch)) / micro.divisor
            loss.backward()
            if micro.is_last:
                optimizer.step()
                optimizer.zero_grad()

    `count(batch)` says over how many things the mean loss is a mean, if not over samples: tokens that are not
    padding, for instance.

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
    """What `accumulate` returns: to be iterated once per epoch, as its loader is."""

    def __init__(self, loader: Iterable[Any], steps: int, count: Callable[[Any], float] | None = None) -> None:
        if not hasattr(loader, "__iter__"):
            raise OptionTypeError(f"loader must be an iterable of batches; got {type(loader).__name__}")
        self.loader = loader
        self.steps = check_whole("steps", steps, least=1)
        self.count: Callable[[Any], float] = check_function("count", count) or samples_in

    def __len__(self) -> int:
        """How many batches: as many as the loader has."""
        return len(self.loader)  # type: ignore[arg-type]  # a TypeError naming the loader's class is right

    @property
    def updates(self) -> int:
        """How many groups, so how many steps of the optimizer: what a learning-rate schedule wants to know.

        >>> accumulate(range(10), steps=4).updates
        3
        """
        return -(-len(self) // self.steps)

    def __iter__(self) -> Iterator[MicroBatch]:
        return _Groups(iter(self.loader), self.steps, self.count)


class _Groups(Iterator[MicroBatch]):
    """Not a generator: after an error of the loader's the iteration can go on, and nothing read is lost."""

    def __init__(self, batches: Iterator[Any], steps: int, count: Callable[[Any], float]) -> None:
        self._batches = batches
        self._steps = steps
        self._count = count
        self._reading: list[tuple[Any, float]] = []
        self._ready: deque[MicroBatch] = deque()

    def __next__(self) -> MicroBatch:
        if not self._ready:
            self._read_group()
        return self._ready.popleft()  # not kept any longer than the user does

    def _read_group(self) -> None:
        while len(self._reading) < self._steps:
            try:
                batch = next(self._batches)
            except StopIteration:
                if not self._reading:
                    raise
                break
            self._reading.append((batch, _checked(self._count(batch))))
        group, self._reading = self._reading, []
        total = sum(count for _, count in group)
        for place, (batch, count) in enumerate(group, 1):
            self._ready.append(MicroBatch(batch, place == len(group), count, total))


def _checked(count: Any) -> float:
    number = float(count)
    if not 0 <= number < math.inf:
        raise OptionError(f"count(batch) must be a number of at least 0; got {count!r}")
    return int(number) if number.is_integer() else number


def samples_in(batch: Any) -> int:
    """How many samples a batch has: the length of the first axis of its arrays, which must agree.

    >>> import numpy as np
    >>> samples_in({"image": np.zeros((8, 3, 32, 32)), "label": np.zeros(8), "path": ["…"] * 8})
    8
    """
    lengths = set(_first_axes(batch))
    if len(lengths) == 1:
        return lengths.pop()
    if not lengths and isinstance(batch, (list, tuple)) and not any(isinstance(each, (list, tuple)) for each in batch):
        return len(batch)  # texts, or samples as they are
    found = f"the first axes of its arrays are {sorted(lengths)}" if lengths else "it has no arrays"
    raise OptionTypeError(
        f"cannot tell how many samples a batch ({type(batch).__name__}) has: {found}. "
        "Pass count=, a function from a batch to their number"
    )


def _first_axes(part: Any) -> Iterator[int]:
    shape = getattr(part, "shape", None)
    if shape is not None:
        if len(shape):
            yield int(shape[0])
        return
    if isinstance(part, Mapping):
        inner: Iterable[Any] = part.values()
    elif isinstance(part, (list, tuple)):
        inner = part
    elif is_dataclass(part):
        inner = (getattr(part, field.name) for field in fields(part))
    else:
        inner = ()
    for each in inner:
        yield from _first_axes(each)
