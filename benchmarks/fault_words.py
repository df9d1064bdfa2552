"""What one side of a fault came to, as a short phrase for the table.

Takes: what was observed. Gives: a phrase. Promises: nothing in it that was not observed.
Not its job: observing (faults), the faulty scripts (fault_cases).
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import Any

from fault_cases import BAD


@dataclass
class Seen:
    """What one side's script did."""

    batches: int
    samples: int
    """So many an epoch has of either."""
    limit: float
    """Seconds it was given."""
    events: list[dict[str, Any]] = field(default_factory=list)
    stderr: str = ""
    exitcode: int | None = None
    """None: still running when its time was up."""
    facts: dict[str, Any] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] in kinds]

    def after(self, event: dict[str, Any]) -> float:
        return float(event["at"] - self.of("begin")[0]["at"])


def told(seen: Seen) -> str:
    """A loop's story: batches, how it ended, errors, warnings."""
    batches = seen.of("batch")
    number = f"all {seen.batches}" if len(batches) == seen.batches else f"{len(batches)} of {seen.batches}"
    parts = [f"{number} batches{_ending(seen)}"]
    missing = seen.samples - sum(batch["size"] for batch in batches)
    if len(batches) == seen.batches and missing:
        parts.append(f"{missing} sample{'s' * (missing > 1)} left out")
    parts += _said(seen, "error") + _said(seen, "warning") + _said(seen, "log")
    return "; ".join(parts)


def _ending(seen: Seen) -> str:
    if seen.exitcode is not None and seen.exitcode < 0:
        return f", then the main process is killed by {signal.Signals(-seen.exitcode).name}"
    if seen.exitcode is not None or seen.of("end"):
        return ""
    if seen.of("warning"):
        how = "waits"
    elif seen.stderr.strip() and not seen.of("error"):
        how = "hangs with a traceback on stderr" if "Traceback" in seen.stderr else "hangs with a line on stderr"
    else:
        how = "hangs" if seen.of("error") else "hangs silently"
    return f", then {how} (ended after {seen.limit:g} s)"


def _said(seen: Seen, kind: str) -> list[str]:
    found = seen.of(kind)
    if not found:
        return []
    what = f"`{found[0]['name']}`" if kind == "error" else {"log": "log line"}.get(kind, kind)
    number = f"{len(found)} × " if len(found) > 1 else "" if kind == "error" else "one "
    return [f"{number}{what} after {seen.after(found[0]):.1f} s{_names(' '.join(each['text'] for each in found))}"]


def _names(text: str) -> str:
    """What a message lets one know."""
    known = {
        "worker": r"worker \d|worker process \d|worker \(pid",
        "batch": r"\bbatch \d",
        "sample": rf"dataset\[\d+\]|(?<!line )\b{BAD}\b",
        "attribute": r"dataset\.lock",
        "stack": r"in __getitem__",
    }
    named = [name for name, pattern in known.items() if re.search(pattern, text)]
    if "sample" in named and "batch" in named:
        named.remove("batch")
    if not named:
        return ", naming neither worker nor sample"
    return ", naming " + " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))


def after_kill(seen: Seen) -> str:
    gone = seen.facts["gone"]
    return f"workers still there after {seen.limit:g} s" if gone is None else f"workers gone after {gone:.2f} s"


def after_interrupt(seen: Seen) -> str:
    tracebacks = seen.stderr.count("Traceback (most recent call last)")
    remain = seen.facts["remain"]
    ending = "; it has not ended" if seen.exitcode is None else ""
    return (
        f"{tracebacks} traceback{'s' * (tracebacks != 1)}; {after_kill(seen)}{ending}; "
        f"{remain or 'no'} process{'es' * (remain != 1)} left"
    )


def after_leaving(seen: Seen) -> str:
    if not seen.of("left"):
        return told(seen)
    (found,) = seen.of("left")
    left = ", ".join(f"{number} {kind}" for kind, number in found["left"].items()) or "nothing"
    return f"{left} left; {1000 * found['median']:.0f} ms to leave (median)"


def after_drawing(seen: Seen) -> str:
    if not seen.of("draws"):
        return told(seen)
    (found,) = seen.of("draws")
    first = (
        f"{found['alike']} of {found['of']} draws are repeats of another" if found["alike"] else "no two draws alike"
    )
    again = f"{found['again']} come again in the next epoch" if found["again"] else "the next epoch has others"
    said = _said(seen, "warning") or ["not a word"]
    return "; ".join([first, again, *(said if found["alike"] else [])])


def after_growing(seen: Seen) -> str:
    if not seen.of("grown"):
        return told(seen)
    (found,) = seen.of("grown")
    grown = f"a worker grew by {found['megabytes']:.0f} MB in {found['epochs']} epochs"
    return "; ".join([grown, *(_said(seen, "warning") or ["not a word"])])
