"""What the core asks torch for in a process that has loaded it: the only file of the core that looks for torch.

A core loader's dataset may draw from `torch.rand`, hold tensors or run under `torch.distributed`, and nobody has
imported `feedline.torch`: so this is no part of that front.
Takes: nothing. Gives: what torch says, or what stands for none.
Promises: torch is never imported here. Where it is not loaded, or another thread is just importing it, it is not there.
Not its job: what only torch's own loader needs (torch/).
"""

from __future__ import annotations

import sys
from typing import Any

from feedline.errors.foreign import ask


def module() -> Any:
    """torch itself, or None.

    >>> module() is sys.modules.get("torch")
    True
    """
    return sys.modules.get("torch")


def default_generator() -> Any:
    """The generator that `torch.rand` draws from, or None."""
    try:  # not through `ask`: this is called three times for a batch without workers
        return getattr(sys.modules.get("torch"), "default_generator", None)
    except Exception:  # another thread is importing it
        return None


def bytes_of(thing: Any) -> Any:
    """The values of a dense tensor as bytes; None if it is something else."""
    loaded = module()
    try:
        if loaded is None or not isinstance(thing, loaded.Tensor):
            return None
        flat = thing.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return flat.view(loaded.uint8).numpy().tobytes()
    except Exception:  # sparse ones, say
        return None


def set_num_threads(count: int) -> None:
    """Have its operations use so many threads in this process."""
    if (tell := ask(module(), "set_num_threads")) is not None:
        tell(count)


def ranks() -> tuple[int, int] | None:
    """How many there are and which this is, if `torch.distributed` is initialised."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_world_size(), distributed.get_rank()


def has_begun_cuda() -> bool:
    """Has this process a context on a GPU, which does not survive a fork?"""
    cuda = ask(module(), "cuda")
    try:
        return cuda is not None and bool(cuda.is_initialized())
    except Exception:  # it is built without
        return False


def has_gpu() -> bool:
    """Could this process use a GPU?"""
    cuda = ask(module(), "cuda")
    try:
        return cuda is not None and bool(cuda.is_available())
    except Exception:  # a driver that does not fit
        return False


class CudaTiming:
    """Records events of a GPU, on the stream that is the current one when they are recorded."""

    def __init__(self, cuda: Any, device: int) -> None:
        self._cuda, self._device = cuda, device
        self._spare: list[Any] = []

    def record(self) -> Any:
        """An event; None while a CUDA graph is captured, which would have the event for good."""
        if self._cuda.is_current_stream_capturing():
            return None
        event = self._spare.pop() if self._spare else self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def give_back(self, event: Any) -> None:
        """The event can be recorded again."""
        self._spare.append(event)


def cuda_timing(device: int | None = None) -> CudaTiming | None:
    """Events of that GPU, or else of the current one; None without torch, or as long as this process uses no GPU.

    >>> cuda_timing() is None or has_begun_cuda()
    True
    """
    if not has_begun_cuda():  # in a forked child, too, torch says that it has not
        return None
    try:
        cuda = module().cuda
        return CudaTiming(cuda, cuda.current_device() if device is None else device)
    except Exception:
        return None


def give_back_memory() -> None:
    """Of its devices, as far as nobody uses it."""
    for name in ("cuda", "xpu", "mps"):
        device = ask(module(), name)
        if device is not None and device.is_available():
            device.empty_cache()
