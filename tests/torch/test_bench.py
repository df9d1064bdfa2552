"""`feedline bench` with torch: as a command, as the process of one side, and which loader is made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data
from warm_host import host

import feedline
import feedline.torch
from feedline.diagnose.bench import workloads
from feedline.diagnose.bench.bench_subject import SIDES, BenchSubject, WantedLoader, subject
from feedline.diagnose.bench.machine import members
from feedline.diagnose.bench.turns import SideProcess
from feedline.errors import OptionError, OptionTypeError

DATA = """
import sys
import numpy as np
print("importing")

class Photos:
    def __len__(self):
        return 50

    def __getitem__(self, index):
        print("reading")
        return np.zeros((8, 8, 3), np.uint8), index % 3

class BadForTorch(Photos):
    def __getitem__(self, index):
        if "feedline.torch.loader" not in sys.modules:
            raise OSError("truncated")
        return super().__getitem__(index)

number = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.py").write_text(DATA)
    return tmp_path


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "feedline", "bench", "--seconds", "0.05", "--repeats", "2", "--timeout", "600"]
    return host("feedline.torch").run([*command, *arguments], timeout=600, cwd=folder)


def test_a_workload_of_ours_for_machines_and_as_a_picture(folder: Path) -> None:
    done = bench(folder, "tiny-batches", "--num-workers", "0", "--json", "--plot", "bars.png")
    assert done.stderr == ""
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == 0
    (contest,) = document["contests"]
    assert (contest["name"], contest["metric"], contest["num_workers"]) == ("tiny-batches", "samples/s", 0)
    assert contest["about"].startswith("8 numbers a batch")
    for side in SIDES:
        assert len(contest[side]["values"]) == len(contest[side]["noise"]) == 2
        assert min(contest[side]["values"]) > 0
    assert contest["lowest"] <= contest["ratio"] <= contest["highest"]
    assert document["versions"]["torch"] == torch.__version__
    assert document["versions"]["feedline"] == feedline.__version__
    assert document["machine"]["cores"] >= 1
    with Image.open(folder / "bars.png") as image:
        assert image.size[0] == 1520


def test_of_a_dataset_of_the_users_a_side_that_fails_is_named_and_the_other_is_shown(folder: Path) -> None:
    done = bench(folder, "data.py:BadForTorch", "--batch-size", "10", "--num-workers", "2")
    assert (done.returncode, done.stderr) == (1, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "data.py:BadForTorch, 2 workers: BadForTorch, 50 samples, batches of 10" in lines
    assert "torch     could not be measured: OSError: truncated" in lines
    assert any(line.startswith("feedline  █") and line.endswith("samples/s") for line in lines)
    assert "nothing to compare" in lines


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:data", "there is no module 'nowhere'"),
        ("data.py:number", "data.py:number is of type int: neither a loader nor a dataset"),
        ("own.py:data", "running own.py failed: RuntimeError: ['own.py', '--lr', '0.1']"),
    ],
)
def test_what_is_no_dataset_is_one_sentence(folder: Path, target: str, words: str) -> None:
    (folder / "own.py").write_text("import sys\nraise RuntimeError(sys.argv)\n")
    done = bench(folder, target, "--json", "--", "--lr", "0.1")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"].startswith(words)
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"feedline bench: {words}")


def side(folder: Path, name: str, target: str, **wanted: Any) -> list[str]:
    where = f"{folder / 'data.py'}:{target}"
    return [sys.executable, "-m", "feedline.diagnose.bench.side", name, json.dumps({"target": where, **wanted})]


def test_between_its_turns_a_sides_workers_stand_still(folder: Path) -> None:
    process = SideProcess(side(folder, "torch", "Photos", num_workers=2), 600)
    process._goodbye = 600.0  # its end is looked at
    try:
        assert process.answer()["num_workers"] == 2
        assert process.measure("warm-up 60")["batches"] == 2
        workers = set(members(process._process.pid)) - {process._process.pid}
        assert len(workers) >= 2
        _until_all(workers, "T")
        assert process.measure("window 0.01")["value"] > 0
        _until_all(workers, "T")
        assert process.measure("epochs 0.01")["value"] > 0
    finally:
        process.close()
    assert process._process.returncode == 0
    assert not members(process._process.pid)


