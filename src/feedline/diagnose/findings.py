"""A finding: what was checked, the result, and what to do about it. Plain data.

Takes: what a check saw. Gives: `Finding`, the result of both preflight and the doctor; the worst of several.
Promises: frozen; `to_json` gives only what JSON can write, whatever the evidence was.
Not its job: how a finding looks on a screen (rendering).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from feedline.errors.checks import check_choice

OK, NOTE, WARNING, PROBLEM = SEVERITIES = ("ok", "note", "warning", "problem")
"""From good to bad. ok: as it should be. note: worth knowing, but feedline works well without a change. warning: it
works, but slower or with less room than possible. problem: it will fail."""


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    >>> finding = Finding("open-files", "warning", "64 open files allowed", {"soft": 64, "hard": 4096})
    >>> finding.to_json()["evidence"]
    {'soft': 64, 'hard': 4096}
    """

    id: str
    """The same in every version, for scripts."""
    severity: str
    title: str
    """One line, with the important numbers."""
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What was measured, by name."""
    explanation: str = ""
    remedy: str = ""
    code: str = ""
    """Lines to paste."""

    def __post_init__(self) -> None:
        check_choice("severity", self.severity, SEVERITIES)

    def to_json(self) -> dict[str, Any]:
        """The finding as a dict of strings, numbers, lists and dicts."""
        return {**vars(self), "evidence": as_plain(self.evidence)}


def worst(findings: Iterable[Finding]) -> str:
    """The worst severity; "ok" if there are no findings.

    >>> worst([Finding("a", "ok", "fine"), Finding("b", "note", "so so")])
    'note'
    """
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=OK)


def as_plain(value: Any) -> Any:
    """The same for JSON: NumPy's numbers and arrays become Python's, tuples and sets lists, anything else text.

    >>> as_plain({1: (2.5, float("nan"))})
    {'1': [2.5, 'nan']}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)  # JSON has no such number
    if isinstance(value, Mapping):
        return {str(key): as_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted((as_plain(each) for each in value), key=repr)
    if hasattr(value, "tolist"):  # NumPy's and torch's arrays; NumPy's bool
        return as_plain(value.tolist())
    return str(value)
