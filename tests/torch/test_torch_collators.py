"""feedline's collators with tensors: what they give, in which dtypes and whose memory, and in torch's own loader."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import QUICK, few, quick_kinds
from sameness import DTYPES, assert_same, bits, filled, flipped, strided
from torch.nn.utils.rnn import pad_sequence

import feedline
from feedline import CollateError
from feedline.collate.making import Making
from feedline.torch import DataLoader
from feedline.torch.collate import TENSORS, compose, detection, drop_invalid, keep, pack, pad, stack

WAYS = [filled, strided, flipped]


class Recorder:
    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, shape: Any, dtype: Any) -> Any:
        self.given.append(np.empty(shape, dtype))
        return self.given[-1]


@settings(max_examples=few(150))
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(WAYS)), min_size=1, max_size=4),
    st.integers(0, 2),
    st.sampled_from(DTYPES),
)
def test_tensors_of_every_dtype_are_padded_to_the_bit(made, axis, dtype):
    tensors = [way(i, [size if at == axis else 2 for at in range(3)], dtype) for i, (size, way) in enumerate(made)]
    memory = Recorder()
    making = Making(TENSORS, memory)
    data, mask, lengths = pad(axis=axis).into(tensors, making, "")
    assert data.dtype is dtype
    assert data.is_contiguous()
    assert (mask.dtype, lengths.dtype) == (torch.bool, torch.int64)
    assert data.data_ptr() == memory.given[0].ctypes.data or not data.numel()
    for row, there, length, tensor in zip(data, mask, lengths.tolist(), tensors, strict=True):
        assert length == tensor.shape[axis] == int(there.sum())
        assert bits(row.narrow(axis, 0, length)) == bits(tensor)
        assert not any(bits(row.narrow(axis, length, row.shape[axis] - length)))
        assert there[:length].all()


def test_a_value_of_each_dtype_can_pad_it():
    for dtype in DTYPES:
        data = pad(1)([torch.zeros(1, dtype=dtype), torch.zeros(0, dtype=dtype)]).data
        assert data[1, 0] == torch.ones((), dtype=dtype)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.complex64):
        assert pad(float("nan"))([torch.zeros(1, dtype=dtype), torch.zeros(0, dtype=dtype)]).data[1, 0].isnan()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (-1, torch.uint8),
        (2, torch.bool),
        (0.5, torch.int64),
        (1e6, torch.float16),
        (500, torch.float8_e4m3fn),
        (float("inf"), torch.float8_e4m3fn),  # torch would take 448
        (float("-inf"), torch.float8_e5m2fnuz),
        (-1, torch.float8_e8m0fnu),  # which has neither signs
        (0, torch.float8_e8m0fnu),  # nor a zero
    ],
)
def test_a_value_that_does_not_fit_is_refused(value, dtype):
    with pytest.raises(CollateError, match=f"field 'x' is of dtype {dtype}, which cannot hold the padding value"):
        compose({"x": pad(value)})([{"x": torch.zeros(2, dtype=dtype)}])


def test_a_value_that_is_rounded_fits():
    kinds = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    for dtype in kinds:
        for value in (0, -0.3, 1e-30, float("nan")):
            data = pad(value)([torch.ones(1).to(dtype), torch.ones(0).to(dtype)]).data.float()
            assert torch.equal(data[1], torch.tensor([value]).to(dtype).float()) or value != value
    assert pad(float("inf"))([torch.ones(1).to(torch.float8_e5m2), []]).data.float()[1, 0] == float("inf")
    assert pad(2)([torch.ones(1).to(torch.float8_e8m0fnu), []]).data.float()[1, 0] == 2


def test_an_empty_tensor_does_not_make_floats_of_ids():
    batch = pad()([torch.tensor([16777217, 5]), torch.tensor([])])
    assert_same(batch.data, torch.tensor([[16777217, 5], [0, 0]]))
    assert_same(pack(3)([torch.tensor([]), torch.tensor([16777217])]).data, torch.tensor([[16777217, 0, 0]]))
    small = torch.zeros(0, dtype=torch.float8_e4m3fn)  # which would mix with nothing
    assert pad()([small, torch.ones(1)]).data.dtype is torch.float32
    assert pad()([small, small]).data.dtype is torch.float8_e4m3fn
    assert pad()([torch.zeros(0, dtype=torch.complex64), torch.ones(1)]).data.dtype is torch.float32
    assert pad()([small, []]).data.dtype is torch.float8_e4m3fn


def test_arrays_of_another_byte_order_become_tensors():
    batch = pad()([np.array([1, 2], ">i4"), np.array([3], ">i4"), np.array([], ">i4")])
    assert_same(batch.data, torch.tensor([[1, 2], [3, 0], [0, 0]], dtype=torch.int32))


def test_dtypes_mix_by_torchs_rules():
    pairs = [(torch.int8, torch.float16), (torch.bfloat16, torch.float32), (torch.bool, torch.uint8)]
    for one, other in [*pairs, (torch.float32, torch.complex64), (torch.int64, torch.float16)]:
        tensors = [torch.ones(2, dtype=one), torch.ones(2, dtype=other)]
        assert_same(pad(mask=False, lengths=False)(tensors), torch.stack(tensors))
    with pytest.raises(CollateError, match=r"sample 1 of the batch is torch.float8_e4m3fn"):
        pad()([torch.zeros(1), torch.zeros(1, dtype=torch.float8_e4m3fn)])


def test_arrays_and_lists_become_tensors():
    read_only = np.arange(3)[::-1]
    read_only.flags.writeable = False
    cases = [([[1], [2, 3]], torch.int64), ([[0.5], []], torch.float64), ([np.float32([1]), []], torch.float32)]
    for values, dtype in cases:
        data = pad()(values).data
        assert data.dtype is dtype
        assert data.shape == (2, max(map(len, values)))
    mixed = pad()([read_only, torch.tensor([0.5])]).data
    assert_same(mixed, torch.tensor([[2.0, 1, 0], [0.5, 0, 0]]))


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2, requires_grad=True),
        torch.ones(2).to_sparse(),
        torch.ones(2, device="meta"),
        None,
        "text",
        np.array(["a"]),
    ],
    ids=["grad", "sparse", "meta", "none", "str", "text"],
)
def test_what_has_no_bytes_here_is_refused(value):
    with pytest.raises(CollateError, match=r"field 'x' of dataset index 9 .* not an array of numbers"):
        compose({"x": pad()}).make([{"x": torch.ones(2)}, {"x": value}], Making(TENSORS, names=[8, 9]))
    if isinstance(value, torch.Tensor):
        with pytest.raises(CollateError, match=r"detach\(\) or convert it"):
            pad()([value])


class Tagged(torch.Tensor):
    """As torchvision's tensors are."""


