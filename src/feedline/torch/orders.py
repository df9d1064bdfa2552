"""torch's samplers as plans: the same indices and the same draws as torch's loader would take from them.

Takes: a torch DataLoader's sampler or batch sampler. Gives: tasks.
Promises: the same draws from the same generators at the same moments, so the rest of a seeded run is the same.
Not its job: feedline's own samplers (order.plan).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from feedline.datasets import IntArray
from feedline.errors.foreign import ask
from feedline.messages.task import AsGiven, Task, plain
from feedline.order.plan import BatchPlan, MapTasks, OrderPlan, Plan, Tasks, batch_of
from feedline.order.ranks import DistributedSampler as OwnDistributed
from feedline.order.ranks import Listed, draws_as
from feedline.order.replay import Again, compare
from feedline.order.sampler import Sampler, has_batches, has_order, is_ours, samplers_in
from feedline.order.samplers import BatchSampler as OwnBatchSampler
from feedline.resume.state import Place, Tail
from feedline.torch.drawn import Drawn, TorchGenerators
from feedline.torch.rank_turns import turns_in

_BLOCK = 1 << 16
"""Indices made at a time; making this many takes almost no time and half a megabyte."""


class Indices(NamedTuple):
    """An epoch's batches of indices from a place on, not yet taken from the sampler."""

    batches: Iterator[Any]
    unique: bool
    """Does each index come only once?"""
    turns: tuple[int, int] = (1, 0)
    """The number of ranks that take the indices in turn, and which this is."""
    state: Callable[[], Any] = lambda: None
    """Returns the sampler's own state, if it has one."""

    def tasks(self, seed: int, place: Place) -> Tasks:
        """The batches as tasks with that seed."""
        return MapTasks(self._number(seed, place), self.state)

    def _number(self, seed: int, place: Place) -> Iterator[Task]:
        (ranks, rank), first, epoch, unique = self.turns, place.samples, place.epoch, self.unique
        for seq, batch in enumerate(self.batches, place.batches):
            if ranks == 1:
                yield plain(seq, epoch, seed, batch, -1 if unique else first)
            else:
                begin = first * ranks + rank
                yield Task(seq, epoch, seed, batch, begin, stride=ranks, draws_as=draws_as(rank, begin))
            first += len(batch)


