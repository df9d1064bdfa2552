"""A comparison in words: for each contest two bars of text, and a sentence that says which is faster.

Takes: a `Comparison` and a width. Gives: lines.
Promises: if torch is faster, the page says so in the same words; a side that failed is named with its reason.
Not its job: the numbers (comparison), colours (rendering), the picture (picture).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from feedline.diagnose.bench.bench_subject import FEEDLINE, TORCH
from feedline.diagnose.bench.comparison import Comparison, Contest, Measured
from feedline.diagnose.bench.machine_noise import BUSY
from feedline.diagnose.bench.workloads import WORKLOADS
from feedline.diagnose.rendering import PageLine

_NAME = len(FEEDLINE) + 2
_STYLES = {FEEDLINE: "green", TORCH: "yellow", None: ""}


def page(found: Comparison, width: int) -> list[PageLine]:
    """All contests, with a heading that says where and with what they were held."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if name != "numpy")
    heading = f"feedline bench: {versions}; {found.machine.get('cores', '?')} cores; {found.date[:10]}"
    lines = [*_wrapped(heading, width, "bold"), PageLine()]
    for contest in found.contests:
        lines += [*_contest(contest, width), PageLine()]
    lines += _wrapped(
        f"Medians of {found.repeats} turn{'' if found.repeats == 1 else 's'}; in brackets the lowest and highest ratio "
        "of two turns in a row. Nothing is done with a batch: a training step hides part of the difference.",
        width,
    )
    if any(contest.noisy for contest in found.contests):
        lines += _wrapped(
            f"?: something else used over {BUSY:.0%} of the machine meanwhile; do not trust that ratio.",
            width,
            "yellow",
        )
    return lines


def listed(width: int) -> list[PageLine]:
    """Our workloads, each with a description."""
    room = max(len(each.name) for each in WORKLOADS) + 2
    lines = [PageLine("workloads: feedline bench NAME …, or pkg.module:dataset for your own", "bold")]
    for each in WORKLOADS:
        label = each.name.ljust(room)
        for part in textwrap.wrap(each.summary, max(20, width - room - 2)):
            lines.append(PageLine(part, "", "  " + label, "cyan"))
            label = " " * room
    return lines


def _contest(contest: Contest, width: int) -> Iterator[PageLine]:
    yield from _wrapped(f"{title(contest)}: {contest.about}" if contest.about else title(contest), width, "bold")
    longest = max([contest.compared.ours or 0, contest.compared.theirs or 0])
    for name, side, value in (
        (FEEDLINE, contest.feedline, contest.compared.ours),
        (TORCH, contest.torch, contest.compared.theirs),
    ):
        label = "  " + name.ljust(_NAME)
        if value is not None:
            number = f"{plain(value)} {contest.metric}"
            room = max(1, width - len(label) - 20)
            bar = "█" * max(1, round(room * value / longest)) if longest else ""
            yield PageLine(f"{bar} {number}", "", label)
        if side.failure:
            yield from _failure(side, label if value is None else " " * len(label), width)
    yield from _wrapped(verdict(contest), width, _STYLES[contest.faster], "  ")
    for note in contest.notes:
        yield from _wrapped(f"note: {note}", width, "cyan", "  ")


def _failure(side: Measured, label: str, width: int) -> Iterator[PageLine]:
    after = " after some turns" if side.values else ""
    for part in textwrap.wrap(f"could not be measured{after}: {side.failure}", max(20, width - len(label))):
        yield PageLine(part, "red", label)
        label = " " * len(label)


def title(contest: Contest) -> str:
    """The workload, and the number of workers.

    >>> title(Contest("jpeg", 1, "samples/s", Measured(), Measured()))
    'jpeg, 1 worker'
    """
    if contest.num_workers is None:
        return contest.name
    return f"{contest.name}, {contest.num_workers} worker{'' if contest.num_workers == 1 else 's'}"


def verdict(contest: Contest) -> str:
    """Which is faster, and how certain that is.

    >>> verdict(Contest("a", 0, "samples/s", Measured((300.0, 310.0)), Measured((100.0, 100.0))))
    'feedline is 3.05 times as fast (3–3.1)'
    >>> verdict(Contest("a", 0, "samples/s", Measured((50.0, 80.0)), Measured((100.0, 100.0))))
    'torch is 1.54 times as fast (1.25–2)'
    >>> verdict(Contest("a", 0, "samples/s", Measured((50.0, 110.0)), Measured((100.0, 100.0))))
    'no difference that could be told (feedline 0.8 times as fast, 0.5–1.1)'
    """
    found = contest.compared
    if found.ratio is None or found.lowest is None or found.highest is None:
        return "nothing to compare"
    doubt = "?" if contest.noisy else ""
    if contest.faster == FEEDLINE:
        return f"feedline is {plain(found.ratio)}{doubt} times as fast ({plain(found.lowest)}–{plain(found.highest)})"
    if contest.faster == TORCH:
        low, high = plain(1 / found.highest), plain(1 / found.lowest)
        return f"torch is {plain(1 / found.ratio)}{doubt} times as fast ({low}–{high})"
    spread = f"{plain(found.lowest)}–{plain(found.highest)}"
    return f"no difference that could be told (feedline {plain(found.ratio)}{doubt} times as fast, {spread})"


def plain(value: float) -> str:
    """A number with as many digits as a reader needs.

    >>> plain(0.25), plain(1500), plain(0), plain(1e-6)
    ('0.25', '1,500', '0', '1e-06')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _wrapped(text: str, width: int, style: str = "", label: str = "") -> Iterator[PageLine]:
    for part in textwrap.wrap(text, width - len(label), break_long_words=False, break_on_hyphens=False):
        yield PageLine(part, style, label)
