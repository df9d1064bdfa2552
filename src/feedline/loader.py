"""DataLoader: wires the parts together.

Takes: the user's options (checked by options). Gives: batches, epoch after epoch.
Promises: the same options and seed give the same batches.
Not its job: the loop (engine), and the work of the other packages (docs/design.md).
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal

from feedline.collate.composing import check_collate
from feedline.collate.default import registrations
from feedline.datasets import fingerprint_of
from feedline.engine.loop import BatchIterator
from feedline.engine.session import Session
from feedline.messages.outcome import BadSample
from feedline.observe.epoch_bar import WithProgress
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.recorder import Recorder
from feedline.observe.stats import Stats
from feedline.observe.stepping import StepBlock
from feedline.options import Options
from feedline.options.core import LoaderOptions, check_options
from feedline.options.loader_line import loader_in_html, loader_in_words
from feedline.options.option import picked
from feedline.options.table import CoreOptions
from feedline.order.last_batch import lone_sample
from feedline.order.plan import IterablePlan, OrderPlan, Plan, StreamPlan, plan_of_batch_sampler
from feedline.order.rank_turns import ONE_RANK, Turns, turns_for, unshared_ranks
from feedline.order.ranks import given_epoch, global_length, name_of, ranks_of
from feedline.order.replay import end_of
from feedline.order.sampler import follow_epoch, has_batches, has_order, is_ours
from feedline.order.samplers import BatchSampler, RandomSampler, SequentialSampler
from feedline.order.shares import WHOLE, Share, SharedPlan, share_for
from feedline.randomness.rng import mix
from feedline.resume.checkpoint import Progress, lacking, read_again
from feedline.resume.endless import Forever
from feedline.resume.passed import ALONE, Passed, Sharing
from feedline.resume.state import Kind, epoch_in, from_dict, seed_in, to_dict
from feedline.workers.dialect import NUMPY, Dialect
from feedline.workers.job import Job

if TYPE_CHECKING:
    import typing_extensions

    B = typing_extensions.TypeVar("B", default=Any)
else:
    B = typing.TypeVar("B")  # TypeVar has a default only from Python 3.13 on
"""The type of a batch: what collate_fn returns."""


class DataLoader(CoreOptions, Generic[B]):
    """Batches of a dataset, in a reproducible order, loaded ahead by workers.

    Options that torch has too keep torch's names, defaults and meanings; from `drop_last` on they are keyword-only.
    Each option is an attribute of the loader.

    Options:
        dataset: The data: it has `__getitem__` and `__len__`, or it is iterated over (a stream).
        batch_size: The number of samples in a batch; None delivers single samples.
        shuffle: True reads the samples in a random order, a new one in each epoch.
        sampler: An iterable of indices, one for each sample; it decides the order.
        batch_sampler: An iterable of lists of indices, one for each batch; it decides the batches.
        num_workers: The number of workers; 0 loads without any, "auto" finds out how many (docs/auto-workers.md).
        collate_fn: A function that makes a batch from a list of samples; None stacks each field.
        drop_last: True leaves out a last batch that is not full.
        timeout: The loop waits this many seconds for a batch, then raises an error; 0 waits as long as it takes.
        worker_init_fn: A function that each worker calls with its number before its first sample.
        multiprocessing_context: How processes start: "fork", "forkserver", "spawn" or a context; None: as usual.
        prefetch_factor: The number of batches that each worker makes in advance; None means 2.
        persistent_workers: True keeps the workers from one epoch to the next.
        in_order: False delivers a batch as soon as it is made, whatever the order of the sampler.
        seed: Order and random draws follow from the seed and the epoch; None draws a seed.
        workers: The kind of workers: "process", "thread" for samples that wait, "ray" for a cluster (docs/workers.md).
        ray_options: For workers="ray": options of Ray's actors, such as `resources` (docs/ray.md).
        global_batch_size: The number of samples in a batch of all ranks; each makes its share (docs/elastic.md).
        shuffle_buffer: A stream is shuffled in a buffer of this many elements; 0 leaves its order (docs/streams.md).
        collate: How each field becomes a batch, instead of collate_fn: `{"tokens": pad(0)}` (docs/collation.md).
        fetch_threads: Each worker reads this many samples at a time; 0 reads one after another (docs/latency.md).
        stall_warning: After this many seconds without a batch a warning shows what each worker does; 0: never.
        on_stall: "restart" replaces a worker stuck in one sample for `timeout` (or else `stall_warning`) seconds.
        on_error: "skip" makes a batch without a sample that fails, "replace" puts its nearest good neighbour there.
        max_errors: This many samples may fail under "skip" and "replace"; below 1 it is a share of the samples read.
        max_deaths: This many workers may die at one sample before the sample is given up.
        error_log: A file that gets one JSON line for each sample that fails.
        on_epoch_end: A function that is called with `loader.stats()` after each epoch (docs/seeing.md).
        prefetch_next_epoch: False: persistent workers read nothing before an epoch begins (docs/across-epochs.md).
        assignment: "free": any free worker makes the next batch; "in_turn": each makes every Nth (docs/workers.md).
        ranks: "shard" divides a stream among the ranks; with "all" each rank reads all of it (docs/streams.md).
        uneven: How a stream divided among ranks ends: "pad" (also for None), "drop" or "exact" (docs/streams.md).

    >>> import numpy as np
    >>> from feedline import ArrayDataset
    >>> data = ArrayDataset(np.arange(6) * 10, np.arange(6))
    >>> for values, labels in DataLoader(data, batch_size=4):
    ...     print(values, labels)
    [ 0 10 20 30] [0 1 2 3]
    [40 50] [4 5]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[Any], B] | None = None,
        *,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        seed: int | None = None,
        workers: str = "process",
        ray_options: dict[str, Any] | None = None,
        global_batch_size: int | None = None,
        shuffle_buffer: int = 0,
        collate: Any = None,
        fetch_threads: int = 0,
        stall_warning: float = 30,
        on_stall: str = "wait",
        on_error: str = "raise",
        max_errors: float | None = None,
        max_deaths: int = 2,
        error_log: str | os.PathLike[str] | None = None,
        on_epoch_end: Callable[[Stats], object] | None = None,
        prefetch_next_epoch: bool = True,
        assignment: str = "free",
        ranks: str | None = None,
        uneven: str | None = None,
    ) -> None:
        self.options = check_options(locals() | {"collate_fn": check_collate(collate, collate_fn)})
        self._plan = self._planned()
        self._progress = Progress()
        self._session = Session()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._session = Session()

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._plan)

    def __repr__(self) -> str:
        return loader_in_words(self, self.options.workers)

    def _repr_html_(self) -> str:
        return loader_in_html(self, self.options.workers)

    def __iter__(self) -> BatchIterator[B]:
        """Begin an epoch. With persistent workers, an epoch that is still running on them is given up."""
        if (hint := _hint(self.options, self._plan)) is not None:
            self._session.tell_once(hint)
        return self._begin()[0]

    def _begin(self) -> tuple[BatchIterator[B], Passed]:
        """The epoch's batches, and what counts them."""
        turns, share = self._turns()(), share_for(self.options.global_batch_size)
        shards = max(1, self.options.num_workers) * turns.ranks if self.options.stream else 0
        keeps_datasets = self.options.persistent_workers or not self.options.num_workers
        said = end_of(_given_sampler(self.options))
        place, passed = self._progress.begin(shards, _sharing(self.options), keeps_datasets, said, turns)
        try:
            tasks = self._plan.tasks_from(place)
            if (again := read_again(place, self.options.dataset)) is not None:
                self._session.tell_once(again)
            length, predict = (lambda: len(self._plan)), (lambda: self._plan.predicted(passed.epoch + 1))
            needed, job = self._needed(turns, share, passed.epoch)
            return self._session.begin(needed, tasks, passed, length, job, predict=predict), passed
        except BaseException:
            self._progress.take_back()
            raise

    def _needed(self, turns: Turns, share: Share, epoch: int) -> tuple[Options, Job]:
        """What the loop needs, and what workers do: without workers the same in each epoch, as nobody has a seed or has
        to be told how users' types are collated."""
        options = self.options
        if options.num_workers or options.stream:
            return picked(Options, vars(options)), _job(options, turns, share, epoch, self._dialect)
        known = self._session.asked_for
        if known is None or known[0] is not options:
            known = options, picked(Options, vars(options)), _job(options, dialect=self._dialect)
            self._session.asked_for = known
        return known[1:]

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next `iter()` will begin."""
        return self._progress.epoch

    @property
    def weight(self) -> float:
        """What to multiply the mean loss of the latest batch by, with `global_batch_size` (docs/elastic.md); else 1.

        Ranks average their gradients. Where their shares of a batch differ by a sample, that average is the gradient of
        the whole batch only if each share counts by its samples.

        >>> loader = DataLoader(range(10), global_batch_size=4)  # one rank
        >>> [(batch.tolist(), loader.weight) for batch in loader]
        [([0, 1, 2, 3], 1.0), ([4, 5, 6, 7], 1.0), ([8, 9], 1.0)]
        """
        return self._progress.weight

    @property
    def _share_given(self) -> tuple[int, float] | None:
        return self._progress.share_given

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands, as a small dict; it can be taken at any moment.

        Only delivered batches count: batches that were made ahead come again. If the dataset or the sampler has
        a `state_dict()` of its own, `json` can write the dict only if it can write what that returns.

        >>> import numpy as np
        >>> loader = DataLoader(np.arange(10), batch_size=4, shuffle=True, seed=3)
        >>> iterator = iter(loader)
        >>> _ = next(iterator)
        >>> state = loader.state_dict()
        >>> again = DataLoader(np.arange(10), batch_size=4, shuffle=True, num_workers=2)
        >>> again.load_state_dict(state)
        >>> [batch.tolist() for batch in again] == [batch.tolist() for batch in iterator]
        True
        """
        sampler = _given_sampler(self.options)
        given = given_epoch(sampler)
        state = to_dict(self._progress.place(lambda: end_of(sampler)), self._kind(self.options.seed))
        for message in lacking(state, self.options.dataset):
            self._session.tell_once(message)
        return state if given is None else {**state, "sampler_epoch": given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where the state was saved; a state that cannot be continued exactly is refused."""
        place = from_dict(state, self._kind(self.options.seed if self.options.seeded else None))
        if (seed := seed_in(state)) != self.options.seed:
            self.options = LoaderOptions(**vars(self.options) | {"seed": seed})
            self._plan = self._planned()
        if "sampler_epoch" in state:
            follow_epoch(_given_sampler(self.options), epoch_in(state))
        if self.options.stream:
            self._session.drop_workers()  # they have read ahead; the state knows only what was delivered
        self._progress.load(place)

    def forever(self, batches_per_epoch: int) -> Forever:
        """Batches without end, in virtual epochs of exactly `batches_per_epoch`; when the data ends, it is reshuffled.

        >>> import numpy as np
        >>> endless = DataLoader(np.arange(5), batch_size=2, seed=1).forever(batches_per_epoch=4)
        >>> [batch.tolist() for batch in endless], [batch.tolist() for batch in endless]
        ([[0, 1], [2, 3], [4], [0, 1]], [[2, 3], [4], [0, 1], [2, 3]])
        """
        return Forever(self, batches_per_epoch)

    def progress(self, name: str | None = None) -> WithProgress[B]:
        """One epoch with a progress bar: samples per second, and the share of the time that the loop waited.

        The bar is tqdm's or rich's (whichever is installed) in a terminal, and HTML in a notebook; in a log it is one
        line at the end. A resumed epoch begins at its place. `name` is shown instead of the epoch's number.

        >>> import contextlib, sys
        >>> with contextlib.redirect_stderr(sys.stdout):  # so that this example can be tested
        ...     for batch in DataLoader(range(5), batch_size=2).progress("train"):  # doctest: +ELLIPSIS
        ...         print(batch)
        [0 1]
        [2 3]
        [4]
        train: 3 of 3 batches, ... samples/s, waited ... % of ... s
        """
        return WithProgress(self, self._batches_before, name)

    # What another front changes.

    _dialect = NUMPY

    def _planned(self) -> Plan:
        """The plan that follows from the options."""
        return _plan(self.options, self._turns())

    def _turns(self) -> Callable[[], Turns]:
        """How ranks divide a stream. A function that does not refer to the loader: the plan keeps it."""
        return partial(turns_for, self.options.ranks, self.options.uneven)

    def _batches_before(self) -> int:
        """How many batches of the next epoch were delivered before its state was saved."""
        options = self.options
        if options.stream:
            return self._progress.batches_before(1, None)
        sharing = _sharing(options)
        size = options.batch_size if options.batched and not sharing.whole_batches else None
        return self._progress.batches_before(sharing.ranks, size)

    def _kind(self, seed: int | None) -> Kind:
        size, content = self.options.global_batch_size, fingerprint_of(self.options.dataset)
        return replace(kind_of(self.options, seed), global_batch_size=size, fingerprint=content)

    def errors(self) -> list[BadSample]:
        """The samples that failed and were left out or replaced (`on_error`), over all epochs; the last 10,000.

        >>> class Damaged:
        ...     def __len__(self): return 4
        ...     def __getitem__(self, i): return i if i != 2 else int("?")
        >>> loader = DataLoader(Damaged(), batch_size=4, on_error="replace")
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 3, 3]]
        >>> [(bad.index, bad.error[:10], bad.replacement) for bad in loader.errors()]
        [(2, 'ValueError', 3)]
        """
        return self._session.errors

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that comes next. The epoch and the seed decide the order and every random draw.

        Samplers that are not feedline's and have a `set_epoch` are told, too.
        """
        self._progress.set_epoch(epoch)
        sampler = _given_sampler(self.options)
        if not is_ours(sampler) or given_epoch(sampler) is not None:
            follow_epoch(sampler, epoch)

    def stats(self) -> Stats:
        """How the loader is doing: memory of each worker process, share of padding in the batches, and so on."""
        return self._session.stats()

    def _step(self) -> StepBlock:
        """`step()`, also where a user's subclass has an attribute of that name."""
        return self._session.step()

    def _flow_now(self) -> EpochStats | None:
        return self._session.flow_now()

    def step(self) -> StepBlock:
        """Measures the training step: `with loader.step():` around it, in the loop (docs/step.md).

        `stats()`, reports and traces then tell the step from waiting and from the rest; with torch on a GPU, by the
        GPU's own time. A batch that is asked for inside counts as waited for, not as a step.

        >>> loader = DataLoader(range(6), batch_size=2)
        >>> for batch in loader:
        ...     with loader.step():
        ...         _ = batch.sum()
        >>> loader.stats().epoch.steps, loader.stats().epoch.basis
        (3, 'loader.step()')
        """
        return self._step()

    def trace(self, path: str | os.PathLike[str]) -> Recorder:
        """Record all following epochs in Chrome's trace format: open the file in https://ui.perfetto.dev.

        There is one row per worker (fetch, each sample, collate) and one for the training loop (wait, compute). The
        file is written after each epoch and when recording stops: `with loader.trace("run.json"): ...`, or `.stop()`.
        """
        return self._session.trace(path)

    def report(self, path: str | os.PathLike[str]) -> Recorder:
        """Record all following epochs as one HTML page: it says whether the loader is the bottleneck, and what to do.

        The page needs no network. It has the timeline, waiting and utilisation, the slowest samples, the memory of each
        worker, labels per batch, padding and errors. Written when a trace is: `with loader.report("run.html"): ...`
        """
        return self._session.report(path)

    def draw(
        self,
        path: str | os.PathLike[str],
        kind: str | None = None,
        *,
        labels: Any = None,
        lengths: Any = None,
        epoch: int | None = None,
    ) -> str:
        """Draw the coming epoch as SVG or PNG (`feedline[plot]`), from the loader's plan; returns what was drawn.

        `kind` is "classes" or "sources" (in each batch), "padding", "order", or "batch" (images of the first batch);
        None draws what the data suggests. `labels` and `lengths` have one value for each sample; labels are
        also found in the dataset. Only "batch", and "padding" without lengths, read samples.

        >>> import tempfile
        >>> loader = DataLoader(range(100), batch_size=8, shuffle=True)
        >>> loader.draw(os.path.join(tempfile.mkdtemp(), "classes.svg"), labels=[0] * 90 + [1] * 10)
        'classes'
        """
        from feedline.diagnose.drawing.draw import draw

        return draw(self, path, kind, labels=labels, lengths=lengths, epoch=epoch)

    def close(self) -> None:
        """End all workers and free their memory. Batches in use stay valid; the loader can be used again."""
        self._session.close()

    def __enter__(self) -> DataLoader[B]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _hint(options: LoaderOptions, plan: Plan) -> str | None:
    if options.stream:
        return None
    if type(plan) is OrderPlan and options.batch_sampler is None:
        return lone_sample(plan.sampler, options.batch_size, options.drop_last)
    chosen = options.batch_sampler
    if type(chosen) is BatchSampler:
        return lone_sample(chosen.sampler, chosen.batch_size, chosen.drop_last, of=" to the BatchSampler")
    return lone_sample(_sampler(options), options.batch_size, options.drop_last) if chosen is None else None


