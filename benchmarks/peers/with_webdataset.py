"""WebDataset: tar shards, decoded and batched in worker processes. https://webdataset.github.io/webdataset/

Batches are made in the workers (`batched`, and a WebLoader without a batch size), as its manual asks for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import webdataset as wds
from PIL import Image

from peers.measure import Batches, endless
from peers.workloads import SIDE, bytes_of_pictures, converted, scaled, shards

warnings.simplefilter("ignore", ResourceWarning)
PICTURES_A_SHARD = 128


def _write_pictures(folder: str) -> None:
    Path(folder).mkdir()
    with wds.ShardWriter(f"{folder}/a-%d.tar", maxcount=PICTURES_A_SHARD, verbose=0) as sink:
        for number, (data, label) in enumerate(bytes_of_pictures()):
            sink.write({"__key__": f"{number:05}", "jpg": data, "cls": label})


def _resized(image: Image.Image) -> Any:
    return scaled(np.asarray(image.resize((SIDE, SIDE))))


def batches(workload: str) -> Batches:
    data: Any
    if workload == "shards":
        data = wds.WebDataset(shards(), shardshuffle=False).decode().to_tuple("npy", "cls")
        data = data.batched(64, partial=False)
    else:
        folder = converted("webdataset", _write_pictures)
        data = wds.WebDataset(f"{folder}/a-{{0..3}}.tar", shardshuffle=4).shuffle(200)
        data = data.decode("pilrgb").to_tuple("jpg", "cls").map_tuple(_resized, None).batched(32, partial=False)
    return endless(wds.WebLoader(data, batch_size=None, num_workers=2, persistent_workers=True))


def resume() -> Iterator[float]:
    raise NotImplementedError("WebDataset has no state")
