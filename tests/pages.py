"""Pages of the docs: their examples are run, and what they print is what is shown.

Takes: a page's name, how many examples it has at least, and which pages link to it. A block that cannot run here has
`<!-- not run: why -->` in the line before it, one that needs a package `<!-- needs: package -->`,
one that counts on names of the reader's `<!-- given: code -->`. Not its job: what only one page promises.
"""

from __future__ import annotations

import doctest
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def check_examples(page: str, least: int, optionflags: int = 0) -> None:
    """All of them in one go: an example may use what those before it have made."""
    code = re.sub(r"^```.*$", "", text_of(page), flags=re.MULTILINE)  # or the fence would belong to the last output
    examples = doctest.DocTestParser().get_doctest(code, {}, page, str(ROOT / "docs" / page), 0)
    assert len(examples.examples) >= least
    said: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=optionflags).run(examples, out=said.append)
    assert not said, "".join(said)


def check_links(page: str, linked_from: tuple[str, ...]) -> None:
    for other in linked_from:
        assert page in (ROOT / other).read_text(encoding="utf-8"), f"{other} does not link to {page}"


class Block(NamedTuple):
    """A block of Python on a page, with what the comment before it says."""

    marked: str
    code: str


def blocks_of(page: str) -> list[Block]:
    found = re.findall(
        r"(?:^<!-- (.*?) -->\n)?^```(?:python|pycon)\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE
    )
    return [Block(*each) for each in found]


def script_of(page: str) -> str:
    """All blocks that can run here, as one script."""
    return "\n\n".join(_given(block.marked) + block.code for block in blocks_of(page) if _runs(block.marked))


def printed_on(page: str) -> list[str]:
    """The lines that the page shows as output, but for those of `<!-- another run -->`."""
    text = re.sub(r"^<!-- another run -->\n```text\n.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    return "".join(re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)).splitlines()


def _given(marked: str) -> str:
    """What a reader has already, and a block counts on."""
    return marked.removeprefix("given: ") + "\n" if marked.startswith("given: ") else ""


def _runs(marked: str) -> bool:
    said, _, what = marked.partition(": ")
    return said != "not run" and (said != "needs" or all(map(find_spec, what.split(", "))))
