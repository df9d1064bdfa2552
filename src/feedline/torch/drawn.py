"""The generator states from which an epoch's order was drawn: saved in a loader's state, to draw the order again.

Takes: a loader's generators, the moments at which its sampler is asked. Gives: `Drawn`, and its JSON.
Promises: only generators that the sampler did draw from are saved. After a replay the global generators (torch's
default, `random`, `numpy.random`) are restored; the user's keep the state after the replayed draws, as in the run that
was saved.
Not its job: the order itself (orders), the base seed (engine).
"""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from feedline.errors import StateError
from feedline.randomness.global_generators import python_state

GLOBAL = ("torch", "python", "numpy")


class Generator(Protocol):
    """A generator whose whole state is a fixed number of bytes."""

    def get(self) -> bytes: ...
    def set(self, state: bytes) -> None: ...


class _Torchs:
    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def get(self) -> bytes:
        return self.generator.get_state().numpy().tobytes()

    def set(self, state: bytes) -> None:
        self.generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


class _Pythons:
    _form = struct.Struct("<625I?d")
    _rest = struct.Struct("<?d")

    def get(self) -> bytes:
        if (known := python_state()) is not None:  # in 1 µs instead of 30: each epoch asks four times
            words, gauss = known
            return words[4:] + words[:4] + self._rest.pack(gauss is not None, gauss or 0.0)
        _, numbers, gauss = random.getstate()
        return self._form.pack(*numbers, gauss is not None, gauss or 0.0)

    def set(self, state: bytes) -> None:
        *numbers, has_gauss, gauss = self._form.unpack(state)
        random.setstate((3, tuple(numbers), gauss if has_gauss else None))


class _NumPys:
    _rest = struct.Struct("<IId")

    def get(self) -> bytes:
        # Not from memory: a stored normal number shows only if it is drawn, and another thread may draw meanwhile.
        state: Any = np.random.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":  # the user has installed another kind of generator: it is left out
            return b""
        key: bytes = state["state"]["key"].astype("<u4", copy=False).tobytes()
        return key + self._rest.pack(state["state"]["pos"], state["has_gauss"], state["gauss"])

    def set(self, state: bytes) -> None:
        if state:
            key = np.frombuffer(state, "<u4", 624).astype(np.uint32)
            np.random.set_state(("MT19937", key, *self._rest.unpack(state[key.nbytes :])))


class TorchGenerators:
    """The generators that a loader's order may be drawn from: the global ones, and the user's."""

    def __init__(self, loaders: Any, samplers: Sequence[torch.Generator]) -> None:
        self._users: dict[str, _Torchs] = {}
        if loaders is not None:
            self._users["loader"] = _Torchs(loaders)
        for number, each in enumerate([each for each in samplers if each is not loaders] if samplers else ()):
            self._users[f"sampler {number}" if number else "sampler"] = _Torchs(each)

    @cached_property
    def _all(self) -> dict[str, Generator]:
        """Not made for torch's own samplers, which draw from nothing but torch's generator or a user's."""
        return {"torch": _Torchs(torch.default_generator), "python": _Pythons(), "numpy": _NumPys(), **self._users}

    @property
    def users(self) -> Collection[str]:
        """The names of the user's generators."""
        return self._users.keys()

    def states(self, names: Collection[str]) -> dict[str, bytes]:
        """The states of those generators."""
        return {name: self._all[name].get() for name in names} if names else {}

    def users_states(self) -> dict[str, bytes]:
        """The states of the user's generators."""
        return self.states(self.users)

    def put(self, states: Mapping[str, bytes]) -> None:
        """Set these states, except those of generators that do not exist here."""
        for name, state in states.items():
            if name in self._all:
                self._all[name].set(state)

    @contextmanager
    def watched(self, into: dict[str, bytes], names: Collection[str] | None = None) -> Iterator[None]:
        """Within the block: record in `into` the earlier states of the generators that are drawn from, of all of them
        or of those with these names."""
        before = self.states(self._all if names is None else names)
        try:
            yield
        finally:
            into.update({name: state for name, state in before.items() if self._all[name].get() != state})

    @contextmanager
    def replayed(self, states: Mapping[str, bytes]) -> Iterator[None]:
        """Within the block the generators have those states; afterwards the global ones are restored."""
        now = self.states(GLOBAL)
        self.put(states)
        try:
            yield
        finally:
            self.put(now)

    def check(self, states: Mapping[str, bytes]) -> None:
        """Do these states fit the generators? ValueError if not."""
        for name, state in states.items():
            if name in self._all and len(state) != len(self._all[name].get()):
                raise ValueError(f"{name!r}: no generator's state")


