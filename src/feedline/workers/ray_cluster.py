"""The Ray cluster, as its driver sees it: which machines there are, what they have, and what is lacking.

Takes: Ray's answers, the user's `ray_options`. Gives: a connection, placement, sentences about what is lacking.
Promises: an address or a running connection that the user has chosen is used as it is; a machine on which a worker
could not work is named, with the remedy.
Not its job: the actors (ray_fleet), what is asked on a machine (ray_node).
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from feedline.errors import WorkerError
from feedline.errors.missing_packages import extra
from feedline.workers import ray_node

RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
"""Options of an actor, and what Ray calls these resources."""
SEE_ALL = "`feedline preflight --ray` looks at every machine"


class Home(NamedTuple):
    """Where a worker is."""

    node: str
    """Ray's id of the machine."""
    host: str
    """Its name in Ray, for messages; its address if nobody has named it."""
    pid: int


class Connection:
    """The connection to Ray that a loader's workers use."""

    def __init__(self) -> None:
        self.ray: Any = extra("ray", "ray", "workers='ray'")
        if not self.ray.is_initialized():
            self.ray.init()
        # So that a machine without feedline can say so.
        self.ray.cloudpickle.register_pickle_by_value(ray_node)
        self._me = self.ray.get_runtime_context().get_worker_id()

    @property
    def is_lost(self) -> bool:
        """Has the user called `ray.shutdown`, perhaps to connect anew? Ray does not tell those who wait."""
        return not self.ray.is_initialized() or self.ray.get_runtime_context().get_worker_id() != self._me

    def store(self) -> float:
        """Bytes of Ray's memory on this machine."""
        here = self.here()
        return float(next(each["Resources"]["object_store_memory"] for each in self.nodes() if each["NodeID"] == here))

    def here(self) -> str:
        """Ray's id of this machine."""
        return str(self.ray.get_runtime_context().get_node_id())

    def cpus_here(self) -> int:
        """CPUs that Ray may use on this machine."""
        return int(next(each["Resources"].get("CPU", 0) for each in self.nodes() if each["NodeID"] == self.here()))

    def nodes(self) -> list[dict[str, Any]]:
        """The machines that are there."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def name(self, node: str) -> str:
        """A machine's name."""
        return next((str(each["NodeName"]) for each in self.ray.nodes() if each["NodeID"] == node), node)

    def on(self, node: str, soft: bool = False) -> dict[str, Any]:
        """The option of an actor to run on that machine; if `soft`, only if there is room."""
        place = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=soft)
        return {"scheduling_strategy": place}

    def placing(self) -> dict[str, Any]:
        """One CPU for each worker, spread over the machines. If some machines have GPUs and others do not, Ray's
        default leaves the former alone as long as it can; its "SPREAD" does not."""
        has_gpus = {bool(node["Resources"].get("GPU")) for node in self.nodes()}
        return {"num_cpus": 1, "scheduling_strategy": "DEFAULT" if len(has_gpus) == 2 else "SPREAD"}

    def lacking(self, options: Mapping[str, Any]) -> str:
        """Why a worker with these options has no place yet."""
        needed = needs(options)
        machines = [node["Resources"] for node in self.nodes()]
        words = ", ".join(f"{_amount(value)} {name}" for name, value in needed.items()) or "a place"
        if not any(_holds(machine, needed) for machine in machines):
            most = {name: max((each.get(name, 0) for each in machines), default=0) for name in needed}
            least = [f"{_amount(most[name])} {name}" for name in needed if most[name] < needed[name]]
            return f"it needs {words}, and no machine of the cluster has more than {', '.join(least) or 'a part of it'}"
        free = self.ray.available_resources()
        if _holds(free, needed):
            rules = ("label_selector", "scheduling_strategy")
            chosen = [name for name in rules if not isinstance(options.get(name), (str, type(None)))]
            other = f", or no machine may be right for {' and '.join(chosen)}" if chosen else ""
            return f"it needs {words}, which is free: Ray has yet to start it, may be preparing its runtime_env{other}"
        left = ", ".join(f"{_amount(free.get(name, 0))} {name}" for name in needed)
        return f"it needs {words}, and of all machines together {left or 'nothing'} is free (`ray status`)"

    def places(self, options: Mapping[str, Any]) -> int:
        """How many workers with these options there could be, beside what is running now."""
        free, options = self.ray.available_resources(), {"num_cpus": 1, **options}
        return int(min((free.get(name, 0) // value for name, value in needs(options).items() if value), default=1))


def needs(options: Mapping[str, Any]) -> dict[str, float]:
    """The resources of a worker with these options.

    >>> needs({"num_cpus": 1, "accelerator_type": "A100", "resources": {"loader": 2}})
    {'CPU': 1, 'accelerator_type:A100': 0.001, 'loader': 2}
    """
    named = {name: options[option] for option, name in RESOURCES.items() if options.get(option)}
    if options.get("accelerator_type"):
        named[f"accelerator_type:{options['accelerator_type']}"] = 0.001  # as Ray itself asks for it
    return {**named, **(options.get("resources") or {})}


def check_home(home: Mapping[str, Any], name: str, worker: int) -> None:
    """Raise a WorkerError if a worker cannot work there."""
    ours = str(sys.modules["feedline"].__version__)
    version, why = home["packages"]["feedline"]
    where, install = f"worker {worker} was started on {name}", f"feedline=={ours}"
    remedy = f"Install {install} there, or hand on ray_options={{'runtime_env': {{'pip': ['{install}']}}}}; {SEE_ALL}."
    if version is None:
        raise WorkerError(f"{where}, where feedline cannot be imported ({why}). {remedy}")
    if version != ours:
        raise WorkerError(f"{where}, which has feedline {version}; here it is {ours}. {remedy}")
    if not same_python(home["python"]):
        raise WorkerError(
            f"{where}, which has Python {home['python']}; here it is {platform.python_version()}. Code cannot be sent "
            f"from one to the other: use the same minor version. {SEE_ALL}."
        )


def same_python(version: str) -> bool:
    """Can code be sent to that version of Python?"""
    return tuple(version.split(".")[:2]) == tuple(map(str, sys.version_info[:2]))


def _holds(machine: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    return all(machine.get(name, 0) >= value for name, value in needed.items())


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def in_short(error: BaseException) -> str:
    """Why an actor has ended: Ray's first line, and how the process ended. Ray goes on for half a page.

    >>> in_short(RuntimeError("The actor died.\\nip: 1.2.3.4\\nWorker exit detail: End of file. Some common causes …"))
    'The actor died (End of file)'
    """
    first = str(error).partition("\n")[0].rstrip(".")
    detail = re.search(r"Worker exit detail: (.*?)\.? Some common causes", str(error), re.DOTALL)
    return f"{first} ({detail[1]})" if detail else first
