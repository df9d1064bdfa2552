"""What a reviewer broke: masks where samples are left out, keys of a divided stream, and shapes and orders that
processes must have in common."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_processes import in_jax, in_processes
from test_jax_loader import jax_loader

import feedline
from feedline.collate import drop_invalid, keep, pad
from feedline.errors import CollateError, OptionError, ShippingError


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
