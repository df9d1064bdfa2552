"""Writes the options into the docstrings of the loaders and into docs/options.md, from the table of options.

    python docs/make_options.py

Takes: the tables (feedline.options.table, and options.py of the fronts). Promises: in a loader's file only the list
under "Options:" in its class docstring is changed, in the page only what stands between its markers. A test compares.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import feedline.torch
from feedline.jax.options import TABLE, OwnJaxOptions
from feedline.options.option import Option, rows
from feedline.options.table import CoreOptions, ErrorPolicyOptions, TorchsOptions
from feedline.torch.options import OwnTorchOptions, TorchLoadersOptions
from make_pages import filled

PAGE = Path(__file__).parent / "options.md"
HEAD = ("| option | type | default | | in |", "|---|---|---|---|---|")
CORE, TORCH = rows(CoreOptions), {**rows(TorchLoadersOptions), **rows(OwnTorchOptions)}
LOADERS: dict[type[Any], dict[str, Option]] = {
    feedline.DataLoader: dict(CORE),
    feedline.torch.DataLoader: TORCH,
    feedline.torch.StatefulDataLoader: TORCH,
}


def listed(loader: type[Any]) -> str:
    """A loader's options as its docstring lists them, in the order of its signature."""
    return "".join(f"        {name}: {LOADERS[loader][name].doc}\n" for name in inspect.signature(loader).parameters)


def source(loader: type[Any]) -> Path:
    """The file that its docstring stands in."""
    return Path(inspect.getfile(loader))


def documented(text: str, loader: type[Any]) -> str:
    """The file's text, with the options in the docstring."""
    head = rf"(\nclass {loader.__name__}\(.*?\n    Options:\n)"
    before, head, rest = re.split(head, text, maxsplit=1, flags=re.DOTALL)
    return before + head + re.sub(r"(        \w+: .*\n)*", listed(loader), rest, count=1)


def table(kinds: dict[str, Option]) -> str:
    """Lines of the page for options of these names."""
    lines = [_line(row, fronts) for row, fronts in _each(kinds)]
    return "\n".join([*HEAD, *lines])


def page() -> str:
    """docs/options.md as it should be."""
    torchs = {**rows(TorchsOptions), **rows(TorchLoadersOptions)}
    error_policy = rows(ErrorPolicyOptions)
    own = {name: row for name, row in {**CORE, **TORCH}.items() if name not in torchs and name not in error_policy}
    parts = {"torch's": table(torchs), "own": table(own), "care": table(dict(error_policy))}
    parts["jax's"] = "\n".join([*HEAD, *(_line(row, "`feedline.jax`") for row in rows(OwnJaxOptions).values())])
    return filled(PAGE.read_text(encoding="utf-8"), parts)


def _each(kinds: dict[str, Option]) -> Iterator[tuple[Option, str]]:
    """Each option with the fronts that have it; twice where they have another default."""
    for name in kinds:
        core, torch = CORE.get(name), TORCH.get(name)
        if core is not None and core is torch:
            yield core, "both"
            continue
        if core is not None:
            yield core, "`feedline`"
        if torch is not None:
            yield torch, "`feedline.torch`"


def _line(row: Option, fronts: str) -> str:
    takes = row.takes.replace("|", "\\|")
    default = "" if row.default is inspect.Parameter.empty else f"`{row.default!r}`".replace("'", '"')
    doc = re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", row.doc)
    return f"| `{row.name}` | `{takes}` | {default} | {doc} | {fronts} |"


def main() -> None:
    import feedline.jax  # here: the tests of torch's front import this file, and JAX warns of every fork

    LOADERS[feedline.jax.DataLoader] = TABLE
    for loader in LOADERS:
        path = source(loader)
        path.write_text(documented(path.read_text(encoding="utf-8"), loader), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
