"""The explorer's page: its modules and its stylesheet in one file that works offline.

Takes: the files in page/, and data for the page (a measured loader). Gives: HTML.
Promises: the same files and data give the same page, byte for byte; no network (a content security policy forbids it);
whatever text the data has, it cannot become markup. Modules come after those that they import.
Not its job: what the page shows (page/), measuring (explore_command).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from feedline.observe.report.document import document
from feedline.observe.report.report_page import embedded

FIRST = "main.js"
_IMPORT = re.compile(r'^import \{ ([^}]*) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (function|class|const|async function) (\w+)", re.MULTILINE)


def page_with(run: Any = None) -> str:
    """The page; with `run`, what was measured of a loader, it opens at "your run".

    >>> page_with().startswith("<!doctype html>")
    True
    """
    data = {"words": json.loads(_text("words.json")), "run": run}
    return document("feedline explore", _text("body.html"), embedded(data), script(), _text("explorer.css"))


@lru_cache(1)
def script() -> str:
    """All modules as one script, each in a block of its own; `feedline` has what they export.

    >>> script().count("export ")
    0
    """
    wrapped = [_wrapped(name, _text(f"{name}.js")) for name in ordered(FIRST.removesuffix(".js"))]
    return "\n".join(['"use strict";', "const feedline = globalThis.feedline = {};", *wrapped])


def ordered(name: str, known: tuple[str, ...] = ()) -> list[str]:
    """A module after all those that it imports, each once.

    >>> ordered("orders")
    ['words', 'orders']
    """
    if name in known:
        raise ValueError(f"the page's modules import one another in a circle: {' -> '.join((*known, name))}")
    found: list[str] = []
    for _, other in _IMPORT.findall(_text(f"{name}.js")):
        found += [each for each in ordered(other, (*known, name)) if each not in found]
    return [*found, name]


def _wrapped(name: str, text: str) -> str:
    exported = ", ".join(found[1] for found in _EXPORT.findall(text))
    text = _EXPORT.sub(r"\1 \2", _IMPORT.sub(r"const { \1 } = feedline.\2;", text))
    return f"{{\n{text}feedline.{name} = {{ {exported} }};\n}}"


def _text(name: str) -> str:
    return files(__package__).joinpath("page").joinpath(name).read_text(encoding="utf-8")
