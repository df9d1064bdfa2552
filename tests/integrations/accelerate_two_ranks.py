"""Launched by test_accelerate as two processes: trains with torch's loader and ours, and tells losses and indices.

Then it stops and goes on with every way Accelerate has of sharing batches out, and tells what came with and without.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration, PartialState
from accelerate.utils import broadcast_object_list

sys.path.append(str(Path(__file__).parent.parent))  # as under pytest
from test_accelerate import train
from training import feedlines, report, torchs, torchs_engine_forbidden

from feedline import OptionError
from feedline.torch import DataLoader, with_feedline


class Stream(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(24))


RESUMED: dict[str, tuple[dict[str, Any], Any, int]] = {
    "each rank its batches": ({}, range(24), 1),
    "uneven": ({"even_batches": False}, range(26), 3),
    "dispatched": ({"dispatch_batches": True}, range(24), 3),
    "a stream, dispatched": ({}, Stream(), 2),
}


def prepared(config: dict[str, Any], data: Any) -> Any:
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
    shuffle = {} if isinstance(data, Stream) else {"shuffle": True}
    return with_feedline(accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=3, **shuffle)))


def stopped(config: dict[str, Any], data: Any, stop: int) -> tuple[list[Any], list[Any]]:
    """Batches without a stop; and with one, after which all ranks are given the first one's state, as by Accelerate."""
    torch.manual_seed(4)
    whole = [batch.tolist() for batch in prepared(config, data)]
    torch.manual_seed(4)
    loader = prepared(config, data)
    first = [batch.tolist() for batch in islice(loader, stop)]
    states = [loader.state_dict()]
    broadcast_object_list(states)
    again = prepared(config, data)
    again.load_state_dict(states[0])
    return whole, first + [batch.tolist() for batch in again]


def refused(with_ours: bool) -> str:
    """What is said of a loader that shares its batches out itself."""
    torch.manual_seed(4)
    loader = Accelerator(cpu=True).prepare(DataLoader(range(24), global_batch_size=6, shuffle=True))
    try:
        list(with_feedline(loader) if with_ours else loader)
    except OptionError as error:
        return str(error)
    return ""


def main(folder: str) -> None:
    results = [train(torchs)]
    with torchs_engine_forbidden():
        results += [train(feedlines, with_feedline), train(feedlines, with_feedline, num_workers=2)]
        resumed = {name: stopped(*case) for name, case in RESUMED.items()}
    assert PartialState().backend == "gloo"
    said = [refused(with_ours=True), refused(with_ours=False)]
    report(folder, PartialState().process_index, [said, resumed, *results])


if __name__ == "__main__":
    main(sys.argv[1])
