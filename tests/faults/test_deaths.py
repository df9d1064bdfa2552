"""Workers die: every batch still arrives once and in order, and a sample that kills again and again is named."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from injected import BAD
from kinds import FORK, PROCESSES, SPAWN, thorough
from scripts import BATCHES, FRONTS, SHARED, TEN, run, run_script

from feedline import DataLoader
from feedline.errors import WorkerDied

WAYS = {
    "kill": ("was killed by SIGKILL", "ran out of memory; when last measured, it used "),
    "crash": ("was killed by SIGSEGV", "in string_at"),
    "abort": ("was killed by SIGABRT", "in abort"),
    "leave": ("ended with exit code 3", ""),
}


def ways(*hows: str) -> list[Any]:
    """Each way to die in a forked worker, and the first in every other one: how it was started changes little."""
    return [
        pytest.param(
            kind.values[0],
            how,
            id=f"{how}-{kind.id}",
            marks=kind.marks if kind.id == "fork" or how == hows[0] else thorough,
        )
        for kind in PROCESSES
        for how in hows
    ]


@pytest.mark.parametrize(("kind", "how"), ways("kill", "crash", "leave"))
def test_a_worker_dies_once_and_no_batch_is_lost(kind: dict[str, Any], how: str, tmp_path: Any) -> None:
    seen = run({"kind": "Injected", "how": how, "once": str(tmp_path / "once")}, kind)
    assert (seen.batches, seen.errors, seen.left) == (BATCHES, [], {})
    (warning,) = seen.warnings
    for words in (*WAYS[how], "worker ", "(pid ", f"dataset[{BAD}] (photos/{BAD}.jpg)", "batch 3 of epoch 0"):
        assert words in warning
    assert "no batch is lost" in warning


@pytest.mark.parametrize(("kind", "how"), ways("kill", "abort"))
def test_a_sample_that_kills_twice_is_named_alone_and_the_loop_goes_on(kind: dict[str, Any], how: str) -> None:
    seen = run({"kind": "Injected", "how": how}, {**kind, "persistent_workers": True}, epochs=2)
    assert seen.batches == 2 * [batch for batch in BATCHES if BAD not in batch]
    assert seen.left == {}
    assert [name for name, _ in seen.errors] == ["WorkerDied", "WorkerDied"]
    for _, text in seen.errors:
        assert text.startswith(f"dataset[{BAD}] (photos/{BAD}.jpg) has killed 2 workers")
        assert WAYS[how][0] in text
        assert WAYS[how][1] in text  # memory, or faulthandler's stack
        assert "on_error='skip'" in text


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("kind", PROCESSES[:1])
def test_a_dataset_that_reads_many_at_once_is_narrowed_down(front: str, kind: dict[str, Any]) -> None:
    seen = run({"kind": "AtOnce", "how": "crash"}, kind, front)
    assert seen.batches == [batch for batch in BATCHES if BAD not in batch]
    ((name, text),) = seen.errors
    assert name == "WorkerDied"
    assert text.startswith(f"dataset[{BAD}]")
    assert any("one by one" in warning for warning in seen.warnings)


class TwoThatKill:
    """Sample 1 kills once, sample 2 whenever it is read."""

    def __init__(self, once: Path) -> None:
        self.once = once

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2 or (index == 1 and not self.once.exists()):
            self.once.touch()
            os._exit(3)
        return index


def test_only_who_died_at_a_sample_is_counted_against_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {**FORK, "num_workers": 1, "batch_size": 4}
    with DataLoader(TwoThatKill(tmp_path / "once"), **options) as loader, pytest.warns(match="no batch is lost"):
        with pytest.raises(WorkerDied, match=r"^dataset\[2\] has killed 2 workers"):
            list(loader)


class KillsAtOnce:
    """The very first sample that is read kills, once."""

    def __init__(self, once: Path) -> None:
        self.once = once

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_the_memory_of_a_worker_that_is_killed_at_its_first_task_is_known(tmp_path: Path) -> None:
    # Not of a forked one: of those the system says itself what they had.
    with DataLoader(KillsAtOnce(tmp_path / "once"), **{**SPAWN, "num_workers": 1}) as loader:
        with pytest.warns(match=r"ran out of memory; when last measured, it used \d+ MB"):
            assert len(list(loader)) == 4


def test_max_deaths_is_how_often() -> None:
    seen = run({"kind": "Injected", "how": "leave"}, {**FORK, "max_deaths": 4})
    assert "has killed 4 workers" in seen.errors[0][1]
    assert len(seen.warnings) == 3


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(("on_error", "batch"), [("skip", [12, 14, 15]), ("replace", [12, 14, 14, 15])])
def test_a_killer_is_left_out_if_the_user_wants_that(front: str, on_error: str, batch: list[int]) -> None:
    options = {**FORK, "on_error": on_error, "persistent_workers": True}
    seen = run({"kind": "Injected", "how": "kill"}, options, front, epochs=2)
    expected = [batch if BAD in whole else whole for whole in BATCHES]
    assert (seen.batches, seen.errors, seen.left) == (2 * expected, [], {})
    assert len(seen.warnings) == 2  # it kills two workers in the first epoch, and nobody in the second
    assert "left out from now on" in seen.warnings[1]
    assert [bad[0] for bad in seen.bad] == [BAD, BAD]


@pytest.mark.parametrize(("front", "kind"), [("feedline.torch", FORK), ("feedline", FORK), ("feedline", SPAWN)])
def test_a_streams_worker_dies_once(front: str, kind: dict[str, Any], tmp_path: Any) -> None:
    dataset = {"kind": "Stream", "how": "kill", "once": str(tmp_path / "once")}
    seen = run(dataset, kind, front)
    assert (seen.batches, seen.errors, seen.left) == (SHARED, [], {})
    assert "element 6 of the stream as that worker reads it" in seen.warnings[0]


def test_a_streams_element_that_kills_ends_its_part() -> None:
    seen = run({"kind": "Stream", "how": "kill"}, FORK)
    ((name, text),) = seen.errors
    assert name == "WorkerDied"
    assert "element 6 of the stream as that worker reads it has killed 2 workers" in text
    got = sorted(label for batch in seen.batches for label in batch)
    assert got == sorted([*range(0, 40, 2), 1, 3, 5, 7])
    assert seen.left == {}


def test_as_they_come(tmp_path: Any) -> None:
    dataset = {"kind": "Injected", "how": "kill", "once": str(tmp_path / "once")}
    seen = run(dataset, {**FORK, "in_order": False, "num_workers": 3})
    assert sorted(seen.batches) == BATCHES
    assert seen.left == {}


def test_the_only_worker_dies(tmp_path: Any) -> None:
    dataset = {"kind": "Injected", "how": "leave", "once": str(tmp_path / "once")}
    seen = run(dataset, {"num_workers": 1, "prefetch_factor": 5, "multiprocessing_context": "fork"})
    assert (seen.batches, seen.errors, seen.left) == (BATCHES, [], {})


def test_the_server_that_workers_came_from_is_killed(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        class Slow:
            def __len__(self): return 40
            def __getitem__(self, i): threading.Event().wait(0.01); return i

        if __name__ == "__main__":
            iterator = iter(DataLoader(Slow(), 4, num_workers=2, multiprocessing_context="spawn"))
            batches = [next(iterator).tolist()]
            worker = iterator.processes()[0][1]
            with open(f"/proc/{worker}/stat") as stat:
                os.kill(int(stat.read().rpartition(")")[2].split()[1]), 9)
            print(batches + [batch.tolist() for batch in iterator])
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == TEN + "\n"  # and nobody was taken for dead


def test_a_dead_worker_whose_child_lives_on_is_dead(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        class Forking:
            def __init__(self, path):
                self.path, self.pipe = path, os.pipe()
            def __len__(self): return 40
            def __getitem__(self, i):
                if i == 13 and not os.path.exists(self.path):
                    open(self.path, "w").close()
                    if os.fork() == 0:
                        os.close(self.pipe[1])
                        os.read(self.pipe[0], 1)  # until the script and its workers have ended
                        os._exit(0)
                    os.kill(os.getpid(), 9)
                return i

        if __name__ == "__main__":
            still.until(still.only_held_up(lambda at: at.task.indices[at.place] == 13))
            once = os.path.join(os.path.dirname(__file__), "once")
            loader = DataLoader(Forking(once), 4, num_workers=2, stall_warning=2)
            print([batch.tolist() for batch in loader], flush=True)
            os._exit(0)
        """,
    )
    assert "was killed by SIGKILL" in done.stdout
    assert "has been waiting" not in done.stdout
    assert TEN in done.stdout