class Asking:
    """How a loader's sampler is asked for one epoch's order, from a place on."""

    def __init__(
        self,
        index_sampler: Any,
        is_stock: bool,
        batched: bool,
        at_once: bool,
        place: Place,
        drawn: Drawn,
        generators: TorchGenerators,
    ) -> None:
        self._index_sampler = index_sampler
        self._is_stock = is_stock  # as `is_stock_order` says
        self._is_bare = not batched and _is_stock(index_sampler) and vars(index_sampler).keys() <= _OF_STOCK
        """The same of a stock sampler without a batch sampler, whose seed is drawn by itself."""
        self._batched = batched
        self._at_once = at_once
        self._place = place
        self._drawn = drawn
        self._generators = generators
        self._indices: Indices | None = None

    def ask(self) -> None:
        """Ask the sampler for its iterator, as torch does before it draws the base seed; indices are taken later."""
        drawn = self._drawn
        if self._is_stock or self._is_bare:  # it is told nothing, and draws nothing before its first index
            found = self._ask()
            self._indices = found._replace(batches=self._taken(found.batches))
            return
        _, drawn.sampler_epoch = _told(self._index_sampler)
        if own_plan(self._index_sampler, self._batched, 0) is None:
            drawn.by_hand = [list(each.by_hand) for each in self._iterated_by_hand()]
            drawn.asked = {}
            with self._generators.watched(drawn.asked):
                found = self._ask()
            self._indices = found._replace(batches=self._taken(found.batches))

    def ask_again(self) -> None:
        """Ask once more: what was drawn before is not drawn again."""
        drawn = self._drawn
        drawn.now = {}
        told, _ = _told(self._index_sampler)
        if told is not None and drawn.sampler_epoch is not None:
            told.set_epoch(drawn.sampler_epoch)
        if own_plan(self._index_sampler, self._batched, 0) is not None:
            return
        for each, (seed, epoch) in zip(self._iterated_by_hand(), drawn.by_hand, strict=False):
            each.by_hand = seed, epoch
        with self._generators.replayed(drawn.asked):
            found = self._ask()
        self._generators.put(drawn.left)
        self._indices = found._replace(batches=self._taken_again(found.batches))

    def tasks(self, seed: int) -> Tasks:
        """The tasks for that base seed."""
        if self._indices is not None:
            return self._indices.tasks(seed, self._place)
        plan = own_plan(self._index_sampler, self._batched, seed)
        assert plan is not None
        tasks = plan.tasks_from(self._place)
        if not any(isinstance(each, Listed) for each in samplers_in(self._index_sampler)):
            return tasks
        return MapTasks(self._taken_again(iter(tasks.__next__, None)))  # a foreign sampler, shared out, may draw

    def _iterated_by_hand(self) -> list[Sampler]:
        """feedline's samplers inside foreign ones, which do not know the loader's seed and epoch."""
        return [each for each in samplers_in(self._index_sampler) if is_ours(each)]

    def _taken_again(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches; if the first was taken before the state was saved, it is drawn again as it was then."""
        if self._drawn.taken is None:
            return self._taken(batches)
        with self._generators.replayed(self._drawn.taken):
            first = list(islice(batches, 1))  # this takes all earlier indices, too
        return chain(first, batches)

    def _taken(self, batches: Iterator[Any]) -> Iterator[Any]:
        drawn = self._drawn
        taken: dict[str, bytes] = {}
        with self._watched(taken):
            first = list(islice(batches, 1))
        if drawn.seed is not None:
            taken.pop("torch", None)  # the seed holds the same in fewer bytes
        drawn.taken = taken
        drawn.left = {name: state for name, state in drawn.left.items() if name not in taken}
        yield from first
        yield from batches

    def _watched(self, taken: dict[str, bytes]) -> AbstractContextManager[None]:
        users = self._generators.users
        if self._is_stock:  # its seed is noted when it is drawn
            return self._generators.watched(taken, users) if users else nullcontext()
        return self._generators.watched(taken, ("torch", *users) if self._is_bare else None)

    def _ask(self) -> Indices:
        index_sampler, place = self._index_sampler, self._place
        if not self._batched:
            source = _again(index_sampler, place, batches=False)
            return Indices(([index] for index in source), False, turns_in(index_sampler), source.state)
        if type(index_sampler) is BatchSampler:
            return _of_stock_batches(index_sampler, place, self._drawn)
        source = _again(index_sampler, place, batches=True)
        # A dataset that reads many at once gets what the batch sampler gives, unchanged: a tuple, a slice, a tensor.
        return Indices(
            map(_as_given if self._at_once else batch_of, source), False, turns_in(index_sampler), source.state
        )


def _of_stock_batches(batch_sampler: BatchSampler, place: Place, drawn: Drawn) -> Indices:
    sampler: Any = batch_sampler.sampler
    size, drop_last = batch_sampler.batch_size, batch_sampler.drop_last
    if _is_stock(sampler):
        return Indices(_batches(_left(sampler, place, drawn), size, drop_last), _each_once(sampler))
    source = Again(sampler, place, batches=False)  # asked when torch's batch sampler would ask: for the first batch

    def lists() -> Iterator[list[Any]]:
        while batch := list(islice(source, size)):
            if len(batch) < size and drop_last:
                return
            yield batch

    return Indices(lists(), False, turns_in(sampler), source.state)


def _again(sampler: Any, place: Place, batches: bool) -> Again:
    """A sampler from a place on; its iterator is requested now."""
    again = Again(sampler, place, batches)
    again.open()
    return again


def own_plan(index_sampler: Any, batched: bool, seed: int) -> Plan | None:
    """The plan of a feedline sampler, whose order can be read from any place on; None for any other."""
    if not batched:
        return OrderPlan(index_sampler, None, False, seed) if has_order(index_sampler) else None
    if has_batches(index_sampler):
        return BatchPlan(index_sampler, seed)
    if type(index_sampler) in (BatchSampler, OwnBatchSampler) and has_order(index_sampler.sampler):
        return OrderPlan(index_sampler.sampler, index_sampler.batch_size, index_sampler.drop_last, seed)
    return None


def generators_of(index_sampler: Any, is_stock: bool) -> list[torch.Generator]:
    """The user's generators from which a sampler, or a sampler inside it, draws. `is_stock`: see `is_stock_order`."""
    if is_stock:
        own = getattr(index_sampler.sampler, "generator", None)
        return [own] if isinstance(own, torch.Generator) else []
    found: dict[int, torch.Generator] = {}
    for each in samplers_in(index_sampler):
        held = (ask(each, "generator"), *ask(each, "__dict__", {}).values())
        found |= {id(one): one for one in held if isinstance(one, torch.Generator)}
    return list(found.values())


def _told(index_sampler: Any) -> tuple[Any, int | None]:
    """The sampler that has `set_epoch`, and its current epoch; (None, None) if there is none."""
    for each in samplers_in(index_sampler):
        if callable(ask(each, "set_epoch")):
            name = "told_epoch" if isinstance(each, OwnDistributed) else "_epoch" if is_ours(each) else "epoch"
            epoch = ask(each, name)
            return each, epoch if isinstance(epoch, int) else None
    return None, None


def _as_given(indices: Any) -> list[Any]:
    if type(indices) is list:
        return indices
    if hasattr(indices, "__iter__") and not hasattr(indices, "__len__"):
        return list(indices)  # a generator cannot be read twice
    return AsGiven(indices, list(indices) if hasattr(indices, "__iter__") else [indices])


def is_stock_order(index_sampler: Any) -> bool:
    """Is it torch's batch sampler around a stock sampler, and has nobody added attributes to either? Then it is known
    without a look inside that it draws from torch's default generator, or its own, and that it is told no epoch."""
    if type(index_sampler) is not BatchSampler or not _is_stock(index_sampler.sampler):
        return False
    return vars(index_sampler).keys() == _OF_BATCHES and vars(index_sampler.sampler).keys() <= _OF_STOCK


_OF_BATCHES = vars(BatchSampler(SequentialSampler(()), 1, False)).keys()
_OF_STOCK = vars(RandomSampler((0,))).keys()


def _is_stock(sampler: Any) -> bool:
    # A subclass may do anything; with replacement, torch draws 32 at a time, which is left to torch.
    return type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)


