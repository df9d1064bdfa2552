"""From this process's rows, as NumPy arrays, to global arrays on their devices.

Takes: a batch of NumPy arrays with some rows of a global batch. Gives: the same pytree of `jax.Array`, with a mask and
a key if they are asked for.
Promises: what a device holds is what the sharding says. On a CPU, JAX does not copy: an array may share the memory of
the NumPy array it was made of, and refers to that array as long as it does, which keeps its slot from being used again;
so does a copy that is under way. A whole number that JAX's 32 bits cannot hold is an error.
Not its job: when this is done (transfer), which rows there are (layout).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import NamedSharding, Sharding, SingleDeviceSharding

from feedline.errors import CollateError, CollateTypeError, OptionError
from feedline.jax.layout import Layout, Rows, described, parts_of
from feedline.jax.shapes import Shapes
from feedline.randomness.rng import mix

Array = npt.NDArray[Any]
UNCHANGED = {np.dtype(kind) for kind in ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4")}
"""Types that JAX has under every setting."""


class Put(NamedTuple):
    """How a leaf of one shape is put on its devices."""

    shape: tuple[int, ...]
    """The global shape."""
    sharding: Sharding
    parts: Sequence[tuple[Sharding, tuple[slice, ...]]] | None
    """Each device of this process, and what it holds of the local array; None if the whole array is here."""


class Placer:
    """Places the batches of one loader."""

    def __init__(self, layout: Layout, pads: bool, may_leave_out: bool = False) -> None:
        self._layout = layout
        self._pads = pads
        self._may_leave_out = may_leave_out
        """Does a function of the user's make the batches? It may leave samples out without saying so."""
        self._known: dict[Any, tuple[list[Put], Shapes]] = {}

    def place(self, batch: Any, rows: Rows, samples: int, given: int | None) -> tuple[Any, Any, tuple[Any, ...]]:
        """The global batch, its mask (None without padding) and its shapes. `samples` of its rows are no padding; the
        batch was made of `given` samples here."""
        leaves, tree = flattened(batch)
        if not all(type(leaf) is np.ndarray and leaf.dtype in UNCHANGED for leaf in leaves):
            leaves = [as_array(name, leaf) for name, leaf in zip(names_of(batch), leaves, strict=True)]
        mask = None
        if self._pads:
            leaves, mask = filled(batch, leaves, rows, samples, None if self._may_leave_out else given)
        seen = tree, rows.size, tuple([(leaf.shape, leaf.dtype) for leaf in leaves])
        if (known := self._known.get(seen)) is None:
            known = self._known[seen] = self._new(batch, leaves, rows)
        puts, shapes = known
        if mask is None:
            return jax.tree.unflatten(tree, put_all(leaves, puts)), None, shapes
        put = put_for("the mask", mask, self._layout.of_rows(), rows)
        *placed, mask = put_all([*leaves, mask], [*puts, put])
        return jax.tree.unflatten(tree, placed), mask, shapes

    def check(self, batch: Any, rows: Rows) -> None:
        """Would this fit? `batch` has one row, whatever the number of rows here."""
        leaves, _ = flattened(batch)
        named = zip(names_of(batch), leaves, strict=True)
        for (name, leaf), sharding in zip(named, self._layout.of_leaves(batch), strict=True):
            array = as_array(name, leaf)
            put_for(name, np.broadcast_to(array[:1], (len(rows.mine), *array.shape[1:])), sharding, rows)

    def key(self, seed: int, epoch: int, number: int) -> Any:
        """The key of a batch: a function of seed, epoch and number, the same on every process."""
        words = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape[-1]
        data = np.array([mix(mix(mix(seed, epoch), number), word) & 0xFFFFFFFF for word in range(words)], np.uint32)
        sharding = self._layout.replicated()
        here = [(SingleDeviceSharding(device), (slice(None),)) for device in sharding.addressable_devices]
        (placed,) = put_all([data], [Put(data.shape, sharding, here)])
        return jax.random.wrap_key_data(placed)

    def _new(self, batch: Any, leaves: list[Array], rows: Rows) -> tuple[list[Put], Shapes]:
        names, shardings = names_of(batch), self._layout.of_leaves(batch)
        puts = [put_for(*each, rows) for each in zip(names, leaves, shardings, strict=True)]
        kinds = [str(leaf.dtype) for leaf in leaves]
        return puts, tuple(zip(names, [put.shape for put in puts], kinds, strict=True))


