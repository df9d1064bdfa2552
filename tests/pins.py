"""Writes the versions that are installed here to tests/pins.txt, which `make` installs from then on.

    make pins          the newest versions, in a new environment; then `make test` says whether they will do

Why: a release of ruff made `make test` red on every machine, an hour after it had been green on all of them.
Takes: the environment it runs in. Gives: a file of constraints for pip, valid for every Python from 3.10 on: what a
version does not support has a marker, and is chosen by pip there.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

FILE = Path(__file__).parent / "pins.txt"
OURS = {"feedline", "pip", "setuptools", "wheel"}
OLDEST = 10
"""The minor version of the oldest Python 3 that is supported."""


def pin(installed: Distribution) -> str:
    """The line for one package, without the part of its version that says where it was built (`2.13.0+cpu`)."""
    name, version = installed.metadata["Name"], installed.version.partition("+")[0]
    needed = re.search(r">=\s*3\.(\d+)(?:\.(\d+))?", installed.metadata.get("Requires-Python") or "")
    minor, patch = (int(part or 0) for part in needed.groups()) if needed else (0, 0)
    if (minor, patch) <= (OLDEST, 0):
        return f"{name}=={version}"
    asked = f"python_full_version >= '3.{minor}.{patch}'" if patch else f"python_version >= '3.{minor}'"
    return f"{name}=={version} ; {asked}"


def main() -> None:
    found = {pin(each) for each in distributions() if each.metadata["Name"].lower() not in OURS}
    head = "# Written by `make pins`: what the tests are run with. What users need is in pyproject.toml."
    FILE.write_text("\n".join([head, *sorted(found, key=str.lower)]) + "\n")
    sys.stdout.write(f"{len(found)} versions in {FILE}\n")


if __name__ == "__main__":
    main()
