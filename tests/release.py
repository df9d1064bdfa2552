"""Is it ready to be released? Builds wheel and sdist, and tries each on every Python there is.

    make release-check          # everything is in build/release

Takes: nothing, or the versions wanted (`3.10 3.13`). Gives: a line for each step, and its output where it failed.
Promises: what is tried is what was built: installed in an empty environment, run in an empty folder.
Not its job: the tests (`make test`, `make test-pythons`); uploading.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from pythons import ROOT, pythons

HERE = ROOT / "build" / "release"
TOOLS = HERE / "tools" / "bin" / "python"
WANTED = ["pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "src/feedline/py.typed", "src/feedline/__init__.py"]
NOT_WANTED = ("build", "dist", ".venv", ".venv-peers", ".venv-pythons", "__pycache__", ".git", ".hypothesis", ".ci")
TYPED = """
import feedline
from feedline import DataLoader
def stack(samples: list[int]) -> list[float]:
    return [float(each) for each in samples]
loader = DataLoader(range(4), collate_fn=stack)
for batch in loader.progress():
    batch.append("a text among numbers")  # an error, if types are known
reveal_type(loader.stats().epoch.samples)
"""
SAID = ('incompatible type "str"; expected "float"', 'Revealed type is "int"')


def run(*command: str | Path, cwd: Path = HERE) -> str:
    """Runs it as a user would: without this checkout in sight. What it printed; ends the check if it failed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}\nRED: it ended with {done.returncode}")
    return done.stdout


def install(python: Path, *what: str | Path) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)


def built() -> list[Path]:
    """The wheel and the sdist. The wheel is made from the sdist, as a packager of a distribution would."""
    run(sys.executable, "-m", "venv", HERE / "tools")
    install(TOOLS, "-c", ROOT / "tests" / "pins.txt", "build", "twine", "mypy", "hatchling")
    run(TOOLS, "-m", "build", "--no-isolation", "--outdir", HERE / "dist", ROOT)
    files = sorted((HERE / "dist").iterdir())
    assert [file.suffix for file in files] == [".whl", ".gz"], files
    print(run(TOOLS, "-m", "twine", "check", "--strict", *files).strip())
    return files


def check_contents(wheel: Path, sdist: Path) -> None:
    """Everything that is tracked below src is in both; nothing that was made here is in either."""
    with zipfile.ZipFile(wheel) as opened:
        in_wheel = opened.namelist()
    with tarfile.open(sdist) as packed:
        in_sdist = [name.partition("/")[2] for name in packed.getnames()]
    tracked = run("git", "ls-files", "src/feedline", cwd=ROOT).split()
    check(set(tracked) <= {f"src/{name}" for name in in_wheel}, "the wheel lacks files of src")
    check({*tracked, *WANTED} <= set(in_sdist), f"the sdist lacks {sorted({*tracked, *WANTED} - set(in_sdist))}")
    strangers = [name for name in (*in_wheel, *in_sdist) if set(Path(name).parts) & set(NOT_WANTED)]
    check(not strangers, f"these do not belong there: {strangers[:5]}")
    outside = {name.partition("/")[0] for name in in_wheel if not name.startswith("feedline")}
    check(not outside, f"the wheel would install {outside}")
    for file, names in ((wheel, in_wheel), (sdist, in_sdist)):
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, {len(names)} files")


def check(true: bool, otherwise: str) -> None:
    if not true:
        raise SystemExit(f"RED: {otherwise}")


def tried(name: str, python: str, files: list[Path]) -> None:
    """Each file in an environment with nothing else, in an empty folder."""
    for file in files:
        environment, empty = HERE / f"env-{name}", HERE / f"empty-{name}"
        for folder in (environment, empty):
            shutil.rmtree(folder, ignore_errors=True)
        empty.mkdir()
        run(python, "-m", "venv", environment)
        here = environment / "bin" / "python"
        install(here, file)
        shutil.copy(ROOT / "tests" / "smoke.py", empty)
        said = run(here, "smoke.py", cwd=empty).splitlines()[-1]
        version = run(environment / "bin" / "feedline", "--version", cwd=empty).split()[-1]
        check(f"feedline-{version}" in file.name, f"{file.name} says that it is {version}")
        print(f"{file.name}: {said}", flush=True)


def check_types(name: str) -> None:
    """Does mypy know the types of what was installed? Without py.typed it would take everything for Any."""
    (HERE / "typed.py").write_text(TYPED)
    mypy = [TOOLS, "-m", "mypy", "--strict", "--python-executable", HERE / f"env-{name}" / "bin" / "python"]
    done = subprocess.run([*map(str, mypy), "typed.py"], cwd=HERE, capture_output=True, text=True)
    check(all(said in done.stdout for said in SAID) and "1 error" in done.stdout, f"mypy says:\n{done.stdout}")
    print("mypy knows the types of the installed wheel")


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    wheel, sdist = sorted(built(), key=lambda file: file.suffix != ".whl")
    check_contents(wheel, sdist)
    found = {name: python for name, python in pythons().items() if name in sys.argv[1:] or not sys.argv[1:]}
    check(bool(found), "there is no such Python here")
    for name, python in found.items():
        tried(name, python, [sdist, wheel])
    check_types(list(found)[-1])
    print(f"ready: wheel and sdist on Python {', '.join(found)}")


if __name__ == "__main__":
    main()
