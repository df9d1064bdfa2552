"""Builds the site: `make docs`, or `python docs/make_site.py [folder]` (default: build).

Takes: docs/*.md and what they show, notebooks, CONTRIBUTING.md, CHANGELOG.md, examples/*.py, docstrings, the explorer,
zensical.toml.
Gives: `pages`, all of it as Markdown in one folder, and `site`, made from it by Zensical.
Promises: no network; a link that leads nowhere is an error. Not its job: what the reference says (reference_pages.py,
and docstrings by mkdocstrings).
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import reference_pages
from feedline.diagnose.explorer.bundle import page_with

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SHOWN = {".md", ".svg", ".png", ".js", ".css", ".ipynb"}
"""What is copied from docs/: not the scripts beside them, nor what was measured."""
EXPLORER = """
## Here it is

<iframe src="explore.html" title="The explorer" width="100%" height="900" loading="lazy"></iframe>
"""


def write_pages(folder: Path) -> None:
    """All pages of the site as Markdown."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    pages |= {
        f"{name.lower()}.md": (ROOT / f"{name}.md").read_text(encoding="utf-8")
        for name in ("CONTRIBUTING", "CHANGELOG")
    }
    pages |= example_pages() | notebook_pages() | reference_pages.pages()
    pages["explorer.md"] += EXPLORER
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(within_the_site(text), encoding="utf-8")
    for path in DOCS.rglob("*"):
        if path.suffix in SHOWN - {".md"}:
            (folder / path.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / path.relative_to(DOCS))
    (folder / "explore.html").write_text(page_with(), encoding="utf-8")


def within_the_site(text: str) -> str:
    """The page with links to files of the repository led to their pages, or to nothing where there is no such page.

    >>> within_the_site("[a](../examples/sql.py), [b](../src/x.py), [c](docs/jax.md#d), [e](../CONTRIBUTING.md)")
    '[a](examples/sql.md), b, [c](jax.md#d), [e](contributing.md)'
    """
    text = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](examples/\1.md)", text)
    text = re.sub(r"\]\((?:\.\./)?(CONTRIBUTING|CHANGELOG)\.md", lambda found: f"]({found[1].lower()}.md", text)
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\[([^\]]*)\]\(\.\./(?:src|tests|benchmarks|README)[^)]*\)", r"\1", text)


def example_pages() -> dict[str, str]:
    """A page for each example, and one that lists them."""
    pages, lines = {}, []
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        title = path.stem.replace("_", " ").capitalize()
        said = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0].replace("\n", " ")
        pages[f"examples/{path.stem}.md"] = f"# {title}\n\n`examples/{path.name}`: {said}\n\n```python\n{text}```\n"
        lines.append(f"| [{title}]({path.stem}.md) | {said} |\n")
    head = "# Examples\n\nWhole scripts, each run by the tests.\n\n| | |\n|---|---|\n"
    return pages | {"examples/index.md": head + "".join(lines)}


def notebook_pages() -> dict[str, str]:
    """A page for each notebook: what it says and its code. The tests run it, so its output is not kept in it."""
    pages = {}
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        parts = []
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
        parts.insert(1, f"[The notebook]({path.name}), to be run.")
        pages[f"notebooks/{path.stem}.md"] = "\n\n".join(parts) + "\n"
    return pages


def build(folder: Path) -> None:
    """The pages, and the site made from them."""
    shutil.rmtree(folder / "pages", ignore_errors=True)
    write_pages(folder / "pages")
    shutil.copyfile(DOCS / "zensical.toml", folder / "zensical.toml")
    environment = os.environ | {
        "PYTHONPATH": f"{DOCS}:{reference_pages.SOURCE}"
    }  # the extension that the configuration names; the docstrings
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "zensical.toml")]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = re.sub(r"\x1b\[[\d;]*m", "", done.stdout).partition("Traceback")[
        0
    ]  # it colours each letter, and its own failure
    if done.returncode:
        raise SystemExit(f"{said}\nthe site was not built: see above")


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve())
