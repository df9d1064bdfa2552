"""Which rows of a global batch this process holds: they follow from the sharding.

Takes: a sharding, or a pytree prefix of shardings. Gives: `Rows` of a batch of any size; the sharding of each leaf.
Promises: no communication. Every process finds the same from the same shardings; processes whose devices hold the same
rows find the same rows. What cannot be divided is an error that names leaf, shape and sharding.
Not its job: putting anything on a device (placing).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from feedline.errors import OptionError, OptionTypeError

Ranges = tuple[tuple[int, int], ...]
"""Rows, as pairs of the first and the one after the last; in order, and apart."""
AXIS = "data"
"""The name of the axis of a mesh that is made here."""


@dataclass(frozen=True)
class Rows:
    """This process's rows of a global batch."""

    size: int
    """The rows of the global batch."""
    mine: npt.NDArray[np.int64]
    """The numbers of this process's rows, ascending. If it holds only some rows of another process's, all of both."""
    groups: int
    """How many different sets of rows processes have…"""
    group: int
    """…and which of them this process has."""
    step: int | None
    """The distance from each row to the next; None if it varies."""
    is_even: bool
    """Is that distance the same between all rows of each process?"""


class Layout:
    """The shardings of a loader's batches."""

    def __init__(self, sharding: Any = None) -> None:
        self.tree = _over_all_devices() if sharding is None else _checked_tree(sharding)
        paths = jax.tree_util.tree_flatten_with_path(self.tree)[0]
        self.named: dict[str, Sharding] = {f"sharding{jax.tree_util.keystr(path)}": each for path, each in paths}
        for name, each in self.named.items():
            _check_devices(name, each)
        self._rows: dict[int, Rows] = {}  # a loader has one or two sizes

    def __str__(self) -> str:
        return "; ".join(f"{name}={described(each)}" for name, each in self.named.items())

    def rows(self, size: int) -> Rows:
        """This process's rows of a batch of `size` rows; OptionError if a sharding cannot divide them."""
        if (known := self._rows.get(size)) is None:
            known = self._rows[size] = self._find(size)
        return known

    def whole(self, size: int) -> Rows:
        """All rows of the batch, for a process that reads more than its own: it still has one set of several."""
        rows = self.rows(size)
        return Rows(size, np.arange(size), rows.groups, rows.group, 1, rows.is_even)

    def of_leaves(self, batch: Any) -> list[Sharding]:
        """The sharding of each leaf; OptionError if the tree of shardings is no prefix of the batch."""
        try:
            spread = jax.tree.map(lambda one, below: [one] * len(jax.tree.leaves(below)), self.tree, batch)
        except ValueError as error:
            raise OptionError(
                "sharding must be one sharding, or have the structure of the batch or of its outer part: it is "
                f"{jax.tree.structure(self.tree)}, and the batch is {jax.tree.structure(batch)}"
            ) from error
        return jax.tree.leaves(spread)

    def of_rows(self) -> Sharding:
        """A sharding of one axis, the rows, as the first leaf has it: for masks."""
        first = next(iter(self.named.values()))
        return NamedSharding(first.mesh, spec_of(*first.spec[:1])) if isinstance(first, NamedSharding) else first

    def replicated(self) -> Sharding:
        """The same on every device of the first leaf: for keys."""
        first: Sharding = next(iter(self.named.values()))
        if isinstance(first, NamedSharding):
            return NamedSharding(first.mesh, spec_of())
        if len(first.device_set) == 1:
            return first
        raise OptionError(f"batch_key=True needs a NamedSharding or a single device, not {described(first)}")

    def _find(self, size: int) -> Rows:
        held: dict[int, set[tuple[int, int]]] = {}
        for name, sharding in self.named.items():
            for device, index in row_ranges(name, sharding, size).items():
                held.setdefault(device.process_index, set()).add(index)
        groups = _apart(_united(each) for each in held.values())
        mine = next(each for each in groups if _overlap(each, tuple(held[jax.process_index()])))
        is_even = all(_step(_numbers(each)) is not None for each in groups)
        numbers = _numbers(mine)
        return Rows(size, numbers, len(groups), groups.index(mine), _step(numbers), is_even)


def _numbers(ranges: Ranges) -> npt.NDArray[np.int64]:
    return np.concatenate([np.arange(*each) for each in ranges])


def _step(numbers: npt.NDArray[np.int64]) -> int | None:
    steps = set(np.diff(numbers).tolist()) or {1}
    return int(steps.pop()) if len(steps) == 1 else None


def described(sharding: Sharding) -> str:
    """A sharding in few words.

    >>> described(SingleDeviceSharding(jax.devices()[0]))
    'cpu:0'
    """
    if isinstance(sharding, NamedSharding):
        return f"{sharding.spec} over {dict(sharding.mesh.shape)}"
    return named(*sharding.device_set) if len(sharding.device_set) == 1 else str(sharding)


