"""What an examination has seen: plain values, from which findings are made.

Takes: nothing. Gives: `Field`, `Reading`, `Run`, `LoaderSetting`, `Evidence`. Promises: frozen and picklable; readings
are sent from worker processes.
Not its job: observing (examine, probe), judging (the checks).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from feedline.diagnose.target import Construction
from feedline.machine.gil import Looks
from feedline.messages.outcome import BadSample

OUTLIER, LEAST_OUTLIER = 10.0, 0.1
"""A slow sample takes this many times the usual time, and at least this many seconds; nobody notices less."""
ARRAY, NUMBER, TEXT, LIST, NOTHING, OTHER = "array", "number", "text", "list", "nothing", "other"


class Field(NamedTuple):
    """One leaf of a sample."""

    path: str
    """How to access it: "" for the sample itself, "[0]", "['image']", ".label"."""
    kind: str
    dtype: str
    """The dtype of an array; for anything else the name of its class."""
    shape: tuple[int, ...] = ()
    nbytes: int = 0
    nans: int = 0
    infs: int = 0
    value: Any = None
    """The value of a number or a short text, also in an array of one element; the class that a one-hot vector means;
    the share of data in an attention mask."""
    eight_bit: bool = False
    """Is it a floating-point image with so few different values that these were bytes before?"""


class CodeLine(NamedTuple):
    """A line of the user's code."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} ({self.function})"


@dataclass(frozen=True)
class Reading:
    """One sample, read once in a worker process."""

    index: Any
    seconds: float = 0.0
    fields: tuple[Field, ...] = ()
    digest: str = ""
    """Equal for equal samples."""
    content: str = ""
    """Equal for equal inputs, whatever the label; "" if samples cannot be told apart by it."""
    blank: bool = False
    """Are all its arrays zeros?"""
    error: str = ""
    """The error that reading it raised."""
    where: CodeLine | None = None
    """…and the line."""
    what: str = ""
    """What the dataset's describe(index) says about a sample that failed, or was slow."""
    shared: tuple[str, ...] = ()
    """Fields that are in the same memory when the sample is read again…"""
    changed: tuple[str, ...] = ()
    """…and those that had other values then."""
    lines: tuple[tuple[CodeLine, int], ...] = ()
    """Where the time went: how often each line was seen running."""
    seeds: tuple[tuple[str, str], ...] = ()
    """Generators that were seeded during the reading: function and seed."""

    def field(self, path: str) -> Field | None:
        """The field at that path."""
        return next((each for each in self.fields if each.path == path), None)


class Collating(NamedTuple):
    """A batch made by the user's collate_fn."""

    seconds: float
    samples: int
    lines: tuple[tuple[CodeLine, int], ...] = ()
    data: int = 0
    full: int = 0
    """Elements of samples that were filled up to one length, before and after."""
    aliases: bool = False
    """Does an array of the batch share memory with a sample?"""


class DeadlySample(NamedTuple):
    """A sample that killed its worker, or never ended."""

    index: Any
    what: str
    error: str
    stuck: bool = False
    where: CodeLine | None = None
    """The line where it was."""

    @classmethod
    def of(cls, bad: BadSample) -> DeadlySample:
        """What feedline's supervision reports about a sample: it never ended, or it ended its worker.

        >>> DeadlySample.of(BadSample(3, 0, "", "1 worker ended at it; the last was stuck for 2.0 s")).stuck
        True
        """
        return cls(bad.index, bad.what, bad.error, "stuck for" in bad.error)