@dataclass
class Drawn:
    """What one epoch has drawn. Before the epoch begins: the states of the user's generators."""

    begun: bool
    base_seed: int | None = None
    sampler_epoch: int | None = None
    """The epoch of a sampler with `set_epoch`."""
    by_hand: list[list[int]] = field(default_factory=list)
    """For feedline's samplers that another sampler iterates: the seed and the epoch of each."""
    asked_twice: bool = False
    """Is the sampler asked twice for an epoch, as torch does with workers? A resumed run then does the same."""
    asked: dict[str, bytes] = field(default_factory=dict)
    """States from before the sampler was asked for its iterator, of generators that this drew from."""
    taken: dict[str, bytes] | None = None
    """The same from before the first index was taken; None if none has been taken."""
    seed: int | None = None
    """The seed that torch's RandomSampler drew."""
    left: dict[str, bytes] = field(default_factory=dict)
    """States of the user's generators after the epoch was begun, except those in `taken`."""
    now: dict[str, bytes] = field(default_factory=dict)
    """States of the user's generators when Lightning ended the epoch; the next epoch continues with them."""

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        found: dict[str, Any] = {"begun": self.begun}
        for name in ("sampler_epoch", "seed"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.by_hand:
            found["by_hand"] = self.by_hand
        if self.asked_twice:
            found["asked_twice"] = True
        for name in ("asked", "taken", "left", "now"):
            states = getattr(self, name)
            if states or (name == "taken" and states is not None):
                found[name] = {each: base64.b64encode(state).decode() for each, state in states.items()}
        return found

    @classmethod
    def from_json(cls, found: Any, base_seed: Any, generators: TorchGenerators, must_agree: bool) -> Drawn:
        """The reverse of `to_json`; StateError if it is damaged, or if a generator was given then and is not now."""
        try:
            drawn = cls(
                _flag(found["begun"]),
                _number(base_seed),
                _number(found.get("sampler_epoch")),
                [[_count(seed), _count(epoch)] for seed, epoch in found.get("by_hand", [])],
                bool(found.get("asked_twice")),
                _states(found.get("asked", {})),
                None if found.get("taken") is None else _states(found["taken"]),
                _number(found.get("seed")),
                _states(found.get("left", {})),
                _states(found.get("now", {})),
            )
            for states in (drawn.asked, drawn.taken or {}, drawn.left, drawn.now):
                generators.check(states)
            if drawn.begun and drawn.base_seed is None:
                raise ValueError("an epoch was begun without a seed")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StateError(f"the state is damaged: {error!r}") from error
        then = {*drawn.asked, *(drawn.taken or ()), *drawn.left}.difference(GLOBAL)
        if must_agree and then != set(generators.users):
            raise StateError(
                "the state cannot be continued here, because other objects had a generator= when it was saved: "
                f"{_listed(then)}, and now {_listed(generators.users)}"
            )
        return drawn


def _states(found: Any) -> dict[str, bytes]:
    return {str(name): base64.b64decode(text, validate=True) for name, text in dict(found).items()}


def _number(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not -(1 << 63) <= value < 1 << 64):
        raise ValueError(f"{value!r} is not a number")
    return value


def _flag(value: Any) -> bool:
    if value is not True and value is not False:
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _listed(names: Collection[str]) -> str:
    return " and ".join(f"the {name}'s" for name in sorted(names)) or "none"
