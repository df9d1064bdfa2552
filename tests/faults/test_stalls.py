"""A sample is stuck: the user is told which, where and since when; a timeout raises; a restart tries again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from injected import BAD
from kinds import FORK, FORKSERVER, SPAWN, THREADS, thorough
from scripts import BATCHES, SHARED, TEN, run, run_script

SOON = 0.3
"""Seconds, which pass only while the sample that is stuck is all there is to wait for (still.py)."""
STACKS = {"loop": "in loop", "sleep": "in sleep", "pipe": "in pipe", "c_code": "in c_code"}
SAMPLE = f"dataset[{BAD}] (photos/{BAD}.jpg) for batch 3 of epoch 0, sample 2 of 4"
STUCK = [
    (FORK, "loop"),
    (FORK, "c_code"),
    (SPAWN, "pipe"),
    pytest.param(FORKSERVER, "sleep", marks=thorough),
    (THREADS, "sleep"),
    (THREADS, "loop"),
]
"""Every way to be stuck and every kind of worker; C code that holds the GIL in a thread stops the loop as well."""
stuck_ways = pytest.mark.parametrize(("kind", "how"), STUCK)


@stuck_ways
def test_the_warning_says_who_where_and_how_long(kind: dict[str, Any], how: str) -> None:
    options = {**kind, "stall_warning": SOON}
    seen = run({"kind": "Injected", "how": how}, options, warn="raise")
    ((_, text),) = seen.errors
    assert "has been waiting for a batch (number 3) for" in text
    assert SAMPLE in text
    assert STACKS[how] in text
    assert "waiting for a task" in text  # the other worker
    assert ("worker thread" if kind is THREADS else "(pid ") in text
    assert "on_stall='restart'" in text
    assert seen.batches == BATCHES[:3]
    if kind is not THREADS:
        assert seen.left == {}


@pytest.mark.parametrize("kind", [FORK, THREADS])
def test_it_is_said_again_later_and_nobody_is_killed(kind: dict[str, Any], tmp_path: Any) -> None:
    environment = {"RELEASE": str(tmp_path / "release")}
    options = {**kind, "stall_warning": SOON}
    seen = run({"kind": "Injected", "how": "until_told"}, options, warn="release", environment=environment)
    assert (seen.batches, seen.errors, seen.left) == (BATCHES, [], {})
    assert sum(SAMPLE in warning for warning in seen.warnings) >= 1
    assert not any("takes its place" in warning for warning in seen.warnings)


@pytest.mark.parametrize(
    ("front", "kind", "how"),
    [
        ("feedline.torch", FORK, "loop"),
        ("feedline", FORK, "c_code"),
        pytest.param("feedline", FORKSERVER, "sleep", marks=thorough),
        ("feedline", SPAWN, "pipe"),
        ("feedline", THREADS, "sleep"),
        ("feedline", THREADS, "loop"),
    ],
)
def test_the_timeout_is_an_error_that_says_the_same(front: str, kind: dict[str, Any], how: str) -> None:
    seen = run({"kind": "Injected", "how": how}, {**kind, "timeout": SOON}, front)
    ((name, text),) = seen.errors
    assert name == "WorkerTimeout"
    assert f"timeout={SOON} s" in text
    assert SAMPLE in text
    assert STACKS[how] in text
    assert seen.batches == BATCHES[:3]
    if kind is not THREADS:
        assert seen.left == {}


@stuck_ways
def test_restart_replaces_the_worker_and_tries_again(kind: dict[str, Any], how: str, tmp_path: Any) -> None:
    options = {**kind, "on_stall": "restart", "stall_warning": SOON}
    seen = run({"kind": "Injected", "how": how, "once": str(tmp_path / "once")}, options)
    assert (seen.batches, seen.errors) == (BATCHES, [])
    (warning,) = [warning for warning in seen.warnings if "was stuck for" in warning]
    assert SAMPLE in warning
    assert STACKS[how] in warning


@pytest.mark.parametrize("kind", [FORK, THREADS])
@pytest.mark.parametrize(
    ("on_error", "batch"), [("raise", None), ("skip", [12, 14, 15]), ("replace", [12, 14, 14, 15])]
)
def test_a_sample_that_stalls_again_is_handled_as_an_error(kind: dict[str, Any], on_error: str, batch: Any) -> None:
    options = {**kind, "on_stall": "restart", "timeout": SOON, "on_error": on_error}
    seen = run({"kind": "Injected", "how": "sleep"}, options)
    expected = [batch if BAD in whole else whole for whole in BATCHES]
    assert seen.batches == [whole for whole in expected if whole is not None]
    if batch is None:
        ((name, text),) = seen.errors
        assert name == "StalledSample"
        assert text.startswith(f"dataset[{BAD}] (photos/{BAD}.jpg) has stalled 2 workers")
    else:
        assert [bad[0] for bad in seen.bad] == [BAD]


@pytest.mark.parametrize("kind", [FORK, THREADS])
def test_a_dataset_that_does_not_answer_is_not_waited_for(kind: dict[str, Any]) -> None:
    seen = run({"kind": "Mute", "how": "sleep"}, {**kind, "timeout": SOON})
    ((name, text),) = seen.errors
    assert name == "WorkerTimeout"
    assert f"reading dataset[{BAD}] for batch 3 of epoch 0" in text
    assert seen.batches == BATCHES[:3]


@pytest.mark.parametrize("kind", [FORK, THREADS])
def test_a_sample_read_by_code_that_is_not_python(kind: dict[str, Any]) -> None:
    options = {**kind, "num_workers": 1, "timeout": SOON, "sampler": [600] * 4}
    ((_, text),) = run({"kind": "Builtin", "how": ""}, options).errors
    assert "reading dataset[600]" in text
    assert "in dataset.__getitem__, which is not Python code" in text
    assert "no stack" not in text


def test_a_stopped_process_is_called_that() -> None:
    seen = run({"kind": "Injected", "how": "stop"}, {**FORK, "stall_warning": SOON}, warn="raise")
    assert len(seen.errors) == 1
    assert "it is stopped (SIGSTOP)" in seen.errors[0][1]
    assert seen.left == {}


def test_a_lock_that_another_worker_holds_shows_both() -> None:
    seen = run({"kind": "Locked", "how": ""}, {**FORK, "stall_warning": SOON}, warn="raise")
    text = seen.errors[0][1]
    assert f"reading dataset[{BAD - 8}]" in text
    assert f"reading dataset[{BAD}]" in text
    assert text.count("in __getitem__") == 2


@pytest.mark.parametrize("kind", [FORK, THREADS])
def test_a_streams_element_that_is_stuck(kind: dict[str, Any], tmp_path: Any) -> None:
    options = {**kind, "on_stall": "restart", "stall_warning": SOON}
    seen = run({"kind": "Stream", "how": "sleep", "once": str(tmp_path / "once")}, options)
    assert (seen.batches, seen.errors) == (SHARED, [])
    assert any("element 6 of the stream as that worker reads it" in warning for warning in seen.warnings)


@pytest.mark.parametrize("kind", [FORK, THREADS])
def test_persistent_workers_stuck_since_an_epoch_that_was_left(kind: dict[str, Any], tmp_path: Any) -> None:
    options = {**kind, "num_workers": 1, "persistent_workers": True, "on_stall": "restart", "stall_warning": SOON}
    seen = run({"kind": "Injected", "how": "sleep", "once": str(tmp_path / "once")}, options, epochs=2, leave=True)
    assert (seen.batches, seen.errors) == (BATCHES, [])
    assert any("was stuck for" in warning for warning in seen.warnings)


def test_a_worker_that_closes_all_descriptors_is_no_riddle(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        class Closing:
            def __len__(self): return 40
            def __getitem__(self, i):
                if i == 13: os.closerange(3, 1000); threading.Event().wait()
                return i

        if __name__ == "__main__":
            still.until(still.only_held_up(lambda at: at.task.indices[at.place] == 13))
            list(DataLoader(Closing(), 4, num_workers=2, timeout=0.3, multiprocessing_context="fork"))
        """,
    )
    assert "WorkerTimeout" in done.stderr
    assert "reading dataset[13]" in done.stderr


