"""What a notebook shows of a loader and its statistics: small tables.

Takes: plain texts. Gives: HTML. Promises: every text is escaped, so no name of a user's class or field becomes markup;
no styles but its own, so that dark and light pages both work. Not its job: what is said (stats, loader_line).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape


def two_columns(title: str, rows: Mapping[str, str]) -> str:
    """A title, and a row for each name.

    >>> two_columns("<b>", {"dataset": "List of 3"})
    '<table><caption>&lt;b&gt;</caption><tr><th>dataset</th><td>List of 3</td></tr></table>'
    """
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table><caption>{escape(title)}</caption>{body}</table>"


def lines_with_bar(title: str, lines: Iterable[str], name: str, share: float) -> str:
    """A title, a bar that shows a share of 1, and lines below.

    >>> lines_with_bar("epoch 0", ["2 <workers>"], "waited", 0.25)
    '<div><b>epoch 0</b><br>waited <meter value="0.250"></meter> 25 %<pre>2 &lt;workers&gt;</pre></div>'
    """
    bar = f'{escape(name)} <meter value="{share:.3f}"></meter> {100 * share:.0f} %'
    below = "\n".join(escape(line.strip()) for line in lines if line.strip())
    return f"<div><b>{escape(title)}</b><br>{bar}<pre>{below}</pre></div>"
