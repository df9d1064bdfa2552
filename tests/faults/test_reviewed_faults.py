"""Faults that a reviewer thought of: each was a hang, a loss or a leak once."""

from __future__ import annotations

import textwrap
from pathlib import Path

from test_births import UNBORN, run

TEN = str([list(range(first, first + 4)) for first in range(0, 40, 4)])


def test_the_server_that_workers_came_from_is_killed(tmp_path: Path) -> None:
    done = run(
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


def test_a_worker_that_closes_all_descriptors_is_no_riddle(tmp_path: Path) -> None:
    done = run(
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


def test_a_dead_worker_whose_child_lives_on_is_dead(tmp_path: Path) -> None:
    done = run(
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


def test_a_second_ctrl_c_does_not_stop_the_cleaning_up(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        import itertools, signal, psutil
        from feedline.supervise import shutdown

        class Stubborn:
            def __init__(self, path): self.path = path
            def __len__(self): return 40
            def __getitem__(self, i):
                open(f"{self.path}-{i}", "w").close()
                return sum(itertools.repeat(1, 10**13))  # C code, deaf to SIGTERM

        def interrupt(path):
            while not os.path.exists(f"{path}-0"): threading.Event().wait(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        def interrupted(members, seconds):
            "Once more while the workers are waited for."
            shutdown._wait_for = wait_for
            os.kill(os.getpid(), signal.SIGINT)
            return wait_for(members, seconds)

        if __name__ == "__main__":
            path = os.path.join(os.path.dirname(__file__), "at")
            wait_for, shutdown._wait_for = shutdown._wait_for, interrupted
            threading.Thread(target=interrupt, args=(path,)).start()
            loader = DataLoader(Stubborn(path), num_workers=2, multiprocessing_context="fork")
            try:
                try: list(loader)
                except KeyboardInterrupt: print("interrupted")
            except KeyboardInterrupt: print("again")
            print("left", len(psutil.Process().children()))
        """,
    )
    assert "interrupted" in done.stdout
    assert "left 0" in done.stdout, done.stdout + done.stderr


def test_a_hanging_fork_does_not_run_the_script_again(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        textwrap.dedent(UNBORN.format(workers=1))
        + textwrap.dedent("""
        print("the script runs", flush=True)  # no `if __name__ == "__main__"`: under fork none is needed
        os.register_at_fork(after_in_child=lambda: threading.Event().wait())
        class Local:
            def __len__(self): return 8
            def __getitem__(self, i): return i
        print([batch.tolist() for batch in DataLoader(Local(), 4, num_workers=1, multiprocessing_context="fork")])
        """),
    )
    assert done.stdout.count("the script runs") == 1
    assert "[[0, 1, 2, 3], [4, 5, 6, 7]]" in done.stdout, done.stdout + done.stderr


def test_no_descriptor_for_a_new_worker_is_no_end_while_others_live(tmp_path: Path) -> None:
    done = run(
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


def test_worker_init_fn_that_hangs_is_restarted_too(tmp_path: Path) -> None:
    done = run(
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


def test_a_deadly_sample_that_comes_often_kills_twice(tmp_path: Path) -> None:
    done = run(
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


def test_a_stopped_group_is_no_timeout(tmp_path: Path) -> None:
    done = run(
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
    done = run(
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


def test_a_neighbour_that_kills_is_the_one_that_is_named(tmp_path: Path) -> None:
    done = run(
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
    assert done.stdout.count("reading dataset[6] in the stead of dataset[5]") == 2
    assert "[[4], [7, 8]] 5 it failed, and 2 workers ended at dataset[6], read in its stead" in done.stdout


def test_a_worker_ended_while_a_file_is_open_says_nothing_of_it(tmp_path: Path) -> None:
    """The next epoch is read ahead, so that workers are busy when a loader is closed."""
    done = run(
        tmp_path,
        """
        import warnings

        class Opening:
            def __init__(self, path): self.path = path
            def __len__(self): return 8
            def __getitem__(self, i):
                file = open(self.path)
                if i >= 4:
                    threading.Event().wait()
                file.close()
                return i

        if __name__ == "__main__":
            warnings.simplefilter("error")
            loader = DataLoader(Opening(__file__), 2, num_workers=2, multiprocessing_context="fork")
            iterator = iter(loader)
            print([next(iterator).tolist() for _ in range(2)])
            iterator.close()
        """,
    )
    assert "[[0, 1], [2, 3]]" in done.stdout
    assert "unclosed" not in done.stderr
