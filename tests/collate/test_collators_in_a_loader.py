"""Collators in a loader: the same batches from every kind of worker, and what `loader.stats()` says of them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from kinds import QUICK, SPAWN, ours, quick_kinds

import feedline
from feedline import CollateError, DataLoader, IterableDataset, OptionError
from feedline.collate import Padded, compose, detection, drop_invalid, keep, pack, pad, stack
from feedline.collate.array_kinds import NUMPY
from feedline.collate.counted import HINT_BATCHES
from feedline.collate.making import Making
from feedline.messages.task import Task
from feedline.randomness.task_generators import BorrowedGenerators
from feedline.workers.body import Body
from feedline.workers.job import Job

SAMPLES = 37


class Texts:
    """Different lengths, one of them nothing; large enough together to lie in a slot."""

    def __init__(self, length: int = SAMPLES) -> None:
        self.length = length
        self.kept = [np.full(i % 3, i) for i in range(length)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict[str, Any]:
        size = i * 997 % 3000
        return {"tokens": np.arange(size) + i, "label": i, "boxes": self.kept[i], "image": np.ones((1, 1 + i % 4, 3))}


WAYS = {"tokens": pad(-1), "boxes": keep, "image": pad(axis=1, multiple=4, mask=False)}


def same(ours: Any, theirs: Any) -> bool:
    """Equal in type, dtype, shape and value."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, np.ndarray):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and bool((ours == theirs).all())
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


def share_by_hand(batches: list[Any]) -> float:
    there = sum(int(batch["tokens"].lengths.sum()) for batch in batches)
    there += sum(int(batch["image"].lengths.sum()) * 3 for batch in batches)
    return 1 - there / sum(batch["tokens"].data.size + batch["image"].data.size for batch in batches)


@pytest.mark.parametrize("kind", [*QUICK, pytest.param(SPAWN, id="spawn")])
def test_every_kind_of_worker_makes_what_the_collator_makes(kind):
    data = Texts()
    made = [compose(WAYS)([data[i] for i in range(at, min(at + 8, SAMPLES))]) for at in range(0, SAMPLES, 8)]
    with DataLoader(data, 8, collate=WAYS, **kind) as loader:
        batches = list(loader)
        found = loader.stats().collate
    assert same(batches, made)
    assert isinstance(batches[0]["tokens"], Padded)
    assert found.padding == pytest.approx(share_by_hand(made))
    assert list(found.padding_of_batches) == pytest.approx([share_by_hand([batch]) for batch in made])
    assert (found.fill, found.cut, found.dropped, found.emptied) == (None, 0, 0, 0)


def test_a_collator_may_be_the_collate_fn_of_any_loader():
    data = Texts()
    ways = compose(WAYS)
    assert DataLoader(data, 8, collate=WAYS).collate_fn == ways
    assert same(list(DataLoader(data, 8, collate_fn=ways)), list(DataLoader(data, 8, collate=ways)))


@pytest.mark.parametrize("kind", QUICK[:2])
def test_what_is_kept_is_not_the_datasets_own(kind):
    data = Texts()
    before = copy.deepcopy(data.kept)
    ways = {"boxes": keep, "tokens": len, "image": keep}
    for batch in DataLoader(data, 8, collate=ways, **kind):
        for boxes in batch["boxes"]:
            boxes[...] = -1
    for batch in DataLoader(data, 8, collate={**ways, "boxes": lambda values: values[0]}, **kind):
        batch["boxes"][...] = -1
    assert all(map(np.array_equal, data.kept, before))


class Failing(Texts):
    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(i) if i != 11 else {**super().__getitem__(i), "tokens": np.ones((2, 2))}


@quick_kinds
def test_an_error_names_field_and_dataset_index_and_the_loop_can_go_on(kind):
    with DataLoader(Failing(), 8, collate=WAYS, **kind) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(CollateError, match="field 'tokens' of dataset index 11 ") as caught:
            next(batches)
        assert "raised by collate_fn for dataset indices [8, 9, 10" in "".join(caught.value.__notes__)
        assert len(list(batches)) == 3


class Gaps(Texts):
    """Every third is missing, and all of 16 to 23."""

    def __getitem__(self, i: int) -> Any:
        return None if i % 3 == 0 or 16 <= i < 24 else super().__getitem__(i)


