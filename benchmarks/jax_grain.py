"""feedline.jax beside Grain: the same data, in turns, to arrays on a device.

    pip install jax grain && python benchmarks/jax_grain.py [--turns 5] [--seconds 4] [--only memory]

Takes: the workloads of peers/ that JAX users have (memory, large samples, JPEG, waiting, going on from a state).
Gives: a table of medians and of the ratio, with the least and most of the turns; `--out` writes it as JSON.
Promises: both sides are asked in turns, each in a process of its own that stays alive, so that what else the machine
does hits both; a batch counts when it is on the device. Grain is set up as in peers/with_grain.py (its documentation's
advice for each workload), and its batches are put on the device one ahead, as its users do.
Not its job: GPUs and several hosts, which this machine does not have.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIDES = ("feedline", "grain")
NAMES = ("memory", "large", "jpeg", "wait-8", "wait-128", "resume")


def with_feedline(name: str) -> Iterator[Any]:
    import jax

    from feedline.jax import DataLoader
    from peers.measure import endless
    from peers.with_feedline import DATASETS, OPTIONS

    options = dict(OPTIONS[name])
    size = options.pop("batch_size")
    kept = bool(options.get("num_workers"))
    device = jax.devices()[0]
    loader = DataLoader(DATASETS[name](), size, True, sharding=device, seed=0, persistent_workers=kept, **options)
    return map(jax.block_until_ready, endless(loader))


def with_grain(name: str) -> Iterator[Any]:
    import jax
    from absl import flags

    from peers import with_grain

    flags.FLAGS(sys.argv[:1])  # Grain's processes ask for flags, which only absl's own main function parses
    device = jax.devices()[0]

    def ahead() -> Iterator[Any]:
        batches = with_grain.batches(name)
        waiting = jax.device_put(next(batches), device)
        for batch in batches:
            following = jax.device_put(batch, device)
            yield waiting
            waiting = following

    return map(jax.block_until_ready, ahead())


def going_on(side: str) -> Iterator[float]:
    import jax

    from peers import with_grain
    from peers.measure import seconds_to_go_on
    from peers.workloads import RESUME_BATCH, Numbers

    device = jax.devices()[0]
    if side == "grain":

        class OnDevice(with_grain.Resumable):
            def __iter__(self) -> Iterator[Any]:
                return (jax.device_put(batch, device) for batch in self.iterator)

        return seconds_to_go_on(OnDevice)
    from feedline.jax import DataLoader

    return seconds_to_go_on(lambda: DataLoader(Numbers(), RESUME_BATCH, True, sharding=device, seed=1))


def measure(side: str, name: str, seconds: float) -> None:
    """In the process of one side: a number for each line that is read."""
    from peers.measure import throughput
    from peers.workloads import WORKLOADS

    if name == "resume":
        values = going_on(side)
    else:
        batches = with_feedline(name) if side == "feedline" else with_grain(name)
        values = throughput(batches, WORKLOADS[name], seconds)
    for _ in sys.stdin:
        print(json.dumps(next(values)), flush=True)
    sys.stderr.flush()
    os._exit(0)


def in_turns(name: str, turns: int, seconds: float) -> dict[str, list[float]]:
    """What each side measured, turn by turn. The first turn of each is not counted: it starts workers."""
    command = [sys.executable, str(Path(__file__)), "--measure", name, "--seconds", str(seconds), "--side"]
    running = {}
    for side in SIDES:
        running[side] = subprocess.Popen(
            [*command, side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    try:
        for turn in range(turns + 1):
            for side, process in running.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("\n")
                process.stdin.flush()
                value = json.loads(process.stdout.readline())
                if turn:
                    found[side].append(value)
    finally:
        for process in running.values():
            os.killpg(process.pid, signal.SIGKILL)  # and its workers: Grain's outlive it
            process.wait()
    return found


def row(name: str, found: dict[str, list[float]]) -> str:
    less = name == "resume"
    ours, theirs = (statistics.median(found[side]) for side in SIDES)
    ratios = [b / a if less else a / b for a, b in zip(*(found[side] for side in SIDES), strict=True)]
    unit = "ms" if less else "samples/s"
    scale = 1000 if less else 1
    spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
    return (
        f"| {name} | {ours * scale:,.4g} {unit} | {theirs * scale:,.4g} {unit} | {statistics.median(ratios):.2f} "
        f"({spread}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(asked.side, asked.measure, asked.seconds)
    print("| workload | feedline.jax | Grain | times as fast (turns) |\n|---|---|---|---|", flush=True)
    results = {}
    for name in asked.only or NAMES:
        results[name] = in_turns(name, asked.turns, asked.seconds)
        print(row(name, results[name]), flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
