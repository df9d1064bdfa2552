"""Preflight under real limits: each is set for a process of its own, and is found there with its remedy."""

from __future__ import annotations

import errno
import os
import resource
import sys
import tempfile
import threading
import types
from collections.abc import Callable
from typing import Any

import inside
import pytest

from feedline.diagnose.preflight import preflight
from feedline.machine import cpus

MB = 1 << 20
READ_ONLY = 1
NOBODY = 65534


def findings(afflict: Callable[[], None] = lambda: None, **setting: Any) -> dict[str, dict[str, Any]]:
    """By id, from a process under the affliction."""

    def look() -> list[dict[str, Any]]:
        return [finding.to_json() for finding in preflight(**{"trial": False, **setting})]

    return {finding["id"]: finding for finding in inside.look(look, afflict)}


def afflicted(*steps: Callable[[], Any]) -> Callable[[], None]:
    def afflict() -> None:
        for step in steps:
            step()

    return afflict


def limit(what: int, soft: int, hard: int | None = None) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (soft, soft if hard is None else hard))


def without(*names: str) -> Callable[[], None]:
    return lambda: [os.environ.pop(name, None) for name in names] and None


THREAD_VARIABLES = without("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


# CPUs


def quota(cpus: float) -> Any:
    period = 100_000
    used = int(cpus * period)
    return inside.cgroup("cpu", {1: {"cpu.cfs_quota_us": used}, 2: {"cpu.max": f"{used} {period}"}})


def test_a_cpu_quota_is_found_and_threads_that_do_not_know_it() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a quota below the number of CPUs is below one CPU here")
    with quota(1.5) as move:
        found = findings(afflicted(THREAD_VARIABLES, move))
        wise = findings(afflicted(lambda: os.environ.update(OMP_NUM_THREADS="1"), move))
        greedy = findings(afflicted(lambda: os.environ.update(OMP_NUM_THREADS="2,1"), move), num_workers=2)
    limit = found["cpu-limit"]
    assert limit["severity"] == "note"
    assert limit["evidence"]["quota"] == limit["evidence"]["usable"] == 1.5
    assert limit["code"] == "DataLoader(…, num_workers=1)"
    assert "1.5 of" in limit["title"]
    assert "quota of 1.5 (cgroup v" in limit["title"]
    assert found["threads"]["severity"] == "warning"
    assert "ENV OMP_NUM_THREADS=1" in found["threads"]["code"]
    assert wise["threads"]["severity"] == "ok"
    assert greedy["threads"]["severity"] == "note"
    assert "OMP_NUM_THREADS=2 holds for" in greedy["threads"]["title"]
    assert "2 workers, 2 threads each" in greedy["threads"]["title"]


def test_less_than_a_cpu_is_a_warning() -> None:
    with quota(0.5) as move:
        found = findings(move)["cpu-limit"]
    assert (found["severity"], found["evidence"]["usable"]) == ("warning", 0.5)
    assert "docker run --cpus=2" in found["code"]


def test_a_quota_that_is_used_up_is_noticed() -> None:
    def work() -> None:
        began = os.times()
        while sum(os.times()[:2]) - sum(began[:2]) < 0.03:
            sum(range(1000))

    with quota(0.05) as move:
        assert inside.look(lambda: cpus.look().throttled, afflicted(move, work)) > 0.01


def test_affinity_counts() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU only")
    first = min(os.sched_getaffinity(0))
    found = findings(lambda: os.sched_setaffinity(0, {first}), num_workers=2)["cpu-limit"]
    assert found["severity"] == "warning"
    assert "affinity to 1" in found["title"]
    assert found["evidence"]["suggested_num_workers"] == 1
    assert "docker run --cpus=2" in found["code"]


# Memory


def test_a_containers_memory_is_the_limit_and_batches_are_counted_against_it() -> None:
    with inside.container(300 * MB) as move:
        fits = findings(move, num_workers=2, batch_bytes=MB)["memory-limit"]
        half = findings(move, num_workers=2, batch_bytes=24 * MB)["memory-limit"]
        not_at_all = findings(move, num_workers=2, batch_bytes=60 * MB)["memory-limit"]
    assert fits["severity"] == "ok"
    assert fits["evidence"]["limit"] == 300 * MB
    assert fits["evidence"]["batches"] == int(7.5 * MB)
    assert "container (cgroup v" in fits["title"]
    assert half["severity"] == "warning"
    assert not_at_all["severity"] == "problem"
    assert "docker run --memory=1g" in not_at_all["code"]
    assert "memory: 1Gi" in not_at_all["code"]


def test_a_container_without_room_for_any_batch() -> None:
    with inside.container(40 * MB) as move:
        found = findings(move)["memory-limit"]
    assert found["severity"] in ("ok", "problem")  # what a forked process is charged for differs
    assert (found["severity"] == "problem") == (found["evidence"]["free"] <= found["evidence"]["reserve"])


def test_an_address_space_limit_is_told_only_where_there_is_one() -> None:
    assert "address-space" not in findings()
    found = findings(limit(resource.RLIMIT_AS, 64 << 30))["address-space"]
    assert (found["severity"], found["code"]) == ("warning", "ulimit -v unlimited")


def test_dockers_small_shm_is_a_note_and_does_not_touch_feedline() -> None:
    found = findings(inside.small_shm(64))
    shm = found["shared-memory"]
    assert shm["severity"] == "note"
    assert shm["evidence"]["total"] == 64 * MB
    assert shm["evidence"]["used_by_feedline"] is False
    assert "Docker's default" in shm["explanation"]
    assert "--shm-size" in shm["code"]
    assert found["kernel"]["severity"] == "ok"


def test_a_shm_in_which_no_lock_can_be_made() -> None:
    found = findings(inside.mounted(("/dev/shm", "size=1m", READ_ONLY)))["shared-memory"]
    assert found["severity"] == "warning"
    assert found["evidence"]["locks_can_be_made"] is False


# Files and processes


def test_open_files() -> None:
    many = findings(limit(resource.RLIMIT_NOFILE, 1024, 4096))["open-files"]
    assert many["severity"] == "note"
    assert (many["evidence"]["soft"], many["evidence"]["hard"]) == (1024, 4096)
    few = findings(limit(resource.RLIMIT_NOFILE, many["evidence"]["open"] + 30), num_workers=2)["open-files"]
    assert few["severity"] == "warning"
    too_few = findings(limit(resource.RLIMIT_NOFILE, many["evidence"]["open"] + 30), num_workers=4)["open-files"]
    assert too_few["severity"] == "problem"
    assert "--ulimit nofile" in too_few["code"]


def test_a_pids_limit() -> None:
    with inside.cgroup("pids", {1: {"pids.max": 100}, 2: {"pids.max": 100}}) as move:
        plenty = findings(move, num_workers=2)["process-limit"]
        few = findings(move, num_workers=90)["process-limit"]
        too_few = findings(move, num_workers=98)["process-limit"]
    assert [finding["severity"] for finding in (plenty, few, too_few)] == ["ok", "warning", "problem"]
    assert too_few["evidence"]["left_in_cgroup"] == 99
    assert "--pids-limit" in too_few["code"]


def test_ulimit_u_counts_for_everybody_but_root() -> None:
    if os.geteuid():
        pytest.skip("only root can be root and nobody in turn")
    assert findings(limit(resource.RLIMIT_NPROC, 3))["process-limit"]["severity"] == "ok"
    as_nobody = afflicted(limit(resource.RLIMIT_NPROC, 3), lambda: os.setuid(NOBODY))
    found = findings(as_nobody, num_workers=4)["process-limit"]
    assert found["severity"] == "problem"
    assert found["code"] == "ulimit -u unlimited"


@pytest.mark.parametrize(
    ("length", "severity"), [(75, "ok"), (76, "warning")]
)  # 107 bytes less those of a socket's name
def test_a_folder_for_temporary_files_with_too_long_a_name(length: int, severity: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = f"{short}/".ljust(length, "x")
        os.mkdir(folder)

        def move() -> None:
            os.environ["TMPDIR"] = folder
            tempfile.tempdir = None

        found = findings(move)["temporary-files"]
        assert os.listdir(folder) == []
    assert found["severity"] == severity
    assert ("path too long" in found["title"]) == (found["code"] == "export TMPDIR=/tmp") == (severity == "warning")


def test_no_folder_for_temporary_files() -> None:
    def forget() -> None:
        os.chdir("/")
        os.environ["TMPDIR"] = "/nowhere"
        os.setuid(NOBODY)
        tempfile.tempdir = None

    if os.geteuid():
        pytest.skip("takes root")
    read_only = inside.mounted(("/tmp", "", READ_ONLY), ("/var/tmp", "", READ_ONLY))
    found = findings(afflicted(read_only, forget))["temporary-files"]
    assert found["severity"] == "warning"
    assert "--tmpfs /tmp" in found["code"]


# The kernel


def test_forbidden_calls_are_told_from_missing_ones() -> None:
    forbidden = findings(inside.forbidden({"memfd_create": errno.EPERM, "pidfd_open": errno.EPERM}))
    assert "kernel" not in forbidden
    memory = forbidden["kernel-memfd_create"]
    assert memory["severity"] == "problem"
    assert "forbidden by a seccomp filter" in memory["title"]
    assert "seccomp" in memory["code"]
    assert memory["evidence"]["seccomp"] == 2
    assert forbidden["kernel-pidfd_open"]["severity"] == "warning"
    hidden = findings(inside.forbidden({"pidfd_open": errno.ENOSYS}))
    assert "hidden by a seccomp filter, or missing" in hidden["kernel-pidfd_open"]["title"]
    assert "kernel-memfd_create" not in hidden


def test_a_limit_on_file_sizes_stops_shared_memory() -> None:
    found = findings(limit(resource.RLIMIT_FSIZE, MB, resource.RLIM_INFINITY))["kernel-memfd_create"]
    assert found["severity"] == "problem"
    assert "ulimit -f unlimited" in found["title"]


def test_without_proc_the_checks_still_speak() -> None:
    found = findings(inside.mounted(("/proc", "", 0)))
    assert found["memory-limit"]["severity"] == "note"
    assert found["kernel-signals-from-pipes"]["severity"] == "problem"
    assert found["cpu-limit"]["evidence"]["quota"] is None
    assert not [name for name in found if name.endswith("-unknown")]


# Fork hazards


def test_fork_hazards_of_this_very_process() -> None:
    hold = threading.Event()

    def begin() -> None:
        threading.Thread(target=hold.wait, name="reader", daemon=True).start()
        cuda = types.SimpleNamespace(is_initialized=lambda: True)
        sys.modules.update(torch=types.SimpleNamespace(cuda=cuda), grpc=types.ModuleType("grpc"))

    assert findings()["fork-hazards"]["severity"] == "ok"
    found = findings(begin)["fork-hazards"]
    assert found["severity"] == "warning"
    assert found["evidence"]["threads"] == ["reader"]
    assert found["evidence"]["cuda_initialised"] is True
    assert [word in found["explanation"] for word in ("reader", "CUDA is initialised", "gRPC")] == [True] * 3
    assert 'multiprocessing_context="spawn"' in found["code"]


# The trial


def test_the_trial_says_what_failed() -> None:
    fine = findings(trial=True)["trial"]
    assert (fine["severity"], fine["evidence"]["exit_code"]) == ("ok", 0)
    found = findings(inside.forbidden({"memfd_create": errno.EPERM}), trial=True)["trial"]
    assert found["severity"] == "problem"
    assert found["evidence"]["exit_code"] == 1
    assert "PermissionError" in found["evidence"]["stderr"]
    assert "`feedline preflight` says what is wrong" in found["evidence"]["stderr"]