@quick_kinds
def test_invalid_samples_are_left_out_and_a_batch_of_nothing_is_passed_over(kind):
    with DataLoader(Gaps(), 8, collate=drop_invalid(WAYS, valid=lambda sample: sample["label"] != 1), **kind) as loader:
        labels = [batch["label"].tolist() for batch in loader]
        assert labels == [[2, 4, 5, 7], [8, 10, 11, 13, 14], [25, 26, 28, 29, 31], [32, 34, 35]]
        found = loader.stats().collate
    assert (found.dropped, found.emptied) == (SAMPLES - sum(map(len, labels)), 1)


@quick_kinds
def test_an_epoch_of_which_nothing_is_valid_is_told_once(kind):
    with DataLoader([None] * 10, 4, collate=drop_invalid(), **kind) as loader:
        with pytest.warns(UserWarning, match="a single batch: drop_invalid left out all 10 samples") as told:
            assert list(loader) == []
        assert ours(told)[0].filename == __file__
        assert list(loader) == []  # an error, were it said again
        assert (loader.stats().collate.dropped, loader.stats().collate.emptied) == (20, 6)


def test_the_rest_of_an_epoch_may_be_invalid():
    data = [1, 2, None, None]
    loader = DataLoader(data, 2, collate=drop_invalid())
    next(iter(loader))
    again = DataLoader(data, 2, collate=drop_invalid())
    again.load_state_dict(loader.state_dict())
    assert list(again) == []
    assert [batch.tolist() for batch in loader] == [[1, 2]]


def test_a_batch_of_nothing_counts_when_a_run_is_resumed():
    loader = DataLoader(Gaps(), 8, collate=drop_invalid(WAYS))
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = loader.state_dict()
    again = DataLoader(Gaps(), 8, collate=drop_invalid(WAYS))
    again.load_state_dict(state)
    assert [batch["label"].tolist()[0] for batch in again] == [25, 32]
    next(batches)
    assert loader.state_dict()["batches"] == 4


class Stream(IterableDataset):
    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Any:
        return (i if i < 8 or i > 20 else None for i in range(SAMPLES))


@pytest.mark.parametrize("kind", QUICK[:2])
def test_a_stream_without_some_elements_is_as_long_as_it_says(kind):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*reads the whole stream")
        with DataLoader(Stream(), 4, collate=drop_invalid(), **kind) as loader:  # a wrong length would be warned of
            seen = [value for batch in loader for value in batch.tolist()]
            assert sorted(seen) == [*range(8), *range(21, SAMPLES)]
            assert (loader.stats().collate.dropped, loader.stats().collate.emptied) == (13, 3)


def test_a_stream_is_resumed_after_a_batch_of_nothing():
    loader = DataLoader(Stream(), 4, collate=drop_invalid())
    batches = iter(loader)
    for _ in range(3):
        last = next(batches)
    assert last.tolist() == [21, 22, 23]
    again = DataLoader(Stream(), 4, collate=drop_invalid())
    again.load_state_dict(loader.state_dict())
    assert loader.state_dict()["samples"] == 24  # all that were read
    with pytest.warns(UserWarning, match="batch 6, 24 elements"):
        assert next(iter(again)).tolist() == [24, 25, 26, 27]


class Damaged(Texts):
    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(i) if i % 5 else int("damaged")


def test_bad_samples_are_skipped_before_they_are_collated():
    loader = DataLoader(Damaged(), 8, collate=WAYS, on_error="skip")
    labels = [batch["label"].tolist() for batch in loader]
    assert labels[0] == [1, 2, 3, 4, 6, 7]
    assert len(loader.errors()) == 8
    assert loader.stats().collate.dropped == 0


def test_what_was_dropped_has_been_read_without_failing():
    class Poor(Texts):
        def __getitem__(self, i: int) -> Any:
            return super().__getitem__(i) if i == 3 else None if i else int("damaged")

    loader = DataLoader(Poor(4), 4, collate=drop_invalid(WAYS), on_error="skip", max_errors=0)
    with pytest.raises(feedline.TooManyErrors, match="1 of the 4 samples"):
        next(iter(loader))


@quick_kinds
def test_packed_rows_are_counted(kind):
    ways = {"tokens": pack(2000, on_long="truncate"), "image": keep, "boxes": keep}
    with DataLoader(Texts(), 8, collate=ways, **kind) as loader:
        batches = [batch["tokens"] for batch in loader]
        found = loader.stats().collate
    assert found.fill == pytest.approx(np.mean(np.concatenate([batch.segments > 0 for batch in batches])))
    assert found.cut == sum(i * 997 % 3000 > 2000 for i in range(SAMPLES))
    assert found.padding is None


