"""What machines have and lack: where workers run, what is said of a machine by its name, and "auto"."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hiding_node import HidingNode
from ray_datasets import Drawing, Environment, Needy, Slow

import feedline
from feedline.errors import OptionError, WorkerError, WorkerTimeout
from feedline.workers import ray_cluster

RAY: dict[str, Any] = {"num_workers": 2, "workers": "ray"}
ON_SECOND: dict[str, Any] = {"num_workers": 1, "workers": "ray", "ray_options": {"resources": {"second": 1}}}


@pytest.fixture(scope="module")
def second(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HidingNode]:
    folder = tmp_path_factory.mktemp("hider")
    node = HidingNode(cluster, folder, num_cpus=4, num_gpus=1, resources={"second": 4}, node_name="second")
    yield node
    node.remove()


def test_the_machine_is_named_in_stats_and_timeline(second: HidingNode, tmp_path: Path) -> None:
    with feedline.DataLoader(Drawing(20), 4, **ON_SECOND) as loader:
        page, trace = tmp_path / "page.html", tmp_path / "trace.json"
        with loader.report(page), loader.trace(trace):
            list(loader)
        (worker,) = loader.stats().workers
        assert worker.host == "second"
        assert worker.total > worker.own > 1 << 20
        assert f"worker 0 (pid {worker.pid} on second)" in str(loader.stats())
        assert 'host="second"' in loader.stats().prometheus()
    events = json.loads(trace.read_text())["traceEvents"]
    assert "worker 0 on second" in {event["args"].get("name") for event in events}
    assert "worker 0 on second" in page.read_text()
    spans = [event["ts"] for event in events if event["ph"] == "X" and event["ts"] < 0]
    assert not spans  # its clock is ours


def test_machines_with_gpus_are_left_alone_if_others_have_cpus(second: HidingNode) -> None:
    with feedline.DataLoader(Drawing(16), 2, num_workers=4, workers="ray", assignment="in_turn") as loader:
        list(loader)
        hosts = {worker.worker: worker.host for worker in loader.stats().workers}
    assert len(hosts) == 4
    assert "second" not in hosts.values()


def test_a_machine_without_feedline_is_named(second: HidingNode) -> None:
    second.hide("feedline")
    with pytest.raises(WorkerError, match="worker 0 was started on second, where feedline cannot be imported") as found:
        list(feedline.DataLoader(Drawing(20), 4, **ON_SECOND))
    assert "No module named 'feedline'" in str(found.value)
    second.hide("feedline", "0.0.1")
    with pytest.raises(WorkerError, match=r"on second, which has feedline 0.0.1; here it is \d.*runtime_env"):
        list(feedline.DataLoader(Drawing(20), 4, **ON_SECOND))
    second.show_all()


def test_a_machine_that_lacks_what_the_dataset_needs_is_named(second: HidingNode) -> None:
    second.hide("wave")
    with pytest.raises(ModuleNotFoundError, match="wave") as found:
        list(feedline.DataLoader(Needy(8), 4, **ON_SECOND))
    second.show_all()
    notes = "\n".join(found.value.__notes__)
    assert re.search(r"worker 0 \(pid \d+ on second\) could not rebuild what was sent to it", notes)
    assert "feedline preflight --ray" in notes


def test_the_runtime_environment_is_handed_on() -> None:
    options = {"runtime_env": {"env_vars": {"FLAVOUR": "sweet"}}}
    with feedline.DataLoader(Environment(4), 4, num_workers=1, workers="ray", ray_options=options) as loader:
        assert list(loader) == [["sweet"] * 4]


def test_a_runtime_environment_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    wrong = {"working_dir": f"file://{tmp_path}/nowhere.zip"}
    with pytest.raises(WorkerError, match=r"ray_options\['runtime_env'\]"):
        list(feedline.DataLoader(Drawing(4), ray_options={"runtime_env": wrong}, **RAY))


def test_what_a_worker_waits_for_is_said(cluster: Any) -> None:
    def loop(**options: Any) -> list[Any]:
        return list(feedline.DataLoader(Drawing(8), 4, **{**RAY, **options}))

    too_much = {"num_cpus": 77}
    words = "on no machine yet: it needs 77 CPU, and no machine of the cluster has more than . CPU"
    with pytest.warns(UserWarning, match=words), pytest.raises(WorkerTimeout, match=words):
        loop(ray_options=too_much, stall_warning=0.2, timeout=2)


def test_a_worker_that_waits_for_others_is_told_how_much_is_free(second: HidingNode) -> None:
    import ray

    @ray.remote(resources={"second": 4}, num_cpus=0)
    class Other:
        def here(self) -> None:
            pass

    other = Other.remote()
    ray.get(other.here.remote())
    loader = feedline.DataLoader(Drawing(8), 4, timeout=2, **ON_SECOND)
    with pytest.raises(
        WorkerTimeout, match=r"it needs 1 CPU, 1 second, and of all machines together .* 0 second is free"
    ):
        list(loader)
    ray.kill(other)


def test_auto_uses_this_machine_first(second: HidingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(connection: ray_cluster.Connection) -> dict[str, Any]:
        """Where workers would be if this machine did not come first."""
        (node,) = [each["NodeID"] for each in connection.nodes() if each["NodeName"] == "second"]
        return {"num_cpus": 1, **connection.on(node, soft=True)}

    monkeypatch.setattr(ray_cluster.Connection, "placing", elsewhere)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with feedline.DataLoader(
            Slow(4000), 2, seed=1, num_workers="auto", workers="ray", persistent_workers=True
        ) as loader:
            for number, batch in enumerate(loader):
                assert batch["i"].tolist() == [2 * number, 2 * number + 1]
                chosen = loader.stats().auto_workers
                assert chosen is not None
                if chosen.workers >= 2 and len(loader.stats().workers) >= 2:
                    break
            hosts = {worker.host for worker in loader.stats().workers}
    assert "second" not in hosts  # four CPUs are here
    assert chosen.workers <= 8


def test_auto_is_not_for_streams() -> None:
    class Stream(feedline.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(9))

    with pytest.raises(OptionError, match="a stream is divided by the number of workers"):
        feedline.DataLoader(Stream(), num_workers="auto", workers="ray")


def test_preflight_names_the_machine_that_lacks_something(second: HidingNode, tmp_path: Path) -> None:
    """The function, in a process that is connected; the command is tested in test_ray_ends."""
    here = tmp_path / "data"
    here.mkdir()
    second.hide("wave")
    found = feedline.preflight(trial=False, ray=True, packages=["wave"], paths=[str(here), "/no/such/folder"])
    second.show_all()
    machines = {each.evidence["machine"]: each for each in found if each.id == "ray-machine"}
    assert len(machines) == 2
    lacking = machines.pop("second")
    (other,) = machines.values()
    assert lacking.severity == other.severity == "problem"
    assert "second: wave cannot be imported (ModuleNotFoundError: No module named 'wave')" in lacking.title
    assert "/no/such/folder: No such file or directory" in other.title
    assert str(here) not in other.title
    assert "wave" not in other.title
    (whole,) = [each for each in found if each.id == "ray-cluster"]
    assert whole.severity == "ok"
    assert whole.evidence["machines"] == 2
    few = feedline.preflight(num_workers=99, batch_bytes=1 << 24, trial=False, ray=True)
    severities = {each.id: each.severity for each in few if each.id.startswith("ray")}
    assert severities == {"ray-cluster": "warning", "ray-memory": "note", "ray-machine": "ok"}
