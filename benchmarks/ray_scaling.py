"""What 1 to 256 remote CPUs give: a simulation, because one machine cannot show it.

    python benchmarks/ray_scaling.py [--out docs/measured/ray_scaling.json]

Batches are values and times are drawn: a worker makes a batch in (samples × cost) seconds, give or take 30 %, then
waits for its next call; the batch crosses one network connection; the driver takes `DRIVER_SECONDS` for it and copies
its bytes; a place is free when a batch is delivered, in order. The loop takes batches as fast as they come.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

CPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CALL_SECONDS = 0.0015
"""Between a worker's answer and its next call (benchmarks/ray_overhead.py)."""
DRIVER_SECONDS = 0.0013
"""What a batch costs the driver besides copying (benchmarks/ray_overhead.py, CPU time of the driver, 8 floats)."""
COPIED = 2.4e9
"""Bytes that the driver copies in a second (the same, 150 kB and 8 floats)."""
SPREAD = 0.3
PREFETCH = 2


class Setting(NamedTuple):
    """A workload on a network."""

    name: str
    sample_seconds: float
    sample_bytes: int
    batch_size: int = 256
    network: float = 10e9 / 8

    @property
    def batch_bytes(self) -> int:
        return self.batch_size * self.sample_bytes

    @property
    def limits(self) -> dict[str, float]:
        """Batches a second that each part could do at most; the workers: one of them."""
        return {
            "a worker": 1 / (self.batch_size * self.sample_seconds + CALL_SECONDS),
            "the network": self.network / self.batch_bytes,
            "the driver": 1 / (DRIVER_SECONDS + self.batch_bytes / COPIED),
        }


SETTINGS = (
    Setting("decoding, 10 ms and 150 kB a sample, 10 Gbit/s", 0.010, 150_528),
    Setting("the same, 100 Gbit/s", 0.010, 150_528, network=100e9 / 8),
    Setting("video, 200 ms and 600 kB a sample, 10 Gbit/s", 0.200, 602_112, 32),
    Setting("text, 0.2 ms and 4 kB a sample, 10 Gbit/s", 0.0002, 4_096),
)


def batches_per_second(setting: Setting, cpus: int, count: int = 2000) -> float:
    """The rate at which the middle half of so many batches comes to the loop."""
    takes = setting.batch_size * setting.sample_seconds
    drawn = np.random.default_rng(0).gamma(SPREAD**-2, takes * SPREAD**2, count) + CALL_SECONDS
    sending, taking = setting.batch_bytes / setting.network, DRIVER_SECONDS + setting.batch_bytes / COPIED
    idle = [0.0] * cpus
    working: list[tuple[float, int]] = []
    arrived: dict[int, float] = {}
    delivered, times = list[float](), list[float]()
    started, network, driver = 0, 0.0, 0.0
    while len(delivered) < count:
        while idle and started < min(count, len(delivered) + PREFETCH * cpus):
            place = delivered[started - PREFETCH * cpus] if started >= PREFETCH * cpus else 0.0
            heapq.heappush(working, (max(heapq.heappop(idle), place) + drawn[started], started))
            started += 1
        done, number = heapq.heappop(working)
        heapq.heappush(idle, done)
        network = max(network, done) + sending
        driver = max(driver, network) + taking
        arrived[number] = driver
        times.append(driver)
        while (at := arrived.pop(len(delivered), None)) is not None:
            delivered.append(max(at, delivered[-1] if delivered else 0.0))
    first, last = count // 4, 3 * count // 4
    return float((last - first) / (times[last] - times[first]))


def simulated() -> list[dict[str, Any]]:
    return [
        {
            **setting._asdict(),
            "limits": setting.limits,
            "cpus": list(CPUS),
            "samples_per_second": [
                round(setting.batch_size * batches_per_second(setting, cpus, 2000 + 20 * cpus), 1) for cpus in CPUS
            ],
        }
        for setting in SETTINGS
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = simulated()
    for one in found:
        limits = ", ".join(f"{name} {rate * one['batch_size']:,.0f}" for name, rate in one["limits"].items())
        sys.stdout.write(f"{one['name']}: at most {limits} samples/s\n")
        for cpus, rate in zip(one["cpus"], one["samples_per_second"], strict=True):
            sys.stdout.write(f"  {cpus:4} CPUs {rate:12,.0f} samples/s\n")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
