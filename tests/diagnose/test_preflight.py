"""Preflight against a real loader's needs, without torch and without being imported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import FORK, INLINE
from warm_host import host

import feedline
from feedline import DataLoader, IterableDataset
from feedline.diagnose import preflight as preflight_module
from feedline.diagnose.findings import Finding
from feedline.diagnose.preflight_checks import cpu_and_memory, software
from feedline.diagnose.preflight_checks.software import GVISOR, _signs
from feedline.diagnose.preflight_checks.system_limits import PER_LOADER, PER_WORKER
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.errors import OptionError, OptionTypeError
from feedline.machine.cpus import Cpus

MB = 1 << 20


# Against a real loader


class Rows:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return np.zeros(MB // 4, np.uint8)


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(40))

    def shard(self, index: int, count: int) -> Any:
        return range(index, 40, count)


def held() -> int:
    """Bytes in this process's shared files."""
    total = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:feedline" in os.readlink(f"/proc/self/fd/{fd}"):
                total += os.stat(f"/proc/self/fd/{fd}").st_blocks * 512
        except OSError:
            continue
    return total


@pytest.mark.parametrize("kind", [INLINE, FORK, {**FORK, "num_workers": 1, "prefetch_factor": 5}])
@pytest.mark.usefixtures("everything_in_slots")
def test_the_memory_of_a_plan_is_what_its_loader_takes(kind: dict[str, Any]) -> None:
    most = 0
    # With a collate_fn: an epoch's first batches are made in pieces otherwise, which are then put together.
    for _ in DataLoader(Rows(), batch_size=4, collate_fn=np.stack, **kind):
        most = max(most, held())
    wanted = WorkerPlan(
        Cpus(2, 2), kind.get("num_workers", 0), True, kind.get("prefetch_factor", 2), MB
    ).bytes_of_batches
    assert wanted is not None
    assert 0.7 * wanted <= most <= wanted + MB // 8  # the board, and small things


@pytest.mark.parametrize("dataset", [Rows(), Stream()], ids=["map", "stream"])
@pytest.mark.parametrize("kind", [FORK, {**FORK, "num_workers": 4}], ids=["2", "4"])
def test_the_descriptors_of_a_plan_are_enough_for_its_loader(dataset: Any, kind: dict[str, Any]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in DataLoader(dataset, batch_size=2, **kind):
        taken = len(os.listdir("/proc/self/fd")) - before
        break
    wanted = PER_LOADER + PER_WORKER * kind["num_workers"]
    assert wanted / 2 <= taken <= wanted


# torch, without importing it


def made_torch(folder: Path, version: str, built_for: str) -> None:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "torch" / "version.py").write_text(
        f"from typing import Optional\n__version__ = '{version}'\n{built_for}\n"
    )
    metadata = folder / f"torch-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("version", "built_for", "devices", "severity", "words"),
    [
        ("2.13.0+cpu", "cuda: Optional[str] = None\nhip: Optional[str] = None", [], "ok", "built for CPUs only"),
        ("2.13.0", "cuda: Optional[str] = '12.8'", [], "note", "built for CUDA 12.8; no GPU device files"),
        ("2.13.0", "cuda = '12.8'", ["/dev/nvidia0"], "ok", "CUDA 12.8; 1 GPU"),
        ("2.13.0", "cuda = None\nhip = '6.4'", ["/dev/kfd"], "ok", "ROCm 6.4"),
        ("2.13.0+cpu", "cuda = None", ["/dev/nvidia0"], "warning", "cannot use the GPUs"),
        ("2.4.1", "cuda = '12.1'", ["/dev/nvidia0"], "warning", "tested with 2.13"),
    ],
)
def test_torch_is_read_and_not_imported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    built_for: str,
    devices: list[str],
    severity: str,
    words: str,
) -> None:
    made_torch(tmp_path, version, built_for)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(software, "_gpu_devices", lambda: devices)
    (finding,) = software.check_torch(WorkerPlan(Cpus(2, 2), 2))
    assert finding.severity == severity
    assert words in f"{finding.title} {finding.explanation}"


