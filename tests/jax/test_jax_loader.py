"""feedline.jax.DataLoader in one process: global arrays, memory, workers, shapes, state, keys, streams."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jax_datasets import Drawing, InShards, Large, Numbers, Surroundings, UsingJax, large
from jax_processes import in_jax
from kinds import thorough

import feedline
from feedline import ArrayDataset


def sharded(*axes: Any, shape: tuple[int, ...] = (4,), names: tuple[str, ...] = ("data",)) -> Any:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    return NamedSharding(Mesh(np.array(jax.devices()).reshape(shape), names), PartitionSpec(*axes))


def jax_loader(*arguments: Any, **options: Any) -> Any:
    from feedline.jax import DataLoader

    return DataLoader(*arguments, **options)


def arrays(count: int = 24, width: int = 4) -> ArrayDataset:
    return ArrayDataset(x=np.arange(count * width, dtype=np.float32).reshape(count, width), y=np.arange(count))


def values(batches: Any) -> list[Any]:
    import jax

    return [jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), batch) for batch in batches]


def test_importing_feedline_or_this_package_does_not_import_jax() -> None:
    code = "import sys, feedline, feedline.jax, feedline.jax.dialect, feedline.jax.options; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_without_jax_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import feedline.jax

    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(feedline.errors.MissingPackage, match=r"pip install 'feedline\[jax\]'"):
        feedline.jax.DataLoader
    with pytest.raises(AttributeError, match="Nothing"):
        feedline.jax.Nothing


@in_jax(devices=4)
def test_batches_are_the_cores_and_lie_where_the_sharding_says() -> None:
    shuffled: dict[str, Any] = {"shuffle": True, "seed": 5}
    expected = [
        {name: leaf.tolist() for name, leaf in batch.items()}
        for batch in feedline.DataLoader(arrays(), 8, drop_last=True, **shuffled)
    ]
    of_each_leaf = {
        "x": sharded("data", "model", shape=(2, 2), names=("data", "model")),
        "y": sharded("data", shape=(2, 2), names=("data", "model")),
    }
    for sharding in (None, sharded("data"), sharded(), sharded(shape=(2, 2), names=("a", "b")), of_each_leaf):
        loader = jax_loader(arrays(), 8, sharding=sharding, **shuffled)
        got = list(loader)
        assert values(got) == expected
        for batch, whole in zip(got, expected, strict=True):
            for name in ("x", "y"):
                one = sharding[name] if isinstance(sharding, dict) else sharding
                assert one is None or batch[name].sharding == one
                for shard in batch[name].addressable_shards:
                    assert np.array_equal(shard.data, np.asarray(whole[name])[shard.index])


@in_jax(devices=2)
def test_progress_gives_the_same_batches_and_begins_at_the_place_of_a_resumed_run() -> None:
    loader = jax_loader(arrays(), 8, shuffle=True, seed=1)
    shown = iter(loader.progress("[train]"))
    first, state = values([next(shown)]), loader.state_dict()
    again = jax_loader(arrays(), 8, shuffle=True)
    again.load_state_dict(state)
    rest = iter(again.progress())
    assert first + values(rest) == values(jax_loader(arrays(), 8, shuffle=True, seed=1))
    assert (rest._counts.place, rest._counts.total, rest._counts.samples) == (3, 3, 16)
    named = jax_loader(ArrayDataset(**{"<b>": np.arange(8)}), 8)
    assert len(list(named)) == 1
    page = named._repr_html_() + named.stats()._repr_html_()
    assert "1 shape of batches" in page


@in_jax(devices=4)
def test_by_default_rows_are_divided_over_all_devices() -> None:
    (batch,) = jax_loader(arrays(8), 8)
    assert {shard.data.shape for shard in batch["x"].addressable_shards} == {(2, 4)}
    assert len(batch["x"].sharding.device_set) == 4


@pytest.mark.parametrize(("workers", "device_prefetch"), [("thread", 0), ("process", 3)])
@in_jax(devices=2)
def test_slots_are_not_reused_while_an_array_shares_their_memory(workers: str, device_prefetch: int) -> None:
    """The user keeps some batches, in several ways, and drops others at once; all are right afterwards."""
    kept: list[tuple[Any, list[int]]] = []
    with jax_loader(
        Large(),
        4,
        shuffle=True,
        seed=1,
        num_workers=2,
        workers=workers,
        prefetch_factor=2,
        sharding=sharded("data", shape=(2,)),
        device_prefetch=device_prefetch,
    ) as loader:
        order = [batch.tolist() for batch in feedline.DataLoader(np.arange(240), 4, shuffle=True, seed=1)]
        addresses = set()
        for number, batch in enumerate(loader):
            addresses.add(batch.addressable_shards[0].data.unsafe_buffer_pointer())
            if number % 3 == 0:
                kept.append((batch, order[number]))
            elif number % 7 == 0:
                kept.append((batch.addressable_shards[1].data, order[number][2:]))
            elif number % 11 == 0:
                kept.append((np.asarray(batch.addressable_shards[0].data), order[number][:2]))
            del batch
    assert len(addresses) < 60, "no slot was used twice, so this test shows nothing"
    for batch, rows in kept:
        assert np.array_equal(np.asarray(batch), np.stack([large(i) for i in rows]))


@in_jax()
def test_an_array_that_jax_made_without_a_copy_keeps_its_slot() -> None:
    """The reason why the test above holds: JAX refers to the NumPy array. If it did not, slots would have to be copied.

    If a newer JAX copies instead, this test may go; if it shares memory without a reference, nothing is safe."""
    import jax

    from feedline.arena.slots import SlotPool, Writer

    pool = SlotPool()
    slot = pool.take()
    array = Writer(slot, leased=True).empty((1 << 14,), np.dtype(np.float32))
    array[:] = 7
    put = jax.device_put(array, jax.devices()[0])
    shares = put.unsafe_buffer_pointer() == array.ctypes.data
    del array
    gc.collect()
    assert bool(slot.leases) == shares
    assert np.asarray(put).tolist() == [7] * (1 << 14)
    del put
    gc.collect()
    assert not slot.leases
    pool.close()


@in_jax()
def test_workers_know_nothing_of_jax_and_nobody_warns_of_a_fork() -> None:
    os.environ["JAX_PLATFORMS"] = "this machine's accelerator"  # as it may be on another machine
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with jax_loader(Surroundings(), 4, num_workers=2) as loader:
            batches = values(loader)
    assert not told
    assert len(batches) == 4
    assert not any(value for batch in batches for value in batch["has_jax"])
    assert all(value for batch in batches for value in batch["on_cpu"])
    options: dict[str, Any] = {"shuffle": True, "seed": 4, "num_workers": 2, "persistent_workers": True}
    with jax_loader(Drawing(40), 4, **options) as kept:  # reads the next epoch's first batches early
        alone = jax_loader(Drawing(40), 4, shuffle=True, seed=4)
        assert [values(kept) for _ in range(3)] == [values(alone) for _ in range(3)]


@thorough
@in_jax()
def test_a_dataset_that_uses_jax_finds_a_cpu_in_workers() -> None:
    os.environ["JAX_PLATFORMS"] = "this machine's accelerator"
    with jax_loader(UsingJax(), 4, num_workers=1) as loader:
        for batch in values(loader):
            assert all(batch["on_cpu"])
            assert all(batch["config"])


SCRIPT = """
import sys
import jax
import feedline
from feedline.jax import DataLoader