def put_all(leaves: list[Array], puts: list[Put]) -> list[Any]:
    """All leaves on their devices, in one call to JAX for all that it can do at once. It does not wait for copies."""
    whole = [number for number, put in enumerate(puts) if put.parts is None]
    if len(whole) == len(puts):
        return jax.device_put(leaves, [put.sharding for put in puts])  # type: ignore[no-any-return]
    placed: list[Any] = [None] * len(puts)
    arrived = jax.device_put([leaves[each] for each in whole], [puts[each].sharding for each in whole])
    for number, array in zip(whole, arrived, strict=True):
        placed[number] = array
    divided = [(number, put) for number, put in enumerate(puts) if put.parts is not None]
    pieces = [leaves[number][index] for number, put in divided for _, index in put.parts or ()]
    pieces = jax.device_put(pieces, [device for _, put in divided for device, _ in put.parts or ()])
    for number, put in divided:
        mine, pieces = pieces[: len(put.parts or ())], pieces[len(put.parts or ()) :]
        placed[number] = jax.make_array_from_single_device_arrays(put.shape, put.sharding, mine)
    return placed


def put_for(name: str, leaf: Array, sharding: Sharding, rows: Rows) -> Put:
    """How to place a leaf; errors name the leaf, its shape and the sharding."""
    dimensions = len(sharding.spec) if isinstance(sharding, NamedSharding) else int(sharding.num_devices > 1)
    if not leaf.ndim and not dimensions:
        return _of_a_number(sharding)
    if leaf.ndim < max(1, dimensions):
        raise OptionError(
            f"{name} has the shape {leaf.shape}: too few dimensions for {described(sharding)}. Its first axis must be "
            "the rows of the batch, and each axis that the sharding names must exist: pass a sharding for each leaf, "
            "for a single number NamedSharding(mesh, P())"
        )
    if len(leaf) != len(rows.mine):
        raise CollateError(
            f"{name} has {len(leaf)} rows instead of {len(rows.mine)}: the rows of the global batch of {rows.size} "
            f"that {described(sharding)} has on this process. A collate function that leaves samples out needs "
            "pad_last=True, and a single process"
        )
    shape = (rows.size, *leaf.shape[1:])
    try:
        found = sharding.addressable_devices_indices_map(shape)
    except (ValueError, IndexError) as error:
        raise OptionError(
            f"{name} has the global shape {shape}, and {described(sharding)} divides its axes into "
            f"{parts_of(sharding)} parts: each axis must be a multiple of its number of parts. Pass a sharding for "
            "each leaf, or let the dataset pad this one"
        ) from error
    if len(leaf) == rows.size and sharding.is_fully_addressable:
        return Put(shape, sharding, None)
    parts = []
    for device, index in found.items():
        start, stop, _ = index[0].indices(rows.size) if index else (0, rows.size, 1)
        first = int(np.searchsorted(rows.mine, start))
        local = (slice(first, first + stop - start), *(index or ())[1:])
        parts.append((SingleDeviceSharding(device, memory_kind=sharding.memory_kind), local))
    return Put(shape, sharding, parts)


def _of_a_number(sharding: Sharding) -> Put:
    """A leaf without axes, the same on each device. Its sharding names no axis either, so each process has all rows,
    and computes the same number from them."""
    if sharding.is_fully_addressable:
        return Put((), sharding, None)
    here = [(SingleDeviceSharding(each, memory_kind=sharding.memory_kind), ()) for each in sharding.addressable_devices]
    return Put((), sharding, here)


