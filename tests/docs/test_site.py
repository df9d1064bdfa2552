"""The site: every page is in its navigation, and every link leads somewhere."""

from __future__ import annotations

import re

from pages import ROOT

CONFIG = (ROOT / "zensical.toml").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation_once_and_no_other() -> None:
    assert sorted(re.findall(r'= "([\w-]+\.md)"', CONFIG)) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