def _plan(options: LoaderOptions, turns: Callable[[], Turns]) -> Plan:
    plan, size = _plan_of_all(options, turns), options.global_batch_size
    return plan if size is None or options.stream else SharedPlan(plan, size, partial(share_for, size))


def _plan_of_all(options: LoaderOptions, turns: Callable[[], Turns]) -> Plan:
    """The plan of a single process."""
    size, drop, seed = options.batch_size, options.drop_last, options.seed
    if options.stream:
        return StreamPlan(options.dataset, size, drop, seed, max(1, options.num_workers), turns)
    if options.batch_sampler is not None:
        return plan_of_batch_sampler(options.batch_sampler, seed)
    sampler = _sampler(options)
    if has_order(sampler):
        return OrderPlan(sampler, size, drop, seed)
    return IterablePlan(sampler, size, drop, seed)


def _sampler(options: LoaderOptions) -> Any:
    """The sampler that picks the indices if there is no batch sampler."""
    if options.sampler is not None:
        return options.sampler
    return RandomSampler(options.dataset) if options.shuffle else SequentialSampler(options.dataset)


def _given_sampler(options: LoaderOptions) -> Any:
    return options.sampler if options.batch_sampler is None else options.batch_sampler


def _sharing(options: LoaderOptions) -> Sharing:
    """How the order is shared out over ranks."""
    sampler = _given_sampler(options)
    if options.stream or sampler is None:
        return ALONE
    size = sampler.batch_size if type(sampler) is BatchSampler else options.batch_size
    inner = sampler.sampler if type(sampler) is BatchSampler else sampler
    return Sharing(ranks_of(sampler), has_batches(sampler), size, global_length(inner))


