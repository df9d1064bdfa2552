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
    needed = re.search(r">=\s*3\.(\d+)", installed.metadata.get("Requires-Python") or "")
    newer = needed is not None and int(needed[1]) > OLDEST
    return f"{name}=={version}" + (f" ; python_version >= '3.{needed[1]}'" if newer and needed else "")


def main() -> None:
    found = {pin(each) for each in distributions() if each.metadata["Name"].lower() not in OURS}
    head = "# Written by `make pins`: what the tests are run with. What users need is in pyproject.toml."
    FILE.write_text("\n".join([head, *sorted(found, key=str.lower)]) + "\n")
    sys.stdout.write(f"{len(found)} versions in {FILE}\n")


if __name__ == "__main__":
    main()
