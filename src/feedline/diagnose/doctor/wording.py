"""Small phrases that several findings use.

Takes: indices, readings, seconds. Gives: words. Not its job: whole findings (the checks).
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from typing import Any

from feedline.diagnose.doctor.evidence import CodeLine, Reading

FEW = 5


def some(values: Sequence[Any]) -> str:
    """The first few.

    >>> some([1, 2]), some(range(10))
    ('1, 2', '0, 1, 2, 3, 4 and 5 more')
    """
    more = f" and {len(values) - FEW:,} more" if len(values) > FEW else ""
    return ", ".join(str(value) for value in values[:FEW]) + more


def agree(count: int, one: str, several: str) -> str:
    """The form of a verb that fits the number.

    >>> agree(1, "is", "are")
    'is'
    """
    return one if count == 1 else several


def indices(readings: Iterable[Reading]) -> list[Any]:
    """The indices of those readings."""
    return [reading.index for reading in readings]


def field_name(path: str) -> str:
    """A field in words.

    >>> field_name("['image']"), field_name("")
    ("sample['image']", 'the sample')
    """
    return f"sample{path}" if path else "the sample"


def lasting(seconds: float) -> str:
    """A time in words.

    >>> lasting(0.0123), lasting(2.5)
    ('12.3 ms', '2.5 s')
    """
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def source(line: CodeLine | None) -> str:
    """A line with its text; "" if it is unknown.

    >>> source(None), source(CodeLine("nowhere.py", 7, "f"))
    ('', 'nowhere.py:7 (f)')
    """
    if line is None:
        return ""
    text = linecache.getline(line.file, line.number).strip()
    return f"{line}: {text}" if text else f"{line}"


def shares(lines: Iterable[tuple[CodeLine, int]]) -> list[tuple[CodeLine, float]]:
    """Each line's share of the time, the largest first.

    >>> shares([(CodeLine("a.py", 3, "f"), 1), (CodeLine("a.py", 4, "f"), 2), (CodeLine("a.py", 3, "f"), 1)])
    [(CodeLine(file='a.py', number=3, function='f'), 0.5), (CodeLine(file='a.py', number=4, function='f'), 0.5)]
    """
    counts: dict[CodeLine, int] = {}
    for line, count in lines:
        counts[line] = counts.get(line, 0) + count
    total = sum(counts.values())
    return sorted(((line, count / total) for line, count in counts.items()), key=lambda pair: -pair[1])