def test_a_dataset_of_ready_batches_may_be_collated_too():
    loader = DataLoader([[[1], [2, 3]], [[4]]], batch_size=None, collate=pad(lengths=False))
    assert [batch.data.tolist() for batch in loader] == [[[1, 0], [2, 3]], [[4]]]


def test_single_samples_collated_as_batches_are_explained():
    for data in ([[1], [2, 3]], [1, 2]):
        with pytest.raises(Exception) as caught:
            next(iter(DataLoader(data, batch_size=None, collate=pad())))
        assert "set batch_size to make batches of several items" in "".join(caught.value.__notes__)


def test_detection_in_a_loader():
    data = [(np.ones((3, 4 + i, 6)), {"boxes": np.ones((i, 4))}) for i in range(4)]
    (batch,) = DataLoader(data, 4, collate=detection(mask=True))
    assert batch.images.shape == (4, 3, 7, 6)
    assert [target["boxes"].shape for target in batch.targets] == [(i, 4) for i in range(4)]
    batch.targets[1]["boxes"][...] = -1
    assert (data[1][1]["boxes"] == 1).all()
    assert batch.mask.sum() == 6 * (4 + 5 + 6 + 7)


class Lengths:
    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> Any:
        return np.ones(self.sizes[i])


@pytest.mark.parametrize("kind", QUICK)
def test_much_padding_is_hinted_at_once(kind):
    with DataLoader(Lengths([1, 10] * HINT_BATCHES), 2, collate=pad(), **kind) as loader:
        batches = iter(loader)
        for _ in range(HINT_BATCHES - 1):
            next(batches)
        with pytest.warns(UserWarning, match=r"45% of the values in the first 20 padded .*BucketBatchSampler") as told:
            next(batches)
        assert ours(told)[0].filename == __file__
        for _ in range(3):  # an error, were it said again
            list(loader)


def test_a_healthy_run_is_told_nothing():
    list(DataLoader(Lengths([2, 10] * 40), 2, collate=pad()))  # 40 % and not above
    list(DataLoader(Lengths([1, 10] * (HINT_BATCHES - 1)), 2, collate=pad()))  # too few to judge
    list(DataLoader(Lengths([1, 10] * 40), 2, collate=pack(20)))
    list(DataLoader(Lengths([0, 0] * 40), 2, collate=pad()))


def test_nothing_is_said_beside_a_batch_in_which_nothing_was_counted():
    for collate_fn in (None, list, compose(stack), drop_invalid(keep)):
        job = Job(range(8), False, True, 4, False, collate_fn, None, 0, 0, 0)
        body = Body(job, None, BorrowedGenerators(()), own_process=False)
        outcome = body.run(Task(0, 0, 0, [1, 2, 3]), np.empty)
        assert outcome.failure is None
        assert outcome.notice is None
        assert outcome.size == 3


def test_large_leaves_lie_in_the_memory_that_is_handed_over():
    given: list[Any] = []

    def empty(shape: Any, dtype: Any) -> Any:
        given.append(np.empty(shape, dtype))
        return given[-1]

    samples = [(np.ones((3, size, 2)), np.ones(size), np.ones(4)) for size in range(1, 5)]
    ways = (pad(axis=1), pack(5), stack)
    padded, packed, stacked = compose(ways).make(samples, Making(NUMPY, empty))
    for array in (padded.data, padded.mask, *packed, stacked):
        assert any(array is memory for memory in given)
    pairs = [(image, None) for image, _, _ in samples]
    images = detection().make(pairs, Making(NUMPY, empty)).images
    assert any(images is memory for memory in given)


def test_a_loader_takes_one_of_the_two_options():
    with pytest.raises(OptionError, match="collate and collate_fn both say"):
        DataLoader(Texts(), collate=keep, collate_fn=list)
    with pytest.raises(OptionError, match="collate_fn is the function pad itself; call it"):
        DataLoader(Texts(), collate_fn=pad)
    with pytest.raises(OptionError, match="collate must be a way to collate"):
        DataLoader(Texts(), collate=3)
    with pytest.raises(OptionError, match=r"collate\['tokens'\]"):
        DataLoader(Texts(), collate={"tokens": 3})


def test_the_names_are_public():
    for name in ("stack", "keep", "pad", "pack", "detection", "drop_invalid", "compose", "Padded"):
        assert name in feedline.collate.__all__
    assert "CollateStats" in feedline.__all__
    assert stack([1, 2]).tolist() == [1, 2]
