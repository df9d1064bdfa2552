"""Batches in the user's hands: never overwritten, never anyone else's, and they cost what is held of them."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
import pytest
from kinds import FORK, INLINE, SPAWN, THREADS, every_process, quick_kinds, thorough
from made_datasets import Numbers
from warm_host import host

from feedline import ArrayDataset, DataLoader, Dataset, IterableDataset
from feedline.arena import slots
from feedline.datasets import SMALL_LEAF
from feedline.errors import MemoryShortage

pytestmark = pytest.mark.usefixtures("everything_in_slots")
MB = 1 << 20
persistent = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(INLINE, id="inline"),
        pytest.param({**THREADS, "persistent_workers": True}, id="threads"),
        pytest.param({**FORK, "persistent_workers": True}, id="fork"),
    ],
)


class Images(Dataset[Any]):
    """A large, a medium and a small part; everything in sample `i` is filled with `i`."""

    def __init__(self, length: int, large: int = MB, medium: int = 2 * SMALL_LEAF) -> None:
        self.length, self.large, self.medium = length, large, medium

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "image": np.full(self.large, index % 251, np.uint8),
            "embedding": np.full(self.medium // 4, index, np.float32),
            "label": index,
        }


def right(batch: dict[str, Any], index: int) -> bool:
    return bool(
        (batch["image"] == index % 251).all() and (batch["embedding"] == index).all() and batch["label"] == index
    )


def descriptors() -> list[int]:
    """Of this process, those of the segments."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:feedline" in os.readlink(f"/proc/self/fd/{fd}"):
                found.append(int(fd))
        except OSError:
            continue
    return found


def mapped() -> int:
    with open("/proc/self/maps") as maps:
        return sum("memfd:feedline" in line for line in maps)


def own_memory() -> int:
    """What this process has outside shared memory."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


class Meter:
    """Measures one loader's segment, also after it is closed, and what this process took besides."""

    def __init__(self) -> None:
        self.before = own_memory()
        self.fd = -1

    def attach(self) -> None:
        (fd,) = descriptors()
        self.fd = os.dup(fd)

    @property
    def shared(self) -> int:
        gc.collect()
        return os.fstat(self.fd).st_blocks * 512

    @property
    def everything(self) -> int:
        return self.shared + max(0, own_memory() - self.before)


@contextmanager
def measured() -> Iterator[Meter]:
    meter = Meter()
    try:
        yield meter
    finally:
        if meter.fd >= 0:
            os.close(meter.fd)


def run_script(code: str, to_the_very_end: bool = False) -> str:
    arguments = ["-W", "error", "-c", textwrap.dedent(code)]
    if to_the_very_end:  # as only an interpreter of its own goes
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=1000)
    else:
        done = host("feedline").run(arguments, timeout=1000)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# Keeping everything


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK, SPAWN], ids=["inline", "threads", "fork", "spawn"])
def test_all_batches_kept_are_right_even_after_the_loader_is_gone(kind: dict[str, Any]) -> None:
    loader = DataLoader(Images(60, MB), batch_size=2, **kind)
    batches = list(loader)
    loader.close()
    del loader
    gc.collect()
    assert len(batches) == 30
    for number, batch in enumerate(batches):
        assert (batch["image"] == np.array([[2 * number], [2 * number + 1]])).all()
        assert (batch["embedding"] == np.array([[2 * number], [2 * number + 1]])).all()
        assert batch["label"].tolist() == [2 * number, 2 * number + 1]


@quick_kinds
def test_several_epochs_kept_do_not_touch_one_another(kind: dict[str, Any]) -> None:
    with DataLoader(Images(12, SMALL_LEAF), batch_size=None, **kind) as loader:
        epochs = [list(loader) for _ in range(4)]
    assert all(right(batch, index) for epoch in epochs for index, batch in enumerate(epoch))