def named(*devices: Any) -> str:
    """Devices by platform and number."""
    return ", ".join(sorted(f"{each.platform}:{each.id}" for each in devices))


def row_ranges(name: str, sharding: Sharding, size: int) -> dict[Any, tuple[int, int]]:
    """The first row of each device, and the one after its last."""
    try:
        found = sharding.devices_indices_map((size, *_any_columns(sharding)))
    except (ValueError, IndexError) as error:
        parts = parts_of(sharding)[0]
        raise OptionError(
            f"{name}: a batch of {size} rows cannot be divided: {described(sharding)} makes {parts} parts of the rows. "
            f"Every batch must be a multiple of {parts}, also a last one that is short (drop_last=True, pad_last=True)"
        ) from error
    assert found is not None
    return {device: index[0].indices(size)[:2] if index else (0, size) for device, index in found.items()}


def _any_columns(sharding: Sharding) -> tuple[int, ...]:
    """Sizes of the other axes that every sharding can divide: how rows are divided does not depend on them."""
    further = len(sharding.spec) - 1 if isinstance(sharding, NamedSharding) else 0
    return (sharding.num_devices,) * further


def parts_of(sharding: Sharding) -> tuple[int, ...]:
    """Into how many parts each axis is divided; the first axis is the rows."""
    if not isinstance(sharding, NamedSharding) or not sharding.spec:
        return (1,)
    named_axes = [axes if isinstance(axes, tuple) else (axes,) for axes in sharding.spec]
    return tuple(math.prod(sharding.mesh.shape[axis] for axis in axes if axis is not None) for axes in named_axes)


def _united(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges that may overlap, as ranges that do not.

    >>> _united([(4, 6), (0, 2), (0, 2), (2, 3)])
    ((0, 3), (4, 6))
    """
    found: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return tuple(found)


def _overlap(one: Ranges, other: Ranges) -> bool:
    return any(start < end and begin < stop for start, stop in one for begin, end in other)


def _apart(sets: Iterable[Ranges]) -> list[Ranges]:
    """Sets of rows of which none has a row of another: those that have are united. A row that two processes hold must
    be the same on both, also where it depends on the rows beside it (a collate_fn, samples left out, `numpy.random`).

    >>> _apart([((0, 4),), ((0, 8),), ((8, 9),), ((4, 8),)])
    [((0, 8),), ((8, 9),)]
    """
    found: list[Ranges] = []
    for each in sets:
        united = each
        for other in [other for other in found if _overlap(other, each)]:
            found.remove(other)
            united = _united([*united, *other])
        found.append(united)
    return sorted(found)


def spec_of(*axes: Any) -> PartitionSpec:
    """A spec with these axes."""
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def _over_all_devices() -> Sharding:
    return NamedSharding(Mesh(np.array(jax.devices()), (AXIS,)), spec_of(AXIS))


def _checked_tree(given: Any) -> Any:
    def checked(value: Any) -> Sharding:
        if isinstance(value, Sharding):
            return value
        if isinstance(value, jax.Device):
            return SingleDeviceSharding(value)
        hint = f": NamedSharding(mesh, {value})" if isinstance(value, PartitionSpec) else ""
        raise OptionTypeError(
            f"sharding must be a jax.sharding.Sharding, a device, or a pytree of them; got {value!r}{hint}"
        )

    tree = jax.tree.map(checked, given, is_leaf=lambda value: value is None or isinstance(value, PartitionSpec))
    if not jax.tree.leaves(tree):
        raise OptionTypeError(f"sharding has no sharding in it: {given!r}")
    return tree


def _check_devices(name: str, sharding: Sharding) -> None:
    try:
        devices: set[Any] = sharding.device_set
    except ValueError as error:
        raise OptionError(f"{name}={sharding}: it is over an abstract mesh, which has no devices") from error
    if isinstance(sharding, NamedSharding) and PartitionSpec.UNCONSTRAINED in sharding.spec:
        raise OptionError(f"{name}={sharding.spec}: it leaves an axis to the compiler, and an array needs a place now")
    known = {device for platform in {each.platform for each in devices} for device in _devices_of(platform)}
    if not devices <= known:
        strangers = named(*devices - known)
        raise OptionError(f"{name}={described(sharding)}: {strangers} belong to no process of this run")
    if not sharding.addressable_devices:
        raise OptionError(
            f"{name}={described(sharding)}: no device of it belongs to process {jax.process_index()} of "
            f"{jax.process_count()}. Each process that makes a loader must hold a part of the batch: make the mesh "
            "from jax.devices()"
        )


def _devices_of(platform: str) -> list[Any]:
    try:
        return jax.devices(platform)
    except RuntimeError:  # no such platform is in use
        return []
