"""The versions that the tests are run with: what a package's newest version does not support gets another there."""

from __future__ import annotations

from importlib.metadata import distributions

from pins import FILE, pin


def test_each_version_is_pinned_for_those_pythons_that_it_supports() -> None:
    """Debian 12 has Python 3.11.2, and a package that asked for 3.11.5 had been pinned for all of 3.11."""
    pinned = {line.partition(" ;")[0]: line for line in FILE.read_text().splitlines()}
    here = [pin(each) for each in distributions()]
    assert [line for line in here if pinned.get(line.partition(" ;")[0], line) != line] == []
