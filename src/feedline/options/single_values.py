"""What a single option's value must be.

Takes: an option's name and value. Gives: the value to use, or an `OptionError` that names the option and what would be
right.
Not its job: which check an option has (table), options that exclude each other (together), plain values
(errors.checks).
"""

from __future__ import annotations

from functools import partial
from multiprocessing.context import BaseContext
from numbers import Integral, Real
from typing import Any

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_choice, check_flag, check_seconds, check_seed, check_whole
from feedline.errors.foreign import has
from feedline.options.option import Check

START_METHODS = ("fork", "forkserver", "spawn")
LOCAL_KINDS = ("process", "thread")
KINDS = (*LOCAL_KINDS, "ray")


def whole(least: int, otherwise: str = "") -> Check:
    """A whole number of at least `least`."""
    return partial(check_whole, least=least, otherwise=otherwise)


def seconds(zero: str) -> Check:
    """A number of seconds; `zero` says what 0 means."""
    return partial(check_seconds, zero=zero)


def choice(*words: str) -> Check:
    """One of a few words."""
    return partial(check_choice, choices=words)


def or_none(check: Check) -> Check:
    """A check that also accepts None."""
    return lambda name, value: None if value is None else check(name, value)


def flag_or_none(name: str, value: Any) -> bool:
    """True or False; None is False."""
    return check_flag(name, False if value is None else value)


def seed_or_none(name: str, value: Any) -> int | None:
    """A seed, or None."""
    return None if value is None else check_seed(value)


def dataset(name: str, value: Any) -> Any:
    """Something with indices, or something to iterate over."""
    _check_instance(name, value)
    if is_stream(value) and not has(value, "__iter__"):
        raise OptionTypeError(
            f"{name} ({type(value).__qualname__}) has neither __getitem__ (map-style) nor __iter__ (iterable)"
        )
    return value


def is_stream(dataset: Any) -> bool:
    """Is it read by iterating? Recognised by name, so that torch's IterableDataset, which inherits a __getitem__, is
    recognised without importing torch."""
    named_so = any(parent.__name__ == "IterableDataset" for parent in type(dataset).__mro__)
    return named_so or not has(dataset, "__getitem__")


def iterable_or_none(name: str, value: Any) -> Any:
    """Something to iterate over, or None."""
    _check_instance(name, value)
    if value is not None and not has(value, "__iter__") and not has(value, "__getitem__"):
        raise OptionTypeError(f"{name} must be something to iterate over (or None); got {value!r}")
    return value


def start_method(name: str, value: Any) -> str | BaseContext | None:
    """A start method's name, or a context."""
    if value is not None and not isinstance(value, (str, BaseContext)):
        raise OptionTypeError(f"{name} must be a start method's name or a context; got {value!r}")
    if isinstance(value, str) and value not in START_METHODS:
        raise OptionError(f"{name} must be one of {', '.join(START_METHODS)}; got {value!r}")
    return value


def actor_options(name: str, value: Any) -> dict[str, Any]:
    """Options of a Ray actor. Ray itself checks them, but some are ours."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise OptionTypeError(
            f"{name} must be a dict of options for Ray's actors, such as {{'num_cpus': 2}}; got {value!r}"
        )
    for key in ("max_concurrency", "concurrency_groups", "max_restarts", "max_task_retries", "lifetime", "name"):
        if key in value:
            raise OptionError(f"{name} must not have {key!r}: feedline starts, names and replaces the workers itself")
    return value


def kind_of_workers(name: str, value: Any) -> str:
    """Processes, threads or a cluster."""
    if not isinstance(value, str):
        raise OptionTypeError(
            f"{name} must be the kind of workers, {' or '.join(map(repr, KINDS))}; got {value!r}. Their number is "
            "num_workers."
        )
    if value == "auto":
        raise OptionError(
            "workers='auto' no longer exists: it chose threads for datasets that threads cannot share. Leave it out "
            "for processes, or set workers='thread' for samples that wait or release the GIL; `feedline doctor` tells "
            "which is better"
        )
    return check_choice(name, value, KINDS)


def count_or_share(name: str, value: Any) -> float:
    """A whole number, or a share below 1."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionTypeError(f"{name} must be a count, a share below 1, or None for no limit; got {value!r}")
    if isinstance(value, Integral):
        return check_whole(name, value, least=0)
    if not 0 < float(value) < 1:
        raise OptionError(f"{name} must be a whole number, or a share between 0 and 1; got {value!r}")
    return float(value)


def _check_instance(name: str, value: Any) -> None:
    if isinstance(value, type):
        raise OptionTypeError(f"{name} is the class {value.__qualname__}; pass an instance: {value.__qualname__}(…)")
