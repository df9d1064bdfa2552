"""Checks of a Ray cluster: is there one, and has each machine what workers and the dataset need?

Takes: an address, packages and paths that the dataset needs. Gives: findings "ray", "ray-cluster", "ray-memory", and
"ray-machine" for each machine.
Promises: no cluster is started; each machine is asked by itself, and one that lacks feedline can say so, because what
asks it is sent by value; a connection that was there stays.
Not its job: loading anything (the trial), the driver's own machine (the other checks).
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.errors.counting import counted
from feedline.supervise.telling import size
from feedline.workers import ray_node
from feedline.workers.ray_cluster import Connection, same_python
from feedline.workers.ray_lanes import SHARE_OF_STORE

ANSWER_SECONDS = 120.0
"""How long all machines together may take to answer: each starts a process, and imports the packages."""
KNOCK_SECONDS = 10.0
"""How long the cluster's head may take to accept a connection."""
OURS = ("feedline", "numpy", "cloudpickle")


class ClusterNeeds(NamedTuple):
    """What is to be checked."""

    address: str = "auto"
    """As `ray.init` takes it; "auto": the cluster in RAY_ADDRESS, or one that runs here."""
    packages: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def check_cluster(plan: WorkerPlan, needs: ClusterNeeds) -> Iterator[Finding]:
    """The cluster as a whole, and each machine."""
    if find_spec("ray") is None:
        remedy = "install it, in the same version as the cluster has"
        yield Finding("ray", PROBLEM, "Ray is not installed", {}, "workers='ray' needs it.", remedy, "pip install ray")
        return
    ray: Any = import_module("ray")
    with contextlib.ExitStack() as undo:
        if not ray.is_initialized():
            try:
                _knock(needs.address)
                ray.init(address=needs.address, log_to_driver=False, logging_level="error")
            except Exception as error:  # no cluster, another version of Ray or Python, a broken address
                yield _not_connected(needs.address, error)
                return
            undo.callback(ray.shutdown)
        connection = Connection()
        machines = connection.nodes()
        yield from _whole(plan, connection, machines)
        yield from _memory(plan, connection)
        yield from _machines(connection, machines, needs)


def _knock(address: str) -> None:
    """OSError if nobody listens at that address: Ray itself would try for minutes, without a word."""
    given = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, _, port = given.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()


def _not_connected(address: str, error: Exception) -> Finding:
    where = "in RAY_ADDRESS or on this machine" if address == "auto" else f"at {address}"
    return Finding(
        "ray",
        PROBLEM,
        f"Cannot connect to a Ray cluster {where}",
        {"address": address, "error": f"{type(error).__name__}: {error}"},
        f"{type(error).__name__}: {error}",
        "start one, or give its address. Ray and Python must have the same versions everywhere.",
        "ray start --head\nfeedline preflight --ray ADDRESS:6379",
    )


def _whole(plan: WorkerPlan, connection: Connection, machines: list[dict[str, Any]]) -> Iterator[Finding]:
    has, free = connection.ray.cluster_resources(), connection.ray.available_resources()
    cpus, left = has.get("CPU", 0), free.get("CPU", 0)
    evidence = {"machines": len(machines), "cpus": cpus, "free_cpus": left, "ray": connection.ray.__version__}
    there = f"{counted(len(machines), 'machine')}, {cpus:g} CPUs, {left:g} of them free"
    title = f"Ray {connection.ray.__version__}: {there}"
    if plan.given and plan.num_workers > cpus:
        yield Finding(
            "ray-cluster",
            WARNING,
            title,
            evidence,
            f"{plan.workers} are planned, each of which takes a CPU: some would wait for a place.",
            "plan fewer, add machines, or let workers take less.",
            "DataLoader(…, ray_options={'num_cpus': 0.5})",
        )
    else:
        yield Finding("ray-cluster", OK, title, evidence)


def _memory(plan: WorkerPlan, connection: Connection) -> Iterator[Finding]:
    if plan.batch_bytes is None:
        return
    store = connection.store()
    fit, out = int(SHARE_OF_STORE * store // plan.batch_bytes), plan.num_workers * plan.prefetch_factor
    evidence = {"store": store, "batches_that_fit": fit, "batches_planned": out}
    title = f"Ray's memory on this machine: {size(int(store))}; {counted(fit, 'batch')} at a time may be out"
    if fit >= out:
        yield Finding("ray-memory", OK, title, evidence)
    else:
        why = f"{plan.workers} with {plan.prefetch_factor} batches each would be {out}: workers wait for room."
        code = f"ray start --object-store-memory={2 * out * plan.batch_bytes}"
        yield Finding("ray-memory", NOTE, title, evidence, why, "give Ray more memory on this machine.", code)


def _machines(connection: Connection, machines: list[dict[str, Any]], needs: ClusterNeeds) -> Iterator[Finding]:
    ray, packages = connection.ray, [*OURS, *needs.packages]
    search = [path for path in sys.path if path]
    ask = ray.remote(ray_node.facts)
    here = ray_node.facts(packages, [], [])
    asked = {
        each["NodeID"]: ask.options(num_cpus=0, max_retries=0, **connection.on(each["NodeID"])).remote(
            packages, list(needs.paths), search
        )
        for each in machines
    }
    done, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_SECONDS)
    for machine in sorted(machines, key=lambda each: str(each["NodeName"])):
        name, answer = str(machine["NodeName"]), asked[machine["NodeID"]]
        try:
            found = ray.get(answer) if answer in done else None
        except Exception as error:  # it went away, or cannot start a process
            text = f"{type(error).__name__}: {error}"
            yield Finding("ray-machine", PROBLEM, f"{name}: no answer", {"machine": name, "error": text}, text)
            continue
        yield _silent(name) if found is None else _machine(name, found, here)


def _silent(name: str) -> Finding:
    why = f"It did not answer within {ANSWER_SECONDS:.0f} s: too busy, or it cannot start a process."
    return Finding("ray-machine", PROBLEM, f"{name}: no answer", {"machine": name}, why, "look at it: `ray status`.")


def _machine(name: str, found: Mapping[str, Any], here: Mapping[str, Any]) -> Finding:
    wrong, differs = list[str](), list[str]()
    has = [f"Python {found['python']}"]
    if not same_python(found["python"]):
        wrong.append(f"it has Python {found['python']}, here is {platform.python_version()}")
    if not found["linux"]:
        wrong.append("it is not Linux, which workers need")
    for package, (version, why) in found["packages"].items():
        ours = here["packages"][package][0]
        if version is None:
            wrong.append(f"{package} cannot be imported ({why})")
        elif version != ours and ours is not None:
            (wrong if package == "feedline" else differs).append(f"{package} {version}, here {ours}")
        has.append(f"{package} {version}" if version else f"{package}: missing" if version is None else package)
    wrong += [f"{path}: {why}" for path, why in found["missing"].items()]
    title = f"{name}: {'; '.join(wrong or differs) or ', '.join(has)}"
    evidence = {"machine": name, **found}
    if not wrong and not differs:
        return Finding("ray-machine", OK, title, evidence)
    why = "Workers there would fail." if wrong else "Batches may differ from those made here, or not be readable."
    remedy = "install the same there, or hand it on."
    code = "DataLoader(…, ray_options={'runtime_env': {'pip': […]}})"
    return Finding("ray-machine", PROBLEM if wrong else WARNING, title, evidence, why, remedy, code)
