"""For mkdocstrings: docstrings become the Markdown that a page needs. Zensical loads this (zensical.toml).

Takes: docstrings as they are in the source. Gives: the same with doctests in fences, the loaders' "Options:" as
parameters, and pages of the docs as links; names that are imported on demand.
Not its job: which names are on which page (reference_pages.py).
"""

from __future__ import annotations

import ast
import re
from typing import Any

from griffe import Alias, Extension, Module, Object


class Docstrings(Extension):
    """Changes each docstring when it has been read."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_module_members(self, *, mod: Module, **kwargs: Any) -> None:
        add_names_on_demand(mod)


def add_names_on_demand(module: Module) -> None:
    """As if they were imported at its top."""
    for name, home in on_demand(module).items():
        if name not in module.members:
            path = home if "." in home else f"{module.path}.{home}"
            module.set_member(name, Alias(name, f"{path}.{name}"))


def on_demand(module: Module) -> dict[str, str]:
    """The names that a package imports when somebody asks for them, and the module of each: its `_ON_DEMAND`."""
    homes = module.attributes.get("_ON_DEMAND")
    value = ast.literal_eval(str(homes.value)) if homes is not None else {}
    return value if isinstance(value, dict) else {}


def as_markdown(text: str) -> str:
    r"""A docstring, ready for a page in the folder `reference`.

    >>> as_markdown("Adds.\n\n>>> 1 + 1\n2\n\nOptions:\n    a: First (docs/jax.md).").splitlines()[2:6]
    ['```pycon', '>>> 1 + 1', '2', '```']
    >>> as_markdown("Options:\n    a: First (docs/jax.md).")
    'Args:\n    a: First ([jax.md](../jax.md)).'
    """
    text = re.sub(r"^Options:$", "Args:", text, flags=re.MULTILINE)
    text = re.sub(r"`?docs/([\w-]+\.md)`?", r"[\1](../\1)", text)
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines, inside = [*lines, "```pycon"], True
        elif not line.strip() and inside:
            lines, inside = [*lines, "```"], False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)
