"""However a program ends, no actor of ours is left; and a store that is nearly full slows down."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kinds import thorough
from ray_datasets import Drawing
from running_actors import actors

import feedline
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
