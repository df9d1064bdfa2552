"""Notices when user code seeds a generator, or makes a seeded one, while it reads a sample.

Takes: nothing. Gives: `Seeding`, which replaces the functions and classes that people seed with. Runs in worker
processes of the doctor, and ends with them.
Promises: the functions work as before; a class still makes its own instances, and `isinstance`, subclassing and its
attributes work as before; only calls between `begin` and `take`, in that thread, are recorded.
Not its job: whether that is wrong (randomness). `np.random.Generator(np.random.PCG64(0))` is not noticed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_FUNCTIONS: tuple[tuple[str, str], ...] = (
    ("random", "seed"),
    ("numpy.random", "seed"),
    ("numpy.random", "default_rng"),
    ("torch", "manual_seed"),
)
_CLASSES: tuple[tuple[str, str], ...] = (("random", "Random"), ("numpy.random", "RandomState"))
Note = Callable[[str, Any], None]


class Seeding:
    """What was seeded, and with what."""

    def __init__(self) -> None:
        self._noted: list[tuple[str, str]] = []
        self._thread = 0
        self._replaced: set[str] = set()

    def begin(self, module: str) -> None:
        """Record from now on; `module` is the dataset's, which may have imported a function by its name."""
        for home, name in _FUNCTIONS:
            self._replace(home, name, module, self._noting)
        for home, name in _CLASSES:
            self._replace(home, name, module, self._making)
        self._replace("torch", "Generator", module, self._torchs)
        self._noted = []
        self._thread = threading.get_ident()

    def take(self) -> tuple[tuple[str, str], ...]:
        """What was recorded."""
        self._thread = 0
        return tuple(dict.fromkeys(self._noted))

    def _replace(self, home: str, name: str, module: str, by: Callable[[str, Any], Any]) -> None:
        if f"{home}.{name}" in self._replaced or not hasattr(sys.modules.get(home), name):
            return
        self._replaced.add(f"{home}.{name}")
        original = getattr(sys.modules[home], name)
        noting = by(f"{home}.{name}", original)
        for where in (sys.modules[home], sys.modules.get(module)):
            for known in [key for key, value in vars(where).items() if value is original] if where else ():
                setattr(where, known, noting)

    def _note(self, name: str, seed: Any) -> None:
        if self._thread == threading.get_ident() and _is_plain(seed):
            self._noted.append((name, repr(seed)))

    def _noting(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def seeded(*given: Any, **named: Any) -> Any:
            if given or named:
                self._note(name, given[0] if given else next(iter(named.values())))
            return original(*given, **named)

        return seeded

    def _making(self, name: str, original: type[Any]) -> Any:
        return _Class(original, self._noting(name, original))

    def _torchs(self, name: str, original: type[Any]) -> Any:
        """torch's generator is seeded after it is made."""
        note = self._note

        class Generator(original):  # type: ignore[misc]
            def manual_seed(self, seed: Any) -> Any:
                note(f"{name}().manual_seed", seed)
                return super().manual_seed(seed)

        return _Class(original, Generator)


class _Class:
    """Replaces a class."""

    def __init__(self, original: type[Any], make: Callable[..., Any]) -> None:
        self._original, self._make = original, make

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._make(*given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._original)

    def __subclasscheck__(self, kind: type[Any]) -> bool:
        return issubclass(kind, self._original)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type[Any]]:
        return (self._original,)


def _is_plain(seed: Any) -> bool:
    numbers = seed if isinstance(seed, (list, tuple)) else [seed]
    return bool(numbers) and all(isinstance(each, (int, np.integer, str)) for each in numbers)
