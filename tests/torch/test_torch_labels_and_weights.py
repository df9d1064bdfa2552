"""Tensors as labels, weights, lengths, indices and keys of feedline's core, which itself does not import torch."""

from __future__ import annotations

import pytest
import torch

from feedline import (
    BucketBatchSampler,
    OptionTypeError,
    SubsetRandomSampler,
    WeightedRandomSampler,
    split,
    weights_from_labels,
)
from feedline.datasets import split_indices


def test_tensors_that_numpy_cannot_hold_are_refused_with_the_remedy() -> None:
    short = torch.ones(3, dtype=torch.bfloat16)
    for name, make in {
        "labels": lambda: weights_from_labels(short),
        "groups": lambda: split(range(3), {"a": 1.0}, groups=short),
        "weights": lambda: WeightedRandomSampler(short, 3),
        "lengths": lambda: BucketBatchSampler(short, 3),
        "indices": lambda: SubsetRandomSampler(short),
    }.items():
        with pytest.raises(OptionTypeError, match=rf"{name} must be .*pass {name}.detach\(\).cpu\(\).float\(\)"):
            make()
    needs_gradient = torch.ones(3, requires_grad=True)
    with pytest.raises(OptionTypeError, match=r"pass weights.detach\(\)"):
        WeightedRandomSampler(needs_gradient, 3)


def test_tensors_are_taken_without_a_warning() -> None:
    weights, indices = torch.ones(3), torch.arange(3)
    samplers = WeightedRandomSampler(weights, 3), SubsetRandomSampler(indices)
    weights[:], indices[:] = 7, 7  # a copy was made
    assert samplers[0].weights.tolist() == [1, 1, 1]
    assert samplers[1].indices.tolist() == [0, 1, 2]


@pytest.mark.parametrize("as_tensors", ["tensor", "list of tensors"])
def test_tensors_are_labels(as_tensors: str) -> None:
    tensor = torch.tensor([2, 0, 2, 2])
    weights = weights_from_labels(tensor if as_tensors == "tensor" else list(tensor))
    assert weights.tolist() == [1 / 3, 1, 1 / 3, 1 / 3]


def test_whole_numbers_are_the_same_keys_in_a_tensor() -> None:
    numbers, parts = list(range(-50, 50)), {"train": 0.8, "test": 0.2}
    expected = split_indices(100, parts, keys=numbers)["test"].tolist()
    assert 0 < len(expected) < 100
    for keys in (torch.tensor(numbers), list(torch.tensor(numbers))):
        assert split_indices(100, parts, keys=keys)["test"].tolist() == expected
