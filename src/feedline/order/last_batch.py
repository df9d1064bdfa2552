"""A last training batch of one sample: recognised before the epoch begins.

Takes: a sampler, a batch size and whether a short last batch is dropped. Gives: `lone_sample`, what to tell the user.
Promises: it speaks only if it is certain: a stock sampler that shuffles (so it is for training), and full batches
before a last one of a single sample. Nothing is read, drawn or counted; a sampler without a length is ignored.
Not its job: warning only once (engine.session); samplers and batch samplers that users write.
"""

from __future__ import annotations

from typing import Any

from feedline.errors.foreign import ask

# torch's samplers have the same names, so they are recognised without importing torch.
_SHUFFLING = {"RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "MixtureSampler"}


def lone_sample(sampler: Any, batch_size: int | None, drop_last: bool, of: str = "") -> str | None:
    """The hint for a shuffled epoch whose last batch would have one sample; None if it has more, or does not shuffle.

    `of` says whose argument drop_last is, if it is not the loader's.

    >>> from feedline import RandomSampler, SequentialSampler
    >>> print(lone_sample(RandomSampler(1001), 100, drop_last=False)[:75])
    the last batch of each epoch has a single sample (1,001 in batches of 100):
    >>> lone_sample(SequentialSampler(1001), 100, drop_last=False)
    """
    if drop_last or batch_size is None or batch_size == 1 or not _shuffles(sampler):
        return None
    try:
        length = len(sampler)
    except Exception:  # a subclass may not know its length; a hint is no reason to fail
        return None
    if length <= batch_size or length % batch_size != 1:
        return None
    return (
        f"the last batch of each epoch has a single sample ({length:,} in batches of {batch_size:,}): batch norm "
        "fails on it if a sample has one value per channel, and its gradient is mostly noise. Pass "
        f"drop_last=True{of}; because the order is shuffled, each epoch leaves out another sample"
    )


def _shuffles(sampler: Any) -> bool:
    names = {kind.__name__ for kind in type(sampler).__mro__}
    if "DistributedSampler" in names:
        inner = ask(sampler, "sampler")  # feedline's holds a sampler; torch's has an attribute `shuffle`
        return ask(sampler, "shuffle", False) is True if inner is None else _shuffles(inner)
    return bool(names & _SHUFFLING)
