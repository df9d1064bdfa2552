"""The pages of the reference: which names are on which page. What is said about a name is its docstring.

Takes: the packages' `__all__`, the commands' parsers, `Stats`. Gives: `pages()`, Markdown with a line `::: name` where
mkdocstrings puts a docstring. Promises: every public name is on a page; torch is not imported for it. Not its job:
how docstrings are rendered (zensical.toml, docstrings_for_pages.py), the table of options (make_options.py).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import griffe

from docstrings_for_pages import Docstrings, on_demand
from feedline import cli
from feedline.observe import stats

SOURCE = Path(stats.__file__).parents[2]
STATS = ("AutoWorkers", "CollateStats", "EpochStats", "Stats", "WorkerChange", "WorkerMemory")
HEADS = {
    "feedline": "The core: NumPy arrays, no framework. Import names from here: `from feedline import DataLoader`.",
    "feedline.collate": "How samples become a batch: `from feedline.collate import pad`. "
    "[The page about it](../collation.md).",
    "feedline.sources": "Where data lives: `from feedline.sources import FolderDataset`.",
    "feedline.torch": "PyTorch's front: `from feedline.torch import DataLoader`. "
    "[Switching from torch](../switching-from-torch.md).",
    "feedline.jax": "JAX's front: `from feedline.jax import DataLoader`. [The page about it](../jax.md).",
    "feedline.errors": "Every error that feedline itself raises, in one tree: `from feedline.errors import "
    "WorkerDied`. An exception of your own code keeps its type and gets notes that say where it happened.",
}


def pages() -> dict[str, str]:
    """Each generated page by its name."""
    extensions = griffe.load_extensions(Docstrings)
    loaded = griffe.load("feedline", search_paths=[str(SOURCE)], extensions=extensions)
    made = {f"reference/{name.rpartition('.')[2]}.md": _package(loaded, name) for name in HEADS}
    made["reference/stats.md"] = _stats()
    made["reference/commands.md"] = _commands()
    return made


def _package(loaded: griffe.Module, name: str) -> str:
    package = loaded if name == "feedline" else loaded[name.partition(".")[2]]
    own, elsewhere = [], []
    for each in public_names(package):
        target = _target(package, each)
        if (page := _page_of(name, each, target)) is None:
            own.append(f"::: {name}.{each}\n")
        else:
            elsewhere.append(f'| <a id="{name}.{each}"></a>`{each}` | {page} |\n')
    lines = [f"# {name}\n\n{HEADS[name]}\n\n"]
    if name == "feedline.errors":
        (tree,) = re.findall(r"\n\n((?:    .*\n)+)", package.docstring.value)
        lines.append(f"{tree}\n")
    lines.append("\n".join(own))
    if elsewhere:
        lines.append("\n## Described elsewhere\n\n| name | is |\n|---|---|\n" + "".join(elsewhere))
    return "".join(lines)


def public_names(package: griffe.Module) -> list[str]:
    """What the package exports; of `errors`, which has no list, its classes; of `sources`, what it has on demand."""
    if not package.exports and on_demand(package):
        return sorted(on_demand(package))
    if package.exports is None:
        return [name for name, each in package.classes.items() if not name.startswith("_") and not each.is_alias]
    return sorted({str(each) for each in package.exports})


def _target(package: griffe.Module, name: str) -> str:
    """The full name of what it is."""
    member = package.members.get(name)
    while member is not None and member.is_alias:
        if "." not in member.target_path or not member.target_path.startswith("feedline."):
            return member.target_path
        try:
            member = member.target
        except griffe.AliasResolutionError as error:
            return str(error.alias.target_path)
    return f"{package.path}.{name}" if member is None else member.path


def _page_of(package: str, name: str, target: str) -> str | None:
    """Where else it is described; None: here."""
    if not target.startswith("feedline"):
        return f"`{target}`, unchanged"
    if target in HEADS:
        return f"the package [{target}]({target.rpartition('.')[2]}.md)"
    homes = {"errors": "feedline.errors", "collate": "feedline.collate"}
    home = homes.get(target.split(".")[1])
    if home == "feedline.errors" and package != home:
        return f"[feedline.errors](errors.md#feedline.errors.{name})"
    if name in STATS:
        return f"[what a loader knows about itself](stats.md#feedline.{name})"
    own = (
        package == "feedline" or target.startswith(f"{package}.") or package in ("feedline.collate", "feedline.sources")
    )
    return None if own else f"[feedline.{name}](feedline.md#feedline.{name})"


def _stats() -> str:
    full = stats.Stats(collate=stats.CollateStats(padding=0.0), workers=(stats.WorkerMemory(0, 1, 1, 1, 1),))
    scalars = "".join(f"- `{name}`\n" for name in full.scalars())
    metrics = re.findall(r"^# HELP (\S+) (.*)$", full.prometheus(), re.MULTILINE)
    rows = "".join(f"| `{name}` | {said} |\n" for name, said in metrics)
    return (
        "# What a loader knows about itself\n\n`loader.stats()` returns a `Stats`. "
        "[How to look at it](../seeing.md).\n\n"
        + "\n".join(f"::: feedline.{name}\n" for name in ("Stats", *(each for each in STATS if each != "Stats")))
        + f"\n## Names of scalars\n\n`loader.stats().scalars()`, for TensorBoard and other loggers:\n\n{scalars}"
        + f"\n## Prometheus\n\n`loader.stats().prometheus()`:\n\n| metric | |\n|---|---|\n{rows}"
    )


def _commands() -> str:
    """Each command's help, as its parser prints it."""
    parser = cli._parser()
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    parts = ["# Commands\n\n`feedline COMMAND`, or `python -m feedline COMMAND`. Each takes `--json` and `--help`.\n"]
    for name, each in commands.choices.items():
        each.formatter_class = _Wide
        parts.append(f"\n## feedline {name}\n\n```text\n{each.format_help()}```\n")
    return "".join(parts)


class _Wide(argparse.HelpFormatter):
    """As wide on every machine."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)