def test_subclasses_and_conjugates_are_tensors():
    for dtype in (torch.float32, torch.bfloat16):
        batch = pad()([torch.ones(2, dtype=dtype).as_subclass(Tagged), torch.ones(3, dtype=dtype)])
        assert_same(batch.data, torch.tensor([[1, 1, 0], [1, 1, 1]], dtype=dtype))
    conjugate = torch.tensor([1 + 2j]).conj()
    assert pad()([conjugate, torch.zeros(0, dtype=torch.complex64)]).data[0, 0] == 1 - 2j


def test_the_cores_collator_says_where_to_get_the_one_for_tensors():
    with pytest.raises(CollateError, match=r"from feedline\.torch"):
        feedline.collate.pad()([torch.ones(2)])


class Texts(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, i: int) -> Any:
        size = i * 997 % 3000
        return {"tokens": torch.arange(size) + i, "label": i, "boxes": torch.full((i % 3, 4), float(i))}


WITH = {"tokens": feedline.collate.pad(-1), "boxes": keep}


def by_hand(samples: list[Any]) -> Any:
    tokens = [sample["tokens"] for sample in samples]
    data = pad_sequence(tokens, batch_first=True, padding_value=-1)
    lengths = torch.tensor(list(map(len, tokens)))
    mask = torch.arange(data.shape[1]) < lengths[:, None]
    return {
        "tokens": feedline.collate.Padded(data, mask, lengths),
        "label": torch.tensor([sample["label"] for sample in samples]),
        "boxes": [sample["boxes"] for sample in samples],
    }


