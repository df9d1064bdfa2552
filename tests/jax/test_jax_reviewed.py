"""What a reviewer broke: masks where samples are left out, keys of a divided stream, and shapes and orders that
processes must have in common."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_processes import in_jax, in_processes
from test_jax_loader import jax_loader, sharded

import feedline
from feedline.collate import drop_invalid, keep, pad
from feedline.errors import CollateError, CollateTypeError, OptionError, ShippingError


class Bad(feedline.Dataset[Any]):
    """Of twelve samples the tenth fails."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        if i == 9:
            raise ValueError("bad")
        return np.float32(i)


class Counting(feedline.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(np.arange(64, dtype=np.float32))


@pytest.mark.filterwarnings("ignore::UserWarning")
@in_jax()
def test_the_mask_is_right_where_samples_are_left_out() -> None:
    import warnings

    warnings.simplefilter("ignore")
    valid = lambda sample: sample != 9
    for loader in (
        jax_loader(Bad(), 8, on_error="skip", pad_last=True),
        jax_loader(np.arange(12.0), 8, collate=drop_invalid(valid=valid), pad_last=True),
    ):
        batch, mask = list(loader)[-1]
        assert batch.tolist() == [8, 10, 11, 11, 11, 11, 11, 11]
        assert mask.tolist() == [True] * 3 + [False] * 5


@in_jax()
def test_leaves_of_other_lengths_are_refused_and_not_filled_up() -> None:
    weights = np.array([0.1, 0.2], np.float32)
    with pytest.raises(CollateError, match="rows instead of"):
        next(iter(jax_loader(np.arange(8.0), 4, pad_last=True, collate_fn=lambda s: (np.stack(s), weights))))
    samples = [{"b": np.arange(3)} for _ in range(8)]
    with pytest.raises(CollateError, match="3 rows instead of 4"):
        next(iter(jax_loader(samples, 4, pad_last=True, collate={"b": keep})))


@in_jax()
def test_skipping_without_filling_up_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match="pad_last=True"):
        jax_loader(Bad(), 8, on_error="skip")


def job() -> list[Any]:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from feedline.jax import DataLoader

    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows, same = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    data = np.arange(16.0)
    refused = []
    for options in (
        {"in_order": False, "num_workers": 1, "sharding": same},
        {"on_error": "skip", "pad_last": True, "sharding": same},
        {"collate": pad(0), "sharding": rows},
        {"collate": {"x": pad(0)}, "sharding": rows},
    ):
        try:
            DataLoader(data, 8, **options)
        except OptionError as error:
            refused.append(str(error)[:20])
    lengths = [np.zeros(1 + i, np.float32) for i in range(16)]
    own = DataLoader(lengths, 8, sharding=rows, collate_fn=lambda s: np.stack([np.resize(e, len(s[-1])) for e in s]))
    batches = iter(own)
    next(batches)
    try:
        next(batches)
    except CollateError as error:
        refused.append(str(error)[-26:])
    keyed = DataLoader(Counting(), 8, ranks="shard", sharding=rows, batch_key=True, seed=1)
    keys = [jax.random.key_data(key).addressable_data(0).tolist() for _, key in keyed]
    return [refused, keys]


def test_processes_that_cannot_stay_in_step_are_refused_and_keys_are_the_same_on_all() -> None:
    one, two = in_processes(job, 2)
    assert one == two
    refused, keys = one
    assert len(refused) == 5
    assert len({tuple(key) for key in keys}) == len(keys) > 4


SCRIPT = """
import jax
import feedline

device = jax.devices()[0]

class OfTheScript(feedline.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return float(device.id)
"""


@in_jax()
def test_workers_never_import_the_script_to_get_what_cannot_be_sent(tmp_path: Path) -> None:
    main: Any = sys.modules["__main__"]
    main.__file__ = str(Path(tmp_path) / "train.py")  # else it is a prompt, which no worker can import
    Path(main.__file__).write_text(SCRIPT)
    exec(SCRIPT, vars(main))
    loader = jax_loader(main.OfTheScript(), 2, num_workers=1)
    with pytest.raises(ShippingError, match=r"OfTheScript cannot be sent to a worker process .*Device"):
        iter(loader)
    loader.close()


