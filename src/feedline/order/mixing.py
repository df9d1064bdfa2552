"""Several datasets in given proportions: which sample of which source comes at which place of a run.

Takes: a `Mixture`, proportions, a seed, an epoch. Gives: `MixtureSampler`, whose order can be read from any place on.
Promises: at the end of each stretch of places every source's share is right to within one sample, so in the long run it
is exact. Every source is read in passes; in each pass every sample comes once, in a new order. A pass does not end with
the loader's epoch: the next epoch continues where this one ended. For any place it is known how many passes a source
has had.
Not its job: reading samples (datasets/mixture), batches and ranks (plan, ranks).

How place k of a run (counted over all epochs) is found without the places before it: stretch b has the m places from
b × m on. Each source has its quota of the first b × m places, rounded down or up (`apportion`: a closed form). Within a
stretch the order of the sources is shuffled by (seed, b). So the number j of draws from a source before place k is
known; its next sample is at place j mod n of its shuffle number j div n, where n is its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from feedline.datasets import Mixture, Stretches, weights_of
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_seed, check_whole
from feedline.order.index_shuffle import order_key, shuffled
from feedline.order.permutation import LARGEST, ComputedOrder, IntArray, Order, Repeated
from feedline.order.sampler import Sampler

_TURN, _PLACES = 0, 1  # the purpose of a key


class MixtureSampler(Sampler):
    """Indices of a mixture, in proportion from each source; small sources are repeated, large ones come in part.

    An epoch has `num_samples` indices; by default as many as the mixture has. The sampler uses its own seed, not the
    loader's, because the pass over a source continues from epoch to epoch.

    >>> mixture = Mixture({"web": range(1000), "code": range(1000, 1010)})
    >>> sampler = MixtureSampler(mixture, {"web": 0.75, "code": 0.25}, num_samples=1024)
    >>> names = [mixture.source_of(index) for index in sampler]
    >>> names.count("web"), names.count("code")
    (768, 256)
    >>> sampler.source_epochs(epoch=2)
    {'web': 1.536, 'code': 51.2}
    """

    repeats = True

    def __init__(
        self,
        data_source: Mixture,
        proportions: Mapping[str, float],
        num_samples: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(check_seed(seed))
        if not isinstance(data_source, Mixture):
            raise OptionTypeError(f"data_source must be a feedline.Mixture; got {type(data_source).__name__}")
        self.data_source = data_source
        self._proportions = dict(proportions) if isinstance(proportions, Mapping) else proportions
        self.num_samples = len(data_source) if num_samples is None else check_whole("num_samples", num_samples, least=1)
        self._plan = _Plan(data_source.lengths, _weights(data_source, proportions))

    def __len__(self) -> int:
        return self.num_samples

    @property
    def proportions(self) -> Mapping[str, float]:
        """Read-only: passes continue from epoch to epoch, so new proportions would make their positions unknown."""
        return MappingProxyType(self._proportions)

    @proportions.setter
    def proportions(self, proportions: Mapping[str, float]) -> None:
        raise OptionError(
            "proportions of a MixtureSampler cannot be changed, because its passes over the sources continue from "
            "epoch to epoch: make another MixtureSampler, which begins new passes"
        )

    @property
    def settings(self) -> str:
        """What a saved state must agree with: another mixture has another order."""
        weights = zip(self._plan.weights, self.data_source.lengths.items(), strict=True)
        return ", ".join(f"{weight} {name} of {length}" for weight, (name, length) in weights)

    def order(self, seed: int, epoch: int) -> Order:
        """The indices of that epoch, which continues where the epoch before it ended."""
        return _MixtureOrder(self._plan, seed, epoch * self.num_samples, self.num_samples)

    def source_epochs(self, epoch: int, samples: int = 0) -> dict[str, float]:
        """How many passes over each source are done after `samples` samples of that epoch.

        `loader.state_dict()` has both numbers, with workers and ranks too, and costs microseconds:

        >>> from feedline import DataLoader
        >>> mixture = Mixture({"web": range(100), "code": range(10)})
        >>> sampler = MixtureSampler(mixture, {"web": 1, "code": 1}, num_samples=100)
        >>> loader = DataLoader(mixture, batch_size=50, sampler=sampler)
        >>> for batch in loader:
        ...     state = loader.state_dict()
        ...     print(sampler.source_epochs(state["epoch"], state["samples"]))
        {'web': 0.28, 'code': 2.2}
        {'web': 0.52, 'code': 4.8}
        """
        assert self.seed is not None
        place = check_whole("epoch", epoch, least=0) * self.num_samples + check_whole("samples", samples, least=0)
        drawn = self._plan.drawn_before(place, self.seed)
        lengths = self.data_source.lengths.items()
        return {name: count / length for (name, length), count in zip(lengths, drawn, strict=True)}


class _Plan:
    """The source from which each place of a run is drawn."""

    def __init__(self, lengths: dict[str, int], weights: list[int]) -> None:
        self.lengths = list(lengths.values())
        self.weights = weights
        self._stretches = Stretches(weights, "proportions", list(lengths))
        self.stretch = self._stretches.length
        self.before = self._stretches.before

    def sources(self, number: int, seed: int) -> IntArray:
        """The source of each place in that stretch."""
        return self._stretches.sources(number, order_key(seed, _PLACES, number))

    def drawn_before(self, place: int, seed: int) -> list[int]:
        """How many samples are drawn from each source before that place."""
        number, into = divmod(place, self.stretch)
        drawn = self.before(number)
        if into:
            more = np.bincount(self.sources(number, seed)[:into], minlength=len(drawn)).tolist()
            drawn = [count + extra for count, extra in zip(drawn, more, strict=True)]
        return drawn

    def draws(self, source: int, seed: int) -> Repeated:
        """All draws from a source: pass after pass, each with its own shuffle."""
        length = self.lengths[source]

        def turn(number: int) -> Order:
            return shuffled(length, order_key(seed, _TURN, source, number))

        return Repeated(turn, length, LARGEST)


class _MixtureOrder(ComputedOrder):
    """The indices of a run, from one place on."""

    def __init__(self, plan: _Plan, seed: int, begin: int, length: int) -> None:
        super().__init__(length)
        self._plan = plan
        self._seed = seed
        self._begin = begin
        self._draws = [plan.draws(source, seed) for source in range(len(plan.lengths))]
        self._offsets = [0, *np.cumsum(plan.lengths).tolist()]
        self._latest: tuple[int, IntArray] = (-1, np.empty(0, np.int64))

    def _compute(self, start: int, stop: int) -> IntArray:
        first = (self._begin + start) // self._plan.stretch
        after = -(-(self._begin + stop) // self._plan.stretch)
        sources = np.concatenate([self._sources(number) for number in range(first, after)])
        into = self._begin + start - first * self._plan.stretch
        wanted = sources[into : into + stop - start]
        past, counts = (np.bincount(part, minlength=len(self._draws)).tolist() for part in (sources[:into], wanted))
        found = []
        for source, drawn in enumerate(self._plan.before(first)):
            begin = drawn + past[source]
            found.append(self._draws[source][begin : begin + counts[source]] + self._offsets[source])
        indices = np.empty(stop - start, np.int64)
        indices[np.argsort(wanted, kind="stable")] = np.concatenate(found)
        return indices

    def _sources(self, number: int) -> IntArray:
        latest, sources = self._latest
        if latest != number:
            sources = self._plan.sources(number, self._seed)
            self._latest = (number, sources)
        return sources


def _weights(mixture: Mixture, proportions: Mapping[str, float]) -> list[int]:
    weights = dict(zip(proportions, weights_of("proportions", proportions), strict=False))
    missing = [name for name in mixture.names if name not in weights]
    unknown = [name for name in weights if name not in mixture.names]
    if missing or unknown:
        wrong = [f"{missing!r} are missing"] * bool(missing) + [f"{unknown!r} are not sources"] * bool(unknown)
        raise OptionError(f"proportions must name the sources of the mixture, but {' and '.join(wrong)}")
    return [weights[name] for name in mixture.names]