@persistent
def test_keeping_parts_at_random_through_many_reuses(kind: dict[str, Any]) -> None:
    draw = np.random.default_rng(5)
    kept: list[tuple[int, np.ndarray]] = []
    with DataLoader(Images(60, 3 * SMALL_LEAF), batch_size=None, **kind) as loader:
        for _ in range(4):
            for index, batch in enumerate(loader):
                if draw.random() < 0.5:
                    kept.append((index % 251, batch["image"][draw.integers(100) :: 3]))
                if draw.random() < 0.5:
                    kept.append((index, batch["embedding"].reshape(2, -1).T[4:]))
                while len(kept) > 40:
                    value, part = kept.pop(draw.integers(40))
                    assert (part == value).all()
    assert all((part == value).all() for value, part in kept)


@quick_kinds
def test_one_descriptor_however_many_batches_are_kept(kind: dict[str, Any]) -> None:
    loader = DataLoader(Images(200, 2 * SMALL_LEAF), batch_size=None, **kind)
    iterator = iter(loader)
    kept = [next(iterator)]
    before = len(os.listdir("/proc/self/fd"))
    kept.extend(next(iterator) for _ in range(198))
    assert len(descriptors()) == 1
    assert len(os.listdir("/proc/self/fd")) == before
    loader.close()
    assert not descriptors()
    assert all(right(batch, index) for index, batch in enumerate(kept))


def test_few_descriptors_are_enough_for_many_large_tensors() -> None:
    out = run_script("""
        import resource
        import numpy as np
        from feedline import DataLoader, Dataset
        class Many(Dataset):
            def __len__(self):
                return 40
            def __getitem__(self, index):
                return [np.full(100_000, 16 * index + part, np.int16) for part in range(16)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        kept = list(DataLoader(Many(), batch_size=1, num_workers=2))
        leaves = [leaf for batch in kept for leaf in batch]
        print(len(leaves), all((leaf == number).all() for number, leaf in enumerate(leaves)))
    """)
    assert out == "640 True\n"


# What a kept part costs


@quick_kinds
@pytest.mark.parametrize(("part", "size"), [("label", 8), ("embedding", 2 * SMALL_LEAF)])
def test_a_kept_part_does_not_keep_the_rest(kind: dict[str, Any], part: str, size: int) -> None:
    count, whole = 150, 150 * (MB + 2 * SMALL_LEAF)
    with measured() as meter:
        with DataLoader(Images(count + 20), batch_size=None, **kind) as loader:
            iterator = iter(loader)
            kept = [next(iterator)[part]]
            meter.attach()
            kept.extend(next(iterator)[part] for _ in range(count - 1))
            assert meter.everything - count * size < 0.15 * whole  # with those made ahead
            del iterator
        assert meter.everything <= 1.1 * count * size + 8 * MB
        assert meter.shared <= 1.02 * count * size
        assert all(np.all(value == index) for index, value in enumerate(kept))
        kept.clear()
        assert meter.shared == 0


@quick_kinds
def test_collated_labels_kept_do_not_keep_the_images(kind: dict[str, Any]) -> None:
    whole = 100 * 2 * MB
    with measured() as meter:
        iterator = iter(DataLoader(Images(240), batch_size=2, **kind))
        kept = [next(iterator)["label"]]
        meter.attach()
        kept.extend(next(iterator)["label"] for _ in range(99))
        assert meter.everything < 0.12 * whole
        del iterator
    assert np.concatenate(kept).tolist() == list(range(200))


@quick_kinds
def test_memory_comes_back_when_batches_are_dropped(kind: dict[str, Any]) -> None:
    whole = 80 * MB
    with measured() as meter, DataLoader(Images(90), batch_size=None, **kind) as loader:
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(80)]
        meter.attach()
        assert whole <= meter.shared <= 1.3 * whole
        del kept[10:]
        assert meter.shared <= 0.4 * whole
        assert all(right(batch, index) for index, batch in enumerate(kept))
        kept.clear()
        assert meter.everything <= 0.25 * whole
        assert all(right(batch, 80 + index) for index, batch in enumerate(iterator))


