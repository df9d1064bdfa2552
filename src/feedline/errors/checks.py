"""Checks of single values: the sentences with which every option is refused.

Takes: an option's name and value. Gives: the value, or an `OptionError` that names the option and what would be right.
Not its job: which options exist (options), and which exclude each other.
"""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from typing import Any

from feedline.errors import OptionError, OptionTypeError

LONGEST = 2_000_000  # the operating system counts milliseconds in 31 bits


def check_whole(name: str, value: Any, least: int, otherwise: str = "") -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise OptionTypeError(f"{name} must be a whole number of at least {least}{otherwise}; got {value!r}")
    if value < least:
        raise OptionError(f"{name} must be at least {least}{otherwise}; got {value}")
    return int(value)


def check_seed(value: Any) -> int:
    """A seed: an integer that fits into an int64."""
    seed = check_whole("seed", value, least=0, otherwise=" and below 2**63")
    if seed >= 1 << 63:
        raise OptionError(f"seed must be below 2**63; got {seed}")
    return seed


def check_number(name: str, value: Any) -> float:
    """A number, integer or not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionTypeError(f"{name} must be a number; got {value!r}")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """A number above 0."""
    number = check_number(name, value)
    if not 0 < number < math.inf:
        raise OptionError(f"{name} must be more than 0; got {value!r}")
    return number


def check_flag(name: str, value: Any) -> bool:
    """True or False."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise OptionTypeError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def check_function(name: str, value: Any) -> Any:
    """Something to call, or None."""
    if value is not None and not callable(value):
        raise OptionTypeError(f"{name} must be a function or None; got {value!r}")
    return value


def check_seconds(name: str, value: Any, zero: str) -> float:
    """A number of seconds; `zero` says what 0 means (if 0 means nothing, the caller refuses it)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionTypeError(f"{name} must be a number of seconds; got {value!r}")
    seconds = float(value)
    if not 0 <= seconds <= LONGEST:
        nothing = f"0 ({zero}) or " if zero else ""
        raise OptionError(f"{name} must be {nothing}a positive number of seconds, {LONGEST:,} at most; got {value}")
    return seconds


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str):
        raise OptionTypeError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
    return str(value)


def check_folder(name: str, value: Any, otherwise: str = "") -> str:
    """The path of a folder. An empty text is a variable that was not set, and would mean the current folder."""
    if not isinstance(value, str | os.PathLike):
        raise OptionTypeError(f"{name} must be the path of a folder{otherwise}; got {value!r}")
    path = os.fsdecode(value)
    if not path:
        raise OptionError(f'{name} is an empty text; write "." for the current folder')
    return path


def check_file(name: str, value: Any) -> str | None:
    """The path of a file that can be written to, or None; checked now, not hours later at the first write."""
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise OptionTypeError(f"{name} must be the path of a file, or None; got {value!r}")
    path = os.path.abspath(os.fsdecode(value))
    folder = os.path.dirname(path)
    if os.path.isdir(path) or not os.path.isdir(folder):
        wrong = f"{path} is a folder" if os.path.isdir(path) else f"there is no folder {folder}"
        raise OptionError(f"{name} must be a file that can be written to, but {wrong}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise OptionError(f"{name} must be a file that can be written to, but {path} may not be")
    return path