def _until_all(processes: set[int], state: str) -> None:
    """A signal is sent at once and may be acted upon a moment later."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        states = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] for each in processes]
        if set(states) == {state}:
            return
        os.sched_yield()
    raise AssertionError(states)


# Which loader is made

NUMBERS = np.arange(10.0)


class Stream(data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


class Ours:
    def __iter__(self) -> Any:
        return iter(range(10))


def in_pairs(samples: list[Any]) -> Any:
    return len(samples)


def broken() -> Any:
    raise OSError("no such disk")


LOADERS: dict[str, Any] = {
    "numbers": NUMBERS,
    "empty": NUMBERS[:0],
    "stream": Stream(),
    "ours": Ours(),
    "shuffled": data.DataLoader(NUMBERS, 4, shuffle=True, drop_last=True, collate_fn=in_pairs),  # type: ignore[arg-type]
    "drawn": data.DataLoader(NUMBERS, 3, sampler=data.RandomSampler(NUMBERS, True, 7), timeout=5),  # type: ignore[arg-type]
    "by_batches": data.DataLoader(NUMBERS, batch_sampler=[[0, 1, 2], [3]]),  # type: ignore[arg-type]
    "single": data.DataLoader(NUMBERS, batch_size=None),  # type: ignore[arg-type]
    "streaming": feedline.torch.DataLoader(Stream(), 4),
    "threads": feedline.torch.DataLoader(NUMBERS, 4, num_workers=2, workers="thread", prefetch_factor=3),
    "numpy": feedline.DataLoader(NUMBERS, 4, shuffle=True, seed=3, drop_last=True),
    "numpy_stream": feedline.DataLoader(Ours(), 4),
    "skipping": feedline.DataLoader(NUMBERS, 4, on_error="skip"),
    "skipping_tensors": feedline.torch.DataLoader(NUMBERS, 4, on_error="skip"),
    "lengthless": data.DataLoader(NUMBERS, 5, sampler=Ours()),  # type: ignore[arg-type]
}
NAMES = globals()
NAMES.update(LOADERS)


def made(name: str, side: str = "torch", **wanted: Any) -> BenchSubject:
    return subject(side, WantedLoader(f"{__name__}:{name}", **wanted))


@pytest.mark.parametrize("side", SIDES)
def test_a_dataset_gets_what_was_asked_for(side: str) -> None:
    found = made("numbers", side, batch_size=4, shuffle=True, num_workers=0, collate=f"{__name__}:in_pairs")
    assert type(found.loader) is (data.DataLoader if side == "torch" else feedline.torch.DataLoader)
    assert list(found.loader) == [4, 4, 2]
    assert isinstance(found.loader.sampler, data.RandomSampler)
    assert (found.samples, found.batch_size, found.metric) == (10, 4, "samples/s")
    assert found.about == "ndarray, 10 samples, batches of 4, shuffled"


def test_a_dataset_of_which_nothing_is_said() -> None:
    loader = made("numbers").loader
    assert (loader.batch_size, loader.num_workers, loader.persistent_workers) == (32, 2, True)
    assert isinstance(loader.sampler, data.SequentialSampler)


@pytest.mark.parametrize("side", SIDES)
def test_a_loader_keeps_its_options(side: str) -> None:
    found = made("shuffled", side)
    assert isinstance(found.loader.sampler, data.RandomSampler)
    assert (list(found.loader), found.samples, found.num_workers) == ([4, 4], 8, 0)
    found = made("drawn", side)
    assert (len(found.loader.sampler), found.samples, [len(batch) for batch in found.loader]) == (7, 7, [3, 3, 1])
    found = made("by_batches", side)
    assert [len(batch) for batch in found.loader] == [3, 1]
    assert (found.samples, found.metric, found.about) == (None, "batches/s", "ndarray, 10 samples, batches of list")
    assert len(list(made("single", side).loader)) == 10
    assert [len(batch) for batch in made("streaming", side).loader] == [4, 4, 2]
    assert made("streaming", side).metric == "batches/s"
    found = made("numpy", side)
    assert [len(batch) for batch in found.loader] == [4, 4]
    assert isinstance(found.loader.sampler, data.RandomSampler)


def test_what_only_feedline_has_is_left_out_on_both_sides_and_said() -> None:
    for side in SIDES:
        found = made("threads", side)
        assert found.notes == ("workers='thread' left out on both sides: torch has no such option",)
        assert (found.num_workers, found.loader.prefetch_factor) == (2, 3)
        assert getattr(found.loader, "workers", "process") == "process"
    assert made("shuffled").notes == ()


def test_errors_that_are_left_out_are_said_to_be_none_for_torch() -> None:
    for name in ("skipping", "skipping_tensors"):
        assert made(name).notes == ("on_error='skip' left out on both sides: torch has no such option",)


@pytest.mark.parametrize("side", SIDES)
def test_a_sampler_without_a_length_is_counted_in_batches(side: str) -> None:
    found = made("lengthless", side)
    assert (found.samples, found.batch_size, found.metric) == (None, None, "batches/s")
    assert len(list(found.loader)) == 2


def test_the_number_of_workers_may_be_another() -> None:
    fewer, more = made("threads", num_workers=0).loader, made("shuffled", num_workers=1).loader
    assert (fewer.num_workers, fewer.prefetch_factor, fewer.persistent_workers) == (0, None, False)
    assert (more.num_workers, more.persistent_workers, more.batch_size) == (1, True, 4)


@pytest.mark.parametrize(
    ("name", "wanted", "words"),
    [
        ("shuffled", {"batch_size": 4}, "batch_size: .* is a loader, which has its own"),
        ("shuffled", {"shuffle": True}, "shuffle: .* is a loader, which has its own"),
        ("shuffled", {"collate": "math:sin"}, "collate: .* is a loader, which has its own"),
        ("numbers", {"collate": "math:pi"}, "collate: math:pi is a float, and not a function"),
        ("stream", {"shuffle": True}, "shuffle: .* is a stream"),
        ("empty", {}, "is empty"),
        ("ours", {}, "a stream, but no torch.utils.data.IterableDataset"),
        ("numpy_stream", {}, "a stream, but no torch.utils.data.IterableDataset"),
        ("nothing", {}, "has no 'nothing'"),
        ("broken", {}, r"broken\(\) raised OSError: no such disk"),
    ],
)
def test_what_can_be_no_subject_is_an_option_error(name: str, wanted: dict[str, Any], words: str) -> None:
    with pytest.raises((OptionError, OptionTypeError), match=words):
        made(name, **wanted)


@pytest.mark.parametrize("name", ["large_samples", "tiny_batches", "augment", "latency", "text"])
def test_our_datasets_are_read_alike(name: str) -> None:
    dataset = getattr(workloads, name)()
    collate = workloads.padded if name == "text" else None
    ours, theirs = (
        next(iter(kind(dataset, 2, collate_fn=collate))) for kind in (feedline.torch.DataLoader, data.DataLoader)
    )
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert name == "augment" or torch.equal(ours, theirs)  # that one draws


def test_jpegs_are_decoded() -> None:
    dataset = workloads.RepeatedData(workloads._encoded(1), 4, workloads.decoded)
    pixels, label = dataset[3]
    assert (pixels.shape, pixels.dtype) == ((3, 224, 224), np.float32)
    assert 0 <= pixels.min() < pixels.max() <= 1
    assert 0 <= label < 10
