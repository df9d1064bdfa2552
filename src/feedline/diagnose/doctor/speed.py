"""Time: samples that take long, the line that takes the time, collating, and whether threads would help.

Takes: evidence. Gives: findings "slow-start", "slow-samples", "slow-reading", "slow-collate", "python-bound",
"threads-help".
Promises: a sample is slow only if it was slow each time it was read; what is said about threads does not depend on how
busy the machine was.
Not its job: the number of workers (tune).
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline.diagnose.doctor.evidence import OUTLIER, CodeLine, Evidence
from feedline.diagnose.doctor.wording import agree, indices, lasting, shares, some, source
from feedline.diagnose.findings import NOTE, OK, WARNING, Finding
from feedline.machine.gil import LEAST_LOOKS, MOST_WANTED, wanted
from feedline.observe.report.report_verdict import percent

SLOW, VERY_SLOW = 0.01, 0.05
"""Seconds per sample: decoding an image takes 1–4 ms (docs/design.md); at 50 ms a batch of 64 takes a worker 3 s."""
FEW = 8
"""With fewer samples nothing is said about the usual time."""
SLOW_START = 3.0
"""Seconds before a worker's first sample: torch's own lazy imports take 0.3 s, and 3 s on a busy machine."""
LOOKS = 20
"""The fewest looks at the code for a statement about a line's share."""
COLLATE_SHARE, COLLATE_SECONDS = 0.5, 0.001
"""The share of the time for reading and collating; and seconds per sample."""
BOUND = 0.75
"""The share of its time that reading holds the GIL, from which on Python is the limit: two threads would be at most a
third faster than one."""


def check_outliers(seen: Evidence) -> Iterator[Finding]:
    """A few samples that delay the others."""
    if len(seen.good) < FEW:
        return
    limit, usual = seen.long, seen.usual
    # Was it slow again? The first time, files are opened and modules imported.
    again = {reading.index for reading in seen.reread if reading.seconds > limit}
    slow = [reading for reading in seen.good if reading.seconds > limit and reading.index in again]
    if not slow or len(slow) > len(seen.good) // 4:
        return
    worst = max(slow, key=lambda reading: reading.seconds)
    line = _line(shares(pair for reading in slow for pair in reading.lines))
    names = [f"{each.index} ({each.what})" if each.what else str(each.index) for each in slow]
    yield Finding(
        "slow-samples",
        WARNING,
        f"{len(slow):,} of {len(seen.good):,} samples {agree(len(slow), 'takes', 'take')} far longer than the rest "
        f"({lasting(usual)}): {some(names)}",
        {"indices": indices(slow), "seconds": [each.seconds for each in slow], "usual": usual, "line": line},
        f"Sample {worst.index} takes {lasting(worst.seconds)}. Batches are delivered in order, so one such sample "
        f"holds up those behind it.{f' The time goes into {line}.' if line else ''}",
        "see whether their files are larger or of another format. Otherwise prefetch more, or load in any order.",
        "loader = DataLoader(dataset, prefetch_factor=8, in_order=False)",
    )


def check_first(seen: Evidence) -> Iterator[Finding]:
    """What a worker does before its first sample is ready."""
    if len(seen.good) < FEW or seen.first < max(SLOW_START, OUTLIER * seen.usual):
        return
    yield Finding(
        "slow-start",
        NOTE,
        f"The first sample that a worker reads takes {lasting(seen.first)}, the others {lasting(seen.usual)}",
        {"first": seen.first, "usual": seen.usual},
        "Something is opened or loaded on first use. Each worker does that, and without persistent_workers in each "
        "epoch anew.",
        "load less, or map a file; and keep the workers from one epoch to the next.",
        "loader = DataLoader(dataset, num_workers=4, persistent_workers=True)",
    )


def check_reading(seen: Evidence) -> Iterator[Finding]:
    """The usual sample, and where its time goes."""
    if not seen.good:
        return
    usual = seen.usual
    if usual < SLOW:
        return
    lines = shares(pair for reading in seen.good for pair in reading.lines)
    looks = sum(count for reading in seen.good for _, count in reading.lines)
    line = _line(lines) if looks >= LOOKS else ""
    yield Finding(
        "slow-reading",
        WARNING if usual >= VERY_SLOW else NOTE,
        f"A sample takes {lasting(usual)} to read" + (f", {percent(lines[0][1])} of it in one line" if line else ""),
        {
            "seconds": usual,
            "per_second_and_worker": round(1 / usual, 1),
            "lines": [{"line": str(each), "share": round(share, 3)} for each, share in lines[:5]],
        },
        f"One worker gives {1 / usual:,.0f} samples a second. " + (f"The time goes into {line}." if line else ""),
        "do this work once and store the result, use a faster library, or use more workers: feedline tune "
        "finds out how many.",
    )


def _line(lines: list[tuple[CodeLine, float]]) -> str:
    return source(lines[0][0]) if lines else ""


def check_collate(seen: Evidence) -> Iterator[Finding]:
    """Work that is done for each batch."""
    if not seen.collating or not seen.good:
        return
    samples = sum(each.samples for each in seen.collating)
    each = sum(one.seconds for one in seen.collating) / max(1, samples)
    reading = sum(one.seconds for one in seen.good) / len(seen.good)
    if each < COLLATE_SECONDS or each < COLLATE_SHARE * (each + reading):
        return
    lines = shares(pair for one in seen.collating for pair in one.lines)
    yield Finding(
        "slow-collate",
        WARNING,
        f"collate_fn takes {lasting(each)} a sample, reading it {lasting(reading)}",
        {"collate_seconds": each, "read_seconds": reading, "line": _line(lines)},
        "What collate_fn does to each sample is better done in __getitem__: it is then seen, timed and repeated sample "
        f"by sample, and an error names the sample.{f' The time goes into {_line(lines)}.' if lines else ''}",
        "move work on single samples into __getitem__; pad and stack with feedline's collators, which write once.",
        "loader = DataLoader(dataset, collate={'tokens': feedline.collate.pad(0), 'label': feedline.collate.stack})",
    )


def check_threads(seen: Evidence) -> Iterator[Finding]:
    """Would threads be enough, instead of processes?"""
    looks = seen.looks
    if looks is None or looks.looked < LEAST_LOOKS:
        return
    held = percent(looks.held_share)
    evidence = {"held": round(looks.held_share, 2), "on_cpu": round(looks.on_cpu, 2), "looks": looks.looked}
    if looks.held_share >= BOUND:
        if seen.setting.threads or seen.usual >= SLOW / 2:
            yield Finding(
                "python-bound",
                WARNING if seen.setting.threads else NOTE,
                f"Reading holds the GIL for {held} of its time: the work is done by Python itself",
                evidence,
                "Python runs one thread at a time (the GIL). Worker threads do not help here; worker processes do.",
                "use worker processes, or do the work in NumPy, OpenCV or torch calls on whole arrays.",
                'loader = DataLoader(dataset, num_workers=4, workers="process")',
            )
    elif wanted(looks, workers=2, cpus=2) <= MOST_WANTED:
        title = f"Reading holds the GIL for {held} of its time: worker threads are enough"
        yield Finding("threads-help", OK, title, evidence)


CHECKS = (check_first, check_outliers, check_reading, check_collate, check_threads)
