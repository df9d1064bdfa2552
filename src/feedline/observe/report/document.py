"""The frame of an HTML page: one self-contained file, in the style of all our pages.

Takes: the content. Gives: HTML.
Promises: the page makes no network request (a content security policy forbids it); light, dark, phone and paper
(page.css); any text can be written as UTF-8.
Not its job: the content.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files


def document(title: str, body: str, data: str = "", script: str = "", style: str = "") -> str:
    """A whole page; `data` is JSON for the script, escaped for a script element; `style` comes after page.css.

    >>> "<h1>Hello</h1>" in document("A page", "<h1>Hello</h1>")
    True
    """
    scripts = _SCRIPTS.format(data=data, script=script) if script else ""
    return writable(_PAGE.format(title=escape(title), style=part("page.css") + style, body=body, scripts=scripts))


def writable(text: str) -> str:
    """The text without what UTF-8 cannot encode: undecodable bytes of a path arrive as lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def part(name: str) -> str:
    """The text of a file next to this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
{scripts}</body>
</html>
"""

_SCRIPTS = """<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
"""
