"""Tensors that are more than plain memory, and tensors laid out in other ways: correct, if by a slower way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, THREADS
from sameness import Trees, assert_same
from torch.nn.utils.rnn import pack_sequence
from torch.testing._internal.two_tensor import TwoTensor

import feedline.torch as ours
from feedline.datasets import SMALL_LEAF

pytestmark = pytest.mark.usefixtures("one_thread")
WIDE = SMALL_LEAF // 2  # two of float32 are too large to travel inside the pickle
kinds = pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])


class Tagged(torch.Tensor):
    """A tensor subclass."""


def base(number: int) -> torch.Tensor:
    return torch.arange(2 * WIDE, dtype=torch.float32).reshape(2, WIDE) + number


def in_inference_mode(number: int) -> torch.Tensor:
    with torch.inference_mode():
        return base(number)


ODD: dict[str, Callable[[int], torch.Tensor]] = {
    "leaf": lambda n: base(n).requires_grad_(),
    "graph": lambda n: base(n).requires_grad_() * 2,
    "parameter": lambda n: torch.nn.Parameter(base(n)),
    "frozen parameter": lambda n: torch.nn.Parameter(base(n), requires_grad=False),
    "subclass": lambda n: base(n).as_subclass(Tagged),
    "sparse": lambda n: base(n).to_sparse(),
    "csr": lambda n: base(n).to_sparse_csr(),
    "csc": lambda n: base(n).to_sparse_csc(),
    "bsr": lambda n: base(n).to_sparse_bsr((1, 2)),
    "bsc": lambda n: base(n).to_sparse_bsc((2, 1)),
    "sparse with a gradient": lambda n: base(n).to_sparse().requires_grad_(),
    "nested": lambda n: torch.nested.nested_tensor([base(n)[0], base(n)[1, :-1]]),
    "jagged": lambda n: torch.nested.nested_tensor([base(n)[0], base(n)[1, :-1]], layout=torch.jagged),
    "quantised": lambda n: torch.quantize_per_tensor(base(n), 0.5, 3, torch.qint32),
    "quantised by channel": lambda n: torch.quantize_per_channel(
        base(n), torch.tensor([0.5, 0.25], dtype=torch.float64), torch.tensor([0, 1]), 0, torch.qint32
    ),
    "conjugated": lambda n: torch.complex(base(n), base(n) + 1).conj(),
    "negated": lambda n: torch.complex(base(n), base(n) + 1).conj().imag,
    "on the meta device": lambda n: base(n).to("meta"),
    "expanded": lambda n: torch.tensor(float(n)).expand(3, WIDE),
    "inference": in_inference_mode,
    "single strided": lambda n: base(n)[:1, :2:2].squeeze(0),
}


def described(value: Any) -> Any:
    """What can be compared of any tensor."""
    if not isinstance(value, torch.Tensor):
        return type(value), [described(part) for part in value]
    about = (type(value), value.dtype, value.layout, value.requires_grad, value.is_quantized, value.device.type)
    value = value.detach()
    if value.device.type == "meta":
        return about, value.shape
    if value.is_nested:
        return about, [part.tolist() for part in value.unbind()]
    if value.is_quantized:
        return about, value.dequantize().tolist()
    return about, value.as_subclass(torch.Tensor).to_dense().tolist()


def outcome(batches: Iterator[Any]) -> Any:
    try:
        return described(next(batches))
    except Exception as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def outcomes(loader: Any) -> dict[str, list[Any]]:
    batches = iter(loader)
    return {name: [outcome(batches), outcome(batches)] for name in ODD}


def odd(number: int) -> torch.Tensor:
    """Four of each, one kind after the other."""
    return list(ODD.values())[number // 4](number)


@pytest.mark.filterwarnings("ignore:.*(nested tensors|Sparse [BC]S[RC]|quantize_per|invariant checks)")
@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": 2, "collate_fn": list}])
def test_any_tensor_comes_out_as_from_torchs_loader_or_is_refused_alike(
    options: dict[str, Any], kind: dict[str, Any]
) -> None:
    wanted = outcomes(torchs.DataLoader(Trees(4 * len(ODD), odd), **options))
    got = outcomes(ours.DataLoader(Trees(4 * len(ODD), odd), **options, **kind))
    assert [name for name in ODD if got[name] != wanted[name]] == []


@pytest.mark.parametrize("batch_size", [None, 2])
def test_gradients_flow_back_through_a_batch_made_in_this_process(batch_size: int | None) -> None:
    weights = torch.ones(4, 3, requires_grad=True)
    for batch in ours.DataLoader(Trees(4, lambda n: weights[n]), batch_size=batch_size):
        batch.sum().backward()
    assert weights.grad is not None
    assert (weights.grad == 1).all()


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "channels last": lambda: torch.randn(2, 3, 80, 80).to(memory_format=torch.channels_last),
    "channels last, one channel": lambda: torch.randn(2, 1, 200, 200).to(memory_format=torch.channels_last),
    "channels last 3d": lambda: torch.randn(2, 3, 4, 40, 40).to(memory_format=torch.channels_last_3d),
    "transposed": lambda: torch.randn(200, 300).t(),
    "permuted": lambda: torch.randn(40, 50, 60).permute(1, 2, 0),
    "small and transposed": lambda: torch.randn(3, 4).t(),
    "a part from within": lambda: torch.randn(10, 20_000)[3:7],
    "of no size": lambda: torch.empty(3, 0, 5).permute(2, 0, 1),
    "of no axis": lambda: torch.tensor(3.5),
}


@kinds
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_a_custom_collate_fn_lays_out_keeps_its_strides(name: str, kind: dict[str, Any]) -> None:
    torch.manual_seed(1)
    made = LAYOUTS[name]()
    (batch,) = ours.DataLoader(range(2), batch_size=2, collate_fn=lambda samples: {"x": made}, **kind)
    assert torch.equal(batch["x"], made)
    assert batch["x"].stride() == made.stride()


@kinds
@pytest.mark.parametrize("made", [torch.randn(200, 300)[:, ::2], torch.randn(1, 300).expand(200, 300)])
def test_what_is_not_dense_is_copied_and_becomes_dense(made: torch.Tensor, kind: dict[str, Any]) -> None:
    (batch,) = ours.DataLoader(range(1), batch_size=1, collate_fn=lambda samples: made, **kind)
    assert torch.equal(batch, made)
    assert batch.untyped_storage().nbytes() <= 2 * batch.numel() * batch.itemsize
    batch.zero_()  # every element has a place of its own


@pytest.mark.parametrize("shape", [(3, 40, 40), (2, 3, 40, 40)])
def test_default_collation_lays_a_batch_out_as_torch_stack_does(shape: tuple[int, ...]) -> None:
    def sample(number: int) -> torch.Tensor:
        image = torch.full((2, 3, 40, 40), float(number)).to(memory_format=torch.channels_last)
        return image[0] if len(shape) == 3 else image

    (wanted,) = torchs.DataLoader(Trees(4, sample), batch_size=4)
    for kind in (INLINE, THREADS, FORK):
        (batch,) = ours.DataLoader(Trees(4, sample), batch_size=4, **kind)
        assert_same(batch, wanted, strides=True)


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_samples_of_different_dtypes_are_promoted_as_by_torch_stack(kind: dict[str, Any]) -> None:
    def sample(number: int) -> torch.Tensor:
        return torch.full((WIDE,), number, dtype=torch.float64 if number % 2 else torch.int32)

    (wanted,) = torchs.DataLoader(Trees(2, sample), batch_size=2)
    assert_same(next(iter(ours.DataLoader(Trees(2, sample), batch_size=2, **kind))), wanted)


@kinds
def test_the_same_tensor_twice_in_a_batch_is_right_twice(kind: dict[str, Any]) -> None:
    def twice(samples: list[int]) -> dict[str, torch.Tensor]:
        made = torch.full((WIDE,), samples[0])
        return {"a": made, "b": made, "part": made[5:10]}

    for number, batch in enumerate(ours.DataLoader(range(4), collate_fn=twice, **kind)):
        assert all((value == number).all() for value in batch.values())


def test_a_loader_works_in_inference_mode_and_its_batches_outside_of_it() -> None:
    data = torchs.TensorDataset(torch.arange(4.0).repeat(WIDE, 1).t())
    with torch.inference_mode():
        inside = [batch for (batch,) in ours.DataLoader(data, batch_size=2)]
    outside = [batch for (batch,) in ours.DataLoader(data, batch_size=2)]
    assert_same(inside, outside)
    outside[0].requires_grad_().sum().backward()


def tagged(values: torch.Tensor) -> torch.Tensor:
    made = values.as_subclass(Tagged)
    made.mask = [values + 1]  # type: ignore[attr-defined]
    return made


def noted(values: torch.Tensor) -> torch.Tensor:
    values.path = "a file"  # type: ignore[attr-defined]
    return values


class Box:
    def __init__(self, x: Any) -> None:
        self.x = x


def in_mode(values: torch.Tensor) -> Any:
    return torch.nested.nested_tensor([values, values], layout=torch.jagged)


INNER: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "a wrapper of two": (lambda x: TwoTensor(x, x.clone()), lambda tree: tree.a),
    "jagged": (in_mode, lambda tree: tree.values()),
    "an attribute of a subclass": (tagged, lambda tree: tree.mask[0]),
    "an attribute of an object": (Box, lambda tree: tree.x),
    "a named tuple with a constructor": (lambda x: pack_sequence([x]), lambda tree: tree.data),
}


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_inner_tensors_are_owned_too(name: str, kind: dict[str, Any]) -> None:
    wrap, unwrap = INNER[name]
    sample = wrap(torch.zeros(3))
    before = unwrap(sample).clone()
    batch = next(iter(ours.DataLoader([sample], batch_size=None, collate_fn=lambda sample: sample, **kind)))
    assert type(batch) is type(sample)
    assert torch.equal(unwrap(batch), before)
    unwrap(batch).add_(1)
    assert torch.equal(unwrap(sample), before)


def test_two_jagged_tensors_of_one_shape_still_fit_each_other() -> None:
    one = in_mode(torch.ones(2))
    pair = one, one * 2
    x, y = next(iter(ours.DataLoader([pair], batch_size=None)))
    assert (x + y).values().tolist() == [3.0] * 4


def test_a_tensors_attributes_stay_with_it_without_workers() -> None:
    sample = noted(torch.zeros(2))
    for library in (torchs, ours):
        assert next(iter(library.DataLoader([sample], batch_size=None))).path == "a file"  # type: ignore[attr-defined]


def test_what_requires_a_gradient_is_shared_without_workers() -> None:
    leaf = torch.zeros(2, requires_grad=True)
    for library in (torchs, ours):
        assert next(iter(library.DataLoader([leaf], batch_size=None))) is leaf