@quick_kinds
def test_the_loader_gives_what_pad_sequence_gives(kind):
    data = Texts()
    with DataLoader(data, 8, collate=WITH, **kind) as loader:
        for number, batch in enumerate(loader):
            assert_same(batch, by_hand([data[i] for i in range(number * 8, min(30, number * 8 + 8))]))
        assert 0 < loader.stats().collate.padding < 1
        assert len(loader.stats().collate.padding_of_batches) == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collator_works_in_torchs_own_loader(workers):
    options: dict[str, Any] = {"batch_size": 8, "collate_fn": compose(WITH), "num_workers": workers}
    torchs = torch.utils.data.DataLoader(Texts(), **options)
    for ours, theirs in zip(DataLoader(Texts(), 8, collate=WITH), torchs, strict=True):
        assert_same(ours, theirs)


def test_collate_is_the_loaders_collate_fn():
    loader = DataLoader(Texts(), 8, collate=WITH)
    assert loader.collate_fn == compose(WITH)
    assert isinstance(loader.collate_fn([Texts()[1]])["tokens"].data, torch.Tensor)
    again = pickle.loads(pickle.dumps(loader.collate_fn))
    assert again == loader.collate_fn
    assert_same(again([Texts()[1]]), by_hand([Texts()[1]]))
    with pytest.raises(feedline.OptionError, match="collate and collate_fn both say"):
        DataLoader(Texts(), collate=WITH, collate_fn=list)
    with pytest.raises(feedline.OptionError, match="collate_fn is the function pack itself"):
        DataLoader(Texts(), collate_fn=pack)


class Wrong(Texts):
    def __getitem__(self, i: int) -> Any:
        return {**super().__getitem__(i), "label": torch.ones(1 + (i == 5))}


@pytest.mark.parametrize("kind", QUICK[1:])
def test_an_error_of_default_collation_names_field_and_index(kind):
    with DataLoader(Wrong(), 8, collate=WITH, **kind) as loader:
        with pytest.raises(CollateError, match="dataset index 5") as caught:
            next(iter(loader))
    assert any("field 'label'" in note for note in caught.value.__notes__)


def test_the_remedy_for_tensors_that_differ_in_size_is_pad():
    with pytest.raises(CollateError, match=r"collate=\{'field': pad\(\)\}"):
        list(DataLoader([torch.ones(1), torch.ones(2)], 2))


def test_the_cores_loader_gives_tensors_with_a_collator_for_them():
    (batch,) = feedline.DataLoader([torch.ones(1), torch.ones(2)], 2, collate_fn=pad(lengths=False))
    assert_same(batch.data, torch.tensor([[1.0, 0], [1, 1]]))


def test_packed_rows_and_images_are_tensors():
    batch = pack(4, -1)([torch.tensor([1.0, 2]), torch.tensor([3.0, 4, 5])])
    assert_same(batch.data, torch.tensor([[3.0, 4, 5, -1], [1, 2, -1, -1]]))
    assert_same(batch.segments, torch.tensor([[2, 2, 2, 0], [1, 1, 0, 0]]))
    assert_same(batch.positions, torch.tensor([[0, 1, 2, 0], [0, 1, 0, 0]]))
    scenes = [(torch.rand(3, 4, 5), {"boxes": torch.ones(i, 4)}) for i in range(2)]
    (found,) = DataLoader(scenes, 2, collate=detection(mask=True, multiple=8))
    assert found.images.shape == (2, 3, 8, 8)
    assert found.mask.dtype is torch.bool
    assert_same(found.sizes, torch.tensor([[4, 5], [4, 5]]))
    assert [type(target["boxes"]) for target in found.targets] == [torch.Tensor] * 2


def test_invalid_samples_are_dropped_and_kept_ones_are_not_the_datasets_own():
    data = [None, torch.ones(2), None, None, torch.ones(2)]
    loader = DataLoader(data, 2, collate=drop_invalid(keep))
    batches = list(loader)
    assert [len(batch) for batch in batches] == [1, 1]
    assert loader.stats().collate.emptied == 1
    batches[0][0].zero_()
    assert data[1].sum() == 2
    assert_same(next(iter(DataLoader(data, 5, collate=drop_invalid(stack)))), torch.ones(2, 2))
