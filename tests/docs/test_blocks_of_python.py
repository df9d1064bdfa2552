"""Every block of Python on a page is run by some test, or says why it is not."""

from __future__ import annotations

import re

import pytest
from pages import ROOT, blocks_of

PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
RUN = {  # by which test file: all blocks of the page that are not marked
    **dict.fromkeys(("collation.md", "latency.md", "samplers.md", "splits-and-mixing.md"), "docs/test_pages.py"),
    **dict.fromkeys(
        ("files.md", "parquet.md", "sound-and-video.md", "sql.md", "streams.md", "tar-shards.md"),
        "sources/test_docs_of_sources.py",
    ),
    "object-storage.md": "sources/test_docs_of_object_storage.py",
    "caching.md": "sources/test_docs_of_caching.py",
    "hugging-face.md": "sources/test_docs_of_hugging_face.py",
    "elastic.md": "integrations/test_elastic.py",
    "doctor.md": "diagnose/test_doctor_command.py",
    "jax.md": "jax/test_jax_docs.py",
    "preflight.md": "docs/test_page_of_preflight.py",
    "seeing.md": "docs/test_seeing.py",
    "tuning.md": "diagnose/test_tune_command.py",
}
PARTLY = {
    "caching.md",
    "hugging-face.md",
    "batch-size.md",
    "elastic.md",
    "jax.md",
    "resuming.md",
    "object-storage.md",
} | {page for page, file in RUN.items() if file in ("docs/test_pages.py", "sources/test_docs_of_sources.py")}
"""Of these only doctests, and scripts that begin with `# name.py`."""
OTHERS = "integrations/test_docs_with_torch.py"
TESTS = ROOT / "tests"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_by_a_test_or_says_why_not(page: str) -> None:
    """What to do: list the page in WHOLE of tests/integrations/test_docs_with_torch.py, which runs it as one script;
    or put `<!-- not run: why -->` in the line before the block."""
    for _, code in (block for block in blocks_of(page) if not block.marked.startswith("not run: ")):
        file = (TESTS / RUN.get(page, OTHERS)).read_text(encoding="utf-8")
        assert f'{page}"' in file, f"no test runs: {code[:200]}"
        if page in PARTLY:
            assert ">>> " in code or re.match(r"# \w+\.py", code), (
                f"its test runs only doctests and scripts: {code[:200]}"
            )


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_has_a_language_and_every_mark_a_block(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert len(re.findall(r"^<!-- (?:not run|needs): ", text, re.MULTILINE)) == sum(
        block.marked.startswith(("not run: ", "needs: ")) for block in blocks_of(page)
    )
    assert re.findall(r"^```(\w*)", text, re.MULTILINE)[::2].count("") == 0
