"""What could be had at most where one sample in a hundred takes 200 times as long? Computed, not measured.

    python benchmarks/stragglers_limit.py             # some seconds; --workers 8, --prefetch-factor 4

Loaders that cost nothing themselves and a loop that takes no time. "torch": batches go round the workers, and come in
order. "as they come": whoever is free takes the next batch, and it is given when it is made: no worker ever waits.
"split": whoever is free takes the next sample, batches come in order, and at most prefetch_factor × num_workers are
under way. No loader in order, with so many batches ahead and one sample at a time in each worker, can do better.
"""

from __future__ import annotations

import argparse
import heapq

import numpy as np

BASE, TIMES, ONE_IN, SAMPLES = 0.001, 200, 100, 20_000


def torch(batches: list[list[float]], workers: int, ahead: int) -> float:
    """Seconds until the last batch is given."""
    free, given = [0.0] * workers, [0.0]
    for number, batch in enumerate(batches):
        sent = given[max(0, number + 1 - ahead)]
        begun = max(sent, free[number % workers])
        free[number % workers] = begun + sum(batch)
        given.append(max(given[-1], free[number % workers]))
    return given[-1]


def split(batches: list[list[float]], workers: int, ahead: int) -> float:
    """The same, if a batch's samples are read by all."""
    free, given = [0.0] * workers, [0.0]
    for number, batch in enumerate(batches):
        sent, made = given[max(0, number + 1 - ahead)], 0.0
        for sample in batch:
            end = max(sent, heapq.heappop(free)) + sample
            heapq.heappush(free, end)
            made = max(made, end)
        given.append(max(given[-1], made))
    return given[-1]


def as_they_come(batches: list[list[float]], workers: int) -> float:
    """The same, in any order."""
    free = [0.0] * workers
    for batch in batches:
        heapq.heappush(free, heapq.heappop(free) + sum(batch))
    return max(free)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--prefetch-factor", type=int, default=2)
    chosen = parser.parse_args()
    workers, ahead = chosen.workers, chosen.workers * chosen.prefetch_factor
    times = np.where(np.random.default_rng(0).random(SAMPLES) < 1 / ONE_IN, BASE * TIMES, BASE).tolist()
    print("batch  torch  as they come  split  split/torch  split/as they come   samples a second")
    for size in (4, 8, 16, 32, 64, 128):
        batches = [times[start : start + size] for start in range(0, SAMPLES, size)]
        seconds = torch(batches, workers, ahead), as_they_come(batches, workers), split(batches, workers, ahead)
        rates = [SAMPLES / each for each in seconds]
        row = f"{size:5}  {rates[0]:5.0f}  {rates[1]:12.0f}  {rates[2]:5.0f}"
        print(f"{row}  {rates[2] / rates[0]:11.2f}  {rates[2] / rates[1]:18.2f}")


if __name__ == "__main__":
    main()
