"""The explorer's page in one browser, for all of its tests: starting a browser takes seconds of CPU time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, browser


@pytest.fixture(scope="session")
def explorer_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, Path]]:
    """A browser, and the page's file."""
    from feedline.diagnose.explorer.bundle import page_with

    path = tmp_path_factory.mktemp("explorer") / "explore.html"
    path.write_text(page_with(), encoding="utf-8")
    with browser() as page:
        page.size(1280, 900)
        yield page, path


@pytest.fixture
def explorer(explorer_browser: tuple[Page, Path]) -> Iterator[Page]:
    """The page, open; afterwards, nobody was asked for anything, and nothing was complained of."""
    page, path = explorer_browser
    if page.js("location.pathname") != str(path):
        page.open(path)
    yield page
    assert [address for address in page.requests() if not address.startswith("file:")] == []
    assert page.complaints() == []
