"""What preflight makes of CPUs, threads, memory and processes: on made trees of every shape, and on numbers."""

from __future__ import annotations

import socket
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_cgroups import Tree

from feedline.arena.limits import CONTAINER_V2, MACHINE, Room
from feedline.diagnose.preflight_checks import cpu_and_memory, system_limits
from feedline.diagnose.preflight_checks.cluster import ClusterNeeds, check_cluster
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.machine import cpus
from feedline.machine.cpus import Cpus
from feedline.workers.one_thread import VARIABLES


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def write(folder: Path, **files: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


# The CPU limit


def quota_of(tree: Tree) -> tuple[float | None, int, float | None]:
    found = cpus.look(str(tree.proc))
    return found.quota, found.version, found.throttled


def test_no_quota(tree: Tree) -> None:
    assert quota_of(tree) == (None, 0, None)
    tree.own("0::/")
    mount = tree.mount("cg", "cgroup2", "rw")
    for words in ("max 100000", "", "200000", "200000 0", "-1 100000", "many few"):
        write(mount, cpu__max=words)
        assert quota_of(tree)[0] is None


def test_version_2_the_tightest_around_counts(tree: Tree) -> None:
    tree.own("0::/kubepods/pod/main")
    mount = tree.mount("cg", "cgroup2", "rw")
    write(mount / "kubepods" / "pod" / "main", cpu__max="400000 100000")
    write(mount / "kubepods" / "pod", cpu__max="max 100000")
    assert quota_of(tree) == (4.0, 2, 0.0)
    write(mount / "kubepods" / "pod", cpu__max="150000 100000", cpu__stat="nr_periods 200\nnr_throttled 50")
    assert quota_of(tree) == (1.5, 2, 0.25)


def test_version_1_beside_version_2(tree: Tree) -> None:
    tree.own("3:cpu,cpuacct:/docker/abc", "0::/docker/abc")
    tree.mount("unified", "cgroup2", "rw")
    mount = tree.mount("cpu,cpuacct", "cgroup", "rw,cpu,cpuacct", root="/docker/abc")
    write(mount, cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    assert quota_of(tree)[0] is None
    write(mount, cpu__cfs_quota_us=25000, cpu__cfs_period_us=50000)
    assert quota_of(tree) == (0.5, 1, 0.0)


def test_another_controllers_mount_is_not_asked(tree: Tree) -> None:
    tree.own("3:cpuset:/", "2:cpu:/")
    write(tree.mount("cpuset", "cgroup", "rw,cpuset"), cpu__cfs_quota_us=100, cpu__cfs_period_us=100)
    assert quota_of(tree)[0] is None


@given(quota=st.floats(0.01, 300), allowed=st.integers(1, 256))
def test_workers_follow_from_what_can_be_used(quota: float, allowed: int) -> None:
    found = Cpus(256, allowed, quota)
    assert found.usable == min(quota, allowed)
    assert 1 <= found.workers <= max(1, found.usable + 0.01)
    assert found.workers > found.usable - 1


@pytest.mark.parametrize(
    ("found", "planned", "severity", "words"),
    [
        (Cpus(8, 8), None, "ok", "8 of 8 usable"),
        (Cpus(8, 8), 8, "ok", "8 of 8 usable"),
        (Cpus(8, 8), 9, "warning", "num_workers=8"),
        (Cpus(64, 64, 2.5, 2, 0.0), None, "note", "2.5 of 64 usable because of a quota of 2.5 (cgroup v2)"),
        (Cpus(64, 64, 2.5, 2, 0.0), 3, "note", "num_workers=2"),
        (Cpus(64, 64, 2.5, 2, 0.0), 4, "warning", "docker run --cpus=4"),
        (Cpus(64, 4), None, "note", "4 of 64 usable because of affinity to 4"),
        (Cpus(64, 8, 2.0, 1, 0.4), None, "note", "40%"),
        (Cpus(2, 2, 0.5, 1, 0.0), 0, "warning", "docker run --cpus=2"),
        (Cpus(2, 2, 4.0, 1, 0.0), None, "ok", "2 of 2 usable;"),
    ],
)
def test_what_is_said_of_cpus(found: Cpus, planned: int | None, severity: str, words: str) -> None:
    plan = WorkerPlan(found, found.workers if planned is None else planned, planned is not None)
    (finding,) = cpu_and_memory.check_cpus(plan)
    assert finding.severity == severity
    assert words in " ".join((finding.title, finding.explanation, finding.code))


def test_a_machine_that_has_no_more_cpus_is_not_asked_for_more() -> None:
    (finding,) = cpu_and_memory.check_cpus(WorkerPlan(Cpus(2, 2), 6))
    assert "docker" not in finding.code
    (finding,) = cpu_and_memory.check_cpus(WorkerPlan(Cpus(4, 2), 6))
    assert "--cpus=4" in finding.code


@pytest.mark.parametrize(
    ("found", "workers", "variables", "severity"),
    [
        (Cpus(8, 8), 8, {}, "ok"),
        (Cpus(8, 8), 99, {"OMP_NUM_THREADS": "1"}, "ok"),
        (Cpus(8, 8), 2, {"MKL_NUM_THREADS": "4"}, "ok"),
        (Cpus(8, 8), 3, {"MKL_NUM_THREADS": "4"}, "note"),
        (Cpus(8, 8), 0, {"OMP_NUM_THREADS": "64"}, "ok"),
        (Cpus(8, 8), 8, {"OMP_NUM_THREADS": "many"}, "ok"),
        (Cpus(8, 8, 2.0), 2, {}, "warning"),
        (Cpus(8, 8, 2.0), 2, {"MKL_NUM_THREADS": "1"}, "warning"),
        (Cpus(8, 8, 2.0), 2, {"OMP_NUM_THREADS": "2"}, "note"),
        (Cpus(8, 8, 2.0), 2, {"OMP_NUM_THREADS": "1"}, "ok"),
        (Cpus(8, 2, 2.0), 2, {}, "ok"),
        (Cpus(8, 2), 2, {}, "ok"),
    ],
)
def test_what_is_said_of_threads(
    monkeypatch: pytest.MonkeyPatch, found: Cpus, workers: int, variables: dict[str, str], severity: str
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (finding,) = cpu_and_memory.check_threads(WorkerPlan(found, workers))
    assert finding.severity == severity


# Memory


@pytest.mark.parametrize(
    ("free", "wanted", "severity"),
    [
        (1000, None, "ok"),
        (100, None, "problem"),
        (101, None, "ok"),
        (1000, 450, "ok"),
        (1000, 451, "warning"),
        (1000, 900, "warning"),
        (1000, 901, "problem"),
        (0, 1, "problem"),
    ],
)
@pytest.mark.parametrize("which", [MACHINE, CONTAINER_V2])
def test_what_is_said_of_memory(free: int, wanted: int | None, severity: str, which: str) -> None:
    judged = cpu_and_memory._judged(Room(free, 4 << 30, which), 100, wanted, "title", {})
    assert judged[0] == severity
    assert ("docker run --memory=5g" in judged[-1]) == (severity != "ok" and which != MACHINE)


# Processes


def test_the_tightest_pids_limit_counts(tree: Tree) -> None:
    tree.own("0::/a/b")
    mount = tree.mount("cg", "cgroup2", "rw")
    write(mount / "a" / "b", pids__max="max", pids__current=3)
    assert system_limits._left_in_cgroup(str(tree.proc)) is None
    write(mount / "a", pids__max=64, pids__current=60)
    write(mount, pids__max=1000, pids__current=10)
    assert system_limits._left_in_cgroup(str(tree.proc)) == 4
    write(mount / "a", pids__max=64, pids__current=70)
    assert system_limits._left_in_cgroup(str(tree.proc)) == 0


def test_a_ray_address_where_nobody_listens_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise AssertionError("Ray itself would try for minutes")

    ray = types.ModuleType("ray")
    ray.__spec__ = ModuleSpec("ray", None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False, raising=False)
    monkeypatch.setattr(ray, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with socket.socket() as held:  # bound and not listening: nobody else gets the port
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        for given, variable in ((address, ""), (f"ray://{address}", ""), ("auto", address)):
            monkeypatch.setenv("RAY_ADDRESS", variable)
            [found] = check_cluster(WorkerPlan(Cpus(host=8, allowed=8), num_workers=2), ClusterNeeds(given))
            assert found.severity == "problem"
            assert "ConnectionRefusedError" in found.explanation
