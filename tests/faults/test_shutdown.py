"""Workers are ended: whatever comes in between, nobody is left and nothing is said that nobody needs."""

from __future__ import annotations

from pathlib import Path

from scripts import run_script


def test_a_second_ctrl_c_does_not_stop_the_cleaning_up(tmp_path: Path) -> None:
    done = run_script(
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


def test_a_worker_ended_while_a_file_is_open_says_nothing_of_it(tmp_path: Path) -> None:
    """The next epoch is read ahead, so that workers are busy when a loader is closed."""
    done = run_script(
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