@in_jax()
def test_ctrl_c_while_a_batch_is_put_on_its_device_loses_none() -> None:
    """Whether it is the batch that was asked for, or one ahead of it."""
    import jax

    put = jax.device_put
    for at in (1, 2, 3, 4):
        calls, got = iter(range(1, 100)), []

        def interrupted(*arguments: Any, at: int = at, calls: Iterator[int] = calls) -> Any:
            if next(calls) == at:
                raise KeyboardInterrupt
            return put(*arguments)

        loader = jax_loader(np.arange(20), 4, num_workers=2, workers="thread", device_prefetch=2)
        batches = iter(loader)
        jax.device_put = interrupted
        try:
            while True:
                while not batches._batches.is_ready():  # so that there is something to put ahead
                    pass
                got.append(next(batches).tolist())
        except KeyboardInterrupt:
            pass
        finally:
            jax.device_put = put
        assert loader.state_dict()["batches"] == len(got)
        with pytest.raises(RuntimeError, match="closed before its end"):
            next(batches)
        state = loader.state_dict()
        assert state["batches"] == len(got)
        loader.load_state_dict(state)
        assert [*got, *[batch.tolist() for batch in loader]] == np.arange(20).reshape(5, 4).tolist()


class Turning(feedline.Dataset[Any]):
    """The second process has another type, or another leaf, from the second batch on."""

    def __init__(self, leaf: bool) -> None:
        self.leaf = leaf

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        if self.leaf:
            return {"a": i} | ({"b": i} if i in (6, 7) else {})
        return {"a": i + 0.5 if i in (6, 7) else i}


