"""What feedline.jax.DataLoader refuses, when it is made or with the first batch: leaf, shape and sharding are named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from jax_datasets import Drawing, Numbers
from jax_processes import in_jax
from test_jax_loader import arrays, jax_loader, sharded

import feedline
from feedline.errors import CollateError, CollateTypeError, OptionError, OptionTypeError, StateError


def refusal(kind: type[Exception], *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as refused:
        jax_loader(*arguments, **options)
    return str(refused.value)


@in_jax(devices=4)
def test_a_batch_that_the_sharding_cannot_divide() -> None:
    said = refusal(OptionError, Drawing(40), 6, sharding=sharded("data"), num_workers=2)
    assert said == (
        "sharding: a batch of 6 rows cannot be divided: P('data',) over {'data': 4} makes 4 parts of the rows. Every "
        "batch must be a multiple of 4, also a last one that is short (drop_last=True, pad_last=True)"
    )
    said = refusal(OptionError, Drawing(40), 6, sharding={"i": sharded(), "drawn": sharded("data")})
    assert said.startswith("sharding['drawn']: a batch of 6 rows cannot be divided")
    said = refusal(OptionError, Drawing(42), 8, sharding=sharded("data"), drop_last=False)
    assert said.startswith("sharding: a batch of 2 rows cannot be divided")


@in_jax(devices=4)
def test_a_leaf_with_too_few_dimensions_or_a_size_that_cannot_be_divided() -> None:
    two = sharded("data", "model", shape=(2, 2), names=("data", "model"))
    said = refusal(OptionError, arrays(), 8, sharding=two, num_workers=2)
    assert said.startswith("batch['y'] has the shape (8,): too few dimensions for P('data', 'model') over")
    said = refusal(OptionError, arrays(width=3), 8, sharding={"x": two, "y": sharded("data")})
    assert said.startswith(
        "batch['x'] has the global shape (8, 3), and P('data', 'model') over {'data': 2, 'model': 2} divides its axes "
        "into (2, 2) parts"
    )
    for dataset, collate_fn in ((Drawing(8), None), (arrays(8), lambda samples: {"i": 1.5})):
        loader = jax_loader(dataset, 8, sharding=two, collate_fn=collate_fn)  # not known before a sample is read
        with pytest.raises(OptionError, match=r"^batch\['\w+'\] .* too few dimensions for P\('data', 'model'\)"):
            next(iter(loader))


@in_jax(devices=4)
def test_shardings_that_are_none() -> None:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    assert "NamedSharding(mesh, " in refusal(OptionTypeError, arrays(), 8, sharding=PartitionSpec("data"))
    assert "got 'data'" in refusal(OptionTypeError, arrays(), 8, sharding="data")
    assert "no sharding in it" in refusal(OptionTypeError, arrays(), 8, sharding={})
    abstract = NamedSharding(sharded().mesh.abstract_mesh, PartitionSpec())
    assert "abstract mesh, which has no devices" in refusal(OptionError, arrays(), 8, sharding=abstract)
    of_others = {"z": jax.devices()[0]}
    assert "the structure of the batch" in refusal(OptionError, arrays(), 8, sharding=of_others)


@in_jax()
def test_a_device_of_no_process() -> None:
    import jax
    from jax.sharding import SingleDeviceSharding

    from feedline.jax import layout

    sharding = SingleDeviceSharding(jax.devices()[0])
    layout._devices_of = lambda platform: []  # as after a restart of JAX's backend, which one process cannot have twice
    with pytest.raises(OptionError, match=r"^sharding=cpu:0: cpu:0 belong to no process of this run$"):
        layout.Layout(sharding)


@in_jax(devices=4)
def test_a_mesh_and_with_it_a_batch_size_that_changed_since_the_state_was_saved() -> None:
    before = jax_loader(arrays(), 8, sharding=sharded("data"))
    next(iter(before))
    state = before.state_dict()
    now = jax_loader(arrays(), 4, sharding=sharded("data", shape=(2, 2), names=("data", "model")))
    with pytest.raises(StateError) as refused:
        now.load_state_dict(state)
    assert str(refused.value).startswith(
        "the state was saved with global_batch_size=8 (sharding=P('data',) over {'data': 4}), and now it is 4 "
        "(sharding=P('data',) over {'data': 2, 'model': 2})"
    )
    now.load_state_dict({**state, "global_batch_size": 4})
    assert next(iter(now))["y"].tolist() == [8, 9, 10, 11]


@in_jax()
def test_options_that_do_not_fit() -> None:
    sampler = feedline.DistributedSampler(range(8), num_replicas=2, rank=0)
    assert "global_batch_size is missing" in refusal(OptionError, arrays())
    assert "pass the sampler inside it" in refusal(OptionError, arrays(), 4, sampler=sampler)
    batches = feedline.BatchSampler(feedline.SequentialSampler(range(8)), 4, False)
    assert "leave out pad_last=True" in refusal(OptionError, arrays(), batch_sampler=batches, pad_last=True)
    assert "leave out global_batch_size=4" in refusal(OptionError, arrays(), 4, batch_sampler=batches)
    assert "ranks='shard' needs drop_last" in refusal(OptionError, Numbers(8), 4, ranks="shard", pad_last=True)
    assert "ranks is for an IterableDataset" in refusal(OptionError, arrays(), 4, ranks="shard")
    assert "global_batch_size must be" in refusal(OptionError, arrays(), 0)
    assert "device_prefetch must be" in refusal(OptionError, arrays(), 4, device_prefetch=-1)


@in_jax()
def test_leaves_that_jax_has_no_arrays_for() -> None:
    @dataclass
    class Own:
        x: int

    for kind, samples, said in (
        (CollateTypeError, ["a", "b"], "batch[0] is a str"),
        (CollateTypeError, [{"name": "a", "x": 1}] * 2, "batch['name'][0] is a str"),
        (CollateTypeError, [np.array("2020", "M8[Y]")] * 2, "batch has the dtype datetime64"),
        (CollateTypeError, [Own(1), Own(2)], "batch is a test_leaves"),
        (CollateError, [1, 1 << 40], "batch has the dtype int64 and holds numbers that do not fit into int32"),
    ):
        with pytest.raises(kind) as refused:
            next(iter(jax_loader(samples, 2)))
        assert str(refused.value).startswith(said)
    assert next(iter(jax_loader([1, 2], 2))).dtype == np.int32


@in_jax()
def test_a_collate_function_that_leaves_samples_out() -> None:
    data, without = np.arange(8.0), (lambda samples: np.stack(samples[1:]))
    with pytest.raises(CollateError, match=r"^batch has 3 rows instead of 4"):
        next(iter(jax_loader(data, 4, collate_fn=without)))
    batch, mask = next(iter(jax_loader(data, 4, collate_fn=without, pad_last=True)))
    assert (batch.tolist(), mask.tolist()) == ([1, 2, 3, 3], [True, True, True, False])
