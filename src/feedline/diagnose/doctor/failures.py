"""Samples that cannot be read: they raise, hang, or kill their worker.

Takes: evidence. Gives: findings "empty-dataset", "failing-samples", "stuck-samples", "deadly-samples".
Not its job: samples that can be read but are odd (sample_values).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from feedline.diagnose.doctor.evidence import DeadlySample, Evidence, Reading
from feedline.diagnose.doctor.wording import indices, some, source
from feedline.diagnose.findings import PROBLEM, WARNING, Finding

LISTED = 20


def check_empty(seen: Evidence) -> Iterator[Finding]:
    """Nothing to read."""
    if seen.setting.length == 0 or (
        seen.setting.stream and not (seen.readings or seen.deadly_samples or seen.troubles)
    ):
        what = "The stream ended before its first element" if seen.setting.stream else "The dataset has no samples"
        explanation = "A wrong path, a filter that lets nothing pass, or a split with nothing in it."
        yield Finding("empty-dataset", WARNING, what, {}, explanation, "look at what __init__ finds.")


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
        f"{'All' if every else len(bad)} of {len(seen.readings):,} {kind}s read cannot be read: {some(_called(bad))}",
        {
            "indices": indices(bad),
            "read": len(seen.readings),
            "errors": dict(kinds),
            "samples": [{"index": each.index, "what": each.what, "error": each.error} for each in bad[:LISTED]],
            "line": str(first.where or ""),
        },
        f"{kind.capitalize()} {first.index}: {first.error}{where}. "
        + ("" if every else f"One such {kind} ends an epoch, unless the loader is told to go on without it."),
        f"repair {'__iter__' if seen.setting.stream else '__getitem__'}."
        if every
        else "repair or remove them; or have them left out, and listed with their paths.",
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
            f"{f' It was at {line}.' if line else ''} (If it merely takes longer: try with more time, --seconds 60.)",
            "see where it stands; meanwhile a loader can replace a stuck worker and go on without the sample.",
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
            "read that sample by itself to see it; a loader can go on without it.",
            'loader = DataLoader(dataset, on_error="skip", max_deaths=1)',
        )


CHECKS = (check_empty, check_failing, check_deadly_samples)
