"""Batches that cannot be made, that end in a single sample, or that are mostly padding.

Takes: evidence. Gives: findings "collate-fails", "last-batch-of-one", "padding".
Not its job: shapes as such (sample_values), collating that is slow (speed).
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.findings import PROBLEM, WARNING, Finding
from feedline.errors.counting import counted

PADDING = 0.4
"""Above this share, more than 40 % of the work on a batch is wasted (C13 of what feedline promises)."""
MASK = ("attention_mask']", ".attention_mask")
"""The one name with the same meaning everywhere: 1 for data, 0 for padding."""
_TOLD_ALREADY = ("CollateError", "CollateTypeError")


def check_collation(seen: Evidence) -> Iterator[Finding]:
    """A run in which collating failed."""
    run = seen.run
    if run is None or not run.error:
        return
    if not seen.setting.loader and run.error.startswith(_TOLD_ALREADY):
        return  # it is unknown whether samples are to be collated in this way; values reports what differs
    yield Finding(
        "collate-fails",
        PROBLEM if seen.setting.loader else WARNING,
        f"Loading fails after {counted(run.batches, 'batch')}: {run.error.splitlines()[0][:200]}",
        {"error": run.error, "batches": run.batches},
        "Samples can be read one by one, but no batch comes of them.",
        "have collate_fn take what __getitem__ gives; pad what differs in length, keep what cannot be stacked.",
        "loader = DataLoader(dataset, collate={'tokens': feedline.collate.pad(0), 'boxes': feedline.collate.keep})",
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
    """Samples that are filled up to the longest."""
    padding, batches = _padding(seen)
    if padding <= PADDING:
        yield from _filled_before(seen)
        return
    yield Finding(
        "padding",
        WARNING,
        f"{padding:.0%} of the batches is padding".replace("%", " %"),
        {"padding": round(padding, 3), "batches": batches},
        "Short samples are filled up to the longest of their batch, and the model computes on all of it.",
        "put samples of similar length together.",
        "lengths = feedline.lengths_of(dataset, 'tokens')\n"
        "batches = feedline.BucketBatchSampler(lengths, batch_size=64)\n"
        "loader = DataLoader(dataset, batch_sampler=batches, collate=…)",
    )


def _padding(seen: Evidence) -> tuple[float, int]:
    """The share of padding, as counted by feedline's collators or seen in the user's; and the number of batches."""
    if seen.run is not None and seen.run.padding is not None:
        return seen.run.padding, seen.run.batches
    data, full = sum(each.data for each in seen.collating), sum(each.full for each in seen.collating)
    return (1 - data / full if full else 0.0), len(seen.collating)


def _filled_before(seen: Evidence) -> Iterator[Finding]:
    """Samples that are already filled up to one length, as their mask shows."""
    for path in seen.paths:
        found = [field for _, field in seen.column_of(path) if field.path.endswith(MASK) and field.value is not None]
        if not found or len({field.shape for field in found}) > 1:
            continue
        padding = 1 - sum(field.value for field in found) / len(found)
        if padding > PADDING:
            yield Finding(
                "padding",
                WARNING,
                f"{padding:.0%} of each sample is padding, by its mask".replace("%", " %"),
                {"padding": round(padding, 3), "field": path, "samples": len(found)},
                "All samples are filled up to one length, long enough for the longest of all, and the model computes "
                "on all of it.",
                "leave padding to the loader, which fills up to the longest of a batch.",
                "zeros = feedline.collate.pad(0)\n"
                "loader = DataLoader(dataset, collate={'input_ids': zeros, 'attention_mask': zeros})",
            )


CHECKS = (check_collation, check_last_batch, check_padding)
