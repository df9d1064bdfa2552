"""However a program ends, no actor of ours is left; and a store that is nearly full slows down."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kinds import thorough
from ray_datasets import Drawing
from running_actors import actors

import feedline
import feedline.cli
from feedline.workers import ray_cluster, ray_fleet

HERE = Path(__file__).parent
SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import ray, feedline
from ray_datasets import Drawing
ray.init(address={address!r}, log_to_driver=False, logging_level="error")
loader = feedline.DataLoader(Drawing(10_000), 4, num_workers=2, workers="ray", persistent_workers=True)
iterator = iter(loader)
next(iterator)
print("loading", flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("then", "how"),
    [
        pytest.param("input()", signal.SIGKILL, id="killed"),
        pytest.param("input()", signal.SIGINT, id="ctrl-c"),
        pytest.param("raise SystemExit(3)", None, id="left", marks=thorough),
    ],
)
def test_a_program_that_ends_leaves_no_actor(cluster: Any, then: str, how: signal.Signals | None) -> None:
    text = SCRIPT.format(here=str(HERE), address=cluster.address, then=then)
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"loading\n"
        assert actors()
        if how is not None:
            program.send_signal(how)
        _, errors = program.communicate(timeout=300)
    expected = {None: (3,), signal.SIGKILL: (-9,), signal.SIGINT: (1, -2)}[how]  # Ray has a handler of its own
    assert program.returncode in expected, errors.decode()
    # the fixture waits until no actor is left


SETTING_UP = """
import sys, time
sys.path.insert(0, {here!r})
import ray, feedline
from pathlib import Path
from ray_datasets import Drawing
ray.init(address={address!r}, log_to_driver=False, logging_level="error")

def wait(worker):
    Path({folder!r}, str(worker)).touch()
    time.sleep(1000)

next(iter(feedline.DataLoader(Drawing(10_000), 4, num_workers=2, workers="ray", worker_init_fn=wait)))
"""


@thorough
def test_a_program_that_is_killed_while_workers_set_up_leaves_no_actor(cluster: Any, tmp_path: Path) -> None:
    text = SETTING_UP.format(here=str(HERE), address=cluster.address, folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE) as program:
        waited = threading.Event()
        while not any(tmp_path.iterdir()):
            assert program.poll() is None, program.communicate()[1]
            waited.wait(0.05)
        assert actors()
        program.kill()
    # the fixture waits until no actor is left


SHUT_DOWN = """
import sys
sys.path.insert(0, {here!r})
import ray, feedline
from feedline.errors import WorkerError
from ray_datasets import Drawing

def connect():
    ray.init(address={address!r}, log_to_driver=False, logging_level="error")

connect()
loader = feedline.DataLoader(Drawing(400), 4, num_workers=1, workers="ray", persistent_workers=True)
iterator = iter(loader)
next(iterator)
ray.shutdown()
try:
    for number, _ in enumerate(iterator):
        pass
except WorkerError as error:
    print(error)
assert not ray.is_initialized()  # nothing of ours has connected anew
loader.close()
assert not ray.is_initialized()
connect()
with loader:
    print(sum(len(batch["i"]) for batch in loader))
waiting = iter(loader)
next(waiting)
ray.shutdown()
connect()  # another connection: the old workers are gone all the same
try:
    list(waiting)
except WorkerError as error:
    print(error)
"""


@thorough
def test_the_end_of_ray_within_an_epoch_is_an_error(cluster: Any) -> None:
    text = SHUT_DOWN.format(here=str(HERE), address=cluster.address)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    first, samples, second = done.stdout.splitlines()
    assert first == second == ray_fleet.DISCONNECTED
    assert samples == "400"


@thorough  # the function is tested in test_ray_machines
def test_the_command_preflight_looks_at_the_cluster(cluster: Any) -> None:
    command = [sys.executable, "-m", "feedline", "preflight", "--no-trial", "--json", "--path", "/no/such/folder"]
    done = subprocess.run([*command, "--ray", cluster.address], capture_output=True, text=True, timeout=400)
    assert done.returncode == 1, done.stderr
    found = {each["id"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["ray-machine"]["severity"] == "problem"
    assert "/no/such/folder: No such file or directory" in found["ray-machine"]["title"]


def test_preflight_without_a_cluster_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray: Any = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**options: Any) -> None:
        raise ConnectionError(f"no answer from {options['address']}")

    monkeypatch.setattr(ray, "init", refuse)
    with socket.create_server(("127.0.0.1", 0)) as something_else:
        address = f"127.0.0.1:{something_else.getsockname()[1]}"
        assert feedline.cli.main(["preflight", "--no-trial", "--ray", address]) == 1
    said = capsys.readouterr().out
    assert f"Cannot connect to a Ray cluster at {address}" in said
    assert f"no answer from {address}" in said
    assert feedline.cli.main(["preflight", "--no-trial", "--path", "/tmp"]) == 2
    assert "set ray=True" in capsys.readouterr().err


STORE = """
import sys, tempfile
from pathlib import Path
folder = tempfile.mkdtemp(prefix="ray")  # a short path: Ray makes sockets in it
sys.path.insert(0, {here!r})
import ray, feedline
from ray_datasets import Drawing
ray.init("local", num_cpus=4, include_dashboard=False, object_store_memory=80 << 20, _temp_dir=folder)
# 16 batches of 16 MB might be out, which is three times what the store holds.
loader = feedline.DataLoader(Drawing(160, 1 << 20), 4, num_workers=4, prefetch_factor=4, workers="ray")
for number, batch in enumerate(loader):
    assert batch["i"].tolist() == list(range(4 * number, 4 * number + 4))
    assert (batch["x"] == batch["i"][:, None]).all()
    del batch
print(number, [str(path) for path in Path(folder).rglob("*spilled*/*")])
loader.close()
ray.shutdown()
"""


def test_no_more_is_out_than_the_store_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ray_cluster.Connection, "store", lambda connection: 3.5 * (1 << 20)
    )  # half of it holds one batch of 1 MB
    most = 0
    has_made = ray_fleet.Fleet._has_made

    def counting(fleet: Any, member: Any, future: Any) -> None:
        nonlocal most
        has_made(fleet, member, future)
        most = max(most, fleet.lanes.unopened + sum(len(each.parts) for each in fleet.members.values()))

    monkeypatch.setattr(ray_fleet.Fleet, "_has_made", counting)
    with feedline.DataLoader(Drawing(64, 1 << 16), 4, num_workers=2, workers="ray", prefetch_factor=4) as loader:
        iterator = iter(loader)
        next(iterator)  # from now on it is known how large they are; each of the two workers may have had one
        most = 0
        assert [batch["i"][0].item() for batch in iterator] == list(range(4, 64, 4))
    assert 1 <= most <= 2


@thorough
def test_a_small_store_slows_down_and_does_not_spill() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STORE.format(here=str(HERE))], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "39 []", done.stdout