jax.devices()

class Here(feedline.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return "jax" in sys.modules

if __name__ == "__main__":
    with DataLoader(Here(), 4, num_workers=1) as loader:
        print([batch.tolist() for batch in loader])
"""


def test_a_script_that_imports_jax_is_not_imported_by_workers(tmp_path: Any) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-W", "error", "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[[False, False, False, False]]\n", "")


def test_what_a_script_has_that_cannot_be_sent_is_named(tmp_path: Any) -> None:
    script = SCRIPT.replace("class Here", "import threading\nlock = threading.Lock()\n\nclass Here")
    (tmp_path / "train.py").write_text(script.replace("in sys.modules\n", "in sys.modules and not lock.locked()\n"))
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "ShippingError: dataset: __main__.Here cannot be sent to a worker process" in last
    assert "(cannot pickle '_thread.lock' object). Create it inside the worker" in last


@in_jax(devices=2)
def test_shapes_stay_the_same_unless_the_user_says_so() -> None:
    assert [len(batch["y"]) for batch in jax_loader(arrays(11), 4)] == [4, 4]
    loader = jax_loader(arrays(11), 4, pad_last=True)
    got = [(batch["y"].tolist(), mask.tolist()) for batch, mask in loader]
    assert len(loader) == 3
    assert got[0] == ([0, 1, 2, 3], [True] * 4)
    assert got[-1] == ([8, 9, 10, 10], [True, True, True, False])
    assert len(loader.stats().shapes) == 1
    short = jax_loader(arrays(10), 4, drop_last=False)
    assert [len(batch["y"]) for batch in short] == [4, 4, 2]
    assert len(short.stats().shapes) == 2


def lengths(samples: list[int]) -> Any:
    return np.zeros((len(samples), max(samples) + 1), np.float32)


@in_jax()
def test_the_third_shape_is_warned_of_once() -> None:
    loader = jax_loader(np.arange(10), 2, collate_fn=lengths)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        shapes = [batch.shape for batch in loader]
        list(loader)
    (message,) = [str(each.message) for each in told]
    assert message.startswith("this is the 3rd different shape of batches: batch is float32[2, 6], and was float32[2, ")
    assert loader.stats().shapes == tuple((("batch", shape, "float32"),) for shape in shapes)
    assert "5 shapes of batches" in str(loader.stats())
    assert loader.stats().scalars()["loader/shapes"] == 5


@in_jax(devices=2)
def test_a_state_counts_what_the_loop_got_and_not_what_lies_on_devices() -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "num_workers": 2, "workers": "thread"}
    whole = values(jax_loader(Drawing(40), 4, **options))
    for taken in (0, 1, 4, 10):
        loader = jax_loader(Drawing(40), 4, device_prefetch=3, **options)
        iterator = iter(loader)
        first = values([next(iterator) for _ in range(taken)])
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["batches"], state["samples"]) == (taken, 4 * taken)
        iterator.close()
        again = jax_loader(Drawing(40), 4, sharding=sharded(shape=(2,)), shuffle=True)
        again.load_state_dict(state)
        assert first + values(again) == whole


@in_jax()
def test_after_an_epoch_the_state_is_the_next_ones_beginning() -> None:
    loader = jax_loader(Drawing(8), 4, shuffle=True, seed=3, num_workers=1, workers="thread")
    list(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)
    assert loader.epoch == 1


@in_jax(devices=2)
def test_a_key_follows_from_seed_epoch_and_number() -> None:
    import jax

    def keys(**options: Any) -> list[Any]:
        loader = jax_loader(np.arange(12), 4, batch_key=True, seed=9, **options)
        return [jax.random.key_data(key).tolist() for _ in range(2) for _, key in loader]

    found = keys()
    assert found == keys(sharding=sharded(shape=(2,)), shuffle=True) == keys(sharding=jax.devices()[1])
    assert len({tuple(key) for key in found}) == 6
    loader = jax_loader(np.arange(12), 4, batch_key=True, seed=9)
    next(iter(loader))
    again = jax_loader(np.arange(12), 4, batch_key=True)
    again.load_state_dict(loader.state_dict())
    assert [jax.random.key_data(key).tolist() for _, key in again] == found[1:3]
    (batch, mask, key) = next(iter(jax_loader(np.arange(3), 4, pad_last=True, batch_key=True)))
    assert batch.sharding.device_set == mask.sharding.device_set == jax.random.normal(key, (2,)).sharding.device_set
    assert float(jax.jit(lambda k: jax.random.normal(k, (4,)))(key).sum()) != 0


@in_jax(devices=2)
def test_samplers_and_collators_work_as_in_the_core() -> None:
    from feedline.collate import pad

    labels = [0, 1] * 8
    stratified = feedline.StratifiedBatchSampler(labels, batch_size=4)
    batches = values(jax_loader(Drawing(16), batch_sampler=stratified, seed=1))
    assert [sorted(i % 2 for i in batch["i"]) for batch in batches] == [[0, 0, 1, 1]] * 4
    weighted = feedline.WeightedRandomSampler([1.0] * 16, num_samples=16)
    ours = values(jax_loader(Drawing(16), 4, sampler=weighted, seed=1))
    theirs = [
        {name: leaf.tolist() for name, leaf in batch.items()}
        for batch in feedline.DataLoader(Drawing(16), 4, sampler=weighted, seed=1)
    ]
    assert ours == theirs
    texts = [np.arange(n, dtype=np.int32) for n in (1, 2, 3, 4)]
    (padded,) = jax_loader(texts, 4, collate=pad(0, lengths=True))
    assert padded.data.shape == (4, 4)
    assert padded.lengths.tolist() == [1, 2, 3, 4]


@in_jax(devices=2)
def test_streams() -> None:
    assert values(jax_loader(Numbers(11), 4)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    got = [(batch.tolist(), mask.tolist()) for batch, mask in jax_loader(Numbers(10), 4, pad_last=True)]
    assert got[-1] == ([8, 9, 9, 9], [True, True, False, False])
    assert values(jax_loader(InShards(8), 4, ranks="shard")) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader = jax_loader(Numbers(16), 4, shuffle_buffer=8, seed=1)
    whole = values(loader)
    loader = jax_loader(Numbers(16), 4, shuffle_buffer=8, seed=1)
    first = values([next(iter(loader))])
    again = jax_loader(Numbers(16), 4, shuffle_buffer=8)
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stream cannot save its position
        assert first + values(again) == whole


@in_jax(devices=2)
def test_reports_and_the_commands_take_this_loader(tmp_path: str) -> None:
    from feedline.diagnose.doctor.consult import doctor

    seen: list[Any] = []
    loader = jax_loader(arrays(64), 8, on_epoch_end=seen.append)
    with loader.report(f"{tmp_path}/run.html"), loader.trace(f"{tmp_path}/run.json"):
        list(loader)
    assert seen[0].shapes == loader.stats().shapes
    assert json.loads(Path(tmp_path, "run.json").read_text())
    assert "DataLoader" in repr(loader)
    assert not [each for each in doctor(loader) if each.severity == "problem"]
    forever = loader.forever(batches_per_epoch=10)
    assert len([batch["y"] for batch in forever]) == 10


@in_jax(devices=2)
def test_an_error_comes_at_its_turn_and_the_loop_can_go_on() -> None:
    loader = jax_loader(Failing(), 2, num_workers=1, workers="thread", device_prefetch=2)
    iterator, got = iter(loader), []
    for _ in range(4):
        try:
            got.append(next(iterator).tolist())
        except KeyError:
            got.append("error")
            assert loader.state_dict()["batches"] == 2
    assert got == [[0, 1], "error", [4, 5], [6, 7]]
    assert next(iterator, None) is None


class Failing(feedline.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> int:
        if i == 3:
            raise KeyError(i)
        return i


@in_jax(devices=2)
def test_the_time_for_copies_is_told_from_the_time_for_data() -> None:
    loader = jax_loader(arrays(64), 8)
    list(loader)
    flow = loader.stats().epoch
    assert 0 < flow.transferring <= flow.waiting <= flow.seconds
    assert flow.batches == 8


@in_jax(devices=2)
def test_numbers_of_the_global_generators_differ_from_batch_to_batch() -> None:
    drawn = [batch.tolist() for batch in jax_loader(GlobalDraws(), 4, seed=1)]
    assert all(one != other for one, other in pairwise(drawn))
    assert drawn == [batch.astype(np.float32).tolist() for batch in feedline.DataLoader(GlobalDraws(), 4, seed=1)]


class GlobalDraws(feedline.Dataset[Any]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> float:
        return float(np.random.random())


@in_jax(devices=4)
def test_the_other_order_of_bytes_is_turned_round() -> None:
    for kind in (">f4", ">i2", ">u4", ">f2"):
        dataset = feedline.ArrayDataset(x=np.arange(8).astype(kind))
        (batch,) = jax_loader(dataset, 8, sharding=sharded("data"))
        assert (batch["x"].tolist(), batch["x"].dtype.name) == (list(range(8)), np.dtype(kind).name)


@in_jax(devices=4)
def test_a_single_number_is_the_same_on_each_device() -> None:
    import jax

    for sharding in (sharded(), jax.devices()[2]):
        loader = jax_loader(np.arange(8), 4, sharding={"x": sharded("data"), "n": sharding}, collate_fn=with_number)
        first, second = loader
        assert (first["n"].shape, int(first["n"]), int(second["n"])) == ((), 6, 22)
        assert {shard.device for shard in first["n"].addressable_shards} == sharding_devices(sharding)


def with_number(samples: list[Any]) -> dict[str, Any]:
    return {"x": np.stack(samples), "n": sum(samples)}


def sharding_devices(sharding: Any) -> set[Any]:
    return getattr(sharding, "device_set", None) or {sharding}


@in_jax()
def test_step_is_measured_by_the_host_and_never_by_torchs_events() -> None:
    """A process that uses JAX may use torch on a GPU, too, whose events say nothing of JAX's step."""

    def asked(*arguments: Any) -> Any:
        raise AssertionError("torch was asked for an event")

    cuda = SimpleNamespace(is_initialized=lambda: True, current_device=asked, Event=asked, current_stream=asked)
    sys.modules["torch"] = SimpleNamespace(cuda=cuda)  # type: ignore[assignment]
    loader = jax_loader(arrays(), 8)
    for batch in loader:
        with loader.step():
            batch["x"].sum().block_until_ready()
    epoch = loader.stats().epoch
    assert (epoch.steps, epoch.basis) == (3, "loader.step()")
    assert 0 < epoch.step <= epoch.seconds
    assert "(loader.step())" in str(loader.stats())