def kind_of(options: LoaderOptions, seed: int | None) -> Kind:
    """The settings that a saved state must share with a loader that continues it."""
    if options.stream:
        reading = f"batch_size={options.batch_size}, shuffle_buffer={options.shuffle_buffer}"
        reading += ", ranks='shard'" if options.ranks == "shard" else ""
        return Kind(seed, None, type(options.dataset).__name__, "stream", reading, options.batch_size)
    sampler = _given_sampler(options)
    if sampler is None:
        name = "RandomSampler" if options.shuffle else "SequentialSampler"
        by = "batch_size" if options.batched else "nobody"
        return Kind(seed, len(options.dataset), name, by, batch_size=options.batch_size)
    by = "batch_sampler" if options.batch_sampler is not None else "batch_size" if options.batched else "nobody"
    return Kind(seed, global_length(sampler), name_of(sampler), by, batch_size=options.batch_size)


def _job(
    options: LoaderOptions, turns: Turns = ONE_RANK, share: Share = WHOLE, epoch: int = 0, dialect: Dialect = NUMPY
) -> Job:
    return picked(
        Job,
        vars(options),
        batch_size=options.batch_size or 1,
        seed=mix(options.seed, epoch) >> 2,  # 62 bits; a new seed in each epoch, like torch's base seed
        registrations=registrations(),
        dialect=dialect,
        in_turn=options.assignment == "in_turn",
        turns=turns,
        share=share if options.stream else WHOLE,
        unshared=unshared_ranks(options.ranks) if options.stream and options.global_batch_size is None else 0,
    )
