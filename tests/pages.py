"""Pages of the docs: their examples are run, and what they print is what is shown.

Takes: a page's name, how many examples it has at least, and which pages link to it. Not its job: what only one page
promises, and pages that show whole scripts.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

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
