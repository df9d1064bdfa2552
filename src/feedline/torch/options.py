"""The options of feedline.torch.DataLoader: those that other fronts do not have, and the checks.

Takes: what the user passed. Gives: `Own`, feedline's own options, checked and otherwise unchanged: a loader that
Lightning or Accelerate rebuilds from this one's attributes has the same options.
Promises: they are refused as in feedline.DataLoader. torch checks its own options, with its own messages; those that
torch would notice only when an epoch begins, or later, are refused here, by name.
Not its job: acting on the options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from feedline.errors import OptionTypeError
from feedline.options.option import Checked, check_each, option, rows
from feedline.options.single_values import choice, or_none, whole
from feedline.options.table import ASSIGNMENTS, CommonOptions, OwnOptions, TorchsOptions
from feedline.options.together import check_together, uneven_end
from feedline.torch.known import check_ranks
from feedline.torch.reading import reads_many

UNCHECKED_BY_TORCH = ("sampler", "batch_sampler", "collate_fn", "worker_init_fn", "generator")
"""Options that torch accepts unchecked, and that then fail in `iter()` or `next()`."""


def _generator_or_none(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, torch.Generator):
        raise OptionTypeError(
            f"{name} must be a torch.Generator or None; got {value!r}. To give a seed: "
            "generator=torch.Generator().manual_seed(5)"
        )
    return value


class TorchLoadersOptions(TorchsOptions):
    """All options that torch has."""

    pin_memory: bool = option(
        False, None, "True copies each batch into pinned memory, from which copies to a GPU are fast."
    )
    generator: torch.Generator | None = option(
        None,
        _generator_or_none,
        "The generator that the order and the seed of the workers are drawn from; None is torch's default.",
    )
    pin_memory_device: str = option("", None, "The kind of device that memory is pinned for; torch finds it if empty.")


class OwnTorchOptions(OwnOptions):
    """Options that torch does not have."""

    assignment: str | None = option(
        None,
        or_none(choice(*ASSIGNMENTS)),
        '"in_turn": each makes every Nth batch; "free": any free one does; None: as torch (docs/workers.md).',
    )
    device: torch.device | None = option(
        None,
        or_none(lambda name, value: torch.device(value)),
        "Batches are copied to this device, each while the batch before it is in use.",
        takes="str | torch.device | None",
    )
    snapshot_every_n_steps: int | None = option(
        1,
        or_none(whole(0)),
        "A stream is asked for its state after every Nth batch of a worker; 0 or None: once.",
    )


TORCHS = tuple(rows(TorchLoadersOptions))


class Own(Checked, OwnTorchOptions):
    """Options that torch does not have, checked."""


class _All(Checked, CommonOptions):
    """torch's options as they were given, and ours."""


def check_own(given: Mapping[str, Any], stream: bool) -> Own:
    """Check what was passed to DataLoader."""
    for name in UNCHECKED_BY_TORCH:
        rows(TorchLoadersOptions)[name].check(name, given[name])  # type: ignore[misc]
    values = check_each(OwnTorchOptions, given)
    own = Own(**values | {"uneven": uneven_end(values["ranks"], values["uneven"])})
    check_together(_All(**{name: given[name] for name in TORCHS}, **vars(own)), stream, reads_many)
    check_ranks(given["sampler"])
    check_ranks(given["batch_sampler"])
    return own
