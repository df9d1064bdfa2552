"""Batches: that cannot be made, that end in a single sample, that are mostly padding.

Takes: evidence. Gives: findings "collate-fails", "last-batch-of-one", "padding".
Not its job: shapes as such (values), collating that is slow (speed).
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.findings import PROBLEM, WARNING, Finding

PADDING = 0.4
"""Above that, more than two fifths of the work on a batch is for nothing (C13 of what feedline promises)."""
_TOLD_ALREADY = ("CollateError", "CollateTypeError")


def check_collation(seen: Evidence) -> Iterator[Finding]:
    """A run that failed."""
    run = seen.run
    if run is None or not run.error:
        return
    if not seen.setting.loader and run.error.startswith(_TOLD_ALREADY):
        return  # nobody has said that samples are to be collated so; values says what differs
    yield Finding(
        "collate-fails",
        PROBLEM,
        f"Loading fails after {run.batches:,} batches: {run.error.splitlines()[0][:200]}",
        {"error": run.error, "batches": run.batches},
        "Samples can be read one by one, but no batch comes of them.",
        "have collate_fn take what __getitem__ gives; pad what differs in length, keep what cannot be stacked.",
        "loader = DataLoader(dataset, collate={'tokens': feedline.pad(0), 'boxes': feedline.keep})",
    )


def check_last_batch(seen: Evidence) -> Iterator[Finding]:
    """A single sample at the end of each epoch."""
    said = seen.setting.lone_sample
    if said:
        yield Finding(
            "last-batch-of-one",
            WARNING,
            "The last batch of each epoch has a single sample",
            {"length": seen.setting.length, "batch_size": seen.setting.batch_size},
            "Batch norm fails on it (there is no variance in one value), and its gradient is mostly noise.",
            "drop it; as the order is shuffled, that leaves out another sample each epoch.",
            "loader = DataLoader(dataset, shuffle=True, drop_last=True)",
        )


def check_padding(seen: Evidence) -> Iterator[Finding]:
    """Filled up to the longest."""
    run = seen.run
    if run is None or run.padding is None or run.padding <= PADDING:
        return
    yield Finding(
        "padding",
        WARNING,
        f"{run.padding:.0%} of the batches is padding".replace("%", " %"),
        {"padding": round(run.padding, 3), "batches": run.batches},
        "Short samples are filled up to the longest of their batch, and the model computes on all of it.",
        "put samples of similar length together.",
        "lengths = feedline.lengths_of(dataset, 'tokens')\n"
        "batches = feedline.BucketBatchSampler(lengths, batch_size=64)\n"
        "loader = DataLoader(dataset, batch_sampler=batches, collate=…)",
    )


CHECKS = (check_collation, check_last_batch, check_padding)
