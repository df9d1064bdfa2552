"""torchdata's StatefulDataLoader, by its name and signature: feedline's loader is stateful anyway.

Takes: torchdata's options, and feedline's own as keyword-only extras. Gives: feedline's loader for torch.
Promises: what is written for torchdata's loader runs with the import changed; states are feedline's, and torchdata's
are refused.
Not its job: all the rest (loader, engine).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from feedline.checks import check_whole
from feedline.errors import StateError
from feedline.torch.loader import DataLoader

T = TypeVar("T", covariant=True)


class StatefulDataLoader(DataLoader[T]):
    """`DataLoader`, for who comes from torchdata: `from feedline.torch import StatefulDataLoader`.

    `snapshot_every_n_steps`: the state of an iterable dataset is asked for after each such number of its worker's
    batches, and not after each. That is for states that take long to make: what lies between the latest one and the
    place is read again on resuming. (0 or None: it is asked for once, after the first batch.)

    >>> from feedline.torch import StatefulDataLoader
    >>> loader = StatefulDataLoader(range(6), batch_size=2, snapshot_every_n_steps=3)
    >>> batches = iter(loader)
    >>> _ = next(batches)
    >>> again = StatefulDataLoader(range(6), batch_size=2)
    >>> again.load_state_dict(loader.state_dict())
    >>> list(again)
    [tensor([2, 3]), tensor([4, 5])]
    """

    snapshot_every_n_steps: int | None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        snapshot_every_n_steps: int | None = 1,
        **own: Any,
    ) -> None:
        every = check_whole("snapshot_every_n_steps", snapshot_every_n_steps or 0, least=0)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
            **own,
        )
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self._feedline.own = replace(self._feedline.own, snapshot_every=every)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Have the next iteration go on where the state was saved; an empty state is none, as in torchdata."""
        if state_dict == {}:
            return
        if isinstance(state_dict, dict) and state_dict.keys() & {"_snapshot", "_num_yielded"}:
            raise StateError(
                "the state was saved by torchdata's StatefulDataLoader, and feedline cannot go on from it: finish the "
                "epoch there, or begin one anew"
            )
        super().load_state_dict(state_dict)