def test_no_descriptor_for_a_new_worker_is_no_end_while_others_live(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        import resource

        class Slow:
            def __len__(self): return 200
            def __getitem__(self, i): threading.Event().wait(0.005); return i

        if __name__ == "__main__":
            iterator = iter(DataLoader(Slow(), 4, num_workers=3, multiprocessing_context="fork"))
            batches = [next(iterator).tolist()]
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (4, before[1]))
            os.kill(iterator.processes()[0][1], 9)
            for batch in iterator:
                batches.append(batch.tolist())
                if len(batches) == 30: resource.setrlimit(resource.RLIMIT_NOFILE, before)
            print(batches == [list(range(i, i + 4)) for i in range(0, 200, 4)])
        """,
    )
    assert "True" in done.stdout, done.stdout + done.stderr
    assert "could be started" in done.stdout


def test_a_deadly_sample_that_comes_often_kills_twice(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        class Deadly:
            def __len__(self): return 10
            def __getitem__(self, i):
                if i == 5: os._exit(3)
                return i

        if __name__ == "__main__":
            options = dict(on_error="skip", multiprocessing_context="fork", num_workers=1)
            loader = DataLoader(Deadly(), 6, sampler=[5, 5, 5, 5, 5, 5, 1, 5, 2, 5, 5, 5], **options)
            print([batch.tolist() for batch in loader], len(loader.errors()))
        """,
    )
    assert done.stdout.count("WARNING") == 2
    assert "[[1, 2]] 10" in done.stdout


def test_a_neighbour_that_kills_is_the_one_that_is_named(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
        class Damaged:
            def __len__(self): return 12
            def __getitem__(self, i):
                if i == 5: raise ValueError("corrupt")
                if i == 6: os._exit(3)
                return i

        if __name__ == "__main__":
            options = dict(on_error="replace", multiprocessing_context="fork", num_workers=1)
            loader = DataLoader(Damaged(), 2, sampler=[4, 5, 7, 8], **options)
            print([batch.tolist() for batch in loader], loader.errors()[0].index, loader.errors()[0].error)
        """,
    )
    assert done.stdout.count("reading dataset[6] instead of dataset[5]") == 2
    assert "[[4], [7, 8]] 5 it failed, and 2 workers ended at dataset[6], read instead of it" in done.stdout
