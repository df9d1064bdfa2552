"""Several workers make one batch of tensors: bit for bit the batch that one would have made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK as FORKED
from kinds import THREADS as IN_THREADS
from kinds import few
from sameness import assert_same
from torch.utils.data import _utils, default_collate

import feedline.torch as ours
from feedline.arena.joint import Joint
from feedline.collate.pieces import Misfit
from feedline.datasets import SMALL_LEAF
from feedline.torch.pieces import PIECES

WAIT = 60
FORK: dict[str, Any] = {**FORKED, "assignment": "free"}
THREADS: dict[str, Any] = {**IN_THREADS, "assignment": "free"}


class Pair(NamedTuple):
    x: Any
    name: Any


numbers = st.one_of(st.integers(-3, 2**40), st.floats(-9, 9), st.booleans(), st.just(1j), st.just(2**64))
tensors = st.builds(
    lambda dtype, shape: torch.arange(int(np.prod(shape))).to(dtype).reshape(shape),
    st.sampled_from([torch.uint8, torch.int8, torch.int64, torch.float16, torch.float32, torch.bool, torch.bfloat16]),
    st.sampled_from([(), (2,), (2,), (0,), (1, 2)]),
)
arrays = st.sampled_from([np.zeros(2, "f4"), np.zeros(2, "f8"), np.float32(1), np.float64(1), np.int16(3), np.zeros(3)])
leaves = numbers | tensors | arrays | st.sampled_from(["a", "bc", b"d", None])
some_leaves = st.one_of(
    *(st.lists(each, min_size=6, max_size=6) for each in (leaves, numbers, tensors, arrays)),
    leaves.map(lambda leaf: [leaf] * 6),
)
SHAPES: list[Callable[..., Any]] = [
    lambda a, b: a,
    lambda a, b: (a, b),
    lambda a, b: [a, [b]],
    lambda a, b: {"a": a, "b": {"c": b}},
    lambda a, b: Pair(a, b),
    lambda a, b: {"a": a} if isinstance(b, int) else {"a": a, "b": b},
]


@settings(max_examples=few(800), deadline=None)
@given(some_leaves, some_leaves, st.sampled_from(SHAPES), st.integers(1, 5))
def test_pieces_are_the_whole_or_do_not_fit(
    first: list[Any], second: list[Any], shape: Callable[..., Any], cut: int
) -> None:
    samples = list(map(shape, first, second))
    parts = [samples[start:stop] for start, stop in pairwise(sorted({0, cut, 3, 6}))]
    try:
        made = PIECES.join([PIECES.collate(part, np.empty, None) for part in parts], np.empty)
    except Exception:
        return
    assert_same(made, default_collate(samples))


@pytest.mark.parametrize("shape", SHAPES[:5])
def test_plain_batches_do_fit(shape: Callable[..., Any]) -> None:
    samples = [shape(torch.full((2,), float(i)), i) for i in range(6)]
    parts = [PIECES.collate(part, np.empty, None) for part in (samples[:1], samples[1:])]
    assert_same(PIECES.join(parts, np.empty), default_collate(samples))


def test_tensors_with_more_to_them_do_not_fit() -> None:
    channels_last = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    for odd in (channels_last, torch.zeros(2, 2).to_sparse(), torch.zeros(2, requires_grad=True), torch.zeros(())):
        with pytest.raises(Misfit):
            PIECES.join([odd, odd], np.empty)


class Samples(torch.utils.data.Dataset[Any]):
    def __init__(self, draws: bool) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        drawn = torch.rand(()) if self.draws else torch.zeros(())
        return torch.full((100, 200), index), {"name": str(index), "drawn": drawn}


@pytest.mark.parametrize("draws", [False, True])
def test_batches_are_torchs(draws: bool) -> None:
    def epochs(library: Any, **options: Any) -> list[Any]:
        loader = library.DataLoader(
            Samples(draws), batch_size=7, shuffle=True, generator=torch.Generator().manual_seed(2), **options
        )
        return [batch for _ in range(2) for batch in loader]

    found = epochs(ours, **FORK)
    assert_same(found, epochs(ours, **{**FORK, "num_workers": 1}))
    if not draws:
        assert_same(found, epochs(torch.utils.data))


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
def test_a_split_batch_of_tensors_is_not_copied(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = []
    real = Joint.whole

    def whole(joint: Joint, parts: Any) -> Any:
        leaves.append((sum(size for _, size in parts), real(joint, parts)))
        return leaves[-1][1]

    monkeypatch.setattr(Joint, "whole", whole)
    assert len(list(ours.DataLoader(Samples(False), batch_size=6, **kind))) == 5
    images = [leaf for size, leaf in leaves if size >= SMALL_LEAF]
    assert images
    assert all(leaf is not None for leaf in images)


class Together(torch.utils.data.Dataset[Any]):
    """Both samples are read at the same time, or not at all."""

    def __init__(self, readers: int) -> None:
        self.barrier = threading.Barrier(readers)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        self.barrier.wait(WAIT)
        return torch.tensor(index)


def test_the_first_batch_is_made_by_several_workers() -> None:
    assert [batch.tolist() for batch in ours.DataLoader(Together(2), batch_size=2, **THREADS)] == [[0, 1]]


def test_a_registration_of_the_users_sees_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return torch.full((len(batch),), len(batch))

    monkeypatch.setitem(_utils.collate.default_collate_fn_map, torch.Tensor, sizes)
    assert [batch.tolist() for batch in ours.DataLoader(Together(1), batch_size=2, **THREADS)] == [[2, 2]]
