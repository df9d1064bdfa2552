"""Has a change made a cell slower, and which commit did? By instruction counts, so a busy machine will do.

    make bench-check                                # two minutes: this checkout beside the kept numbers
    make bench-check SINCE=abc1234                  # beside that commit; names the commit that made a cell slower
    make bench-check ARGS="--only texts epoch"      # some cells; --keep stores what was measured
    make bench-check ARGS="--beside-torch"          # and how many times as much torch's own loader costs

Takes: a repository; benchmarks/check.json, the kept numbers. Gives: a line for each cell: kept, now, verdict. Exit code
1: a cell is slower than allowed; 2: it could not be measured; 0: neither.
Promises: the working tree is measured as it is. With --since both ends are measured now, and a search by bisection
among the commits between them that changed src (along first parents; then within the merge that was found) names the
one that made a cell slower.
Not its job: what is measured (check_cells), how (check_meters), the verdict and the search (check_verdict); seconds
(before_after), torch's loader (grid).
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from check_cells import CELLS
from check_meters import Unmeasured, costs, torch_costs, usual_meter
from check_verdict import TOLERANCES, Found, Remembered, Verdict, first_slower, is_past_half, table, tolerance
from feedline.observe.terminal import show_line

ROOT = Path(__file__).resolve().parent.parent
KEPT = Path(__file__).resolve().parent / "check.json"
WORKING = "the working tree"


class Repository:
    """States of a source: commits, and the working tree. Each is copied once and compiled, as if it were installed."""

    def __init__(self, root: Path, scratch: Path, meter: str) -> None:
        self._root, self._scratch, self._meter = root, scratch, meter

    def costs(self, state: str, names: Sequence[str]) -> dict[str, float]:
        show_line(f"measuring {len(names)} cells of {state}")
        return costs(self._source(state), names, self._meter)

    def torch_costs(self, names: Sequence[str]) -> dict[str, float]:
        show_line("measuring torch's own loader")
        return torch_costs(self._source(WORKING), names, self._meter)

    def commit(self, name: str) -> str:
        return self._git("rev-parse", "--short", "--verify", f"{name}^{{commit}}").strip()

    def states_since(self, commit: str) -> list[str]:
        """The oldest first; the last of them is what is in the working tree."""
        found = self._git("rev-list", "--reverse", "--first-parent", "--abbrev-commit", f"{commit}..HEAD", "--", "src")
        changed = self._git("status", "--porcelain", "--", "src").strip()
        return [*found.split(), *([WORKING] if changed or not found.strip() else [])]

    def merged_by(self, state: str) -> list[str]:
        """The commits that a merge brought, the oldest first."""
        parents = [] if state == WORKING else self._git("log", "-1", "--format=%p", state).split()
        if len(parents) < 2:
            return []
        brought = f"{parents[0]}..{parents[1]}"
        return self._git("rev-list", "--reverse", "--first-parent", "--abbrev-commit", brought, "--", "src").split()

    def described(self, state: str) -> str:
        return state if state == WORKING else self._git("log", "-1", "--format=%h %s", state).strip()

    def _source(self, state: str) -> Path:
        folder = self._scratch / state.replace(" ", "-")
        if not folder.exists():
            if state == WORKING:
                shutil.copytree(self._root / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
            else:
                archive = BytesIO(self._run("archive", state, "src"))
                with tarfile.open(fileobj=archive) as file:
                    file.extractall(folder, filter="data")
            compileall.compile_dir(folder, quiet=1)
        return folder / "src"

    def _git(self, *arguments: str) -> str:
        return self._run(*arguments).decode()

    def _run(self, *arguments: str) -> bytes:
        answer = subprocess.run(["git", "-C", str(self._root), *arguments], capture_output=True, check=False)
        if answer.returncode:
            raise Unmeasured(f"git {' '.join(arguments)}: {answer.stderr.decode().strip()}")
        return answer.stdout


def main() -> int:
    chosen, began = _arguments(), time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="feedline-check-") as scratch:
            return check(chosen, Repository(chosen.checkout, Path(scratch), chosen.meter))
    except Unmeasured as failure:
        show_line("")
        print(failure, file=sys.stderr)
        return 2
    finally:
        print(f"{time.monotonic() - began:.0f} s")


def check(chosen: argparse.Namespace, repository: Repository) -> int:
    names, meter = chosen.only or list(CELLS), chosen.meter
    since = repository.commit(chosen.since) if chosen.since else None
    kept = json.loads(chosen.kept.read_text(encoding="utf-8")) if chosen.kept.exists() else {}
    old = kept.get(meter, {})
    before = repository.costs(since, names) if since else old.get("costs", {})
    now = repository.costs(WORKING, names)
    theirs = repository.torch_costs(names) if chosen.beside_torch else {}
    show_line("")
    verdicts = {
        name: Verdict(title(name), before.get(name), cost, tolerance(meter, CELLS[name].workers), theirs.get(name))
        for name, cost in now.items()
    }
    print(table(list(verdicts.values()), f"at {since}" if since else "kept"))
    print(f"\n{meter} of a batch or epoch, in thousandths of the calibration's in the same process")
    slower = [name for name, verdict in verdicts.items() if verdict.word == "slower"]
    if since:
        print("\n".join(blamed(repository, since, slower, before, now)))
    else:
        print("\n".join(remarks(old, slower)))
    if chosen.keep:
        numbers = {**old.get("costs", {}), **{name: round(cost, 4) for name, cost in now.items()}}
        kept[meter] = {**versions(), "commit": repository.commit("HEAD"), "costs": numbers}
        chosen.kept.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(f"kept in {chosen.kept}")
    return 1 if slower and not chosen.keep else 0


def blamed(
    repository: Repository, since: str, slower: Sequence[str], before: dict[str, float], now: dict[str, float]
) -> list[str]:
    """For each slower cell a sentence."""
    known, lines = Remembered(repository.costs, slower), []
    for name in slower:
        state, found = searched(repository.states_since(since), before[name], now[name], partial(known.cost, name))
        brought = repository.merged_by(state)
        if brought and is_past_half(last := known.cost(name, brought[-1]), found.before, found.after):
            state, found = searched(brought, found.before, last, partial(known.cost, name))
        show_line("")
        lines.append(
            f"{title(name)}: made slower by {repository.described(state)} "
            f"({found.before:.3f} → {found.after:.3f}, {found.after / found.before - 1:+.1%})"
        )
    return lines


def searched(states: Sequence[str], good: float, bad: float, cost: Callable[[str], float]) -> tuple[str, Found]:
    found = first_slower(len(states), good, bad, lambda place: cost(states[place]))
    return states[found.place], found


def remarks(old: dict[str, Any], slower: Sequence[str]) -> list[str]:
    lines = []
    differ = [
        f"{key} {old[key]} (here {value})" for key, value in versions().items() if key in old and old[key] != value
    ]
    differ = [each for each in differ if not each.startswith("date")]
    if differ:
        lines.append(f"Kept with {', '.join(differ)}: that may be the difference. SINCE=… compares without it.")
    if slower and old:
        lines.append(f'Which commit? make bench-check SINCE={old["commit"]} ARGS="--only {" ".join(slower)}"')
    return lines


def versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in ("numpy", "torch") if find_spec(name)}
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return {"date": date, "processor": platform.machine(), "python": platform.python_version(), **found}


def title(name: str) -> str:
    return f"{CELLS[name].front}: {CELLS[name].title} ({name})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="COMMIT", help="compare with that commit, and search for the one to blame")
    parser.add_argument("--only", nargs="+", choices=list(CELLS), metavar="CELL", help=", ".join(CELLS))
    parser.add_argument("--beside-torch", action="store_true", help="how much torch's own loader costs over ours")
    parser.add_argument("--keep", action="store_true", help="store what was measured as the numbers to compare with")
    parser.add_argument("--meter", choices=list(TOLERANCES), default=usual_meter(), help="default here: %(default)s")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="the repository (default: this one)")
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FILE", help="default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
