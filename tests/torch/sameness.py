"""Trees of samples for torch, and what it means that two of them are the same: types, dtypes, shapes, bits, order."""

from __future__ import annotations

from collections import OrderedDict, UserList, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch.utils.data import Dataset

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
ARRAY_DTYPES = ["?", "u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]

Make = Callable[[int], Any]
"""A value of one kind for a number: the same kind for every number, the same value for the same number."""


class Point(NamedTuple):
    x: Any
    y: Any


class Record(Mapping[str, Any]):
    """A mapping that cannot be changed."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self.items_ = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


class Tagged(dict[str, Any]):
    """A mapping with something more to it, which torch keeps."""

    tag = "none"


class Row(Sequence[Any]):
    """A sequence that cannot be changed."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = list(values)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)


def tagged(items: Mapping[str, Any]) -> Tagged:
    made = Tagged(items)
    made.tag = "kept"
    return made


def filled(number: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of bits that follow from the number; NaNs and infinities among them."""
    count = int(np.prod(shape))
    if not count:
        return torch.empty(shape, dtype=dtype)
    if dtype is torch.bool:
        return torch.from_numpy(np.random.default_rng(number).integers(0, 2, count) > 0).view(shape)
    bits = np.random.default_rng(number).integers(0, 256, count * dtype.itemsize, np.uint8)
    return torch.from_numpy(bits).view(dtype).view(shape)


def strided(number: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The same, as every other element of something larger."""
    wide = filled(number, (*shape, 2), dtype)
    return wide[..., 0]


def flipped(number: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The same, its axes in the opposite order in memory."""
    return filled(number, shape[::-1], dtype).permute(*reversed(range(len(shape))))


def array(number: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    draw = np.random.default_rng(number)
    made = draw.integers(0, 2 if dtype == "?" else 100, shape)
    return np.asarray(made).astype(dtype)


def _tensor(way: Callable[..., torch.Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> Make:
    return lambda number: way(number, shape, dtype)


def _array(shape: tuple[int, ...], dtype: str, reverse: bool) -> Make:
    return lambda number: array(number, shape[::-1], dtype).T if reverse else array(number, shape, dtype)


def _scalar(dtype: str) -> Make:
    return lambda number: np.dtype(dtype).type(number % 100)


shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
leaves: st.SearchStrategy[Make] = st.one_of(
    st.builds(_tensor, st.sampled_from([filled, strided, flipped]), shapes, st.sampled_from(DTYPES)),
    st.builds(_array, shapes, st.sampled_from(ARRAY_DTYPES), st.booleans()),
    st.builds(_scalar, st.sampled_from(ARRAY_DTYPES)),
    st.sampled_from(
        [lambda n: n, lambda n: n / 3, lambda n: n % 2 == 0, lambda n: str(n), lambda n: bytes([n % 256]), float]
    ),
)


def _all(makes: Sequence[Make], join: Callable[[list[Any]], Any]) -> Make:
    return lambda number: join([make(number + 7 * place) for place, make in enumerate(makes)])


def _keyed(make: Callable[[dict[str, Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: make({f"k{place}": value for place, value in enumerate(values)})


JOINS = [
    tuple,
    list,
    Row,
    UserList,
    *map(_keyed, [dict, OrderedDict, tagged, Record, lambda items: defaultdict(list, items)]),
]
trees: st.SearchStrategy[Make] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(_all, st.lists(inner, min_size=1, max_size=3), st.sampled_from(JOINS)),
        st.builds(_all, st.tuples(inner, inner), st.just(lambda pair: Point(*pair))),
    ),
    max_leaves=5,
)


class Trees(Dataset[Any]):
    """A sample of the kind `make` makes, for every index."""

    def __init__(self, length: int, make: Make) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        number = int(index)
        if not 0 <= number < self.length:
            raise IndexError(number)
        return self.make(number)


def bits(tensor: torch.Tensor) -> bytes:
    if not tensor.numel():
        return b""
    plain = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
    return bytes(plain.view(torch.uint8).numpy())


def telling_strides(tensor: torch.Tensor) -> list[int]:
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def is_dense(tensor: torch.Tensor) -> bool:
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride()[dim])
    return tensor.numel() > 0 and tensor.permute(order).is_contiguous()


def assert_same(ours: Any, torchs: Any, path: str = "batch", strides: bool = False) -> None:
    """Of the same type throughout, and equal to the bit."""
    assert type(ours) is type(torchs), f"{path}: {type(ours)} instead of {type(torchs)}"
    if isinstance(torchs, torch.Tensor):
        assert (ours.dtype, ours.shape, ours.layout) == (torchs.dtype, torchs.shape, torchs.layout), path
        assert (ours.requires_grad, ours.device) == (torchs.requires_grad, torchs.device), path
        assert bits(ours) == bits(torchs), path
        if strides and is_dense(torchs):
            assert telling_strides(ours) == telling_strides(torchs), path
    elif isinstance(torchs, np.ndarray):
        assert ours.dtype == torchs.dtype, path
        assert ours.tobytes() == torchs.tobytes(), path
    elif isinstance(torchs, Mapping):
        assert list(ours) == list(torchs), path
        assert getattr(ours, "tag", None) == getattr(torchs, "tag", None), path
        for key in torchs:
            assert_same(ours[key], torchs[key], f"{path}[{key!r}]", strides)
    elif isinstance(torchs, Sequence) and not isinstance(torchs, (str, bytes)):
        assert len(ours) == len(torchs), path
        for place, (our, their) in enumerate(zip(ours, torchs, strict=True)):
            assert_same(our, their, f"{path}[{place}]", strides)
    else:
        assert ours == torchs or (ours != ours and torchs != torchs), path
