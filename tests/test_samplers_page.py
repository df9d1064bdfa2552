"""docs/samplers.md: its examples give what they say."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "samplers.md"


def test_the_examples_give_what_they_say() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 6
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    found: list[str] = []
    doctest.DocTestRunner().run(test, out=found.append)
    assert not found, "".join(found)
