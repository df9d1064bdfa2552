"""Runs the core's tests on every Python from 3.10 on that is on this machine, each in an environment of its own.

    make test-pythons

Takes: nothing, or the versions wanted (`3.10 3.13`). Gives: a line for each Python, and its output where it was red.
Not its job: torch, databases, browsers. Those are tested on the Python of `.venv`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
OLDEST = (3, 10)
TESTS = ["make", "--keep-going", "test-engine", "test-core"]


def pythons() -> dict[str, str]:
    """One interpreter for each version, the newest patch of it: `{"3.12": "/…/python3.12"}`."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob("*/bin"))
    files = [file for folder in folders if folder.is_dir() for file in folder.glob("python3.*")]
    found: dict[str, tuple[list[int], str]] = {}
    for file in files:
        if re.fullmatch(r"python3\.\d+", file.name) and (version := version_of(file)) and tuple(version[:2]) >= OLDEST:
            name = f"{version[0]}.{version[1]}"
            found[name] = max(found.get(name, (version, str(file))), (version, str(file)))
    return {name: found[name][1] for name in sorted(found, key=lambda name: int(name[2:]))}


def version_of(file: Path) -> list[int] | None:
    """None if it does not start: pyenv leaves a file of every version's name for versions that are not chosen."""
    asked = [str(file), "-c", "import sys; print(*sys.version_info[:3])"]
    done = subprocess.run(asked, capture_output=True, text=True)
    return [int(part) for part in done.stdout.split()] if done.returncode == 0 else None


def tested(name: str, python: str) -> bool:
    """Sets up what is needed and runs the tests there."""
    environment = ROOT / ".venv-pythons" / name
    stamp, wanted = environment / "core.done", [ROOT / "pyproject.toml", ROOT / "tests" / "pins.txt"]
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not stamp.exists() or stamp.stat().st_mtime < max(file.stat().st_mtime for file in wanted):
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        subprocess.run([*pip, "--no-compile", "-c", "tests/pins.txt", "-e", ".[test-core]"], cwd=ROOT, check=True)
        stamp.touch()
    began = time.monotonic()
    here = [f"BIN={environment}/bin", f"RESULTS=build/pythons/{name}", f"SETUP={stamp}"]
    done = subprocess.run([*TESTS, *here], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    ends = re.findall(r"=+ (.*(?:passed|failed|error).*?) =+", done.stdout) or ["no test ran"]
    print(f"Python {name} ({python}): {'; '.join(ends)}, {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode:
        print(done.stdout)
    return done.returncode == 0


def main() -> int:
    found = pythons()
    wanted = {name: python for name, python in found.items() if not sys.argv[1:] or name in sys.argv[1:]}
    if len(found) == 1:
        print(f"Python {next(iter(found))} is the only one from 3.10 on that is here; the others were not tried.")
    red = [name for name, python in wanted.items() if not tested(name, python)]
    return bool(red)


if __name__ == "__main__":
    sys.exit(main())
