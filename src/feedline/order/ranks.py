"""One order, shared out over ranks: together they see what a single rank would have seen.

Takes: a sampler of any kind (or a dataset), a rank and the number of ranks. Gives: `DistributedSampler`, a sampler of
that rank's indices, or of its batches if the sampler makes whole batches.
Promises: the order is global. Rank r takes every R-th index, so the R batches of a step together are the next stretch
of the global order for any R; if ranks × batch size stays the same, so do the stretches. If the sampler makes whole
batches, rank r takes every R-th batch: the batches of a step together are the next R.
Not its job: starting processes, or communication between them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_choice, check_flag
from feedline.errors.foreign import ask
from feedline.machine.this_rank import UNEVEN, ranks
from feedline.order.permutation import IntArray, Order, bounds
from feedline.order.sampler import (
    Batches,
    MakesBatches,
    Sampler,
    batch_at,
    batches_of,
    each_batch,
    has_batches,
    indices_at,
    is_ours,
    order_of,
)
from feedline.order.samplers import RandomSampler, SequentialSampler


class DistributedSampler(Sampler):
    """A rank's share of any sampler's order. Rank and number of ranks are given, or detected.

    `uneven` says what happens if the indices cannot be divided evenly: "pad" repeats the first ones (torch's way),
    "drop" leaves the last ones out, "exact" lets some ranks have one index less: no index is repeated or lost, as
    evaluation needs. With the first two every rank takes the same number of steps. If the sampler makes whole batches
    (stratified, bucketed), the batches are shared out by the same rules: then pass it as `batch_sampler`.

    >>> shares = [DistributedSampler(SequentialSampler(10), 3, rank, uneven="exact") for rank in range(3)]
    >>> [list(share) for share in shares]
    [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    >>> list(DistributedSampler(range(10), num_replicas=3, rank=2, shuffle=False))
    [2, 5, 8, 1]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: str | None = None,
    ) -> None:
        super().__init__(seed)
        self.sampler = _sampler(dataset, check_flag("shuffle", shuffle))
        self.num_replicas, self.rank = ranks(num_replicas, rank)
        drop = check_flag("drop_last", drop_last)
        self.uneven = check_choice("uneven", uneven if uneven is not None else "drop" if drop else "pad", UNEVEN)
        if drop and self.uneven != "drop":
            raise OptionError(
                f"drop_last=True means uneven='drop', but uneven={uneven!r} was given: leave out one of them"
            )
        self.told_epoch: int | None = None

    @property
    def makes_batches(self) -> bool:  # type: ignore[override]
        """Does the sampler share out whole batches?"""
        return self.sampler.makes_batches

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        """May an index come twice? An index repeated only for padding does not count: it is the same sample with the
        same augmentation, because the augmentation of a sample must not depend on the number of ranks."""
        return bool(self.sampler.repeats)

    @property
    def population(self) -> int | None:  # type: ignore[override]
        """The number of samples that the inner sampler was made for."""
        return self.sampler.population

    def __len__(self) -> int:
        return share_length(len(self.sampler), self.num_replicas, self.rank, self.uneven)

    def order(self, seed: int, epoch: int) -> Order:
        """This rank's indices of that epoch."""
        return Share(order_of(self.sampler, *self._key(seed, epoch)), self.num_replicas, self.rank, self.uneven)

    def batches(self, seed: int, epoch: int) -> BatchShare:
        """This rank's batches of that epoch, if the sampler makes batches."""
        if not has_batches(self.sampler):
            raise TypeError(f"{type(self.sampler).__name__} gives single indices: ask for order(seed, epoch)")
        batches = batches_of(self.sampler, *self._key(seed, epoch))
        return BatchShare(batches, self.num_replicas, self.rank, self.uneven)

    def _key(self, seed: int, epoch: int) -> tuple[int, int]:
        own = self.sampler.seed
        return seed if own is None else own, epoch if self.told_epoch is None else self.told_epoch

    def _walk(self, seed: int, epoch: int) -> Iterator[Any]:
        return each_batch(self.batches(seed, epoch)) if self.makes_batches else super()._walk(seed, epoch)

    def set_epoch(self, epoch: int) -> None:
        """Called by torch's scripts before each epoch; a feedline loader counts epochs by itself."""
        super().set_epoch(epoch)
        self.told_epoch = epoch


class Share:
    """Every R-th index of an order, starting at the rank's number.

    >>> Share(np.arange(10, 20), ranks=4, rank=1, uneven="pad")[:].tolist()
    [11, 15, 19]
    """

    def __init__(self, order: Order, ranks: int, rank: int, uneven: str) -> None:
        self._order = order
        self._ranks = ranks
        self._rank = rank
        self._length = share_length(len(order), ranks, rank, uneven)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, span: slice, /) -> IntArray:
        start, stop = bounds(span, self._length)
        first, last = start * self._ranks, stop * self._ranks
        whole = indices_at(self._order, first, last)
        missing = last - first - len(whole)
        if missing and stop > start:
            whole = np.concatenate([whole, self._from_the_front(first + len(whole), missing)])
        return whole[self._rank :: self._ranks][: stop - start]

    def _from_the_front(self, place: int, count: int) -> IntArray:
        """The indices for the places beyond the end: the order from its beginning."""
        length = len(self._order)
        places = np.arange(place, place + count) % length
        return np.concatenate([indices_at(self._order, at, at + 1) for at in places.tolist()])


