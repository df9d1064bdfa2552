"""Samples that cannot be read: they raise, hang, or kill their worker. Batches that cannot be made, or that waste work.

Takes: evidence. Gives: findings "empty-dataset", "failing-samples", "stuck-samples", "deadly-samples", "collate-fails",
"last-batch-of-one", "padding".
Not its job: samples that can be read but are odd (sample_values), collating that is slow (speed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from feedline.diagnose.doctor.evidence import DeadlySample, Evidence, Reading
from feedline.diagnose.doctor.wording import indices, some, source
from feedline.diagnose.findings import PROBLEM, WARNING, Finding
from feedline.errors.counting import counted
from feedline.observe.report.report_verdict import percent

LISTED = 20
PADDING = 0.4
"""Above this share, more than 40 % of the work on a batch is wasted (C13 of what feedline promises)."""
MASK = ("attention_mask']", ".attention_mask")
"""The one name with the same meaning everywhere: 1 for data, 0 for padding."""
_TOLD_ALREADY = ("CollateError", "CollateTypeError")


def check_empty(seen: Evidence) -> Iterator[Finding]:
    """Nothing to read."""
    if seen.setting.length == 0 or (
        seen.setting.stream and not (seen.readings or seen.deadly_samples or seen.troubles)
    ):
        what = "The stream ended before its first element" if seen.setting.stream else "The dataset has no samples"
        explanation = "A wrong path, a filter that lets nothing pass, or a split with nothing in it."
        yield Finding("empty-dataset", WARNING, what, {}, explanation, "check which files or rows __init__ finds.")


def check_failing(seen: Evidence) -> Iterator[Finding]:
    """Reading raised."""
    bad = [reading for reading in seen.readings if reading.error]
    if not bad:
        return
    kinds = Counter(reading.error.partition(":")[0] for reading in bad)
    first = bad[0]
    where = f", raised in {first.where}" if first.where else ""
    every, kind = len(bad) == len(seen.readings), _kind(seen)
    code = "" if every else 'loader = DataLoader(dataset, on_error="skip", error_log="bad-samples.jsonl")'
    yield Finding(
        "failing-samples",
        PROBLEM,
        f"Reading fails for {'all' if every else len(bad)} of {len(seen.readings):,} {kind}s: {some(_called(bad))}",
        {
            "indices": indices(bad),
            "read": len(seen.readings),
            "errors": dict(kinds),
            "samples": [{"index": each.index, "what": each.what, "error": each.error} for each in bad[:LISTED]],
            "line": str(first.where or ""),
        },
        f"{kind.capitalize()} {first.index}: {first.error}{where}. "
        + ("" if every else f"One such {kind} ends an epoch, unless the loader is told to skip it."),
        f"repair {'__iter__' if seen.setting.stream else '__getitem__'}."
        if every
        else "repair or remove them; or let the loader skip them and list them in a file.",
        code,
    )


def _kind(seen: Evidence) -> str:
    return "element" if seen.setting.stream else "sample"


def _called(bad: Sequence[Reading | DeadlySample]) -> list[str]:
    return [f"{each.index} ({each.what})" if each.what else str(each.index) for each in bad]


def check_deadly_samples(seen: Evidence) -> Iterator[Finding]:
    """Reading never ended, or ended the worker."""
    stuck = [each for each in seen.deadly_samples if each.stuck]
    if stuck:
        names, line = _called(stuck), source(stuck[0].where)
        yield Finding(
            "stuck-samples",
            PROBLEM,
            f"{_kind(seen).capitalize()} {some(names)} was not read within {seen.limit:.1f} s",
            {"indices": [each.index for each in stuck], "limit": seen.limit, "line": line},
            "An endless loop, a lock that nobody releases, or storage that does not answer."
            f"{f' It was at {line}.' if line else ''} (If it only needs longer, give it more time: --seconds 60.)",
            "look at that line; meanwhile a loader can replace a stuck worker and skip the sample.",
            'loader = DataLoader(dataset, timeout=30, on_stall="restart", on_error="skip")',
        )
    deadly = [each for each in seen.deadly_samples if each not in stuck]
    if deadly:
        line = source(deadly[0].where)
        yield Finding(
            "deadly-samples",
            PROBLEM,
            f"{_kind(seen).capitalize()} {some(_called(deadly))} ended its worker process",
            {"indices": [each.index for each in deadly], "error": deadly[0].error, "line": line},
            f"{deadly[0].error.partition('the last ')[2].capitalize() or deadly[0].error}: a crash inside a library, "
            f"an exit, or too little memory.{f' It was at {line}.' if line else ''}",
            "read that sample by itself to see the crash; a loader can skip it.",
            'loader = DataLoader(dataset, on_error="skip", max_deaths=1)',
        )


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
        "Samples can be read one by one, but no batch can be made of them.",
        "let collate_fn accept what __getitem__ gives; pad what differs in length, keep what cannot be stacked.",
        "loader = DataLoader(dataset, collate={'tokens': feedline.collate.pad(0), 'boxes': feedline.collate.keep})",
    )


def check_last_batch(seen: Evidence) -> Iterator[Finding]:
    """A single sample at the end of each epoch."""
    if seen.setting.lone_sample:
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
        f"{percent(padding)} of the batches is padding",
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
                f"{percent(padding)} of each sample is padding, by its mask",
                {"padding": round(padding, 3), "field": path, "samples": len(found)},
                "All samples are filled up to one length, long enough for the longest of all, and the model computes "
                "on all of it.",
                "leave padding to the loader, which fills up to the longest of a batch.",
                "zeros = feedline.collate.pad(0)\n"
                "loader = DataLoader(dataset, collate={'input_ids': zeros, 'attention_mask': zeros})",
            )


CHECKS = (check_empty, check_failing, check_deadly_samples)
BATCH_CHECKS = (check_collation, check_last_batch, check_padding)
