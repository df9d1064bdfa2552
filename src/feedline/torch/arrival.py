"""A batch's way to the GPU, as a training loop without `device=` takes it.

Takes: a batch. Gives: the same batch on the GPU, when it is there.
Promises: the loop waits for the copies, as a step on the same stream would; what is there already is only waited for.
Not its job: copies that run while the loop does something else (transfer), how long it took (feedline.diagnose.tune).
Tested only with a stand-in for torch.cuda: there was no GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from feedline.torch.moving import moved


def on_gpu(batch: Any) -> Any:
    """The batch on the current GPU: `tensor.to("cuda", non_blocking=True)`, and then the wait for it."""
    devices: set[Any] = set()

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        there = value if value.is_cuda else value.to("cuda", non_blocking=True)
        devices.add(there.device)
        return there

    there = moved(batch, copied)
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return there
