"""What makes a torch DataLoader ours: its state between epochs, and an epoch made from its options.

Takes: a torch DataLoader (its public attributes only) and feedline's own options. Gives: iterators over batches.
Promises: torch's draws from the generator at torch's moments; a resumed epoch does not draw again. All our state is
here, under one name of the loader: subclasses have attributes and methods of their own, which must not clash with ours.
Not its job: torch's options and their checks (loader), the order (orders), the loop (engine.loop).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset, default_collate, default_convert

import feedline.datasets
from feedline.collate.default import registrations
from feedline.datasets import fingerprint_of
from feedline.engine.next_epoch import Predict
from feedline.engine.session import Session
from feedline.errors import StateError
from feedline.errors.counting import counted
from feedline.options import ErrorPolicy, Options
from feedline.options.option import chosen, picked
from feedline.options.together import check_assignment
from feedline.options.worker_count import AutoCount
from feedline.order.plan import StreamPlan, Tasks
from feedline.order.rank_turns import Turns, turns_for, unshared_ranks
from feedline.order.replay import end_of
from feedline.order.sampler import follow_epoch, is_ours, samplers_in
from feedline.order.shares import WHOLE, Share, SharedTasks, share_for
from feedline.randomness.rng import mix
from feedline.resume.checkpoint import Progress, after, lacking, read_again
from feedline.resume.passed import ALONE, Passed
from feedline.resume.state import End, Kind, NoState, Place, from_dict, to_dict
from feedline.resume.under_lightning import asking_loop, epoch_is_over, is_ahead, is_iterating
from feedline.torch.dialect import TORCH
from feedline.torch.drawn import Drawn, TorchGenerators
from feedline.torch.global_batches import check_drawn, seed_of
from feedline.torch.iterators import BegunLater, PlaceBefore, TorchIterator, WithPlaceBefore
from feedline.torch.known import hint_about, kind_of, other_steps, sharing_in
from feedline.torch.options import TORCHS, Own
from feedline.torch.orders import Asking, generators_of, is_stock_order
from feedline.torch.prediction import predicted
from feedline.torch.reading import reads_many
from feedline.torch.transfer import Transfer, transferred
from feedline.workers.job import Job

Loader = torch.utils.data.DataLoader[Any]


# feedline's streams use NumPy and know nothing of torch. Registered, they are streams for torch's loader, too, and for
# all code that asks about a loader's dataset (Lightning, Accelerate).
IterableDataset.register(feedline.datasets.IterableDataset)


def streams(dataset: Any) -> bool:
    """Is it read by iterating?"""
    return isinstance(dataset, IterableDataset)


class Engine:
    """The engine of one loader, for all its epochs."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self.session = Session()
        self._progress = Progress()
        self._put_off = False
        self._place_before = PlaceBefore()
        self._base_seed: int | None = None
        self._asks_twice: bool | None = None  # as in the run whose state was loaded
        self._latest: tuple[Any, Options, Job] | None = None
        """What the latest epoch read from the loader's attributes, and made of it."""
        self._told: tuple[int | None, int | None] = (None, None)  # from set_epoch, for the previous epoch and this one

    def __getstate__(self) -> dict[str, Any]:
        """A copy, here or in another process, has the same place and no workers."""
        progress = copy.deepcopy(self._progress)
        return {"own": self.own, "_progress": progress, "_put_off": self._put_off, "_asks_twice": self._asks_twice}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["own"])  # type: ignore[misc]
        self.__dict__.update(state)

    def begin(self, loader: Loader) -> Iterator[Any]:
        """Begin an epoch; draws from the generator exactly as torch's loader does."""
        if self._put_off:
            self._put_off = False
            return BegunLater(lambda: self.begin(loader), loader.__len__)
        if loader.num_workers and loader.prefetch_factor == 0:
            raise AssertionError("prefetch_factor must be greater than 0")  # torch notices it here, too
        # Asked for once: torch finds out each time which of its two samplers it is.
        sampler, is_given = _sampler_of(loader), loader.batch_size is None and self.own.global_batch_size is None
        if sampler is not None and (hint := hint_about(sampler, is_given)) is not None:
            self.session.tell_once(hint)
        turns, share = self._turns(), share_for(self.own.global_batch_size)
        shards = max(1, loader.num_workers) * turns.ranks if sampler is None else 0
        keeps_datasets = loader.persistent_workers or not loader.num_workers
        is_stock = sampler is not None and is_stock_order(sampler)
        sharing = ALONE if sampler is None else sharing_in(sampler, is_stock)
        place, passed = self._progress.begin(shards, sharing, keeps_datasets, _said_by(sampler), turns)
        try:
            return self._begin(loader, sampler, is_stock, place, passed, turns, share)
        except BaseException:
            self._progress.take_back()
            raise

    def _begin(
        self, loader: Loader, sampler: Any, is_stock: bool, place: Place, passed: Passed, turns: Turns, share: Share
    ) -> Iterator[Any]:
        tasks = self._tasks(loader, sampler, is_stock, place, passed, share)
        if (again := read_again(place, loader.dataset)) is not None:
            self.session.tell_once(again)
        transfer = Transfer.chosen(loader.pin_memory, loader.pin_memory_device, self.own.device)
        if transfer is not None:
            passed.hold()
        options, job = self._needed(loader, turns, share, sampler is None, passed.epoch)
        predict = self._predict(loader, passed, share)
        batches = self.session.begin(options, tasks, passed, loader.__len__, job, TorchIterator, predict)
        if loader.num_workers:
            batches.fill()  # torch takes the first indices from the sampler here, not in the first next()
        delivered = transferred(batches, transfer, passed.settle, self.session.timed)
        self._place_before = PlaceBefore()
        return WithPlaceBefore(delivered, loader.__len__, passed, self._place_before) if is_iterating() else delivered

    @property
    def share_given(self) -> tuple[int, float] | None:
        """Of the latest batch, if it is a share of a global batch: its rows, and how many they would be on average."""
        return self._progress.share_given

    @property
    def weight(self) -> float:
        """What to multiply the mean loss of the latest batch by."""
        return self._progress.weight

    @property
    def epoch(self) -> int:
        """The number of the next epoch."""
        return self._progress.epoch

    def batches_before(self, loader: Loader) -> int:
        """How many batches of the next epoch were delivered before its state was saved."""
        if streams(loader.dataset):
            return self._progress.batches_before(1, None)
        sharing = sharing_in(loader._index_sampler)
        counted_in_samples = loader._auto_collation and not sharing.whole_batches
        return self._progress.batches_before(sharing.ranks, loader.batch_size if counted_in_samples else None)

    @property
    def has_base_seed(self) -> bool:
        """Has a base seed been drawn? With persistent workers none is drawn after it."""
        return self._base_seed is not None

    def set_epoch(self, loader: Loader, epoch: int) -> None:
        """Set the next epoch, also in torch's samplers that have `set_epoch`."""
        self._progress.set_epoch(epoch)
        if not streams(loader.dataset) and not any(map(is_ours, samplers_in(loader._index_sampler))):
            follow_epoch(loader._index_sampler, epoch)

    def state(self, loader: Loader) -> dict[str, Any]:
        """Where the run stands, and what its order was drawn from."""
        loop = asking_loop()
        place = self._progress.place(lambda: _said(loader))
        if is_ahead(loop) and self._place_before.place is not None:
            place = self._place_before.place
        drawn: Drawn | None = place.drawn
        if drawn is None:  # between two epochs
            seed = self._base_seed if loader.persistent_workers else None
            drawn = Drawn(False, seed, asked_twice=self._twice(loader), left=_generators(loader).users_states())
        elif not drawn.now and epoch_is_over(loop):
            drawn = replace(drawn, now=_generators(loader).users_states())
        state = {**to_dict(place, _kind(loader, drawn.base_seed)), "torch": drawn.to_json()}
        for message in lacking(state, loader.dataset):
            self.session.tell_once(message)
        return state

    def load(self, loader: Loader, state: dict[str, Any]) -> None:
        """The next epoch continues from this state.

        If Lightning's epoch is over, that is the beginning of the next epoch, which begins with its first batch and not
        before (under_lightning says why).
        """
        loop = asking_loop()
        kind = _kind(loader, None)
        place = from_dict(state, kind)
        if "torch" not in state:
            raise StateError("the state was saved by feedline.DataLoader, whose order differs from torch's")
        # A user's sampler may get its generator from anywhere.
        must_agree = kind.sampler.startswith("torch.")
        drawn = Drawn.from_json(state["torch"], state.get("seed"), _generators(loader), must_agree)
        if loop is not None and kind.batched_by == "batch_size":
            _check_batch_size(loader, place, epoch_is_over(loop))
        if not streams(loader.dataset) and (other := other_steps(loader._index_sampler, place)) is not None:
            self.session.tell_once(other)
        self._put_off = epoch_is_over(loop)
        self._place_before = PlaceBefore()
        if self._put_off and drawn.begun:
            place = after(place, loader.__len__)
            drawn = Drawn(False, drawn.base_seed, asked_twice=drawn.asked_twice, left=drawn.now)
        self._asks_twice = drawn.asked_twice
        if streams(loader.dataset):
            self.session.drop_workers()  # they have read ahead; the state knows only what was delivered
        self._progress.load(replace(place, drawn=drawn))

    def close(self) -> None:
        """End all workers now."""
        self.session.close()

    def forget(self) -> None:
        """End all workers; the next epoch draws a new base seed even with persistent workers."""
        self.session.close()
        self._base_seed = None

    def _tasks(self, loader: Loader, sampler: Any, is_stock: bool, place: Place, passed: Passed, share: Share) -> Tasks:
        generators = _generators_of(loader, sampler, is_stock)
        loaded: Drawn | None = place.drawn
        if loaded is not None:
            if self._base_seed != loaded.base_seed:
                self.session.drop_workers()  # persistent workers were started with another seed
            self._base_seed = loaded.base_seed
            generators.put(loaded.left)
        again = loaded is not None and loaded.begun
        drawn = passed.drawn = loaded if loaded is not None and again else Drawn(begun=True)
        if sampler is None:
            seed = self._base_seed if again else self._draw_base_seed(loader)[0]
            drawn.base_seed, drawn.left = seed, generators.users_states()
            assert seed is not None
            return self.stream_plan(loader, seed).tasks_from(place)
        at_once = reads_many(loader.dataset)
        asking = Asking(sampler, is_stock, loader._auto_collation, at_once, place, drawn, generators)
        if again:
            asking.ask_again()
        else:
            # The sampler's iterator comes before the base seed, as in torch: both may draw from the same generator.
            asking.ask()
            drawn.asked_twice = self._twice(loader)
            drawn.base_seed, is_new = self._draw_base_seed(loader)
            if is_new and drawn.asked_twice:
                asking.ask()
            drawn.left = generators.users_states()
        assert drawn.base_seed is not None
        return self._shared(asking.tasks(self._seed_of(loader, drawn.base_seed)), place.samples, share, drawn)

    def _seed_of(self, loader: Loader, base_seed: int) -> int:
        """What draws follow from. torch's base seed differs by rank, and ranks that share batches need one for all."""
        return base_seed if self.own.global_batch_size is None else seed_of(loader.generator)

    def _shared(self, tasks: Tasks, begin: int, share: Share, drawn: Drawn | None) -> Tasks:
        """This rank's rows of the tasks, if ranks share batches. `drawn` is what the order was drawn from."""
        if share.ranks == 1:
            return tasks
        return SharedTasks(tasks, begin, share, None if drawn is None else partial(check_drawn, drawn))

    def stream_plan(self, loader: Loader, seed: int = 0) -> StreamPlan:
        """The plan of a stream. Ranks that share a stream must read it under one seed; torch's draw differs by rank."""
        seed = 0 if self.own.ranks == "shard" else self._seed_of(loader, seed)
        workers = max(1, loader.num_workers)
        return StreamPlan(loader.dataset, loader.batch_size, loader.drop_last, seed, workers, self._turns)

    def _turns(self) -> Turns:
        return turns_for(self.own.ranks, self.own.uneven)

    def _predict(self, loader: Loader, passed: Passed, share: Share) -> Predict:
        assert passed.drawn is not None
        self._told = self._told[1], passed.drawn.sampler_epoch
        step = int(self._told[0] != self._told[1])  # without a new set_epoch the sampler keeps its epoch
        assert self._base_seed is not None
        seed = self._seed_of(loader, self._base_seed)

        def predict() -> Tasks | None:
            found = predicted(loader._index_sampler, loader._auto_collation, passed.epoch + 1, seed, step)
            return None if found is None else self._shared(found, 0, share, None)

        return predict

    def _twice(self, loader: Loader) -> bool:
        """torch asks a second time after starting workers, and a sampler may draw (or count) each time."""
        return loader.num_workers > 0 if self._asks_twice is None else self._asks_twice

    def _draw_base_seed(self, loader: Loader) -> tuple[int, bool]:
        # torch draws it once for persistent workers, and once per iteration otherwise.
        if self._base_seed is not None and loader.persistent_workers and loader.num_workers:
            return self._base_seed, False
        self._base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())
        return self._base_seed, True

    def _needed(self, loader: Loader, turns: Turns, share: Share, stream: bool, epoch: int) -> tuple[Options, Job]:
        """From the loader's options: what the loop needs, and what workers do. Only a user who sets an attribute of the
        loader changes any of it but the seed from one epoch to the next."""
        ranks = unshared_ranks(self.own.ranks) if stream and self.own.global_batch_size is None else 0
        share = share if stream else WHOLE
        present = _read(loader), turns, share, ranks, registrations()
        if self._latest is None or not _are_the_same(self._latest[0], present):
            self._latest = present, *self._asked_for(loader, turns, share, ranks)
        _, options, job = self._latest
        # Without workers nobody has a seed of its own, but for a stream's parts.
        assert self._base_seed is not None
        needs_none = type(options.num_workers) is int and not options.num_workers and not stream
        seed = self._base_seed
        if stream and self.own.global_batch_size is not None:  # every rank reads it all, and may order it by this seed
            seed = mix(self._seed_of(loader, seed), epoch) >> 2
        return options, job if needs_none else replace(job, seed=seed)

    def _asked_for(self, loader: Loader, turns: Turns, share: Share, ranks: int) -> tuple[Options, Job]:
        values = {name: getattr(loader, name) for name in TORCHS if name != "shuffle"} | vars(self.own)
        stream, batched = streams(loader.dataset), loader._auto_collation
        stock = default_collate if batched else default_convert
        options = picked(
            Options,
            values,
            stream=stream,
            batched=batched,
            prefetch_factor=loader.prefetch_factor or 2,
            persistent_workers=loader.persistent_workers and loader.num_workers > 0,
            error_policy=picked(ErrorPolicy, values),
        )
        job = chosen(
            Job,
            values,
            stream=stream,
            batched=batched,
            batch_size=loader.batch_size or 1,
            collate_fn=None if values["collate_fn"] is stock else values["collate_fn"],
            registrations=registrations(),
            dialect=TORCH,
            in_turn=self._assignment(loader) == "in_turn",
            turns=turns,
            share=share,
            unshared=ranks,
            snapshot_every=self.own.snapshot_every_n_steps or 0,
            seed=self._base_seed,
        )
        return options, Job(**job)

    def _assignment(self, loader: Loader) -> str:
        """Workers take turns as in torch, but not if batches may come in any order (torch's do not either), and not if
        their number changes."""
        stream = streams(loader.dataset)
        check_assignment(self.own.assignment, loader.num_workers, stream)  # num_workers may have changed since
        if self.own.assignment is not None:
            return self.own.assignment
        may = stream or (loader.in_order and not isinstance(loader.num_workers, AutoCount))
        return "in_turn" if may else "free"


