"""JAX without a framework: a classifier on two emulated devices, stopped in the middle of an epoch, and continued.

    python examples/jax_training.py

Shows that the batches lie divided over both devices, that workers know nothing of JAX, and that a run which Orbax has
saved and another loader (of other workers) continues has the same losses as a run that was never stopped.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # before JAX looks for its devices

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import feedline
from feedline.jax import DataLoader

STEPS, STOP = 30, 13
Params = dict[str, Any]


class Rings(feedline.Dataset[dict[str, Any]]):
    """Points inside and outside a circle, moved a little: another way in each epoch, the same for any workers."""

    def __len__(self) -> int:
        return 600

    def __getitem__(self, i: int) -> dict[str, Any]:
        angle, radius = 2.4 * i, 1.0 + i % 2
        point = np.array([np.cos(angle), np.sin(angle)]) * radius + feedline.rng().normal(size=2) * 0.1
        return {"x": point.astype(np.float32), "y": np.int32(i % 2), "knows_jax": "jax" in sys.modules}


def loss(params: Params, batch: dict[str, Any], key: Any) -> Any:
    noise = 0.01 * jax.random.normal(key, batch["x"].shape)
    hidden = jnp.tanh((batch["x"] + noise) @ params["w1"] + params["b1"])
    logits = hidden @ params["w2"]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(logits)), batch["y"]])


@jax.jit
def step(params: Params, batch: dict[str, Any], key: Any) -> tuple[Params, Any]:
    value, slopes = jax.value_and_grad(loss)(params, batch, key)
    return jax.tree.map(lambda weight, slope: weight - 0.5 * slope, params, slopes), value


def loader_with(num_workers: int, sharding: NamedSharding) -> DataLoader:
    return DataLoader(
        Rings(), global_batch_size=50, shuffle=True, seed=7, num_workers=num_workers, sharding=sharding, batch_key=True
    )


def train(params: Params, loader: DataLoader, steps: int) -> Iterator[tuple[Params, float]]:
    taken = 0
    while taken < steps:
        for batch, key in loader:
            assert len(batch["x"].addressable_shards) == 2
            assert not batch["knows_jax"].any()
            params, value = step(params, batch, key)
            taken += 1
            yield params, float(value)
            if taken == steps:
                return


def main() -> None:
    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    first, second = jax.random.split(jax.random.key(0))
    begin = {"w1": jax.random.normal(first, (2, 16)), "b1": jnp.zeros(16), "w2": jax.random.normal(second, (16, 2))}
    begin = jax.device_put(begin, everywhere)
    with loader_with(2, rows) as loader:
        whole = [value for _, value in train(begin, loader, STEPS)]
    print(f"loss {whole[0]:.3f} -> {whole[-1]:.3f} in {STEPS} steps, {len(loader)} of them in an epoch")

    with tempfile.TemporaryDirectory() as folder, ocp.CheckpointManager(folder) as manager:
        with loader_with(1, rows) as loader:
            taken = list(train(begin, loader, STOP))
            params, before = taken[-1][0], [value for _, value in taken]
            items = ocp.args.Composite(
                params=ocp.args.StandardSave(params), data=ocp.args.JsonSave(loader.state_dict())
            )
            manager.save(STOP, args=items)
            manager.wait_until_finished()
        asked = ocp.args.Composite(params=ocp.args.StandardRestore(begin), data=ocp.args.JsonRestore())
        saved = manager.restore(STOP, args=asked)
        with loader_with(2, rows) as loader:
            loader.load_state_dict(saved["data"])
            after = [value for _, value in train(saved["params"], loader, STEPS - STOP)]
    same = before + after == whole
    print(f"stopped after {STOP} steps, continued with other workers; the same losses: {'yes' if same else 'no'}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
