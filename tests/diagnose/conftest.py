"""The explorer's page in one browser, for all of its tests: starting a browser takes seconds of CPU time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Page, browser


@pytest.fixture(scope="session")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page, open; afterwards, nobody was asked for anything, and nothing was complained of."""
    from feedline.diagnose.explorer.bundle import page_with

    path = tmp_path_factory.mktemp("explorer") / "explore.html"
    path.write_text(page_with(), encoding="utf-8")
    with browser() as page:
        page.size(1280, 900)
        page.open(path)
        yield page
        assert page.requests() == [path.as_uri()]
        assert page.complaints() == []
