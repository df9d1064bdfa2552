"""What a loader knows about itself, as plain values.

Takes: nothing. Gives: `Stats`, which `loader.stats()` returns. Promises: frozen; new fields come with defaults.
Not its job: measuring (supervise), counting (collated).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from feedline.errors.counting import counted
from feedline.observe.epoch_stats import BETWEEN, DEVICE, EpochStats
from feedline.observe.exposition import Metric, exposition
from feedline.observe.html_table import lines_with_bar


@dataclass(frozen=True)
class WorkerMemory:
    """The memory of one worker process, in bytes, as of the latest measurement.

    >>> WorkerMemory(worker=0, pid=4711, total=90 << 20, private=20 << 20, own=60 << 20).total
    94371840
    """

    worker: int
    pid: int
    total: int
    """All mapped memory that is resident (Rss), including batches and libraries."""
    private: int
    """Memory that no other process shares: it would be freed if the worker ended. Of workers that ended after
    a second or two: what their own memory has grown by."""
    own: int
    """Python objects and the like (anonymous memory), including those a forked worker still shares with its parent."""
    host: str = ""
    """The machine it runs on, if that may be another one (`workers="ray"`)."""


@dataclass(frozen=True)
class WorkerChange:
    """A step of `num_workers="auto"`: what was done, after how many batches, and why.

    >>> WorkerChange(batches=12, workers=2, prefetch_factor=2, reason="with 1 worker the loop waited 90 %").workers
    2
    """

    batches: int
    workers: int
    prefetch_factor: int
    reason: str


@dataclass(frozen=True)
class AutoWorkers:
    """What `num_workers="auto"` has chosen. `print` it.

    >>> print(AutoWorkers(4, 2, "the loop waits 2 % of its time", settled=True))
    4 workers, 2 batches ahead each (chosen): the loop waits 2 % of its time
    """

    workers: int
    prefetch_factor: int
    reason: str
    settled: bool = False
    """Is the number settled, or is another one being tried?"""
    changes: tuple[WorkerChange, ...] = ()
    """The steps that led there: the last 100."""

    def __str__(self) -> str:
        many = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        what = f"{many}, {counted(self.prefetch_factor, 'batch')} ahead each" if self.workers else "no workers"
        return f"{what} ({'chosen' if self.settled else 'on trial'}): {self.reason}"


@dataclass(frozen=True)
class CollateStats:
    """What collators have counted in the batches delivered so far, over all epochs.

    >>> CollateStats().padding is None
    True
    """

    padding: float | None = None
    """The share of padding in padded arrays (`pad`, `detection`); None if nothing has been padded."""
    padding_of_batches: tuple[float, ...] = ()
    """The same for each of the last 1,000 padded batches, oldest first."""
    fill: float | None = None
    """The share of packed rows (`pack`) that is filled; None if nothing has been packed."""
    cut: int = 0
    """Samples that were cut because the user asked for it."""
    dropped: int = 0
    """Samples that `drop_invalid` has left out…"""
    emptied: int = 0
    """…and batches that were not delivered because no sample was left."""


@dataclass(frozen=True)
class SourceStats:
    """What one source of a `MixtureStream` has given to the batches delivered so far, over all epochs.

    With a `shuffle_buffer` it is what was read for these batches: some of it is still in the buffer.

    >>> SourceStats(samples=100, passes=2).plus(28, 1)
    SourceStats(samples=128, passes=3)
    """

    samples: int = 0
    passes: int = 0
    """How often it has come to its end, or a worker's part of it."""

    def plus(self, samples: int, passes: int) -> SourceStats:
        """These counts, and so many more."""
        return SourceStats(self.samples + samples, self.passes + passes)


@dataclass(frozen=True)
class Stats:
    """What `loader.stats()` returns. `print` it.

    >>> Stats().workers
    ()
    """

    epoch: EpochStats = field(default_factory=EpochStats)
    """The latest epoch, finished or running."""
    total: EpochStats = field(default_factory=EpochStats)
    """All epochs of this loader together."""
    epochs: tuple[EpochStats, ...] = ()
    """Each epoch by itself: the last 100."""
    workers: tuple[WorkerMemory, ...] = ()
    """One entry for each worker process, by number; empty without worker processes."""
    collate: CollateStats = CollateStats()
    sources: Mapping[str, SourceStats] = field(default_factory=dict)
    """Of a `MixtureStream`: what each of its sources gave."""
    errors: int = 0
    """Samples that failed and were left out or replaced (`on_error`)."""
    kind: str = ""
    """The kind of workers: "process", "thread" or "ray"; empty without workers."""
    auto_workers: AutoWorkers | None = None
    """With `num_workers="auto"`: how many workers there are, and why."""

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        first, *lines = str(self).splitlines()
        who = "device waited" if self.epoch.basis == DEVICE else "waited"
        return lines_with_bar(first, lines, who, self.epoch.starved_share)

    def scalars(self) -> dict[str, float]:
        """The latest epoch's numbers by name, for any logger: `for name, value in ...: writer.add_scalar(name, value)`.

        >>> Stats(epoch=EpochStats(seconds=2.0, waiting=0.5, batches=10, samples=320)).scalars()["loader/waiting_share"]
        0.25
        """
        flow = self.epoch
        found = {name: getattr(flow, name) for name in _LOGGED}
        found |= {"errors": self.errors, "memory_bytes": sum(worker.total for worker in self.workers)}
        if self.collate.padding is not None:
            found["padding"] = self.collate.padding
        return {f"loader/{name}": float(value) for name, value in found.items()}

    def prometheus(self, **labels: str) -> str:
        """The numbers of all epochs in Prometheus' text format, to be served or written for its textfile collector.

        `labels` distinguish several loaders.

        >>> text = Stats(total=EpochStats(batches=10, samples=320)).prometheus(loader="train")
        >>> [line for line in text.splitlines() if line.startswith("feedline_samples_total")]
        ['feedline_samples_total{loader="train"} 320']
        """
        return exposition(_metrics(self), labels)


