"""Workers on a Ray cluster: the batches of a local run, made on other machines, and resumed in the middle.

    python examples/ray_workers.py          # starts a Ray of its own here; RAY_ADDRESS=host:6379 uses a cluster

`feedline.torch.DataLoader` and `feedline.jax.DataLoader` take the same options.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import ray

import feedline

SAMPLES, BATCH, SIZE = 256, 16, 64


class Pictures:
    """Made pictures, each turned and made noisy anew in every epoch: the kind of work that wants many CPUs."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        label = index % 4
        across, down = np.meshgrid(np.linspace(0, 1, SIZE), np.linspace(0, 1, SIZE))
        angle = label * np.pi / 4 + feedline.rng().normal(0, 0.05)
        stripes = np.sin(40 * (across * np.cos(angle) + down * np.sin(angle)))
        return (stripes + feedline.rng().normal(0, 0.3, (SIZE, SIZE))).astype(np.float32), label


def loader(**where: Any) -> feedline.DataLoader:
    return feedline.DataLoader(Pictures(), BATCH, shuffle=True, seed=7, **where)


def digest(batches: Iterable[Any]) -> list[str]:
    return [hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest() for x, y in batches]


def main() -> int:
    ray.init(log_to_driver=False)
    on_cluster: dict[str, Any] = {"num_workers": 2, "workers": "ray"}
    with loader() as here:
        expected = [digest(here) for _ in range(2)]
    with loader(**on_cluster) as there:
        first = digest(there)
        hosts = {worker.host for worker in there.stats().workers}
        second = []
        for x, y in there:
            second += digest([(x, y)])
            if len(second) == 5:  # the job is stopped here
                state = there.state_dict()
                break
    print(f"made on {len(hosts)} machine(s), by 2 workers")
    print(f"the same batches here and on the cluster: {'yes' if first == expected[0] else 'NO'}")
    with loader() as again:  # where the second epoch was left; here, or with any number of workers
        again.load_state_dict(state)
        second += digest(again)
    print(f"the second epoch, begun there and ended here: {'the same' if second == expected[1] else 'DIFFERENT'}")
    ray.shutdown()
    return 0 if [first, second] == expected else 1


if __name__ == "__main__":
    sys.exit(main())
