"""Ctrl-C while workers that are not forked are being started: over at once, whoever is still importing what."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import textwrap
from pathlib import Path

import psutil
import pytest
from kinds import thorough
from warm_host import host

LONG = 100
SITE = """
    import os, signal, sys
    if "{where}" == "server" and any("forkserver" in word for word in sys.orig_argv):
        with open({told!r}, "w") as told:  # waits until somebody reads
            told.write(str(os.getpid()))
        while True:
            signal.pause()
"""
"""Python imports this when it starts: so the server never gets as far as its first worker."""
SLOW = """
    import os, signal, sys
    from feedline import Dataset
    if "{where}" == "worker" and os.getpid() != int(os.environ["PARENT"]):
        with open({told!r}, "w") as told:
            told.write(str(os.getpid()))
        while True:
            signal.pause()
    class Numbers(Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return index
"""
"""The dataset's module: so no worker gets as far as its first task."""
SCRIPT = """
    import os, sys
    os.environ["PYTHONPATH"] = os.pathsep.join([{folder!r}, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PARENT"] = str(os.getpid())
    sys.path.insert(0, {folder!r})
    if __name__ == "__main__":
        os.setpgid(0, 0)  # as a shell does
        import feedline, slow
        for batch in feedline.DataLoader(slow.Numbers(), 4, num_workers=1, multiprocessing_context="{method}"):
            pass
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("where", ["server", pytest.param("worker", marks=thorough)])
def test_ctrl_c_while_workers_are_started_ends_all_at_once(where: str, method: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    values = {"where": where, "told": str(told), "method": method, "folder": str(tmp_path)}
    for name, text in (("sitecustomize", SITE), ("slow", SLOW), ("script", SCRIPT)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text).format(**values))
    with tempfile.TemporaryFile("w+") as output:
        with host("feedline").start([str(tmp_path / "script.py")], output.fileno(), output.fileno()) as script:
            stuck = psutil.Process(int(told.read_text()))
            started = psutil.Process(script.pid).children(recursive=True)
            os.killpg(script.pid, signal.SIGINT)
            try:
                script.wait(LONG)
            except subprocess.TimeoutExpired:
                pytest.fail("it waits for the one that is being started")
        output.seek(0)
        said = output.read()
    assert not stuck.is_running()  # before its parent, which would not have waited otherwise
    assert psutil.wait_procs(started, timeout=LONG)[1] == []  # Python's own helper among them
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("KeyboardInterrupt")
