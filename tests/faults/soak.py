"""Workers killed, stopped and stalled at random under load: every batch of every epoch arrives once, and right.

    make soak                                     # five minutes
    python tests/faults/soak.py --minutes 1 --seed 3

Prints what it did. Exit code 1 if a batch was missing, came twice, out of order, or with other content.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np

import feedline
from feedline import DataLoader, Dataset

SAMPLES, BATCH = 400, 8
HITS_WITHOUT_A_BATCH = 5
KINDS: dict[str, dict[str, Any]] = {
    "fork": {"multiprocessing_context": "fork"},
    "spawn": {"multiprocessing_context": "spawn"},
    "forkserver": {"multiprocessing_context": "forkserver"},
    "threads": {"workers": "thread"},
}


class Noisy(Dataset[Any]):
    """Large enough for shared memory, random, slow enough to be hit; in a worker one sample in a few hundred hangs."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if feedline.get_worker_info() is not None:
            time.sleep(0.0005)
            if int.from_bytes(os.urandom(2), "little") < 65536 // 300:
                time.sleep(600)
        return feedline.rng().random((40, 40)), np.random.rand(3), index


class Chaos(threading.Thread):
    """Hits one worker after the other, at random moments, until told to stop.

    Not often without a batch in between: where new workers need longer than the next hit, no batch would ever come.
    """

    def __init__(self, draw: random.Random) -> None:
        super().__init__(name="chaos", daemon=True)
        self.workers: Any = None
        self.over = threading.Event()
        self.did: Counter[str] = Counter()
        self.batches = 0
        self._draw = draw

    def run(self) -> None:
        hits = before = 0
        while not self.over.wait(self._draw.expovariate(1 / 0.08)):
            hits, before = (hits if self.batches == before else 0), self.batches
            if hits == HITS_WITHOUT_A_BATCH:
                continue
            hits += 1
            with contextlib.suppress(Exception):  # that worker has just gone
                pids = [at.pid for at in self.workers.standing() if at.pid is not None]
                what = self._draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
                os.kill(self._draw.choice(pids), what)
                self.did[what.name] += 1


def right_batches(seed: int, epoch: int) -> list[Any]:
    """The epoch as the loop alone makes it."""
    loader = DataLoader(Noisy(), BATCH, shuffle=True, seed=seed)
    loader.set_epoch(epoch)
    return list(loader)


def same(one: Any, two: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def soak(kind: str, seconds: float, seed: int) -> Counter[str]:
    """Epochs under fire until the time is up; what was done to the workers. Raises AssertionError."""
    draw = random.Random(f"{kind} {seed}")
    chaos = Chaos(draw)
    end = time.monotonic() + seconds
    options = {"num_workers": 3, "persistent_workers": True, "prefetch_factor": 2, **KINDS[kind]}
    careful = {"on_stall": "restart", "stall_warning": 0.7, "max_deaths": 1000}
    loader = DataLoader(Noisy(), BATCH, shuffle=True, seed=seed, **options, **careful)
    if kind != "threads":
        chaos.start()
    epochs = batches = 0
    try:
        while epochs == 0 or time.monotonic() < end:
            expected = right_batches(seed, epochs)
            iterator = iter(loader)
            chaos.workers = iterator._crew
            leave_at = draw.randrange(len(expected)) if epochs and draw.random() < 0.2 else len(expected)
            got = []
            for batch, _ in zip(iterator, range(leave_at), strict=False):
                got.append(batch)
                chaos.batches += 1
            assert len(got) == leave_at, f"epoch {epochs}: {len(got)} batches instead of {leave_at}"
            wrong = [number for number, (one, two) in enumerate(zip(got, expected, strict=False)) if not same(one, two)]
            assert not wrong, f"epoch {epochs}: batches {wrong} are not what they should be"
            if leave_at == len(expected):
                assert next(iterator, None) is None, f"epoch {epochs}: more batches than there are"
            epochs, batches = epochs + 1, batches + leave_at
    finally:
        chaos.over.set()
        if chaos.is_alive():
            chaos.join()
        loader.close()
    return chaos.did + Counter(epochs=epochs, batches=batches)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    arguments = parser.parse_args()
    failed = False
    for kind in arguments.kinds:
        told: list[Any] = []
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_: told.append(str(message))  # noqa: B023
            try:
                did = soak(kind, 60 * arguments.minutes / len(arguments.kinds), arguments.seed)
            except AssertionError as error:
                failed = True
                print(f"{kind}, seed {arguments.seed}: FAILED: {error}")
                continue
        replaced = sum("takes its place" in message for message in told)
        print(f"{kind}: {dict(did)}, {replaced} workers replaced; every batch once and right")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
