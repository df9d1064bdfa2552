"""A tensor is delivered without a copy only if nobody else has it or its memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import feedline.torch as ours
from feedline.collate.unshared import is_unshared
from feedline.torch import tensors

KEEPERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda tensor: tensor,
    "a view": lambda tensor: tensor[:1],
    "a detached one": lambda tensor: tensor.detach(),
    "its data": lambda tensor: tensor.data,
    "its storage": lambda tensor: tensor.untyped_storage(),
    "a weak reference to its storage": lambda tensor: weakref.ref(tensor.untyped_storage()),
    "an array": lambda tensor: tensor.numpy(),
    "a dlpack capsule": lambda tensor: tensor.__dlpack__(),
    "a graph": lambda tensor: torch.ones(3, requires_grad=True) * tensor,
    "a weak reference": lambda tensor: weakref.ref(tensor),
    "a set tensor": lambda tensor: torch.empty(0).set_(tensor),
    "another process, perhaps": lambda tensor: bool(tensor.share_memory_().numel()),
    "an attribute": lambda tensor: setattr(tensor, "more", 1),
}
FOREIGN: dict[str, Callable[[], torch.Tensor]] = {
    "an array": lambda: torch.from_numpy(np.zeros(3)),
    "a buffer": lambda: torch.frombuffer(bytearray(12), dtype=torch.float32),
    "a parameter": lambda: torch.nn.Parameter(torch.zeros(3)),
    "a graph": lambda: torch.zeros(3, requires_grad=True) * 2,
    "a sparse one": lambda: torch.eye(3).to_sparse(),
    "a nested one": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
}


def test_a_fresh_tensor_is_unshared() -> None:
    assert is_unshared([torch.zeros(3)], 0, tensors.is_unshared)
    assert is_unshared([torch.stack([torch.zeros(3)] * 2)], 0, tensors.is_unshared)
    assert is_unshared([torch.tensor([1, 2])], 0, tensors.is_unshared)


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_whoever_has_it_too_is_noticed(keep: Callable[[torch.Tensor], Any]) -> None:
    held = [torch.zeros(3)]
    kept = keep(held[0])
    assert not is_unshared(held, 0, tensors.is_unshared)
    del kept


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_memory_of_another_object_is_shared(make: Callable[[], torch.Tensor]) -> None:
    assert not is_unshared([make()], 0, tensors.is_unshared)


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.data = torch.arange(24.0).reshape(6, 4)
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.data[index]


def keep(rows: Rows, kept: Any, batch: Any) -> Any:
    rows.kept.append(kept)
    return batch


RESULTS: dict[str, Callable[[Rows, list[torch.Tensor]], Any]] = {
    "a stack": lambda rows, samples: torch.stack(samples),
    "the first sample": lambda rows, samples: samples[0],
    "the samples": lambda rows, samples: (samples, torch.stack(samples)),
    "the data": lambda rows, samples: {"x": rows.data},
    "what is kept": lambda rows, samples: keep(rows, stacked := torch.stack(samples), stacked),
    "a view of what is kept": lambda rows, samples: keep(rows, stacked := torch.stack(samples), stacked[:1]),
    "of which an array is kept": lambda rows, samples: keep(rows, (stacked := torch.stack(samples)).numpy(), stacked),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_writing_into_a_batch_changes_nothing_that_somebody_else_has(
    result: Callable[[Rows, list[torch.Tensor]], Any],
) -> None:
    rows = Rows()
    for batch in ours.DataLoader(rows, batch_size=2, collate_fn=lambda samples: result(rows, samples)):
        before = [each.tolist() for each in (rows.data, *rows.kept)]
        for tensor in tensors_in(batch):
            tensor += 100
        assert [each.tolist() for each in (rows.data, *rows.kept)] == before


def in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.zeros(2, 3)


def with_a_gradient() -> torch.Tensor:
    tensor = torch.zeros(3)
    tensor.grad = torch.ones(3)
    return tensor


WORSE: dict[str, Callable[[], torch.Tensor]] = {
    "elements that share a place": lambda: torch.ones(1, 3).expand(2, 3).detach(),
    "strides of zero": lambda: torch.empty_strided((2, 3), (0, 1)).fill_(1),
    "a crop, with the rest beside it": lambda: torch.zeros(100, 100)[:2, :2].data,
    "made in inference mode": in_inference_mode,
    "with a gradient": with_a_gradient,
}


@pytest.mark.parametrize("make", WORSE.values(), ids=WORSE)
def test_what_a_copy_would_make_better_is_copied(make: Callable[[], torch.Tensor]) -> None:
    assert not is_unshared([make()], 0, tensors.is_unshared)
    (batch,) = ours.DataLoader([1], collate_fn=lambda samples: make())
    assert batch.tolist() == make().tolist()
    batch += torch.arange(batch.numel()).reshape(batch.shape)
    assert (batch - make()).flatten().tolist() == [*range(batch.numel())]
    assert batch.untyped_storage().nbytes() == batch.nbytes
    assert batch.grad is None


def test_in_inference_mode_a_batch_of_that_mode_is_delivered_as_it_is() -> None:
    with torch.inference_mode():
        assert is_unshared([torch.zeros(3)], 0, tensors.is_unshared)


@pytest.mark.parametrize("batch_size", [1, None])
def test_a_fresh_sample_is_delivered_as_it_is(batch_size: int | None) -> None:
    class Whole(Rows):
        def __getitem__(self, index: int) -> torch.Tensor:
            made = self.data[index] + 1
            addresses.append(made.data_ptr())
            return made

    addresses: list[int] = []
    first = None if batch_size is None else lambda samples: samples[0]
    for batch in ours.DataLoader(Whole(), batch_size=batch_size, collate_fn=first):
        assert batch.data_ptr() == addresses[-1]


def test_where_torch_counts_in_another_way_all_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_storage_use_count", None)
    monkeypatch.setattr(tensors, "_OF_A_NEW_ONE", tensors._counts_of_a_new_one())
    monkeypatch.setattr(tensors, "_counts", lambda tensor, held: (1, 2, 3))
    assert not is_unshared([torch.zeros(3)], 0, tensors.is_unshared)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [tensor for each in (tree.values() if isinstance(tree, dict) else tree) for tensor in tensors_in(each)]