def flattened(batch: Any) -> tuple[list[Any], Any]:
    """The leaves, and the tree they are in."""
    try:
        return jax.tree.flatten(batch)
    except ValueError as error:
        raise CollateTypeError(f"the batch is no pytree, because JAX sorts the keys of each dict: {error}") from error


def names_of(batch: Any) -> list[str]:
    """What the leaves are called in messages."""
    paths, _ = jax.tree_util.tree_flatten_with_path(batch)
    return [f"batch{jax.tree_util.keystr(path)}" for path, _ in paths]


def filled(batch: Any, leaves: list[Array], rows: Rows, samples: int, given: int | None) -> tuple[list[Array], Array]:
    """Leaves with a row for each of `rows`: the last row is repeated where some are missing. And what is no filling.

    Each leaf has a row for each of the `given` samples; if that is None, all have equally many."""
    wanted = len(rows.mine)
    here = min((len(leaf) for leaf in leaves if leaf.ndim), default=wanted) if given is None else given
    for name, leaf in zip(names_of(batch), leaves, strict=True):
        if leaf.ndim and len(leaf) != here:
            raise CollateError(
                f"{name} has {len(leaf)} rows instead of {here}: with pad_last=True each leaf must have a row for each "
                "sample of the batch, because the mask says which of them are samples"
            )
    if here < wanted:
        if wanted < rows.size:  # other processes have the other rows
            raise CollateError(
                f"{wanted - here} of this process's {wanted} rows were left out, and where some of a batch is filling "
                "nobody here knows whether they were: leave samples out on a single process only, or replace them"
            )
        if not here:
            raise CollateError(f"{names_of(batch)[0]} has no rows: there is nothing to fill the batch of {wanted} with")
        leaves = [
            np.concatenate([leaf, np.repeat(leaf[-1:], wanted - len(leaf), 0)]) if leaf.ndim else leaf
            for leaf in leaves
        ]
    return leaves, (rows.mine < samples) & (np.arange(wanted) < here)


def as_array(name: str, leaf: Any) -> Array:
    """A leaf as an array of a type that JAX has now; with 32 bits, as JAX itself would convert it."""
    if isinstance(leaf, jax.Array):
        raise CollateTypeError(
            f"{name} is an array of JAX already, on devices of its own: let the dataset and collate_fn give NumPy "
            "arrays (np.asarray); the loader places them"
        )
    if isinstance(leaf, np.ma.MaskedArray):
        raise CollateTypeError(
            f"{name} is a masked array, and JAX has none: give its data and its mask as two fields (array.filled(0), "
            "np.ma.getmaskarray(array))"
        )
    if not isinstance(leaf, (np.ndarray, np.generic, bool, int, float, complex)):
        raise CollateTypeError(
            f"{name} is a {type(leaf).__qualname__}, and JAX has arrays of numbers only: leave it out of the sample or "
            "in collate_fn, or make it numbers; a class of your own must be registered as a pytree"
        )
    array = np.asarray(leaf)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)  # files may have the other order of bytes
    is_number = any(jnp.issubdtype(array.dtype, kind) for kind in (np.number, np.bool_))
    if not is_number or array.dtype.kind == "m":  # NumPy counts durations among the numbers
        raise CollateTypeError(f"{name} has the dtype {array.dtype}, and JAX has arrays of numbers only")
    if array.dtype.char in "gG":
        raise CollateTypeError(
            f"{name} has the dtype {array.dtype}, which JAX does not have: let the dataset give float64"
        )
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if dtype == array.dtype:
        return array
    if array.dtype.kind in "iu" and array.size:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        if array.max() > most or array.min() < least:
            raise CollateError(
                f"{name} has the dtype {array.dtype} and holds numbers that do not fit into {dtype}, which JAX uses: "
                "enable 64 bits (JAX_ENABLE_X64=1), or let the dataset give smaller numbers"
            )
    return array.astype(dtype)