@quick_kinds
def test_a_loop_that_keeps_nothing_costs_a_few_batches(kind: dict[str, Any]) -> None:
    with measured() as meter, DataLoader(Images(100), batch_size=None, **kind) as loader:
        most = 0
        for index, batch in enumerate(loader):
            assert right(batch, index)
            if meter.fd < 0:
                meter.attach()
            most = max(most, os.fstat(meter.fd).st_blocks * 512)
        workers = kind.get("num_workers", 0)
        assert most <= (2 * workers + workers + 2) * (MB + 3 * SMALL_LEAF) * 1.25


@every_process
def test_many_tasks_ahead_cost_little_memory(kind: dict[str, Any]) -> None:
    before = psutil.Process().memory_info().shared
    with DataLoader(Numbers(4000), 8, prefetch_factor=100, **kind) as loader:
        next(iter(loader))
        assert psutil.Process().memory_info().shared - before < 200 * 64 * 1024


@quick_kinds
def test_after_close_only_what_is_in_hand_stays(kind: dict[str, Any]) -> None:
    with measured() as meter:
        loader = DataLoader(Images(100), batch_size=None, **kind)
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(20)]
        meter.attach()
        del kept[3:]
        kept.append({"image": next(iterator)["image"][:10]})
        del iterator
        loader.close()
        assert meter.shared <= 1.02 * (4 * MB + 3 * 2 * SMALL_LEAF)
        del loader
        assert all(right(batch, index) for index, batch in enumerate(kept[:3]))
        assert (kept[3]["image"] == 20).all()
        kept.clear()
        assert meter.shared == 0


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("kind", [THREADS, FORK], ids=["threads", "fork"])
def test_a_closed_loader_whose_iterator_is_still_in_hand_keeps_nothing_ready(
    kind: dict[str, Any], lasting: bool
) -> None:
    with measured() as meter:
        loader = DataLoader(Images(100), batch_size=None, persistent_workers=lasting, **kind)
        iterator = iter(loader)
        for _ in range(6):
            batch = next(iterator)
        meter.attach()
        loader.close()
        stays, intact = meter.shared, right(batch, 5)
        del batch, iterator, loader  # before anything is asserted: a failure would keep them
        assert stays <= 1.05 * (MB + 2 * SMALL_LEAF)
        assert intact


@quick_kinds
def test_very_many_kept_batches_do_not_exhaust_the_mappings(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "MAX_MAPPED", 25)
    with DataLoader(Images(150, 3 * SMALL_LEAF), batch_size=None, **kind) as loader:
        kept = list(loader)
        again = list(loader)  # a second pool: the limit is the process's
    assert mapped() <= 25 + 2 * (slots.MAX_LEASED + 6)
    assert all(right(batch, index) for batches in (kept, again) for index, batch in enumerate(batches))


# Whose memory it is


class Store(Dataset[Any]):
    """Hands out its own memory, as plain datasets do."""

    def __init__(self) -> None:
        self.large = np.arange(6 * 2 * SMALL_LEAF, dtype=np.int32).reshape(6, -1)
        self.small = np.arange(12.0).reshape(6, 2)
        self.fixed = np.arange(SMALL_LEAF, dtype=np.int64)
        self.fixed.flags.writeable = False

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "large": self.large[index],
            "nested": [self.small[index], (self.large[index][::2], self.fixed)],
            "all": self.small,
        }

    def arrays(self) -> list[np.ndarray]:
        return [self.large, self.small, self.fixed]


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, np.ndarray):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part)]


def first_of(samples: list[Any]) -> Any:
    return samples[0]


def all_of(samples: list[Any]) -> Any:
    return samples


def as_it_is(sample: Any) -> Any:
    return sample


WAYS: dict[str, dict[str, Any]] = {
    "unbatched": {"batch_size": None},
    "unbatched, collated": {"batch_size": None, "collate_fn": as_it_is},
    "first sample": {"batch_size": 2, "collate_fn": first_of},
    "list of samples": {"batch_size": 2, "collate_fn": all_of},
    "default": {"batch_size": 2},
}