class Gaps(feedline.Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return None if i == 8 else np.float32(i)


class Ten(feedline.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def turned() -> list[str]:
    from feedline.jax import DataLoader

    told = []
    for loader in (
        DataLoader(Turning(leaf=False), 4),
        DataLoader(Turning(leaf=True), 4),
        DataLoader(Gaps(), 8, collate=drop_invalid(), pad_last=True),
        DataLoader(Ten(), 4, ranks="shard", uneven="exact"),
    ):
        try:
            for _ in loader:
                pass
        except feedline.errors.FeedlineError as error:
            told.append(str(error))
        else:
            told.append("")
    return told


def test_types_leaves_and_left_out_samples_of_one_process_are_refused_there() -> None:
    first, second = in_processes(turned, 2)
    assert second[0].startswith("batch['a'] has the dtype float32, and had int32 before")
    assert second[1].startswith("the batch has the leaves batch['a'], batch['b'], and had batch['a'] before")
    assert first[2].startswith("1 of this process's 4 rows were left out")
    assert all(said[3].startswith("uneven='exact' gives some processes one batch more") for said in (first, second))


@in_jax(devices=2)
def test_what_no_array_can_have_is_named() -> None:
    with pytest.raises(CollateTypeError, match=r"^batch\['x'\] has the dtype float128, which JAX does not have"):
        jax_loader(feedline.ArrayDataset(x=np.arange(8, dtype=np.longdouble)), 4)
    from jax.sharding import PartitionSpec

    with pytest.raises(OptionError, match=r"^sharding=.* leaves an axis to the compiler"):
        jax_loader(np.arange(8), 4, sharding=sharded(PartitionSpec.UNCONSTRAINED, shape=(2,)))


class Damaged(feedline.Dataset[Any]):
    """A stretch that is longer than neighbours are looked for."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> Any:
        if 10 <= i < 50:
            raise OSError("damaged file")
        return np.float32(i)


class Drawing(feedline.Dataset[Any]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> Any:
        return None if i == 1 else np.float32(i + np.random.rand() / 2)


def out_of_step() -> list[Any]:
    """Batches that each process gets, and how it ends: nothing is computed with them, so no process waits."""
    import warnings

    from feedline.jax import DataLoader

    warnings.simplefilter("ignore")
    loader, got = DataLoader(Damaged(), 2, on_error="replace", max_errors=10_000, seed=1), 0
    try:
        for _ in loader:
            got += 1
    except CollateError as error:
        return [got, str(error)]
    return [got, ""]


def test_a_process_none_of_whose_rows_can_be_read_or_replaced_says_so() -> None:
    """It went on with its next batch, beside the others' rows of this one."""
    for got, said in in_processes(out_of_step, 2):
        assert got < 25
        assert said.startswith(f"no sample was left in batch {got} of this process")


def overlapping() -> list[Any]:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from feedline.jax import DataLoader

    mesh = Mesh(np.array(jax.devices()).reshape(2, 3), ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    loader = DataLoader(Drawing(), 8, pad_last=True, collate=drop_invalid(), seed=1, sharding=sharding)
    return [
        [
            [shard.index[0].start or 0, np.asarray(shard.data).tolist()]
            for each in given
            for shard in each.addressable_shards
        ]
        for given in loader
    ]


def test_a_row_is_the_same_on_processes_that_have_it_beside_other_rows() -> None:
    """Process 0 holds rows 0 to 3, process 1 all of them, process 2 rows 4 to 7; a sample is left out."""
    first, both, last = in_processes(overlapping, 3, devices=2)
    for one, all_of_them, other in zip(first, both, last, strict=True):
        rows, masks = all_of_them[:2], all_of_them[2:]
        assert one == [rows[0]] * 2 + [masks[0]] * 2
        assert other == [rows[1]] * 2 + [masks[1]] * 2


@in_jax()
def test_a_closed_iteration_that_is_asked_again_counts_nothing_more() -> None:
    loader = jax_loader(np.arange(40), 2, num_workers=2, workers="thread", device_prefetch=2)
    batches = iter(loader)
    for _ in range(3):
        while not batches._batches.is_ready():  # so that some are put ahead
            pass
        next(batches)
    batches.close()
    with pytest.raises(RuntimeError, match="closed before its end"):
        next(batches)
    assert loader.state_dict()["batches"] == 3


@in_jax()
def test_ctrl_c_while_a_batch_is_counted_loses_it_neither() -> None:
    loader = jax_loader(np.arange(8), 2)
    batches = iter(loader)
    next(batches)
    settle = batches._passed.settle

    def interrupted(**options: Any) -> None:
        batches._passed.settle = settle
        raise KeyboardInterrupt

    batches._passed.settle = interrupted
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert [batch.tolist() for batch in batches] == [[2, 3], [4, 5], [6, 7]]


@in_jax()
def test_what_jax_cannot_hold_is_refused_by_name() -> None:
    import jax.numpy as jnp

    def given(batch: Any, **options: Any) -> Any:
        return next(iter(jax_loader(np.arange(8), 4, collate_fn=lambda _: batch, **options)))

    numbers = np.arange(4.0, dtype=np.float32)
    with pytest.raises(CollateTypeError, match=r"^batch\['x'\] is a masked array"):  # its mask was lost
        given({"x": np.ma.masked_array(numbers, [True, False, False, False])})
    with pytest.raises(CollateTypeError, match=r"^batch\['x'\] has the dtype timedelta64"):
        given({"x": numbers.astype("timedelta64[s]")})
    with pytest.raises(CollateTypeError, match=r"^batch\['x'\] is an array of JAX already.*np\.asarray"):
        given({"x": jnp.asarray(numbers)})
    with pytest.raises(CollateTypeError, match="JAX sorts the keys of each dict"):
        given({"x": numbers, 1: numbers})


def loops_once_and_for_ever() -> list[Any]:
    from feedline.jax import DataLoader

    loader = DataLoader(Counting(), 4, ranks="shard", uneven="exact")
    next(iter(loader.forever(batches_per_epoch=3)))
    try:
        next(iter(loader))
    except OptionError as error:
        return [str(error)]
    return ["nothing was said"]


def test_a_plain_loop_after_forever_is_still_told_that_it_would_wait() -> None:
    for (said,) in in_processes(loops_once_and_for_ever, 2):
        assert said.startswith("uneven='exact' gives some processes one batch more")