def test_worker_init_fn_that_hangs_is_restarted_too(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        def init(number):
            once = os.path.join(os.path.dirname(__file__), "once")
            if not os.path.exists(once):
                open(once, "w").close()
                threading.Event().wait()

        if __name__ == "__main__":
            still.until_there(os.path.join(os.path.dirname(__file__), "once"))
            options = dict(stall_warning=0.5, on_stall="restart", multiprocessing_context="fork")
            loader = DataLoader(range(40), 4, num_workers=1, worker_init_fn=init, **options)
            print([batch.tolist() for batch in loader])
        """,
    )
    assert "in worker_init_fn, was stuck for" in done.stdout
    assert TEN in done.stdout


def test_a_stopped_group_is_no_timeout(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import subprocess
        from feedline.engine import waiting

        def path(name):
            return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)

        class Slow:
            def __len__(self): return 8
            def __getitem__(self, i):
                if i == 2:
                    open(path("reading"), "w").close()
                    while not os.path.exists(path("awake")): threading.Event().wait(0.01)
                return i

        def is_counted(standings, batch):
            if os.path.exists(path("awake")) or not os.path.exists(path("reading")): return False
            open(path("waiting"), "w").close()
            return True

        if __name__ == "__main__":
            os.setpgrp()
            waiting.OVERSLEPT = 0.3
            still.until(is_counted)
            again = (
                f"until test -e {path('waiting')}; do sleep 0.01; done; sleep 0.02; "
                f"kill -STOP -{os.getpgrp()}; sleep 1.4; kill -CONT -{os.getpgrp()}; touch {path('awake')}"
            )
            subprocess.Popen(["setsid", "sh", "-c", again])
            print([batch.tolist() for batch in DataLoader(Slow(), 4, num_workers=1, timeout=1)])
        """,
    )
    assert "[[0, 1, 2, 3], [4, 5, 6, 7]]" in done.stdout, done.stdout + done.stderr


def test_an_iteration_that_an_error_ended_does_not_look_complete(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        class Stuck:
            def __len__(self): return 8
            def __getitem__(self, i): threading.Event().wait(); return i

        if __name__ == "__main__":
            iterator = iter(DataLoader(Stuck(), 4, num_workers=1, timeout=0.2, multiprocessing_context="fork"))
            for _ in range(3):
                try: next(iterator)
                except Exception as error: print(type(error).__name__, str(error)[:60])
        """,
    )
    lines = [line.split()[0] for line in done.stdout.splitlines() if line and not line.startswith((" ", "A "))]
    assert [line for line in lines if line in ("WorkerTimeout", "RuntimeError", "StopIteration")] == [
        "WorkerTimeout",
        "RuntimeError",
        "StopIteration",
    ]
    assert "RuntimeError this iteration was ended by an error (WorkerTimeout)" in done.stdout
