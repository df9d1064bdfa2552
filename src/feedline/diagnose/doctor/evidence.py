"""What an examination has seen: plain values, from which findings are made.

Takes: nothing. Gives: `Field`, `Reading`, `Run`, `LoaderSetting`, `Evidence`. Promises: frozen and picklable; readings
travel from worker processes.
Not its job: seeing (examine, probe), judging (the checks).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from feedline.diagnose.target import Construction
from feedline.machine.gil import Looks

OUTLIER, LEAST_OUTLIER = 10.0, 0.1
"""A slow sample: times the usual, and seconds; below that nobody waits for it."""
ARRAY, NUMBER, TEXT, LIST, NOTHING, OTHER = "array", "number", "text", "list", "nothing", "other"


class Field(NamedTuple):
    """One leaf of a sample."""

    path: str
    """How to get at it: "" for the sample itself, "[0]", "['image']", ".label"."""
    kind: str
    dtype: str
    """An array's; of anything else the name of its class."""
    shape: tuple[int, ...] = ()
    nbytes: int = 0
    nans: int = 0
    infs: int = 0
    value: Any = None
    """Of a number or a short text, also in an array of one; the class that a one-hot vector stands for; how
    much of an attention mask is data."""
    eight_bit: bool = False
    """A floating-point image with so few different values that they were bytes once."""


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
    """Equal for equal inputs, whatever the label; "" if there is nothing to tell samples by."""
    blank: bool = False
    """All its arrays are zeros."""
    error: str = ""
    """What reading it raised."""
    where: CodeLine | None = None
    """…and in which line."""
    what: str = ""
    """What the dataset's describe(index) says of a sample that failed, or was slow."""
    shared: tuple[str, ...] = ()
    """Fields that lie in the same memory when the sample is read again…"""
    changed: tuple[str, ...] = ()
    """…and that had other values then."""
    lines: tuple[tuple[CodeLine, int], ...] = ()
    """Where the time went: how often each line was met at work."""
    seeds: tuple[tuple[str, str], ...] = ()
    """Generators that were seeded meanwhile: function and seed."""
    memory: int = 0
    """The worker's own memory afterwards."""

    def field(self, path: str) -> Field | None:
        """The one at that path."""
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
    """Samples are handed on as they are: an array of the batch lies in the memory of one of theirs."""


class DeadlySample(NamedTuple):
    """A sample that killed its worker, or did not come to an end."""

    index: Any
    what: str
    error: str
    stuck: bool = False
    where: CodeLine | None = None
    """Where it stood."""


@dataclass(frozen=True)
class Run:
    """A short run with real workers and the user's own way to collate."""

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    fetching: float = 0.0
    collating: float = 0.0
    padding: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Carried:
    """What the dataset holds and takes along into workers."""

    held: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What is wrong with it, and the attributes' paths."""
    unsendable: str = ""
    """Why it cannot be pickled, by attribute path."""
    pickled: int = 0
    """Bytes of its pickle, arrays not counted: they are shared."""
    pickled_all: bool = True
    """False: the pickle was given up when it had so many bytes."""
    largest: str = ""
    """Its largest collection of Python objects, in words; "" if there is none to speak of."""
    generators: tuple[str, ...] = ()
    """Paths of random generators."""
    start_method: str = "fork"
    threads: tuple[str, ...] = ()
    """Libraries that have threads in the process in which the dataset was made."""


class Overlap(NamedTuple):
    """What a dataset has in common with another one, such as the one for validation."""

    other: str
    """What that is called."""
    pairs: tuple[tuple[Any, Any], ...]
    """Indices of the same sample: here, and there."""
    compared: tuple[int, int]
    """Samples of each that were."""
    lengths: tuple[int | None, int | None] = (None, None)
    by_index: bool = False
    """Both are parts of one dataset: their indices were compared, and nothing was read."""
    alike: tuple[int, int] = (0, 0)
    """Samples of each that were read, and have too little in them to be told apart."""


class Column(NamedTuple):
    """An attribute of the dataset that seems to hold the labels."""

    path: str
    counts: dict[Any, int]
    """Of each label."""
    changes: int
    """How often a label differs from the one before it."""


@dataclass(frozen=True)
class LoaderSetting:
    """What is known of how the data is to be loaded."""

    stream: bool = False
    length: int | None = None
    loader: bool = False
    """Was a loader given? Otherwise the rest is a guess."""
    in_order: bool = False
    """Samples are read one after the other as they are stored."""
    balanced: bool = False
    """A sampler with weights or strata is at work."""
    bucketed: bool = False
    batch_size: int | None = None
    collates: str = "default"
    """"default", "feedline" (collators of ours), "own" (a collate_fn), "none" (no batches)."""
    num_workers: int = 0
    prefetch_factor: int = 2
    threads: bool = False
    aliases: bool = False
    """What the loader hands out may lie in the dataset's own memory."""
    lone_sample: str = ""
    torch: bool = False
    label: str | None = None
    """The path of the label, if the user has said it."""


@dataclass(frozen=True)
class Evidence:
    """All of it. Every part may be missing: then there was no time, or no way."""

    setting: LoaderSetting = LoaderSetting()
    readings: tuple[Reading, ...] = ()
    """A spread of the dataset in ascending order; of a stream, its beginning."""
    first: float = 0.0
    """Seconds that the first sample took which was read; a worker may have something to open, or to load."""
    again: tuple[Reading, ...] = ()
    """The first of them once more, under the same seed, by two workers…"""
    reseeded: tuple[Reading, ...] = ()
    """…and under another seed."""
    reread: tuple[Reading, ...] = ()
    """Those that took long, once more."""
    rounds: tuple[int, ...] = ()
    """A worker's memory after each of several rounds over the same samples."""
    round_size: int = 0
    deadly_samples: tuple[DeadlySample, ...] = ()
    limit: float = 0.0
    """Seconds after which a sample was given up."""
    looks: Looks | None = None
    """At a worker that reads samples."""
    collating: tuple[Collating, ...] = ()
    run: Run | None = None
    read_whole: int = 0
    """So many workers each read the whole stream."""
    carried: Carried = Carried()
    construction: Construction | None = None
    column: Column | None = None
    overlap: Overlap | None = None
    free: int | None = None
    """Bytes of memory that can be had."""
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
        """Seconds that a sample takes."""
        return median(reading.seconds for reading in self.good) if self.good else 0.0

    @property
    def long(self) -> float:
        """Seconds after which a sample is a slow one."""
        return max(LEAST_OUTLIER, OUTLIER * self.usual)

    def column_of(self, path: str) -> Iterator[tuple[Reading, Field]]:
        """One field of all samples that have it."""
        for reading in self.good:
            found = reading.field(path)
            if found is not None:
                yield reading, found

    @property
    def paths(self) -> list[str]:
        """Of all fields of any sample, in order."""
        return list(dict.fromkeys(each.path for reading in self.good for each in reading.fields))
