"""Several streams as one, in given proportions.

Takes: iterable datasets by name, weights (perhaps others from some sample on), a seed. Gives: `MixtureStream`.
Promises: which source comes at which place follows from the seed and the weights alone. At the end of each stretch of
places every source's share is right to within one sample, counted from where these weights began. A state is a few
numbers and the states of the sources; weights may be other ones when it is loaded, and hold from there on. What would
be read by some workers twice, or by none, is an error.
Not its job: reading a source (mixed_source), batches, workers and ranks (reading/stream_reader), counting over all
workers (engine).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from feedline.datasets.joining import IterableDataset, gives_shards
from feedline.datasets.mixed_source import MixedSource, State
from feedline.datasets.mixture_options import Weights, checked_sources, ends_by_name, weights_by_sample
from feedline.datasets.stretches import Stretches
from feedline.errors import OptionError, SourceError, StateError
from feedline.errors.checks import check_flag, check_seed, check_whole
from feedline.errors.foreign import ask
from feedline.machine.worker_info import is_one_of_many
from feedline.randomness.rng import mix

_PLACES = 0x31_7E5


class MixtureStream(IterableDataset[Any]):
    """Streams by name, mixed in proportion: `Mixture` and `MixtureSampler` for data that is read from front to back.

    `weights` are numbers by name that need not sum to 1, or several such dicts, each by the number of samples from
    which it holds: `{0: {"web": 1, "code": 0}, 1_000_000: {"web": 3, "code": 1}}`.

    `when_ended` says what happens when the next sample should come from a source that has none left: "stop" ends the
    mixture, "repeat" reads that source again from its beginning, "drop" leaves it out and shares its places among the
    others. It may be a dict, with a word for each source. With `num_samples` an epoch ends after that many.

    If all sources have `shard(index, count)`, each worker mixes its own part of each. Otherwise, or with
    `share="batches"`, every worker reads all sources and keeps its batches: then the batches are the same for any
    number of workers and (with the loader's `ranks="shard"`) ranks.

    With `with_source=True` a sample becomes a pair: the sample, and the number of its source (its place in `names`).

    >>> from feedline import DataLoader
    >>> mixture = MixtureStream({"web": range(1000), "code": range(5000, 5003)}, {"web": 3, "code": 1},
    ...     when_ended={"web": "stop", "code": "repeat"}, num_samples=512)
    >>> loader = DataLoader(mixture, batch_size=64)
    >>> sum(int((batch >= 5000).sum()) for batch in loader)
    128
    >>> loader.stats().sources["code"]
    SourceStats(samples=128, passes=42)
    """

    names: tuple[str, ...]

    def __init__(
        self,
        sources: Mapping[str, Iterable[Any]],
        weights: Weights | Mapping[int, Weights],
        *,
        seed: int = 0,
        when_ended: str | Mapping[str, str] = "stop",
        num_samples: int | None = None,
        share: str = "parts",
        with_source: bool = False,
    ) -> None:
        self.datasets = checked_sources(sources)
        self.names = tuple(self.datasets)
        self._weights = weights_by_sample(self.names, weights)
        self.seed = check_seed(seed)
        self.when_ended = ends_by_name(self.names, when_ended)
        self.num_samples = None if num_samples is None else check_whole("num_samples", num_samples, least=1)
        if share not in ("parts", "batches"):
            raise OptionError(f"share must be 'parts' or 'batches'; got {share!r}")
        self.share = share
        self.with_source = check_flag("with_source", with_source)
        self._part = (0, 1)
        self._check_ranks()

    @property
    def shard(self) -> Callable[[int, int], MixtureStream] | None:
        """Gives one of `count` parts, or None if every worker reads everything."""
        can_be = self.share == "parts" and all(gives_shards(source) for source in self.datasets.values())
        return self._shard if can_be else None

    def _shard(self, index: int, count: int) -> MixtureStream:
        part = copy.copy(self)
        own, of = self._part
        part._part = (own + of * index, of * count)
        part.datasets = {name: source.shard(index, count) for name, source in self.datasets.items()}
        return part

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks that the sources share themselves out among, and this rank; (1, 0) if they do not."""
        found = {ranks for ranks in map(_ranks_of, self.datasets.values()) if ranks[0] > 1}
        return found.pop() if len(found) == 1 else (1, 0)

    def _sharing_notice(self, readers: int) -> str | None:
        """What its sources have to tell the user when so many workers read them."""
        ours = (source for source in self.datasets.values() if isinstance(source, IterableDataset))
        said = (source._sharing_notice(readers if self.shard else 1) for source in ours)
        return "\n".join(dict.fromkeys(filter(None, said))) or None

    def _check_ranks(self) -> None:
        found = {name: _ranks_of(source) for name, source in self.datasets.items()}
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{name!r} is that of rank {rank} of {count}" for name, (count, rank) in found.items())
            raise OptionError(
                f"the sources are shared out among ranks in different ways ({listed}), so some data would come on "
                "every rank and other data on one only. Give all sources num_replicas=1, rank=0 and the loader "
                "ranks='shard', or let all of them share themselves out"
            )

    def __iter__(self) -> MixtureReading:
        return MixtureReading(self)


class MixtureReading:
    """One epoch of a mixture, or of a part of it."""

    def __init__(self, stream: MixtureStream) -> None:
        self._stream = stream
        named = enumerate(stream.datasets.items())
        self._sources = [MixedSource(name, number, source) for number, (name, source) in named]
        part, of = stream._part
        limit = stream.num_samples
        self._limit = None if limit is None else -(-(limit - part) // of)
        self._steps = [(-(-(sample - part) // of), weights) for sample, weights in stream._weights.items()]
        self._place = 0
        self._out: set[int] = set()
        self._over = False
        self._begin, self._weights = 0, [0] * len(self._sources)  # the present weights, and since when they hold
        self._first = self._until = 0  # the places whose sources are known
        self._known: list[int] = []

    def __iter__(self) -> MixtureReading:
        return self

    def __next__(self) -> Any:
        while not self._over and self._place != self._limit:
            if self._place >= self._until and not self._look_ahead():
                break
            number = self._known[self._place - self._first]
            source = self._sources[number]
            try:
                element = source.take()
            except StopIteration:
                self._end_of(number, source)
                continue
            if source.read == 1:
                self._check_sharing()
            self._place += 1
            return (element, number) if self._stream.with_source else element
        self._over = True
        for source in self._sources:  # what they have open may be large, and who holds the mixture may hold it longer
            source.let_go()
        raise StopIteration

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each source: how many samples it gave, and how often it came to its end."""
        return {source.name: (source.samples, source.passes) for source in self._sources}

    def _end_of(self, number: int, source: MixedSource) -> None:
        is_empty = not source.read
        source.begin_again()
        what = self._stream.when_ended[source.name]
        if what == "repeat":
            if is_empty:
                raise SourceError(_EMPTY.format(name=source.name, part=_part_of(self._stream)))
        elif what == "drop":
            self._out.add(number)
            self._until = self._place
        else:
            self._over = True

    def _look_ahead(self) -> bool:
        """Find the sources of the next places; False if there is no source left."""
        wanted, following = self._wanted()
        if not any(wanted):
            return False
        if wanted != self._weights:
            self._begin, self._weights = self._place, wanted
        live = [number for number, weight in enumerate(wanted) if weight]
        names = [self._sources[number].name for number in live]
        stretches = Stretches([wanted[number] for number in live], "weights", names)
        number = (self._place - self._begin) // stretches.length
        key = mix(_PLACES, self._stream.seed, *self._stream._part, self._begin, number)
        self._known = [live[source] for source in stretches.sources(number, key).tolist()]
        self._first = self._begin + number * stretches.length
        self._until = self._first + stretches.length
        if following is not None:
            self._until = min(self._until, following)
        return True

    def _wanted(self) -> tuple[list[int], int | None]:
        """The weights at this place, and the place from which there are others."""
        wanted: list[int] = []
        for place, weights in self._steps:
            if place > self._place and any(wanted):
                return wanted, place
            # If no source is left that has a weight now, the next weights hold from here on.
            wanted = [0 if number in self._out else weight for number, weight in enumerate(weights)]
        return wanted, None

    def _check_sharing(self) -> None:
        if not is_one_of_many() or self._stream._part[1] > 1:
            return
        by_answer = {other.asked: other.name for other in self._sources if other.asked is not None}
        if len(by_answer) > 1:
            raise OptionError(_SHARED_APART.format(own=by_answer[True], whole=by_answer[False]))

    def state_dict(self) -> State:
        """Where the mixture is."""
        return {
            "place": self._place,
            "begin": self._begin,
            "weights": list(self._weights),
            "out": sorted(self._out),
            "over": self._over,
            "seed": self._stream.seed,
            "part": list(self._stream._part),
            "sources": {source.name: source.state() for source in self._sources},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue there, from there on with this mixture's weights."""
        saved, now = list(state["sources"]), list(self._stream.names)
        if saved != now:
            raise StateError(f"the state was saved for a mixture of {saved}, and this one is of {now}")
        for name, own in (("seed", self._stream.seed), ("part", list(self._stream._part))):
            if (list(state[name]) if name == "part" else state[name]) != own:
                raise StateError(f"the state was saved for a mixture with {name}={state[name]}, and here it is {own}")
        self._place, self._begin, self._weights = state["place"], state["begin"], list(state["weights"])
        self._out, self._over = set(state["out"]), state["over"]
        self._first = self._until = self._place
        for number, source in enumerate(self._sources):
            source.load(state["sources"][source.name], goes_on=not self._over and number not in self._out)


_EMPTY = (
    "source {name!r} is to be repeated, and has no elements{part}, so the mixture cannot go on: leave it out, or say "
    "when_ended='drop' for it"
)
_SHARED_APART = (
    "source {own!r} picks its own share (it asks get_worker_info()), and source {whole!r} gives everything: with "
    "several workers, elements of the latter would be delivered twice. Let all sources ask, or none, or give all of "
    "them shard(index, count)"
)


def _part_of(stream: MixtureStream) -> str:
    part, of = stream._part
    return "" if of == 1 else f" in part {part} of {of} (use fewer workers, or share='batches')"


def _ranks_of(source: Any) -> tuple[int, int]:
    ranks = ask(source, "ranks") if isinstance(source, IterableDataset) else None
    return (ranks[0], ranks[1]) if isinstance(ranks, tuple) and ranks[0] > 1 else (1, 0)
