"""Notices when the user's code seeds a generator while it reads a sample.

Takes: nothing. Gives: `Seeding`, which wraps the functions people seed with. Runs in worker processes.
Promises: the functions do what they did; only calls between `begin` and `take`, in that thread, are noted.
Not its job: whether that is wrong (randomness). Classes (`np.random.RandomState(0)`) are not wrapped: code asks
isinstance of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_PLACES: tuple[tuple[str, str], ...] = (
    ("random", "seed"),
    ("numpy.random", "seed"),
    ("numpy.random", "default_rng"),
    ("torch", "manual_seed"),
)


class Seeding:
    """What was seeded, and with what."""

    def __init__(self) -> None:
        self._noted: list[tuple[str, str]] = []
        self._thread = 0
        self._wrapped: set[str] = set()

    def begin(self, module: str) -> None:
        """Note from now on; `module` is the dataset's, which may have imported a function by its name."""
        for home, name in _PLACES:
            self._wrap(home, name, module)
        self._noted = []
        self._thread = threading.get_ident()

    def take(self) -> tuple[tuple[str, str], ...]:
        """What was noted."""
        self._thread = 0
        return tuple(dict.fromkeys(self._noted))

    def _wrap(self, home: str, name: str, module: str) -> None:
        if f"{home}.{name}" in self._wrapped or home not in sys.modules:
            return
        self._wrapped.add(f"{home}.{name}")
        original = getattr(sys.modules[home], name)
        noting = self._noting(f"{home}.{name}", original)
        for where in (sys.modules[home], sys.modules.get(module)):
            for known in [key for key, value in vars(where).items() if value is original] if where else ():
                setattr(where, known, noting)

    def _noting(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def seeded(*given: Any, **named: Any) -> Any:
            if self._thread == threading.get_ident() and (given or named):
                seed = given[0] if given else next(iter(named.values()))
                if _is_plain(seed):
                    self._noted.append((name, repr(seed)))
            return original(*given, **named)

        return seeded


def _is_plain(seed: Any) -> bool:
    numbers = seed if isinstance(seed, (list, tuple)) else [seed]
    return bool(numbers) and all(isinstance(each, (int, np.integer, str)) for each in numbers)
