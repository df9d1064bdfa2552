"""Several processes of one JAX job: each loads its rows, and together they have the global batches."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from jax_datasets import Drawing, InShards, Numbers
from jax_processes import in_processes

import feedline

LENGTH, SIZE = 52, 8


def meshed(shape: tuple[int, ...], axes: tuple[Any, ...], order: list[int] | None = None) -> Any:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = np.array(jax.devices())[order if order is not None else slice(None)]
    return NamedSharding(Mesh(devices.reshape(shape), ("data", "model")[: len(shape)]), PartitionSpec(*axes))


def parts_of(array: Any) -> list[Any]:
    """What this process holds: the rows, and their values."""
    found = []
    for shard in array.addressable_shards:
        start, stop, _ = shard.index[0].indices(array.shape[0])
        found.append([start, stop, np.asarray(shard.data).tolist()])
    return found


def put_together(parts: list[list[Any]], size: int) -> list[Any]:
    """The global rows, from the parts of all processes; replicas must agree."""
    rows: dict[int, Any] = {}
    for start, stop, values in (part for process in parts for part in process):
        for row, value in zip(range(start, stop), values, strict=True):
            assert rows.setdefault(row, value) == value
    assert sorted(rows) == list(range(size))
    return [rows[row] for row in range(size)]


def batches_of(reports: list[Any], size: int = SIZE) -> list[Any]:
    """The global batches, from what each process says of each."""
    assert len({len(report) for report in reports}) == 1
    return [put_together(list(of_all), size) for of_all in zip(*reports, strict=True)]


def expected(sampler: Any = None, **options: Any) -> list[Any]:
    loader = feedline.DataLoader(Drawing(LENGTH), SIZE, sampler=sampler, seed=7, drop_last=True, **options)
    return [[batch["i"].tolist(), batch["drawn"].tolist()] for batch in loader]


def load(shape: list[int], axes: list[Any], order: list[int] | None, repeats: bool) -> dict[str, Any]:
    """In each process: an epoch, what was read for it, and a number that JAX computes over all processes."""
    import jax

    from feedline.jax import DataLoader

    dataset = Drawing(LENGTH)
    sampler = feedline.WeightedRandomSampler([1.0] * LENGTH, num_samples=LENGTH) if repeats else None
    sharding = meshed(tuple(shape), tuple(axes), order)
    loader = DataLoader(dataset, SIZE, not repeats, sampler, sharding=sharding, seed=7, batch_key=True)
    report: dict[str, Any] = {"i": [], "drawn": [], "keys": [], "sums": []}
    for batch, key in loader:
        report["i"].append(parts_of(batch["i"]))
        report["drawn"].append(parts_of(batch["drawn"]))
        report["sums"].append(int(jax.jit(lambda values: values.sum())(batch["i"])))
        report["keys"].append(np.asarray(jax.random.key_data(key).addressable_shards[0].data).tolist())
    mine = loader.layout.rows(SIZE).mine.tolist()
    return {**report, "read": dataset.read, "rows": mine, "state": loader.state_dict(), "length": len(loader)}


SETTINGS: dict[str, Any] = {
    "rows in order": ([4], ["data"], None, [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "replicas": ([2, 2], [None], None, [list(range(8))] * 2),
    "the model's axis over hosts": ([2, 2], ["model"], [0, 2, 1, 3], [[0, 1, 2, 3], [4, 5, 6, 7]]),
    "the same rows on both": ([2, 2], ["data"], [0, 2, 1, 3], [list(range(8))] * 2),
    "rows by turns": ([4], ["data"], [0, 2, 1, 3], [[0, 1, 4, 5], [2, 3, 6, 7]]),
}


def load_each(settings: list[Any]) -> list[dict[str, Any]]:
    return [load(shape, axes, order, repeats=False) for shape, axes, order in settings]


@pytest.fixture(scope="module")
def reported() -> dict[str, list[dict[str, Any]]]:
    """What both processes say of each setting: one job for all, since a job takes seconds to begin."""
    reports = in_processes(load_each, 2, 2, settings=[setting[:3] for setting in SETTINGS.values()])
    return dict(zip(SETTINGS, map(list, zip(*reports, strict=True)), strict=True))


@pytest.mark.parametrize("name", SETTINGS)
def test_each_process_reads_exactly_the_rows_its_devices_hold(name: str, reported: dict[str, Any]) -> None:
    rows, reports = SETTINGS[name][3], reported[name]
    whole = expected(shuffle=True)
    assert [batches_of([report[leaf] for report in reports]) for leaf in ("i", "drawn")] == [
        [batch[leaf] for batch in whole] for leaf in (0, 1)
    ]
    for report, mine in zip(reports, rows, strict=True):
        assert report["rows"] == mine
        assert report["read"] == [batch[0][row] for batch in whole for row in mine]
        assert report["length"] == len(whole)
        assert report["sums"] == [sum(batch[0]) for batch in whole]
    assert reports[0]["keys"] == reports[1]["keys"]
    assert reports[0]["state"] == reports[1]["state"]


def test_what_is_drawn_for_a_repeated_index_follows_from_its_place() -> None:
    sampler = feedline.WeightedRandomSampler([1.0] * LENGTH, num_samples=LENGTH)
    reports = in_processes(load, 2, 1, shape=[2], axes=["data"], order=None, repeats=True)
    whole = expected(sampler)
    assert batches_of([report["i"] for report in reports]) == [batch[0] for batch in whole]
    assert batches_of([report["drawn"] for report in reports]) == [batch[1] for batch in whole]


def by_turns() -> str:
    from feedline.jax import DataLoader

    sampler = feedline.WeightedRandomSampler([1.0] * LENGTH, num_samples=LENGTH)
    try:
        DataLoader(Drawing(LENGTH), SIZE, sampler=sampler, sharding=meshed((4,), ("data",), [0, 2, 1, 3]))
    except feedline.errors.OptionError as error:
        return str(error)
    return "made"


def test_rows_by_turns_of_a_sampler_that_repeats_are_refused_when_the_loader_is_made() -> None:
    for said in in_processes(by_turns, 2, 2):
        assert said.startswith("the sampler may give an index twice, and the rows of some process are not evenly")


def with_numbers() -> list[int]:
    """A single number in each batch: a process that has it has all rows, even if another leaf needs only its own."""
    from feedline.jax import DataLoader

    everywhere, divided = meshed((2,), ()), meshed((2,), ("data",))
    loaders = [
        DataLoader(np.arange(4), 4, sharding=sharding, collate_fn=with_sum)
        for sharding in (everywhere, {"x": divided, "n": everywhere})
    ]
    return [int(batch["n"]) for loader in loaders for batch in loader]


def with_sum(samples: list[Any]) -> dict[str, Any]:
    return {"x": np.stack(samples), "n": sum(samples)}


def test_a_single_number_is_of_all_rows_on_each_process() -> None:
    assert in_processes(with_numbers, 2) == [[6, 6]] * 2


def elastic(folder: str, begin: int, stop: int) -> dict[str, Any]:
    """In each process: go on from what Orbax has saved, take some batches, save again."""
    import orbax.checkpoint as ocp

    from feedline.jax import DataLoader

    loader = DataLoader(
        Drawing(LENGTH), SIZE, True, pad_last=True, num_workers=1, workers="thread", seed=None if begin else 5
    )
    with ocp.CheckpointManager(folder) as manager:
        if begin:
            saved = manager.restore(begin, args=ocp.args.Composite(data=ocp.args.JsonRestore()))
            loader.load_state_dict(saved["data"])
        else:
            loader.set_epoch(1)
        got = []
        for batch, mask in loader:
            got.append([parts_of(batch["i"]), parts_of(mask)])
            if begin + len(got) == stop:
                break
        state = loader.state_dict()
        manager.save(stop, args=ocp.args.Composite(data=ocp.args.JsonSave(state)))
        manager.wait_until_finished()
    return {"got": got, "state": state}


def test_orbax_saves_four_processes_and_two_go_on_with_the_same_global_batches(tmp_path: Any) -> None:
    whole = in_processes(elastic, 1, 4, folder=tmp_path / "whole", begin=0, stop=7)
    four = in_processes(elastic, 4, 1, folder=tmp_path / "parts", begin=0, stop=3)
    two = in_processes(elastic, 2, 2, folder=tmp_path / "parts", begin=3, stop=7)
    first = [batches_of([[batch[leaf] for batch in report["got"]] for report in four]) for leaf in (0, 1)]
    rest = [batches_of([[batch[leaf] for batch in report["got"]] for report in two]) for leaf in (0, 1)]
    alone = [batches_of([[batch[leaf] for batch in report["got"]] for report in whole]) for leaf in (0, 1)]
    assert [one + other for one, other in zip(first, rest, strict=True)] == alone
    assert alone[1][-1] == [True] * 4 + [False] * 4  # 52 samples: the last batch is padded, on one process entirely
    states = [report["state"] for report in four]
    assert all(state == states[0] for state in states)
    assert len(json.dumps(states[0])) < 1000
    assert (states[0]["batches"], states[0]["samples"]) == (3, 24)


def stream(how: str) -> Any:
    from feedline.jax import DataLoader

    if how == "whole":
        loader = DataLoader(Numbers(20), 8, pad_last=True)
        return [[parts_of(batch), parts_of(mask)] for batch, mask in loader]
    own = how == "own shards"
    loader = DataLoader(InShards(40) if own else Numbers(40), 8, ranks="shard", uneven="exact" if own else None)
    # A process does not know how many elements the others have.
    return [parts_of(batch) for batch in (loader.forever(batches_per_epoch=5) if own else loader)]


def test_a_stream_is_one_stream_for_any_number_of_processes() -> None:
    reports = in_processes(stream, 2, 2, how="whole")
    assert batches_of([[batch for batch, _ in report] for report in reports]) == [
        [*range(8)],
        [*range(8, 16)],
        [16, 17, 18, 19, 19, 19, 19, 19],
    ]
    masks = batches_of([[mask for _, mask in report] for report in reports])
    assert masks[-1] == [True] * 4 + [False] * 4


def stream_from(state: Any, stop: int | None) -> dict[str, Any]:
    import warnings

    from feedline.jax import DataLoader

    loader, got = DataLoader(Numbers(40), 8, shuffle_buffer=10, seed=3), []
    if state is not None:
        loader.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this stream cannot say where it is, so its beginning is read again
        for batch in loader:
            got.append(parts_of(batch))
            if len(got) == stop:
                break
    return {"got": got, "state": loader.state_dict()}


def test_another_number_of_processes_goes_on_with_a_stream() -> None:
    whole = in_processes(stream_from, 1, 2, state=None, stop=None)
    two = in_processes(stream_from, 2, 1, state=None, stop=2)
    assert two[0]["state"] == two[1]["state"]
    one = in_processes(stream_from, 1, 2, state=two[0]["state"], stop=None)
    first, rest, alone = (batches_of([report["got"] for report in reports]) for reports in (two, one, whole))
    assert first + rest == alone
    assert len(alone) == 5


@pytest.mark.parametrize("how", ["shard", "own shards"])
def test_a_stream_can_be_divided_among_processes(how: str) -> None:
    found = batches_of(in_processes(stream, 2, 1, how=how))
    assert sorted(value for batch in found for value in batch) == list(range(40))
    if how == "shard":
        assert found == [list(range(start, start + 8)) for start in range(0, 40, 8)]


def refused() -> list[str]:
    import jax

    from feedline.jax import DataLoader

    mine, others = jax.local_devices()[0], next(d for d in jax.devices() if d.process_index != jax.process_index())
    found = []
    for options in (
        {"sharding": others},
        {"on_error": "skip"},
        {"in_order": False},
        {"sharding": {"x": mine, "y": others}},
    ):
        try:
            DataLoader(Drawing(8), 4, **options)  # type: ignore[arg-type]
        except feedline.errors.OptionError as error:
            found.append(str(error))
    loader = DataLoader(Dropping(8), 4, collate=feedline.collate.drop_invalid())
    try:
        for _ in loader:
            pass
    except feedline.errors.CollateError as error:
        found.append(str(error))
    return found


class Dropping(Drawing):
    """The second process has no valid sample in the second batch."""

    def __getitem__(self, i: int) -> Any:
        return None if i in (6, 7) else super().__getitem__(i)


def test_what_would_let_processes_differ_is_refused() -> None:
    for number, found in enumerate(in_processes(refused, 2)):
        assert f"no device of it belongs to process {number} of 2" in found[0]
        assert "on_error='replace'" in found[1]
        assert found[2].startswith("in_order=False lets each process have another batch")
        assert found[3].startswith("sharding['y']=")
    assert found[4].startswith("no sample was left in batch 1 of this process")


def seeds() -> list[list[float]]:
    from feedline.jax import DataLoader

    return [
        [value for part in parts_of(batch) for value in part[2]] for batch in DataLoader(GlobalDraws(), 8, shuffle=True)
    ]


class GlobalDraws(feedline.Dataset[Any]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, i: int) -> float:
        return float(np.random.random())


def test_the_global_generators_draw_other_numbers_on_each_process() -> None:
    one, two = in_processes(seeds, 2)
    assert len(one) == len(two) == 4
    assert not {value for batch in one for value in batch} & {value for batch in two for value in batch}
