"""Collation as torch's: its errors, with the dataset's indices added, and its registrations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few
from sameness import Trees, assert_same
from torch.utils.data import _utils, default_collate, default_convert

import feedline
import feedline.torch as ours
from feedline.datasets import SMALL_LEAF
from feedline.torch.collation import collate_into, convert

kinds = pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
fn_map: dict[Any, Any] = _utils.collate.default_collate_fn_map


@pytest.fixture
def registrations() -> Iterator[dict[Any, Any]]:
    """torch's table, to be changed at will."""
    before = dict(fn_map)
    yield fn_map
    fn_map.clear()
    fn_map.update(before)


def error_of(loader: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        list(loader)
    return caught.value


def whole_text(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


RAGGED = {
    "tensors": lambda n: torch.zeros(3 + (n == 7), 2),
    "arrays": lambda n: np.zeros(3 + (n == 7)),
    "nested tensors": lambda n: {"a": 1, "b": [torch.zeros(2), torch.zeros(2 + (n == 7))]},
    "lists": lambda n: [0] * (2 + (n == 7)),
    "axes": lambda n: torch.zeros((3,) * (1 + (n == 7))),
}


@kinds
@pytest.mark.parametrize("name", RAGGED)
def test_a_ragged_batch_is_a_runtime_error_that_names_dataset_indices(name: str, kind: dict[str, Any]) -> None:
    order = [9, 7, 8, 6, 5, 4]
    error = error_of(ours.DataLoader(Trees(10, RAGGED[name]), batch_size=3, sampler=order, **kind))
    assert isinstance(error, RuntimeError)
    assert isinstance(error_of(torchs.DataLoader(Trees(10, RAGGED[name]), batch_size=3, sampler=order)), RuntimeError)
    assert "equal size" in str(error)
    text = whole_text(error)
    if name == "lists":
        assert "dataset indices [9, 7, 8]" in text
    else:
        assert "dataset index 9" in text
        assert "dataset index 7" in text
        assert "making batch 0 of epoch 0" in text


IMPOSSIBLE = {
    "object arrays": lambda n: np.array([None, n], dtype=object),
    "arrays of strings": lambda n: np.array(["a", "b"]),
    "arrays of times": lambda n: np.zeros(2, "M8[s]"),
    "arrays of another byte order": lambda n: np.zeros(2, ">i4"),
    "None": lambda n: None,
    "sets": lambda n: {n},
    "objects": lambda n: object(),
    "missing keys": lambda n: {"a": 1} if n else {"a": 1, "b": 2},
    "mixed": lambda n: "text" if n else 1,
}


@kinds
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_torch_cannot_collate_is_refused_with_torchs_error_and_the_indices(
    name: str, kind: dict[str, Any]
) -> None:
    wanted = error_of(torchs.DataLoader(Trees(4, IMPOSSIBLE[name]), batch_size=2))
    error = error_of(ours.DataLoader(Trees(4, IMPOSSIBLE[name]), batch_size=2, **kind))
    assert isinstance(error, type(wanted))
    assert str(error) == str(wanted)
    assert "collating dataset indices [0, 1]" in whole_text(error)


def as_floats(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.tensor([float(value) for value in batch])


def summed(batch: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.stack(list(batch)).sum(0)


def kept(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return list(batch)


@kinds
def test_a_type_registered_with_torch_is_collated_so(kind: dict[str, Any], registrations: dict[Any, Any]) -> None:
    registrations[Fraction] = as_floats
    (batch,) = ours.DataLoader(Trees(3, lambda n: {"x": Fraction(n, 2), "y": n}), batch_size=3, **kind)
    assert_same(batch, {"x": torch.tensor([0.0, 0.5, 1.0]), "y": torch.tensor([0, 1, 2])})


@kinds
@pytest.mark.parametrize("registered", [torch.Tensor, np.ndarray, tuple, (tuple, list)])
def test_a_registration_for_torchs_own_types_is_honoured_also_for_datasets_in_memory(
    kind: dict[str, Any], registered: Any, registrations: dict[Any, Any]
) -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    registrations[registered] = summed if registered is torch.Tensor else kept
    for dataset in (
        torchs.TensorDataset(rows),
        torchs.Subset(torchs.TensorDataset(rows), [3, 1, 0]),
        feedline.ArrayDataset(rows.numpy()),
        Trees(4, lambda n: (rows[n],)),
    ):
        wanted = list(torchs.DataLoader(dataset, batch_size=2))
        assert_same(list(ours.DataLoader(dataset, batch_size=2, **kind)), wanted)


def test_a_registration_of_another_type_leaves_datasets_in_memory_fast(registrations: dict[Any, Any]) -> None:
    from feedline.torch.reading import batch_reader

    data = torchs.TensorDataset(torch.arange(4))
    registrations[Fraction] = as_floats
    assert batch_reader(data) is not None
    registrations[tuple] = kept
    assert batch_reader(data) is None


@kinds
def test_a_custom_function_may_call_torchs_default_collate(kind: dict[str, Any]) -> None:
    def collate(samples: Any) -> Any:
        return {"batch": torchs.default_collate(samples), "count": len(samples)}

    dataset = Trees(5, lambda n: (torch.full((SMALL_LEAF,), n), str(n)))
    wanted = list(torchs.DataLoader(dataset, batch_size=2, collate_fn=collate))
    assert_same(list(ours.DataLoader(dataset, batch_size=2, collate_fn=collate, **kind)), wanted)


def test_a_worker_never_needs_a_file_in_dev_shm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError("/dev/shm is full")

    monkeypatch.setattr(torch.UntypedStorage, "_new_using_fd_cpu", refuse)  # inherited by the forked workers
    monkeypatch.setattr(torch.UntypedStorage, "_new_using_filename_cpu", refuse)

    def of_torch() -> bool:  # not the folder's list, where other processes make files, too
        return "/dev/shm/torch_" in Path("/proc/self/maps").read_text()

    def looking(samples: list[torch.Tensor]) -> Any:
        batch = torchs.default_collate(samples)
        assert not of_torch()
        return batch

    dataset = Trees(4, lambda n: torch.full((SMALL_LEAF,), n))
    for collate_fn in (None, torchs.default_collate, looking):
        loader = ours.DataLoader(dataset, batch_size=2, collate_fn=collate_fn, **FORK)
        assert [batch.sum().item() // SMALL_LEAF for batch in loader] == [1, 5]
        assert not of_torch()


def test_the_table_of_this_process_is_not_touched_by_workers() -> None:
    before = dict(fn_map)
    list(ours.DataLoader(range(4), num_workers=2))
    list(ours.DataLoader(range(4)))
    assert fn_map == before


@kinds
def test_an_empty_batch_reaches_the_custom_collate_fn_as_in_torch(kind: dict[str, Any]) -> None:
    batches: list[list[int]] = [[0], [], [1, 2]]
    assert list(ours.DataLoader(range(3), batch_sampler=batches, collate_fn=len, **kind)) == [1, 0, 2]


@kinds
def test_a_getitems_that_drops_everything_still_makes_a_batch(kind: dict[str, Any]) -> None:
    class Dropping(Trees):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [index for index in indices if index >= 2]

    assert list(ours.DataLoader(Dropping(4, int), batch_size=2, collate_fn=len, **kind)) == [0, 2]


class Ours(np.ndarray):
    """A class of the user's."""


ARRAYS = {
    **{code: np.arange(6).astype(code) for code in ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c16")},
    "large": np.arange(SMALL_LEAF, dtype=np.float32),
    "no axis": np.array(2.5),
    "nothing in it": np.zeros((0, 3)),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "every second": np.arange(12.0)[::2],
    "subclass": np.arange(6.0).view(Ours),
}
OTHERS = {
    "another dtype": lambda array: array.astype(np.complex128),
    "the same dtype, made anew": lambda array: array.astype(np.dtype(array.dtype.str, metadata={"made": "anew"})),
    "a subclass": lambda array: array.view(Ours),
    "equal": lambda array: array.copy(),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("other", OTHERS)
def test_arrays_are_stacked_as_torch_does_and_shared_with_nobody(name: str, other: str) -> None:
    first, second = ARRAYS[name].copy(), OTHERS[other](ARRAYS[name])
    for samples in ([first, second, first], [second, first]):
        (wanted,) = torchs.DataLoader(samples, batch_size=3)  # type: ignore[arg-type, var-annotated]
        (made,) = ours.DataLoader(samples, batch_size=3)  # type: ignore[arg-type, var-annotated]
        assert_same(made, wanted)
        made.fill_(1)
        assert np.array_equal(first, ARRAYS[name])


@pytest.mark.parametrize("code", [">f4", "U3", "O", "M8[s]", "f4,f4"])
def test_arrays_that_torch_refuses_are_refused(code: str) -> None:
    samples = [np.zeros(2, code)] * 2
    for loader in (torchs.DataLoader, ours.DataLoader):
        with pytest.raises((TypeError, ValueError)):
            list(loader(samples, batch_size=2))  # type: ignore[arg-type, operator]


@pytest.mark.parametrize("size", [4, 70])
def test_arrays_whose_channels_lie_last_are_stacked_as_tensors_are(size: int) -> None:
    sample = np.zeros((2, size, size, 3), np.float32).transpose(0, 3, 1, 2)
    (wanted,) = torchs.DataLoader([torch.from_numpy(sample)] * 2, batch_size=2)  # type: ignore[arg-type, var-annotated]
    (made,) = ours.DataLoader([sample] * 2, batch_size=2)  # type: ignore[arg-type, var-annotated]
    assert_same(made, wanted, strides=True)


def test_sparse_tensors_are_refused_in_torchs_words() -> None:
    samples: Any = [torch.eye(3).to_sparse()] * 2
    wanted = str(error_of(torchs.DataLoader(samples, batch_size=2)))
    assert str(error_of(ours.DataLoader(samples, batch_size=2))) == wanted


SINGLES: list[Any] = [
    *(1, -3, 2**62, 2**63, 2**70, True, False, 0.5, 1e300, float("nan"), 2 + 1j, "a", b"b", None),
    *(np.int64(5), np.float32(0.5), np.float64(0.25), np.bool_(True), np.uint8(7), np.str_("s"), np.array(3)),
    *(torch.tensor(2), torch.tensor(0.5), torch.zeros(2), np.zeros(2), [1], (), Fraction(1, 2)),
]
singles = st.sampled_from(SINGLES)
nested = st.one_of(
    singles,
    st.tuples(singles, singles),
    st.lists(singles, max_size=2),
    st.fixed_dictionaries({"a": singles, "b": st.tuples(singles)}),
)


@settings(max_examples=few(400))
@given(st.lists(nested, min_size=1, max_size=4))
def test_samples_of_any_mixture_become_what_torch_makes_of_them(samples: list[Any]) -> None:
    def outcome(collate: Any) -> Any:
        try:
            return collate(list(samples))
        except Exception as error:
            return error

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, mine = outcome(default_collate), outcome(lambda them: collate_into(them, np.empty, None))
    if isinstance(theirs, Exception):
        assert isinstance(mine, type(theirs))
    else:
        assert_same(mine, theirs)


@pytest.mark.parametrize("first", [1, 0.5, True])
def test_numbers_go_to_the_default_device_as_torchs_do(first: Any) -> None:
    with torch.device("meta"):
        assert default_collate([first, first]).device == collate_into([first, first], np.empty, None).device
    assert collate_into([first, first], np.empty, None).device.type == "cpu"


class Number(int):
    """A class of the user's."""


LONE = [1, 2.5, True, "a", b"b", None, 1j, Number(3), np.float32(2), np.arange(3), torch.arange(3), [1, np.arange(2)]]
LONE += [(1, "a"), {"a": np.arange(2)}, torch.nn.Parameter(torch.zeros(2))]


@pytest.mark.parametrize("sample", LONE, ids=repr)
def test_a_sample_without_a_batch_is_converted_as_torch_does(sample: Any) -> None:
    mine, torchs_own = convert(sample), default_convert(sample)  # type: ignore[no-untyped-call]
    assert_same(mine, torchs_own)
    assert (mine is sample) == (torchs_own is sample)


def test_a_tensor_without_a_batch_is_not_the_datasets() -> None:
    rows = torch.zeros(4, 3)
    tagged = torch.zeros(2)
    tagged.tag = [1]  # type: ignore[attr-defined]
    for data in (rows, [tagged, torch.nn.Parameter(torch.zeros(2))]):
        for sample in ours.DataLoader(data, batch_size=None):  # type: ignore[arg-type]
            if not sample.requires_grad:
                sample += 1
    assert not rows.any()
    assert not tagged.any()