_LOGGED = (
    *("samples_per_second", "batches_per_second", "bytes_per_second", "waiting_share", "utilisation", "queued"),
    *("step_share", "starved_share", "other_share", "step", "other"),
    *("restarts", "seconds", "waiting", "fetching", "collating", "sending", "transferring", "delivering"),
)


def _metrics(stats: Stats) -> Iterator[Metric]:
    flow = stats.total
    counted = {
        "samples": (flow.samples, "Samples delivered."),
        "batches": (flow.batches, "Batches delivered."),
        "bytes": (flow.bytes, "Bytes in the batches delivered, estimated from some of them."),
        "loop_seconds": (flow.seconds, "Time in which epochs were under way."),
        "waiting_seconds": (flow.waiting, "Of these, the time that the loop waited for batches."),
        "step_seconds": (flow.step, "Of these, the time in training steps."),
        "restarts": (flow.restarts, "Workers that died or were stuck, and were replaced."),
        "errors": (stats.errors, "Samples that failed and were left out or replaced."),
    }
    for name, (value, text) in counted.items():
        yield Metric(f"{name}_total", "counter", text, ((value, {}),))
    spent = ("fetching", "collating", "sending", "transferring", "delivering")
    stages = tuple((getattr(flow, name), {"stage": name}) for name in spent)
    yield Metric("stage_seconds_total", "counter", "Time spent in each stage, over all workers.", stages)
    if flow.basis == DEVICE:
        on_device = {"step": flow.device_stepping, "waiting": flow.device_waiting, "other": flow.device_other}
        times = tuple((seconds, {"in": name}) for name, seconds in on_device.items())
        yield Metric("device_seconds_total", "counter", "The device's time, by its events.", times)
    yield Metric("epoch", "gauge", "The latest epoch's number.", ((stats.epoch.number, {}),))
    yield Metric("workers", "gauge", "Workers of the latest epoch.", ((stats.epoch.num_workers, {}),))
    yield Metric("ready_batches", "gauge", "Batches ready when one was asked for.", ((stats.epoch.queued, {}),))
    if stats.workers:
        memory = tuple((each.total, {"worker": str(each.worker), **_at(each)}) for each in stats.workers)
        yield Metric("worker_memory_bytes", "gauge", "Memory of each worker process (Rss).", memory)
    if stats.sources:
        drawn = tuple((source.samples, {"source": name}) for name, source in stats.sources.items())
        yield Metric("source_samples_total", "counter", "Samples of each source of a mixture.", drawn)
    if (padding := stats.collate.padding) is not None:
        yield Metric("padding_ratio", "gauge", "Share of padded arrays that is padding.", ((padding, {}),))


def _at(worker: WorkerMemory) -> dict[str, str]:
    return {"host": worker.host} if worker.host else {}


def _lines(stats: Stats) -> Iterator[str]:
    flow = stats.epoch
    given = f"{counted(flow.batches, 'batch')}, {counted(flow.samples, 'sample')}"
    yield f"epoch {flow.number}: {given} in {flow.seconds:.3g} s"
    yield f"  {flow}"
    stages = {"fetch": flow.fetching, "collate": flow.collating, "send": flow.sending}
    stages |= {"transfer": flow.transferring, "deliver": flow.delivering}
    yield "  " + ", ".join(f"{name} {seconds:.3g} s" for name, seconds in stages.items() if seconds)
    if flow.basis != BETWEEN:
        yield f"  {flow.shares}"
    if flow.num_workers:
        workers = f"{counted(flow.num_workers, 'worker')}, {flow.restarts} replaced"
        yield f"  {flow.queued:.2g} batches ready on average, {workers}"
    if stats.auto_workers is not None:
        yield f"  {stats.auto_workers}"
    for worker in stats.workers:
        memory = f"{worker.total / 1e6:,.0f} MB, {worker.private / 1e6:,.0f} of it not shared"
        where = f" on {worker.host}" if worker.host else ""
        yield f"  worker {worker.worker} (pid {worker.pid}{where}): {memory}"
    collate = stats.collate
    if collate.padding is not None:
        yield f"  padding {collate.padding:.0%}"
    if collate.fill is not None:
        yield f"  packed rows filled to {collate.fill:.1%}"
    drawn = sum(source.samples for source in stats.sources.values()) or 1
    for name, source in stats.sources.items():
        shared = f"{counted(source.samples, 'sample')} ({source.samples / drawn:.1%})"
        yield f"  {name}: {shared}, its end reached {counted(source.passes, 'time')}"
    if stats.errors or collate.dropped or collate.cut:
        failed = f"{counted(stats.errors, 'sample')} failed"
        yield f"  {failed}, {collate.dropped} dropped as invalid, {collate.cut} cut short"
    if len(stats.epochs) > 1:
        yield f"all epochs: {stats.total}"