def _each_once(sampler: SequentialSampler | RandomSampler) -> bool:
    # with more samples than the dataset has, some come again
    return isinstance(sampler, SequentialSampler) or sampler.num_samples <= len(sampler.data_source)


def _left(sampler: SequentialSampler | RandomSampler, place: Place, drawn: Drawn) -> Iterator[IntArray]:
    """The sampler's indices after a place, in arrays; each is drawn when torch would have drawn it."""
    size, past = len(sampler.data_source), place.samples
    if isinstance(sampler, SequentialSampler):
        compare(place, lambda: np.arange(max(0, past - Tail.LONGEST), min(past, size)))
        for start in range(past, size, _BLOCK):  # all of them may not fit into memory
            yield np.arange(start, min(size, start + _BLOCK))
        return
    last: list[int] = []
    for array in _shuffles(sampler, size, drawn):
        taken, left = array[:past], array[past:]
        past -= len(taken)
        last += taken[-Tail.LONGEST :].tolist()
        if len(left):
            if last:
                compare(place, last.copy)
                last.clear()
            yield left


def _shuffles(sampler: RandomSampler, size: int, drawn: Drawn) -> Iterator[IntArray]:
    generator = sampler.generator
    if generator is None:
        if drawn.seed is None:
            drawn.seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator()
        generator.manual_seed(drawn.seed)
    for _ in range(sampler.num_samples // size):
        yield torch.randperm(size, generator=generator).cpu().numpy()
    # torch draws once more even if no index is taken from that draw; only a user's generator shows the difference
    if sampler.num_samples % size or sampler.generator is not None:
        yield torch.randperm(size, generator=generator).cpu().numpy()[: sampler.num_samples % size]


def _batches(arrays: Iterator[IntArray], size: int, drop_last: bool) -> Iterator[IntArray]:
    held = np.empty(0, np.int64)
    while True:
        while len(held) < size:
            more = next(arrays, None)
            if more is None:
                if len(held) and not drop_last:
                    yield held
                return
            held = np.concatenate([held, more]) if len(held) else more
        whole = len(held) // size
        for place in range(whole):
            yield held[place * size : (place + 1) * size]
        held = held[whole * size :]