@dataclass(frozen=True)
class Run:
    """A short run with real workers and the user's way to collate."""

    batches: int = 0
    padding: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Carried:
    """What the dataset holds and carries into workers."""

    held: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What is wrong, and the paths of the attributes."""
    unsendable: str = ""
    """Why it cannot be pickled, by attribute path."""
    pickled: int = 0
    """Bytes of its pickle, without arrays: they are shared."""
    pickled_all: bool = True
    """False: pickling was stopped after `pickled` bytes."""
    largest: str = ""
    """Its largest collection of Python objects, in words; "" if none is large."""
    generators: tuple[str, ...] = ()
    """Paths of random generators."""
    start_method: str = "fork"
    threads: tuple[str, ...] = ()
    """Libraries that have threads in the process that made the dataset."""


class Overlap(NamedTuple):
    """What a dataset has in common with another one, such as the one for validation."""

    other: str
    """The name of the other dataset."""
    pairs: tuple[tuple[Any, Any], ...]
    """Indices of the same sample: in this dataset, and in the other."""
    compared: tuple[int, int]
    """The number of samples of each that were compared."""
    lengths: tuple[int | None, int | None] = (None, None)
    by_index: bool = False
    """Are both parts of one dataset? Then their indices were compared, and nothing was read."""
    alike: tuple[int, int] = (0, 0)
    """Samples of each that were read, but have too little content to be told apart."""


class Column(NamedTuple):
    """An attribute of the dataset that seems to hold the labels."""

    path: str
    counts: dict[Any, int]
    """The number of samples of each label."""
    changes: int
    """How often a label differs from the one before it."""


@dataclass(frozen=True)
class LoaderSetting:
    """What is known about how the data is loaded."""

    stream: bool = False
    length: int | None = None
    loader: bool = False
    """Was a loader given? Otherwise the rest is a guess."""
    in_order: bool = False
    """Are samples read in the order in which they are stored?"""
    balanced: bool = False
    """Does the sampler use weights or strata?"""
    batch_size: int | None = None
    collates: str = "default"
    """"default", "feedline" (collators of ours), "own" (a collate_fn), "none" (no batches)."""
    num_workers: int = 0
    prefetch_factor: int = 2
    threads: bool = False
    aliases: bool = False
    """May batches share memory with the dataset?"""
    lone_sample: bool = False
    """Has the last batch of each shuffled epoch a single sample?"""
    torch: bool = False
    label: str | None = None
    """The path of the label, if the user has given it."""


@dataclass(frozen=True)
class Evidence:
    """All evidence. Every part may be missing: then there was no time, or no way to get it."""

    setting: LoaderSetting = LoaderSetting()
    readings: tuple[Reading, ...] = ()
    """Samples spread over the dataset, in ascending order; of a stream, its beginning."""
    first: float = 0.0
    """Seconds for the first sample that was read; a worker may have to open or load something first."""
    again: tuple[Reading, ...] = ()
    """The first of them once more, with the same seed, by two workers…"""
    reseeded: tuple[Reading, ...] = ()
    """…and with another seed."""
    reread: tuple[Reading, ...] = ()
    """The samples that took long, read once more."""
    rounds: tuple[int, ...] = ()
    """A worker's memory after each of several rounds over the same samples."""
    round_size: int = 0
    deadly_samples: tuple[DeadlySample, ...] = ()
    limit: float = 0.0
    """Seconds after which a sample was given up."""
    looks: Looks | None = None
    """Looks at a worker that reads samples."""
    collating: tuple[Collating, ...] = ()
    run: Run | None = None
    read_whole: int = 0
    """The number of workers, if each reads the whole stream."""
    carried: Carried = Carried()
    construction: Construction | None = None
    column: Column | None = None
    overlap: Overlap | None = None
    free: int | None = None
    """Bytes of available memory."""
    limit_of_memory: int = 0
    seconds: float = 0.0
    troubles: tuple[tuple[str, str], ...] = field(default=())
    """Parts of the examination that failed: which, and why."""

    @property
    def good(self) -> list[Reading]:
        """The samples that could be read."""
        return [reading for reading in self.readings if not reading.error]

    @property
    def usual(self) -> float:
        """Seconds that a usual sample takes."""
        return median(reading.seconds for reading in self.good) if self.good else 0.0

    @property
    def long(self) -> float:
        """Seconds from which on a sample is slow."""
        return max(LEAST_OUTLIER, OUTLIER * self.usual)

    def column_of(self, path: str) -> Iterator[tuple[Reading, Field]]:
        """One field of all samples that have it."""
        for reading in self.good:
            found = reading.field(path)
            if found is not None:
                yield reading, found

    @property
    def paths(self) -> list[str]:
        """The paths of all fields of any sample, in order."""
        return list(dict.fromkeys(each.path for reading in self.good for each in reading.fields))