class BatchShare:
    """Every R-th batch, starting at the rank's number.

    >>> share = BatchShare([[0, 1], [2], [3, 4]], ranks=2, rank=1, uneven="pad")
    >>> len(share), share[0].tolist(), share[1].tolist()
    (2, [2], [0, 1])
    """

    def __init__(self, batches: Batches, ranks: int = 1, rank: int = 0, uneven: str = "exact") -> None:
        self._batches = batches
        self._ranks = ranks
        self._rank = rank
        self._length = share_length(len(batches), ranks, rank, uneven)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int, /) -> IntArray:
        if not 0 <= number < self._length:
            raise IndexError(f"there is no batch {number} among {self._length}")
        return batch_at(self._batches, (number * self._ranks + self._rank) % len(self._batches))

    def first(self, number: int, repeats: bool) -> int:
        """Where in the epoch a batch begins, to tell repeated samples apart; -1 if no sample in it is repeated.

        Counted over all ranks and as if every batch had 2**32 samples: so it is known without the batches before, and
        an augmentation is the same for any number of ranks.
        """
        place = number * self._ranks + self._rank
        return place << 32 if repeats or place >= len(self._batches) else -1

    def draws_as(self, number: int) -> int | None:
        """What a batch seeds the global generators with: its number over all ranks, so for any number of them."""
        return None if self._ranks == 1 else (number * self._ranks + self._rank) % len(self._batches)


def draws_as(rank: int, place: int) -> int | None:
    """What a rank's batch seeds the global generators with, if its first index is at that place of the global order.

    No two ranks may draw the same, also not at another step, and also not if the number of ranks changes on the way.
    So rank 0 draws as a single process does, by the number of its batch (None); the others by their place, and below
    zero, where no batch's number is.
    """
    return (1 << 64) - place if rank else None


def share_of(sampler: MakesBatches, seed: int, epoch: int) -> BatchShare:
    """The batches of a sampler: a rank's share, or all."""
    if isinstance(sampler, DistributedSampler):
        return sampler.batches(seed, epoch)
    return BatchShare(batches_of(sampler, seed, epoch))


def repeats_over_ranks(sampler: MakesBatches) -> bool:
    """May an index come twice over all ranks together?"""
    return bool((sampler.sampler if isinstance(sampler, DistributedSampler) else sampler).repeats)


def share_length(length: int, ranks: int, rank: int, uneven: str) -> int:
    """How many of `length` indices a rank gets."""
    if uneven == "exact":
        return max(0, -(-(length - rank) // ranks))
    return length // ranks if uneven == "drop" else -(-length // ranks)


def ranks_of(sampler: Any) -> int:
    """The number of ranks that a sampler, or the sampler in a batch sampler, shares its indices over."""
    inner = ask(sampler, "sampler")
    if isinstance(sampler, DistributedSampler):
        return sampler.num_replicas
    return inner.num_replicas if isinstance(inner, DistributedSampler) else 1


def turns_of(sampler: Sampler) -> tuple[int, int]:
    """The number of ranks and the rank whose indices a sampler gives."""
    return (sampler.num_replicas, sampler.rank) if isinstance(sampler, DistributedSampler) else (1, 0)


def given_epoch(sampler: Any) -> int | None:
    """The epoch that the user set on a DistributedSampler (or on the one in a batch sampler), if any."""
    inner = sampler if isinstance(sampler, DistributedSampler) else ask(sampler, "sampler")
    return inner.told_epoch if isinstance(inner, DistributedSampler) else None


def global_length(sampler: Any) -> int | None:
    """The number of indices of all ranks together; None if the sampler has no length."""
    if isinstance(sampler, DistributedSampler):
        return global_length(sampler.sampler)
    try:
        return len(sampler)
    except Exception:  # the sampler may be endless
        return None


def name_of(sampler: Any) -> str:
    """The name of a sampler in a state: its class, and the class of the sampler inside it."""
    inner, seed = ask(sampler, "sampler"), sampler.seed if is_ours(sampler) else None
    said = name_of(inner) if inner is not None else ask(sampler, "settings", "")
    details = [said] if isinstance(said, str) and said else []
    details += [f"seed={seed}"] if seed is not None else []
    return f"{type(sampler).__name__}({', '.join(details)})" if details else type(sampler).__name__


class Listed(Sampler):
    """The indices of a foreign sampler; they must be taken one by one, and may be drawn at that moment."""

    repeats = True

    def __init__(self, sampler: Iterable[Any]) -> None:
        super().__init__()
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def order(self, seed: int, epoch: int) -> Order:
        if callable(follow := getattr(self.sampler, "set_epoch", None)):
            follow(epoch)
        try:
            return np.fromiter(map(operator.index, self.sampler), np.int64)
        except TypeError as error:
            raise OptionTypeError(
                f"{type(self.sampler).__name__} must give indices, to be divided among ranks: {error}"
            ) from error


def _sampler(source: Any, shuffle: bool) -> Sampler:
    if is_ours(source):
        return source
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return RandomSampler(source) if shuffle else SequentialSampler(source)
    if any(kind.__name__ == "BatchSampler" for kind in type(source).__mro__):  # torch's class, or ours
        raise OptionTypeError(
            "a BatchSampler gives lists of indices, which cannot be divided among ranks: divide its sampler, "
            "BatchSampler(DistributedSampler(sampler), batch_size)"
        )
    if hasattr(source, "__iter__") and hasattr(source, "__len__"):
        return Listed(source)
    raise OptionTypeError(
        f"dataset must be a map-style dataset or a sampler with a length; got {type(source).__name__}"
    )
