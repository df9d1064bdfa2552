"""`make bench`: feedline and torch in turns, then a table, a JSON file and a picture. See README.md here."""

from __future__ import annotations

import argparse
import compileall
import shutil
import sys
import tempfile
import time
from pathlib import Path

import bucketing
import cached_samples
import collation
import epoch_boundary
import first_batch
import hugging_face
import images
import in_memory
import jpeg
import kinds_of_workers
import large_samples
import large_shuffle
import latency
import media
import mixed_streams
import object_store
import observing
import parquet_rows
import resume
import rows_and_objects
import samplers
import sql
import stragglers
import tar_shards
import tiny_batches
import torch_first_batch
import torch_front
import worker_memory
from contest import HERE, Contest, Terms, hold
from feedline.observe.terminal import show_line
from harness import Workload
from report import rows, save, table, unfinished

WORKLOADS = [
    module.WORKLOAD
    for module in (
        in_memory,
        large_samples,
        tiny_batches,
        jpeg,
        images,
        first_batch,
        epoch_boundary,
        stragglers,
        worker_memory,
        large_shuffle,
        object_store,
        rows_and_objects,
        latency,
        media,
        resume,
        observing,
        samplers,
        bucketing,
        torch_front,
        torch_first_batch,
        collation,
        sql,
        tar_shards,
        parquet_rows,
        hugging_face,
        mixed_streams,
        cached_samples,
        kinds_of_workers,
    )
]


def main() -> int:
    """0 when everything could be measured, reached or not; 1 when a side failed."""
    chosen = _arguments()
    started = time.monotonic()
    contests: list[Contest] = []
    with tempfile.TemporaryDirectory(prefix="feedline-bench-") as scratch:
        _copy_source(Path(scratch) / "src")
        for workload in WORKLOADS:
            if chosen.only and workload.name not in chosen.only:
                continue
            contests += _run(workload, chosen, Terms(Path(scratch), chosen.wait_for_quiet, show_line))
    show_line("")
    all_rows = rows(contests)
    print(table(all_rows))
    print(f"\n{time.monotonic() - started:.0f} s; wrote")
    for path in save(contests, all_rows, chosen.out, chosen.quick):
        print(f"  {path}")
    failed = list(unfinished(contests))
    if failed:
        print(f"\n{len(failed)} side(s) could not be measured, see above", file=sys.stderr)
    return 1 if failed else 0


def _copy_source(to: Path) -> None:
    """Measure one state of the source, compiled as an installed package is, whatever is edited meanwhile."""
    shutil.copytree(HERE.parent / "src", to, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(to, quiet=1)


def _run(workload: Workload, chosen: argparse.Namespace, terms: Terms) -> list[Contest]:
    repeats = chosen.repeats or (workload.quick_repeats if chosen.quick else workload.repeats)
    cases = [case for case in workload.cases if case.in_quick or not chosen.quick]
    return [hold(workload, case, repeats, terms) for case in cases]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases and repeats: a look, not a result")
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--only", action="append", choices=names, help="may be given again")
    parser.add_argument("--repeats", type=_positive, help="turns (default: each workload's own number)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="default: %(default)s")
    parser.add_argument(
        "--wait-for-quiet",
        type=float,
        default=0,
        metavar="SECONDS",
        help="before each turn wait up to so long for other programs to stop (default: do not wait)",
    )
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
