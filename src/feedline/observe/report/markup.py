"""Small pieces of HTML: tables, sentences, charts with their axes.

Takes: plain values. Gives: HTML in which every text except `Html` is escaped. Not its job: what is said (sections).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from feedline.observe.report.measured import Span

LONG = 24
"""From this many characters on, a cell may be broken into lines."""


class Html(str):
    """Text that is HTML already."""


def section(name: str, title: str, *parts: str) -> str:
    """A section with a heading; nothing if it is empty."""
    inside = "\n".join(part for part in parts if part)
    return f'<section id="{name}"><h2>{escape(title)}</h2>\n{inside}\n</section>' if inside else ""


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: int = 0) -> str:
    """A table that scrolls by itself if it is too wide; the last `numbers` columns are numbers."""
    first = len(head) - numbers
    right = [" class=n" if place >= first else "" for place in range(len(head))]
    heads = "".join(f"<th scope=col{kind}>{escape(text)}</th>" for text, kind in zip(head, right, strict=True))
    body = "".join(
        "<tr>" + "".join(_cell(cell, kind) for cell, kind in zip(row, right, strict=True)) + "</tr>\n" for row in rows
    )
    return (
        f"<div class=scroll><table><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table></div>" if body else ""
    )


def _cell(cell: Any, kind: str) -> str:
    text = cell if isinstance(cell, Html) else escape(str(cell))
    is_long = len(str(cell)) > LONG and (not isinstance(cell, Html) or cell.startswith("<pre>"))
    return f"<td{' class=w' if is_long else kind}>{text}</td>"


def number(value: float) -> str:
    """A number with three digits and no exponent.

    >>> number(4329.7), number(0.02514), number(12.0)
    ('4,330', '0.0251', '12')
    """
    return f"{float(f'{value:.3g}'):,g}" if abs(value) < 1e6 else f"{value:,.0f}"


def sentence(text: str) -> str:
    """A paragraph in small print."""
    return f"<p class=small>{escape(text)}</p>"


def legend(names: dict[str, str]) -> str:
    """The legend: what the colours mean."""
    return (
        "<p class=legend>"
        + " ".join(f'<span><i class="{key}"></i>{escape(text)}</span>' for key, text in names.items())
        + "</p>"
    )


def axis(span: Span) -> str:
    """The times below a chart."""
    length = (span.end - span.start) / 1e9
    return f"<div class=axis><span>0 s</span><span>{number(length / 2)} s</span><span>{number(length)} s</span></div>"


def figure(names: dict[str, str], svg: str, marks: tuple[str, ...], span: Span) -> str:
    """A chart over time with its legend and both axes."""
    ticks = "".join(f"<span>{escape(mark)}</span>" for mark in marks)
    framed = f"<div class=framed><div class=ticks>{ticks}</div>{svg}<span></span>{axis(span)}</div>"
    return f"<div class=figure>{legend(names)}{framed}</div>"
