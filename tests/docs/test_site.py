"""The site is built without a warning, has every page and every public name, and asks nobody on the network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

from feedline.diagnose.explorer.bundle import page_with
from feedline.machine import rank_questions
from feedline.workers import freed_memory, one_thread

NAV = (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8")
GENERATED = {"contributing.md", "changelog.md"}
PUBLIC = (ROOT / "tests" / "loader" / "public_names.txt").read_text(encoding="utf-8").split()


def test_every_page_is_in_the_navigation_once_and_no_other() -> None:
    """A page that is not: add it to `nav` in docs/zensical.toml, in the section where a reader would look for it."""
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | GENERATED
    assert sorted(re.findall(r'= "([\w-]+\.md)"', NAV)) == sorted(pages)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("build")
    command = [sys.executable, str(ROOT / "docs" / "make_site.py"), str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout  # a link or an anchor that is not there, a name without a docstring
    return folder


def test_the_reference_has_every_public_name(built: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in (built / "site" / "reference").rglob("index.html")]
    described = {name for page in pages for name in re.findall(r'id="([\w.]+)"', page)}
    assert [name for name in PUBLIC if name not in described] == []


def test_every_generated_page_is_in_the_navigation_or_listed(built: Path) -> None:
    listed = (built / "pages" / "examples" / "index.md").read_text(encoding="utf-8")
    for path in (built / "pages").glob("*/*.md"):
        name = path.relative_to(built / "pages").as_posix()
        assert f'"{name}"' in NAV or f"({path.name})" in listed


def test_the_explorer_is_on_it(built: Path) -> None:
    page = (built / "site" / "explorer" / "index.html").read_text(encoding="utf-8")
    (shown,) = re.findall(r'<iframe src="?([^\s">]+)', page)
    assert (built / "site" / "explorer" / shown).read_text(encoding="utf-8") == page_with()


def test_the_scripts_that_make_it_do_what_their_examples_say() -> None:
    pytest.importorskip("zensical")
    names = [str(ROOT / "docs" / f"{name}.py") for name in ("make_site", "docstrings_for_pages")]
    done = subprocess.run([sys.executable, "-m", "doctest", *names], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_page_asks_nobody_on_the_network(built: Path) -> None:
    for path in (built / "site").rglob("*.html"):
        asked = re.findall(
            r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?(https?://[^">\s]*)', path.read_text("utf-8")
        )
        assert asked == [], path


def test_a_link_that_leads_nowhere_is_an_error(built: Path) -> None:
    """Zensical's own check, which all of the above counts on."""
    (built / "zensical.toml").write_text('[project]\nsite_name = "x"\ndocs_dir = "wrong"\nsite_dir = "wrong-site"\n')
    (built / "wrong").mkdir()
    (built / "wrong" / "index.md").write_text("# A page\n\n[link](nowhere.md)\n")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(built / "zensical.toml")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode != 0


def test_every_link_to_a_file_of_the_repository_leads_to_one() -> None:
    """The site drops links to sources, so its own check sees none of them; nor does it see the README."""
    missing = []
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        links = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", text)
        missing += [f"{page.name}: {link}" for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_page_of_the_environment_has_every_variable_that_is_read() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    read = {name for pair in rank_questions.VARIABLES for name in pair} | {
        *one_thread.VARIABLES,
        *freed_memory._USERS_OWN,
    }
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    read |= set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', source))
    assert {name for name in read if f"`{name}`" not in page} == set()


def test_install_names_every_extra_that_is_for_users() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    names = set(re.findall(r"^([\w-]+) = ", extras, re.MULTILINE)) - {"bench", "docs", "release", "test", "test-core"}
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in page} == set()
