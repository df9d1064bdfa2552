"""How a dataset is read: the protocols, and the choice between the ways a dataset offers.

Takes: a map-style dataset and indices.
Gives: its samples in the fastest way its class has, and whether it can give whole batches.
Promises: looks only at the class, and never reads a sample just to find out.
Not its job: collating samples (collate/default), providing memory (arena).
"""

from __future__ import annotations

import operator
from inspect import CO_COROUTINE, iscoroutinefunction
from types import FunctionType
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from feedline.errors.foreign import ask
from feedline.errors.masking import masked

IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
T_co = TypeVar("T_co", covariant=True)
LONGEST_DESCRIPTION = 300

SMALL_LEAF = 1 << 16
"""Leaves below this many bytes are ordinary arrays everywhere, copied: benchmarks/tiny_batches.py and in_memory.py."""


class Empty(Protocol):
    """Gives memory for one leaf of a batch; `np.empty` is the simplest example."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array: ...


def is_ordinary(empty: Empty, size: int) -> bool:
    """Is a leaf of that size in ordinary memory, which NumPy or a framework may as well allocate itself? Others are
    written straight into memory from `empty`.

    >>> is_ordinary(np.empty, 100), is_ordinary(np.empty, 100_000)
    (True, False)
    """
    if size < SMALL_LEAF:
        return True
    gives = getattr(empty, "gives_ordinary", None)
    return gives is not None and gives(size)


class Indexable(Protocol[T_co]):
    """What the wrappers below need from a map-style dataset (and `len()`, if it is needed)."""

    def __getitem__(self, index: int, /) -> T_co: ...


def read_samples(dataset: Indexable[T_co], indices: list[int]) -> list[T_co]:
    """Samples by `__getitems__` if the dataset's class has it, else one by one.

    >>> read_samples(["a", "b", "c"], [2, 0])
    ['c', 'a']
    """
    # Looked up on the class, as Python does for special methods: a transform that forwards unknown attributes to the
    # dataset it wraps must not be bypassed by the inner dataset's method.
    many = getattr(type(dataset), "__getitems__", None)
    if many is None:
        return [dataset[index] for index in indices]
    return cast("list[T_co]", many(dataset, indices))


def reads_batches(dataset: object) -> bool:
    """Can `__getbatch__` be expected to give a batch? Determined without reading anything.

    >>> from feedline.datasets import ArrayDataset, Subset
    >>> reads_batches(ArrayDataset([1, 2])), reads_batches([1, 2]), reads_batches(Subset([1, 2], [0]))
    (True, False, False)
    """
    method = getattr(type(dataset), "__getbatch__", None)
    if method is None or method is no_batch:
        return False
    ask = getattr(type(dataset), "_reads_batches", None)
    return ask is None or bool(ask(dataset))


def reads_many(dataset: object) -> bool:
    """Does `__getitems__` do more than read one sample after the other? Determined without reading anything.

    If a wrapper's inner samples are read one by one, the wrapper should be read one by one too: then each sample has
    a `feedline.rng()` of its own.

    >>> from feedline.datasets import ArrayDataset, Subset
    >>> reads_many(Subset(ArrayDataset([1, 2]), [0])), reads_many(Subset([1, 2], [0]))
    (True, False)
    """
    method = getattr(type(dataset), "__getitems__", None)
    if method is None or method is one_by_one:
        return False
    ask = getattr(type(dataset), "_reads_many", None)
    return ask is None or bool(ask(dataset))


def reads_one(dataset: object) -> bool:
    """Does the dataset's class have a real `__getitem__`, and not just the one that raises because it is missing?

    >>> from feedline.datasets import ArrayDataset, Dataset
    >>> reads_one(ArrayDataset([1, 2])), reads_one(Dataset())
    (True, False)
    """
    method = getattr(type(dataset), "__getitem__", None)
    if getattr(method, "__qualname__", "") != "Dataset.__getitem__":
        return method is not None
    # By name, so that torch's is recognised without importing torch.
    return str(method.__module__).partition(".")[0] not in ("feedline", "torch")


def awaits(dataset: object, depth: int = 8) -> bool:
    """Must its samples be awaited, by `async def __getitem__` or `__getitems__`, its own or of a dataset it wraps?

    Determined without reading anything; it looks inside a wrapper that reads in feedline's or torch's own way.

    >>> from feedline.datasets import Subset
    >>> class Remote:
    ...     async def __getitem__(self, index): return index
    >>> awaits(Subset(Remote(), [0])), awaits(Subset([1, 2], [0]))
    (True, False)
    """
    one, many = getattr(type(dataset), "__getitem__", None), getattr(type(dataset), "__getitems__", None)
    if _is_coroutine_function(one) or _is_coroutine_function(many):
        return True
    if not depth or str(getattr(one, "__module__", "")).partition(".")[0] not in ("feedline", "torch"):
        return False
    return any(awaits(part, depth - 1) for part in _inside(dataset))


def _is_coroutine_function(method: Any) -> bool:
    """`inspect.iscoroutinefunction`, in a tenth of the time for plain functions: each epoch asks six times."""
    if type(method) is FunctionType and not method.__dict__:  # no decorator has marked it
        return bool(method.__code__.co_flags & CO_COROUTINE)
    return method is not None and iscoroutinefunction(method)


def _inside(dataset: object) -> list[Any]:
    """The datasets inside a wrapper, under torch's names."""
    inside = ask(dataset, "datasets")
    parts = list(inside.values() if isinstance(inside, dict) else inside if isinstance(inside, list | tuple) else ())
    return parts if (inner := ask(dataset, "dataset")) is None else [*parts, inner]