_read = operator.attrgetter(*(name for name in TORCHS if name != "shuffle"), "batch_size", "_auto_collation")


def _are_the_same(before: Any, now: Any) -> bool:
    """Are the attributes the same objects, and ranks and registrations equal?"""
    return all(map(operator.is_, before[0], now[0])) and before[1:] == now[1:]


def _kind(loader: Loader, seed: int | None) -> Kind:
    own = loader._feedline.own  # type: ignore[attr-defined]
    found = _kind_of(loader, seed)
    size, content = own.global_batch_size, fingerprint_of(loader.dataset)
    return replace(found, batch_size=loader.batch_size, global_batch_size=size, fingerprint=content)


def _kind_of(loader: Loader, seed: int | None) -> Kind:
    if streams(loader.dataset):
        own = loader._feedline.own  # type: ignore[attr-defined]
        reading = f"batch_size={loader.batch_size}, shuffle_buffer={own.shuffle_buffer}"
        reading += ", ranks='shard'" if own.ranks == "shard" else ""
        return Kind(seed, None, type(loader.dataset).__name__, "stream", reading)
    return kind_of(loader._index_sampler, loader._auto_collation, seed)


def _check_batch_size(loader: Loader, place: Place, is_over: bool) -> None:
    """Lightning ends an epoch after len(loader) batches, including those before the checkpoint."""
    step = loader._index_sampler.batch_size * sharing_in(loader._index_sampler).ranks
    most = place.batches * step
    if place.samples != most and not (is_over and most - step < place.samples < most):
        raise StateError(
            f"the state is after {counted(place.batches, 'batch')} with {counted(place.samples, 'sample')}, so "
            f"batch_size (or the number of ranks) was not the same as now (batch_size={loader.batch_size}). Lightning "
            "counts an epoch in batches, so it would end at the wrong sample: keep batch_size times ranks as it was"
        )


def _sampler_of(loader: Loader) -> Any:
    """The loader's batch sampler, or its sampler without batches; None for a stream."""
    return None if streams(loader.dataset) else loader._index_sampler


def _said(loader: Loader) -> End | NoState | None:
    """The sampler's own state between two epochs."""
    return _said_by(_sampler_of(loader))


def _said_by(sampler: Any) -> End | NoState | None:
    return None if sampler is None else end_of(sampler.sampler if type(sampler) is BatchSampler else sampler)


def _generators(loader: Loader) -> TorchGenerators:
    sampler = _sampler_of(loader)
    return _generators_of(loader, sampler, sampler is not None and is_stock_order(sampler))


def _generators_of(loader: Loader, sampler: Any, is_stock: bool) -> TorchGenerators:
    return TorchGenerators(loader.generator, [] if sampler is None else generators_of(sampler, is_stock))
