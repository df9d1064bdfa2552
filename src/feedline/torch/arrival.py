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
    there = moved(batch, _copied)
    torch.cuda.current_stream().synchronize()
    return there


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.is_cuda:
        return value
    return value.to("cuda", non_blocking=True)
