"""feedline.torch.DataLoader is a torch DataLoader: its signature, attributes, checks and lengths."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from sameness import assert_same

import feedline.torch as ours

SAME_OBJECTS = [name for name in ours.__all__ if hasattr(torchs, name) and name != "DataLoader"]


def test_everything_but_the_loader_is_torchs_own_object() -> None:
    assert {"random_split", "Subset", "RandomSampler", "default_collate", "get_worker_info"} <= set(SAME_OBJECTS)
    assert all(getattr(ours, name) is getattr(torchs, name) for name in SAME_OBJECTS)


def test_the_loader_is_a_torch_loader_with_torchs_signature() -> None:
    assert issubclass(ours.DataLoader, torchs.DataLoader)
    theirs = [p.replace(annotation=None) for p in inspect.signature(torchs.DataLoader).parameters.values()]
    mine = [p.replace(annotation=None) for p in inspect.signature(ours.DataLoader).parameters.values()]
    assert mine[: len(theirs)] == theirs
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in mine[len(theirs) :])


def test_it_can_be_subscripted_as_torchs() -> None:
    def takes(loader: ours.DataLoader[int]) -> None: ...

    assert ours.DataLoader[int](range(3), batch_size=2).batch_size == 2


OPTIONS: list[dict[str, Any]] = [
    {},
    {"batch_size": 4, "shuffle": True, "drop_last": True},
    {"batch_size": None},
    {"batch_sampler": [[0, 1], [2]]},
    {"sampler": [3, 1, 2], "batch_size": 2},
    {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True, "timeout": 5, "in_order": False},
    {"num_workers": 1, "multiprocessing_context": "spawn", "pin_memory": True, "worker_init_fn": print},
    {"collate_fn": list, "generator": torch.Generator()},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options) or "defaults")
def test_its_attributes_are_torchs(options: dict[str, Any]) -> None:
    theirs, mine = torchs.DataLoader(range(10), **options), ours.DataLoader(range(10), **options)
    for name in vars(theirs):
        wanted, found = getattr(theirs, name), getattr(mine, name)
        assert type(found) is type(wanted), name
        if isinstance(wanted, (int, float, str, type(None))) or callable(wanted):
            assert found == wanted, name
    assert type(mine.multiprocessing_context) is type(theirs.multiprocessing_context)
    assert len(mine) == len(theirs)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"generator": 5}, r"torch\.Generator"),
        ({"generator": random.Random(5)}, r"torch\.Generator"),
        ({"sampler": 5}, "something to iterate over"),
        ({"sampler": torchs.SequentialSampler}, "pass an instance"),
        ({"batch_sampler": 5}, "something to iterate over"),
        ({"collate_fn": "pad"}, "a function"),
        ({"worker_init_fn": 5, "num_workers": 1}, "a function"),
        ({"num_workers": 0.5}, "a whole number"),  # not 1.5: with one CPU torch has advice on that
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_what_torch_would_notice_in_an_epoch_is_refused_at_once_by_name(options: dict[str, Any], wanted: str) -> None:
    torchs.DataLoader(range(10), **options)
    with pytest.raises(TypeError, match=f"^{next(iter(options))} .*{wanted}"):
        ours.DataLoader(range(10), **options)


def test_what_torch_freezes_is_frozen_and_the_rest_is_not() -> None:
    loader = ours.DataLoader(range(10), batch_size=2)
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
            setattr(loader, name, None)
    loader.collate_fn = sum
    loader.num_workers = 1
    assert list(loader) == [1, 5, 9, 13, 17]


class Numbers(torchs.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class Counted(Numbers):
    def __len__(self) -> int:
        return 10


WRONG: list[tuple[Any, dict[str, Any]]] = [
    (range(3), {"num_workers": -1}),
    (range(3), {"timeout": -1}),
    (range(3), {"prefetch_factor": 2}),
    (range(3), {"num_workers": 1, "prefetch_factor": -1}),
    (range(3), {"persistent_workers": True}),
    (range(3), {"shuffle": True, "sampler": [0]}),
    (range(3), {"batch_sampler": [[0]], "batch_size": 2}),
    (range(3), {"batch_sampler": [[0]], "shuffle": True}),
    (range(3), {"batch_sampler": [[0]], "sampler": [0]}),
    (range(3), {"batch_sampler": [[0]], "drop_last": True}),
    (range(3), {"batch_size": None, "drop_last": True}),
    (range(3), {"batch_size": 0}),
    (range(3), {"batch_size": -1}),
    (range(3), {"batch_size": 1.5}),
    (range(3), {"drop_last": "yes"}),
    (range(0), {"shuffle": True}),
    (range(3), {"multiprocessing_context": "fork"}),
    (range(3), {"num_workers": 1, "multiprocessing_context": "thread"}),
    (range(3), {"num_workers": 1, "multiprocessing_context": 1}),
    (Numbers(), {"shuffle": True}),
    (Numbers(), {"sampler": [0]}),
    (Numbers(), {"batch_sampler": [[0]]}),
]


@pytest.mark.parametrize(("dataset", "options"), WRONG, ids=[f"{type(d).__name__}-{o}" for d, o in WRONG])
def test_what_torch_refuses_is_refused_with_the_same_error(dataset: Any, options: dict[str, Any]) -> None:
    with pytest.raises(Exception) as wanted:
        torchs.DataLoader(dataset, **options)
    with pytest.raises(type(wanted.value)) as found:
        ours.DataLoader(dataset, **options)
    assert type(found.value) is type(wanted.value)
    assert str(found.value).partition(" at 0x")[0] == str(wanted.value).partition(" at 0x")[0]


@pytest.mark.parametrize(
    "options",
    [
        {"workers": "processes"},
        {"workers": 2},
        {"shuffle_buffer": 3},
        {"shuffle_buffer": -1},
        {"workers": "thread", "num_workers": 1, "multiprocessing_context": "fork"},
    ],
)
def test_feedlines_own_options_are_checked_too(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"workers|shuffle_buffer"):
        ours.DataLoader(range(3), **options)


@pytest.mark.parametrize("size", [None, 1, 3, 10, 11])
@pytest.mark.parametrize("drop_last", [False, True])
def test_its_length_is_right_and_torchs_for_every_sampler(size: int | None, drop_last: bool) -> None:
    drop_last = drop_last and size is not None
    samplers = [
        None,
        torchs.RandomSampler(range(10), num_samples=23),
        torchs.RandomSampler(range(10), replacement=True, num_samples=4),
        torchs.SubsetRandomSampler([1, 4, 9]),
        torchs.WeightedRandomSampler([1.0] * 10, 17),
        torchs.DistributedSampler(range(10), 3, 0),
        [4, 4, 4, 4],
    ]
    for sampler in samplers:
        options = {"batch_size": size, "sampler": sampler, "drop_last": drop_last}
        loader = ours.DataLoader(range(10), **options)
        assert len(loader) == len(torchs.DataLoader(range(10), **options)) == sum(1 for _ in loader)
        assert len(iter(loader)) == len(loader)


def test_a_length_that_is_not_known_is_a_type_error_as_in_torch() -> None:
    for loader in (ours.DataLoader(Numbers()), ours.DataLoader(range(3), sampler=itertools.count())):
        with pytest.raises(TypeError, match="len"):
            len(loader)
    assert len(ours.DataLoader(Counted(), batch_size=3)) == 4
    assert len(ours.DataLoader(Counted(), batch_size=3, drop_last=True)) == 3


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}])
def test_a_loader_can_be_pickled_and_copied_even_under_way(again: Any, options: dict[str, Any]) -> None:
    loader = ours.DataLoader(range(10), batch_size=4, shuffle=True, generator=None, **options)
    iterator = iter(loader)
    first = next(iterator)
    other = again(loader)
    assert type(other) is ours.DataLoader
    assert (other.batch_size, other.num_workers, len(other)) == (4, loader.num_workers, 3)
    with pytest.raises(ValueError, match="batch_size attribute"):
        other.batch_size = 3
    mine, others = [first, *iterator], list(other)
    assert sorted(torch.cat(mine).tolist()) == sorted(torch.cat(others).tolist()) == list(range(10))
    loader.close()
    other.close()


def test_a_subclass_with_arguments_of_its_own_works() -> None:
    class Loader(ours.DataLoader[Any]):
        def __init__(self, count: int, **options: Any) -> None:
            self.count = count
            super().__init__(range(count), **options)

        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            yield from ((number, batch) for number, batch in enumerate(super().__iter__()))

    assert_same(list(Loader(3, batch_size=2)), [(0, torch.tensor([0, 1])), (1, torch.tensor([2]))])


def test_data_pipes_run_on_torchs_own_iterator() -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    found = []
    for library in (torchs, ours):
        torch.manual_seed(2)
        pipe = IterableWrapper(range(9)).shuffle()
        found.append([*library.DataLoader(pipe, batch_size=2, shuffle=True), torch.rand(1)])
    assert_same(found[1], found[0])


def test_setting_the_iterator_to_none_ends_persistent_workers_as_in_torch() -> None:
    found = []
    for library in (torchs, ours):
        torch.manual_seed(3)
        loader = library.DataLoader(range(8), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
        epochs = [list(loader), list(loader)]
        loader._iterator = None  # what Lightning does
        epochs.append(list(loader))
        found.append([epochs, torch.rand(1)])
        loader._iterator = None
    assert_same(found[1], found[0])


# subclasses


def colliding(base: Any, before: dict[str, Any], after: dict[str, Any]) -> Any:
    class Loader(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            for name, value in before.items():
                setattr(self, name, value)
            super().__init__(*args, **options)
            for name, value in after.items():
                setattr(self, name, value)

    return Loader


NAMES = ["device", "workers", "shuffle_buffer", "on_error", "error_log", "max_errors", "stall_warning"]
PRIVATE = ["_seed", "_options", "_job", "_tasks", "_session", "_epochs", "_base_seed", "_streams", "_begin_anew"]


@pytest.mark.parametrize("name", NAMES + PRIVATE)
def test_a_subclass_may_use_any_name_for_attributes_of_its_own(name: str) -> None:
    for before, after in (({name: "mine"}, {}), ({}, {name: "mine"})):
        found = []
        for base in (torchs.DataLoader, ours.DataLoader):
            loader = colliding(base, before, after)(range(4), 2, shuffle=False)
            found.append([getattr(loader, name), list(loader), list(loader), getattr(loader, name)])
        assert_same(found[1], found[0])


def test_our_options_can_be_read() -> None:
    loader = ours.DataLoader(range(4), workers="thread", device="cpu", stall_warning=7, max_deaths=3)
    assert (loader.workers, loader.device, loader.shuffle_buffer) == ("thread", torch.device("cpu"), 0)
    assert (loader.stall_warning, loader.max_deaths) == (7, 3)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_get_iterator_of_a_subclass_is_honoured(workers: int) -> None:
    found = []
    for library in (torchs, ours):

        class Tenfold(library.DataLoader):  # type: ignore[misc, name-defined]
            def _get_iterator(self) -> Any:
                return (batch * 10 for batch in super()._get_iterator())

        found.append([batch.tolist() for batch in Tenfold(range(4), 2, num_workers=workers)])
    assert found[1] == found[0] == [[0, 10], [20, 30]]


def test_a_subclass_may_make_its_iterator_once_and_anew() -> None:
    """As ultralytics does."""

    class Endless:
        def __init__(self, sampler: Any) -> None:
            self.sampler = sampler

        def __iter__(self) -> Iterator[Any]:
            while True:
                yield from iter(self.sampler)

    found = []
    for library in (torchs, ours):

        class Infinite(library.DataLoader):  # type: ignore[misc, name-defined]
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
                self.iterator = super().__iter__()

            def __len__(self) -> int:
                return len(self.batch_sampler.sampler)

            def __iter__(self) -> Iterator[Any]:
                for _ in range(len(self)):
                    yield next(self.iterator)

            def reset(self) -> None:
                self.iterator = self._get_iterator()

        torch.manual_seed(1)
        loader = Infinite(range(5), 2, shuffle=True)
        epochs = [list(loader), list(loader)]
        loader.reset()
        found.append([*epochs, list(loader)])
    assert_same(found[1], found[0])


# what torch's module has


def test_every_name_of_torchs_module_is_there() -> None:
    assert [name for name in torchs.__all__ if not hasattr(ours, name)] == []
    assert ours.functional_datapipe is torchs.functional_datapipe
    with pytest.raises(AttributeError, match="no_such_thing"):
        ours.no_such_thing


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch's, from its half-made iterator
def test_no_prefetching_is_refused_as_by_torch() -> None:
    for library in (torchs, ours):
        with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
            iter(library.DataLoader(range(3), num_workers=1, prefetch_factor=0))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_profiler_sees_the_waiting(workers: int) -> None:
    counts = []
    for library in (torchs, ours):
        # torch.profiler.profile shows the same rows; it imports 800 modules first, which takes two seconds.
        with torch.autograd.profiler.profile(use_kineto=False) as profile:
            list(library.DataLoader(range(4), 2, num_workers=workers))
        rows = [row for row in profile.key_averages() if row.key.startswith("enumerate(DataLoader)#")]
        counts.append([row.count for row in rows])
    assert counts[1] == counts[0] == [3]


# with_feedline


def test_options_given_to_with_feedline_win() -> None:
    assert [b.tolist() for b in ours.with_feedline(torchs.DataLoader(range(4), 2), batch_size=4)] == [[0, 1, 2, 3]]
    assert [b.tolist() for b in ours.with_feedline(torchs.DataLoader(range(4), 2), sampler=[3, 1])] == [[3, 1]]
    loader = torchs.DataLoader(range(4), batch_sampler=[[0, 1], [3]])
    assert [b.tolist() for b in ours.with_feedline(loader, prefetch_factor=None)] == [[0, 1], [3]]
    assert [b.tolist() for b in ours.with_feedline(loader, batch_size=3)] == [[0, 1, 2], [3]]
    assert [b.tolist() for b in ours.with_feedline(loader, batch_sampler=[[2]])] == [[2]]
    assert len(list(ours.with_feedline(torchs.DataLoader(range(9), 2), shuffle=True))) == 5


@pytest.mark.parametrize("name", ["__iter__", "_get_iterator"])
def test_with_feedline_says_what_it_cannot_keep(name: str) -> None:
    own = type("Own", (torchs.DataLoader,), {name: lambda self: iter([1])})
    with pytest.warns(UserWarning, match=f"Own defines its own {name}") as warned:
        assert len(list(ours.with_feedline(own(range(4), 2)))) == 2
    assert warned[0].filename == __file__