@persistent
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_writing_into_a_batch_changes_neither_the_dataset_nor_another_batch(
    kind: dict[str, Any], way: dict[str, Any]
) -> None:
    store, pristine = Store(), Store()
    with DataLoader(store, **way, **kind) as loader, DataLoader(Store(), **way) as other:
        expected = [leaves(batch) for batch in other]
        for _ in range(3):
            batches = [leaves(batch) for batch in loader]
            assert len(batches) == len(expected)
            assert all(
                np.array_equal(*pair)
                for both in zip(batches, expected, strict=True)
                for pair in zip(*both, strict=True)
            )
            # what the user's tree holds twice may come out as one array
            flat = list({id(leaf): leaf for batch in batches for leaf in batch}.values())
            for number, leaf in enumerate(flat):
                assert leaf.flags.writeable
                assert not any(np.may_share_memory(leaf, array) for array in store.arrays())
                leaf[...] = -number
            assert all((leaf == -number).all() for number, leaf in enumerate(flat))
            assert all((mine == its).all() for mine, its in zip(store.arrays(), pristine.arrays(), strict=True))


@persistent
def test_arrays_in_memory_are_not_handed_out_either(kind: dict[str, Any]) -> None:
    data = np.arange(10 * SMALL_LEAF, dtype=np.int16).reshape(10, -1)
    before = data.copy()
    for dataset in (ArrayDataset(data), data):
        for size in (None, 1, 10):
            with DataLoader(dataset, batch_size=size, **kind) as loader:
                for _ in range(2):
                    for batch in loader:
                        (leaf,) = leaves([batch])
                        assert (
                            leaf.reshape(-1, SMALL_LEAF)[0, 1:] - leaf.reshape(-1, SMALL_LEAF)[0, :-1] == 1
                        ).mean() > 0.9
                        leaf[...] = -1
                    assert (data == before).all()


class Stream(IterableDataset[Any]):
    def __init__(self) -> None:
        self.buffer = np.zeros(2 * SMALL_LEAF, np.uint8)

    def __iter__(self) -> Iterator[np.ndarray]:
        buffer = self.buffer.copy()
        for number in range(12):
            buffer[:] = number  # one buffer, filled again and again
            yield buffer

    def shard(self, index: int, count: int) -> Iterator[np.ndarray]:
        return (element for number, element in enumerate(self) if number % count == index)


@quick_kinds
def test_a_stream_that_fills_one_buffer_again_and_again(kind: dict[str, Any]) -> None:
    with DataLoader(Stream(), batch_size=None, **kind) as loader:
        kept = list(loader)
    assert sorted(int(batch[0]) for batch in kept) == list(range(12))
    assert all((batch == batch[0]).all() for batch in kept)


