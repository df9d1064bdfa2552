"""Writes what the explorer's page needs: the words that are printed when something fails, from real runs.

    python docs/make_explorer.py              # runs torch and feedline with faults (two minutes)

Takes: explorer_faults.py. Gives: src/feedline/diagnose/explorer/page/words.json.
Promises: what is kept was printed, except that process ids, addresses, paths and seconds are replaced; a run that does
not end is ended after `PATIENCE` seconds, and that is said. Not its job: showing it (page/failures.js).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
WORDS = DOCS.parent / "src/feedline/diagnose/explorer/page/words.json"
PATIENCE = 45
"""Seconds; a script that imports torch on a busy machine needs some."""
RUNS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "kill": {"torch": [{}], "feedline": [{}]},
    "hang": {
        "torch": [{}, {"timeout": 2}],
        "feedline": [
            {"stall_warning": 2, "timeout": 5},
            {"timeout": 2},
            {"timeout": 2, "on_stall": "restart", "on_error": "skip"},
        ],
    },
    "corrupt": {"torch": [{}], "feedline": [{}, {"on_error": "skip"}, {"on_error": "replace"}]},
}
"""Each fault, under each loader, with these options."""


def recorded(side: str, fault: str, options: dict[str, Any], patience: float = PATIENCE) -> dict[str, Any]:
    """One run: its lines, how many batches came, and whether it had to be ended."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(DOCS / "explorer_faults.py"), side, fault, json.dumps(options), f"{folder}/once"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            out, ended = process.communicate(timeout=patience)[0], True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, ended = process.communicate()[0], False
    lines = plain(out.decode()).splitlines()
    batches = [line for line in lines if re.fullmatch(r"batch \d+: \d+ samples", line)]
    return {"options": options, "batches": len(batches), "ended": ended, "lines": compact(lines)}


def plain(text: str) -> str:
    """The text without what differs from run to run.

    >>> plain('worker 1 (pid 812) for 2.1 s, File "/a/b/explorer_faults.py", thread 0x00007f59')
    'worker 1 (pid 4711) for 2 s, File "train.py", thread 0x…'
    """
    text = re.sub(r"pids?\W*\d+|pid(\(s\))? (\d+)", lambda found: re.sub(r"\d+", "4711", found[0]), text)
    text = re.sub(r'"[^"]*/explorer_faults\.py"', '"train.py"', text)
    text = re.sub(r'"[^"]*/(?:site-packages|lib/python[\d.]+)/([^"]*)"', r'"…/\1"', text)
    return re.sub(r"(\d)\.\d+ s\b", r"\1 s", re.sub(r"0x[0-9a-f]+", "0x…", text))


def compact(lines: list[str]) -> list[str]:
    """Lines of batches in one: "batch 0 … batch 4"."""
    found: list[str] = []
    for line in lines:
        whole = re.fullmatch(r"batch (\d+): 8 samples", line)
        before = re.fullmatch(r"batch (\d+)( … (\d+))?: 8 samples each", found[-1]) if found else None
        if whole and before:
            found[-1] = f"batch {before[1]} … {whole[1]}: 8 samples each"
        else:
            found.append(f"batch {whole[1]}: 8 samples each" if whole else line)
    return found


def main() -> None:
    words = {
        fault: {side: [recorded(side, fault, each) for each in options] for side, options in sides.items()}
        for fault, sides in RUNS.items()
    }
    WORDS.write_text(json.dumps(words, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
