"""Inside Ray Train each rank loads its part, with workers of its own on the cluster."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from kinds import thorough


@thorough  # two processes that import torch, and Train's own
def test_each_rank_of_a_trainer_loads_its_part(tmp_path: Path) -> None:
    def train(told: dict[str, Any]) -> None:
        """What each rank does: two epochs, one step for each batch."""
        import sys

        sys.path.append(told["imports"])  # a trainer's processes do not have the paths of this one
        import ray.train
        import ray.train.torch
        import torch
        from ray_datasets import Drawing

        from feedline.torch import DataLoader, DistributedSampler

        context = ray.train.get_context()
        torch.manual_seed(0)
        model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
        seen: list[list[int]] = []
        data = Drawing(50)
        sampler = DistributedSampler(data, shuffle=True, seed=3)
        options = {"num_workers": 1, "workers": "ray", "ray_options": {"num_cpus": 0.5}, "persistent_workers": True}
        with DataLoader(data, batch_size=5, sampler=sampler, **options) as loader:
            for epoch in range(2):
                sampler.set_epoch(epoch)
                seen.append([])
                for batch in loader:
                    model(batch["x"]).sum().backward()
                    seen[-1] += batch["i"].tolist()
        rank, size = context.get_world_rank(), context.get_world_size()
        (Path(told["folder"]) / f"{rank}-of-{size}.json").write_text(json.dumps(seen))

    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own
        TorchTrainer(
            train,
            train_loop_config={"folder": str(tmp_path), "imports": str(Path(__file__).parent)},
            scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(storage_path=str(tmp_path / "runs")),
        ).fit()
    ranks = [json.loads((tmp_path / f"{rank}-of-2.json").read_text()) for rank in range(2)]
    for epoch in range(2):
        first, second = (rank[epoch] for rank in ranks)
        assert len(first) == len(second) == 25
        assert sorted(first + second) == list(range(50))
    assert ranks[0][0] != ranks[0][1]