class Gathering(Dataset[Any]):
    """Makes whole batches itself, naming dtypes as one does."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("batches are asked for")

    def __getbatch__(self, indices: np.ndarray, empty: Callable[..., np.ndarray]) -> Any:
        out = empty((len(indices), SMALL_LEAF), np.float32)
        out[:] = indices[:, None]
        return {"whole": out, "half": out[:, : SMALL_LEAF // 2], "turned": out.T}


@quick_kinds
def test_a_dataset_that_makes_batches_itself_in_the_memory_it_is_given(kind: dict[str, Any]) -> None:
    with DataLoader(Gathering(), batch_size=2, **kind) as loader:
        kept = list(loader)
    for number, batch in enumerate(kept):
        rows = np.array([[2 * number], [2 * number + 1]])
        assert (batch["whole"] == rows).all()
        assert (batch["half"] == rows).all()
        assert (batch["turned"] == rows.T).all()


# No memory


def refusing(code: int, least: int, times: int | None = None) -> Callable[[int, int, int], None]:
    """A `posix_fallocate` that refuses large requests, always or only so often."""
    real, refused = os.posix_fallocate, 0

    def allocate(fd: int, start: int, size: int) -> None:
        nonlocal refused
        if size >= least and (times is None or refused < times):
            refused += 1
            raise OSError(code, os.strerror(code))
        real(fd, start, size)

    return allocate


@quick_kinds
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, pytest.param(errno.ENOMEM, marks=thorough)])
def test_a_refusal_of_memory_is_an_error_at_the_consumer_and_not_the_end(
    kind: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", refusing(code, MB))
    loader = DataLoader(Images(6, 4 * MB), batch_size=2, **kind)
    with pytest.raises(MemoryShortage, match=os.strerror(code)) as caught:
        list(loader)
    assert "ulimit" in str(caught.value) if code == errno.EFBIG else "batch_size" in str(caught.value)
    assert any("making batch 0 of epoch 0" in note for note in caught.value.__notes__)
    del caught
    monkeypatch.undo()
    batches = list(loader)
    assert [batch["label"].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    loader.close()


@quick_kinds
def test_one_refusal_costs_one_batch(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = {**kind, "num_workers": 1} if kind else kind  # worker processes would count refusals each for itself
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.ENOSPC, MB, times=1))
    with DataLoader(Images(5, 4 * MB), batch_size=1, **kind) as loader:
        iterator = iter(loader)
        with pytest.raises(MemoryShortage):
            next(iterator)
        assert [batch["image"][0, -1] for batch in iterator] == [1, 2, 3, 4]


@quick_kinds
def test_no_memory_for_anything_at_all(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.ENOMEM, 0))
    loader = DataLoader(Images(5, 4 * MB), batch_size=1, **kind)
    with pytest.raises(MemoryShortage, match="batch_size"):
        next(iter(loader))
    loader.close()


# Forks


FORKING = """
    import gc, os, sys
    import numpy as np
    from feedline import DataLoader, Dataset
    class Numbers(Dataset):
        def __len__(self):
            return 60
        def __getitem__(self, index):
            return np.full(100_000, index, np.int16)
    def check(batches, first=0):
        assert all((batch == first + i).all() for i, batch in enumerate(batches))
"""


@pytest.mark.parametrize(
    ("kind", "leave"),
    [
        ("", "sys.exit(0)"),  # exit handlers and all
        ("num_workers=2, workers='thread'", "sys.exit(0)"),
        ("num_workers=2", "os._exit(0)"),  # multiprocessing's own exit handler would end the parent's workers
    ],
)
def test_a_forked_child_that_ends_takes_nothing_from_its_parent(kind: str, leave: str) -> None:
    run_script(
        FORKING
        + f"""
    loader = DataLoader(Numbers(), batch_size=1, {kind})
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(20)]  # the older ones in retired slots
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has gone on
        check(kept[:15])
        loader.close()
        del kept, iterator, loader
        gc.collect()
        {leave}
    del kept[15:]
    more = [next(iterator) for _ in range(20)]
    os.close(writing)
    assert os.waitpid(pid, 0)[1] == 0
    check(kept)
    check(more, 20)
    check(iterator, 40)
    """
    )


def test_forked_workers_that_share_a_loader_each_get_their_own_batches() -> None:
    run_script(
        FORKING
        + """
    class Outer(Dataset):
        def __init__(self):
            self.inner = iter(DataLoader(Numbers(), batch_size=1))
            next(self.inner)  # has slots by now, which every forked worker takes for its own
        def __len__(self):
            return 50
        def __getitem__(self, index):
            batch = next(self.inner)
            assert (batch == batch[0, 0]).all()
            return batch.copy(), batch
    for copied, batch in DataLoader(Outer(), batch_size=1, num_workers=2, multiprocessing_context="fork"):
        assert (copied == batch).all()
        assert (batch == batch[0, 0, 0]).all()
    """
    )


@pytest.mark.parametrize("kind", ["", "num_workers=2, workers='thread'", "num_workers=2"])
def test_leaving_python_with_batches_in_hand_is_silent(kind: str) -> None:
    run_script(
        FORKING
        + f"""
    class Holder:
        pass
    loader = DataLoader(Numbers(), batch_size=1, {kind})
    iterator = iter(loader)
    holder = Holder()
    holder.itself = holder
    holder.kept = [next(iterator) for _ in range(20)]
    """,
        to_the_very_end=True,
    )