def described(dataset: object, index: Any) -> str:
    """The result of the dataset's own `describe(index)` in one short line; "" if it has none, or if that fails.

    It is called while an error is reported, so it must never disturb that report.

    >>> described(["a"], 0)
    ''
    """
    if not hasattr(type(dataset), "describe"):  # on the class: a wrapper's indices need not be the inner dataset's
        return ""
    try:
        said = cast(Any, dataset).describe(index)
        return "" if said is None else masked(str(said).replace("\n", " "))[:LONGEST_DESCRIPTION]
    except Exception:
        return ""


def fingerprint_of(dataset: object, depth: int = 8) -> str | None:
    """The dataset's `fingerprint` of its content, or those of the datasets inside it; None if there is none.

    A wrapper (`dataset` or `datasets`, torch's names) without a fingerprint has that of the datasets inside it.

    >>> class Table:
    ...     fingerprint = "7 rows, 5c1e"
    >>> from feedline.datasets import Subset
    >>> fingerprint_of(Subset(Table(), [0])), fingerprint_of([1])
    ('7 rows, 5c1e', None)
    """
    said = ask(dataset, "fingerprint")
    if isinstance(said, str):
        return said
    found = [fingerprint_of(part, depth - 1) for part in _inside(dataset)] if depth else []
    return " + ".join(each for each in found if each is not None) or None


def no_batch(self: object, indices: IntArray, empty: Empty) -> Any:
    """The `__getbatch__` of a class that cannot give batches."""
    return NotImplemented


def one_by_one(self: Indexable[T_co], indices: list[int]) -> list[T_co]:
    """The `__getitems__` of a class that has only `__getitem__`."""
    return [self[index] for index in indices]


def outside(index: Any, length: int, owner: str) -> IndexError:
    """The error for an index that does not exist."""
    return IndexError(f"index {index} is outside this {owner} of length {length}")


def position(index: int, length: int, owner: str) -> int:
    """The index counted from the front, or an IndexError that names it and the length."""
    place = operator.index(index)
    if not -length <= place < length:
        raise outside(index, length, owner)
    return place + length if place < 0 else place