def test_cuda_is_asked_for_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_torch(tmp_path, "2.13.0", "")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (finding,) = software.check_cuda(WorkerPlan(Cpus(2, 2), 2))
    assert (finding.severity, "imported" in finding.title) == ("problem", True)
    for answer, severity in (("True", "ok"), ("False", "problem")):
        (tmp_path / "torch" / "__init__.py").write_text(
            f"class cuda:\n    device_count = lambda: 3\n    is_available = lambda: {answer}\n"
        )
        (finding,) = software.check_cuda(WorkerPlan(Cpus(2, 2), 2))
        assert (finding.severity, finding.evidence["devices"]) == (severity, 3)


def test_gvisor_is_recognised() -> None:
    assert _signs(f"Linux version 4.4.0 {GVISOR}")["gVisor"]
    assert _signs("Linux version 4.19.0-gvisor #1")["gVisor"]
    assert not _signs("Linux version 6.8.0-139-generic (buildd@lcy02) #1 SMP")["gVisor"]


# The whole


def test_asking_for_the_start_method_settles_nothing() -> None:
    code = """
import multiprocessing, feedline
print([finding.evidence["default"] for finding in feedline.preflight(trial=False) if finding.id == "start-methods"][0])
multiprocessing.set_start_method("spawn")  # an error if it were settled
print([finding.title for finding in feedline.preflight(trial=False) if finding.id == "start-methods"][0])
"""
    said = host("feedline").run(["-c", code], check=True).stdout.splitlines()
    assert said[0] in ("fork", "forkserver")
    assert "spawn (set by the program)" in said[1]


IDS = {
    "cpu-limit",
    "threads",
    "memory-limit",
    "shared-memory",
    "open-files",
    "temporary-files",
    "process-limit",
    "start-methods",
    "fork-hazards",
    "runtime",
    "clock",
    "python",
    "packages",
    "torch",
}


def test_every_subject_has_its_finding_and_all_is_json() -> None:
    found = feedline.preflight(num_workers=1, trial=False)
    assert {finding.id for finding in found} >= IDS
    assert all(finding.severity in ("ok", "note") for finding in found if finding.id in ("clock", "packages"))
    for finding in found:
        assert json.loads(json.dumps(finding.to_json(), allow_nan=False))["id"] == finding.id
        if finding.severity in ("warning", "problem"):
            assert finding.explanation
            assert finding.remedy


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"num_workers": -1}, OptionError),
        ({"num_workers": 1.5}, OptionTypeError),
        ({"prefetch_factor": 0}, OptionError),
        ({"batch_bytes": 0}, OptionError),
        ({"trial": "no"}, OptionTypeError),
        ({"cuda": 1}, OptionTypeError),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(wrong))):
        feedline.preflight(**wrong)


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_the_moon(plan: WorkerPlan) -> Any:
        yield Finding("moon", "ok", "It is there")
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(preflight_module, "CHECKS", (check_the_moon, cpu_and_memory.check_cpus))
    found = feedline.preflight(trial=False)
    assert [finding.id for finding in found] == ["moon", "the-moon-unknown", "cpu-limit"]
    assert "Input/output error" in found[1].title


# Lightness


def test_importing_feedline_imports_nothing_of_this() -> None:
    code = (
        "import sys, feedline; before = set(sys.modules); "
        "assert 'preflight' in dir(feedline) and 'Finding' in feedline.__all__; "
        "print([m for m in before if 'diagnose' in m or m in ('feedline.cli', 'argparse', 'rich')]); "
        "feedline.preflight(trial=False); print([m for m in ('torch', 'rich', 'argparse') if m in sys.modules])"
    )
    said = host("feedline").run(["-c", code], check=True).stdout
    assert said.split("\n")[:2] == ["[]", "[]"]
    with pytest.raises(AttributeError, match="postflight"):
        feedline.postflight  # type: ignore[attr-defined]
