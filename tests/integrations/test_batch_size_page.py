"""docs/batch-size.md: its examples run, and what it quotes is said."""

from __future__ import annotations

import doctest
import re
import warnings
from pathlib import Path

import numpy as np

from feedline import DataLoader

FILE = Path(__file__).parent.parent.parent / "docs" / "batch-size.md"
PAGE = FILE.read_text()


def test_its_examples_are_what_happens():
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.S))
    page = doctest.DocTestParser().get_doctest(code, {}, FILE.name, str(FILE), 0)
    assert len(page.examples) > 20
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(page, out=said.append)
    assert not said, "".join(said)


def test_what_it_quotes_is_what_is_said():
    (quoted,) = re.findall(r"```text\nUserWarning: (.*?)```", PAGE, re.S)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iter(DataLoader(np.arange(1025), batch_size=64, shuffle=True)).close()
    assert [str(each.message) for each in caught] == [" ".join(quoted.split())]


def test_the_pictures_it_shows_are_there():
    pictures = re.findall(r"\]\((pictures/.*?)\)", PAGE)
    assert len(pictures) >= 2
    assert all((FILE.parent / name).exists() for name in pictures)
