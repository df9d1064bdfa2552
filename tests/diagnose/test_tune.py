"""Tuning real datasets: what is said, drawn and written; nothing here depends on how fast the machine is."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import check_places
from simulated import window

import feedline
from feedline import (
    DataLoader,
    FeedlineError,
    MissingPackage,
    OptionError,
    OptionTypeError,
    Stats,
    TuneResult,
    threads_per_worker,
    tune,
)
from feedline.collate import pad
from feedline.diagnose import deadline
from feedline.diagnose.consumer import clock
from feedline.diagnose.plotting import encoded
from feedline.diagnose.tune import running, search, tuner
from feedline.diagnose.tune.candidates import Bounds, TrialFacts
from feedline.diagnose.tune.running import Runner, compute_for
from feedline.diagnose.tune.trial import Spending, Trial, Usage, usage_of
from feedline.diagnose.tune.tune_page import html, picture
from feedline.diagnose.tune.tune_subject import subject_of
from feedline.diagnose.tune.tune_verdict import bottleneck, why
from feedline.observe.window import Setting, Window
from feedline.workers.one_thread import VARIABLES

QUICK: dict[str, Any] = {"seconds": 60, "kinds": ["thread"], "max_workers": 1}
"""Few settings, and time enough for a slow machine to try them."""
LONG = 60.0


@pytest.fixture(scope="module", autouse=True)
def short_trials() -> Iterator[None]:
    """How long and how often is measured changes nothing of what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SHORTEST", 0.1)
        patch.setattr(search, "SHARE", 0.001)
        patch.setattr(search, "NOISY_ROUNDS", 1)
        patch.setattr(running, "WINDOW", 0.02)
        yield


class Squares:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full(8, index, np.float32), index**2


@pytest.fixture(scope="module")
def found() -> TuneResult:
    return tune(Squares(), step_ms=2, batch_size=8, **QUICK)


# The result


def test_the_result_is_data(found: TuneResult) -> None:
    assert {trial.setting for trial in found.trials} >= {Setting(0, kind="thread"), Setting(1, kind="thread")}
    assert found.best in found.trials
    assert (found.name, found.step) == ("Squares", 0.002)
    assert found.bottleneck.words
    assert found.keeps_up == (found.best.waiting_share <= 0.05)
    assert all(trial.spending.batches and trial.batch_bytes == 8 * 40 for trial in found.trials)
    with pytest.raises(FrozenInstanceError):
        found.name = "other"  # type: ignore[misc]


def test_the_code_is_complete_and_gives_the_batches(found: TuneResult) -> None:
    names: dict[str, Any] = {"dataset": Squares()}
    exec(found.code, names)
    with names["loader"] as loader:
        assert sorted(label for _, labels in loader for label in labels.tolist()) == [each**2 for each in range(40)]
    assert loader.num_workers == found.best.setting.workers


def test_it_prints_what_was_found(found: TuneResult) -> None:
    text = str(found)
    assert text.startswith("feedline tune: Squares, for a step of 2 ms\n\nUse ")
    for part in (found.code.splitlines()[-1], "batches/s", "no workers"):
        assert part in text
    assert found.bottleneck.words in " ".join(text.split())  # in lines, which depends on what was found
    assert f"> {found.best.setting}" in text
    pasted = ["    " + line for line in found.code.splitlines()]  # which is never broken, and may be any length
    assert max(len(line) for line in text.splitlines() if line not in pasted) <= 120


def test_json_can_write_it(found: TuneResult) -> None:
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["best"] in document["trials"]
    assert document["bottleneck"].keys() == {"name", "words", "remedy"}
    assert found.answer().exit_code == 0


def test_pictures_and_the_page_are_written_whole_or_not_at_all(found: TuneResult, tmp_path: Path) -> None:
    found.plot(tmp_path / "curve.svg")
    assert "recommended: " in (tmp_path / "curve.svg").read_text()
    found.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 1
    assert "Use " in page
    with pytest.raises(OSError, match="nowhere"):
        found.report(tmp_path / "nowhere" / "page.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        found.report(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.svg", "folder", "page.html"]


def test_without_matplotlib_there_is_a_page_without_a_picture(
    found: TuneResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<svg" not in page
    assert "pip install &#x27;feedline[plot]&#x27; brings it" in page
    with pytest.raises(MissingPackage, match=r"pip install 'feedline\[plot\]' brings it"):
        found.plot(tmp_path / "curve.svg")


def test_everything_written_in_the_picture_can_be_read(found: TuneResult) -> None:
    best = replace(found.best, setting=Setting(12, kind="process", prefetch=16, threads=4))
    for step in (0.002, 0.0):
        check_places(encoded(picture(replace(found, name="Data" * 50, step=step, best=best))))


@pytest.mark.parametrize("file", ["curve.svg", "curve.png"])
def test_letters_that_matplotlib_has_not_are_no_warning(found: TuneResult, tmp_path: Path, file: str) -> None:
    replace(found, name="사진").plot(tmp_path / file)
    assert file.endswith(".png") or "Loading 사진" in (tmp_path / file).read_text()


def test_a_picture_as_png(found: TuneResult, tmp_path: Path) -> None:
    found.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"


def test_nothing_from_the_data_becomes_markup(found: TuneResult) -> None:
    odd = replace(found, name="<script>alert(1)</script>", code="<b>", why="<i>", notes=("<u>",))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html(odd)[html(odd).index("<svg") :]
    assert not any(mark in html(odd) for mark in ("<script", "<b>", "<i>", "<u>"))


# Targets


class Lines(feedline.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for number in range(8):
            yield np.full(4, number)


def test_a_stream_is_read_epoch_after_epoch_in_its_order() -> None:
    found = tune(Lines(), batch_size=8, **QUICK)
    assert "shuffle" not in found.code
    assert min(trial.spending.batches for trial in found.trials) > 1  # which an epoch does not have
    with pytest.raises(OptionError, match="shuffle is for a map-style dataset"):
        tune(Lines(), shuffle=True, **QUICK)


def test_a_factory_and_processes() -> None:
    found = tune(Squares, seconds=60, kinds=["process"], max_workers=1, step_ms=5)
    (one,) = [trial for trial in found.trials if trial.setting.workers]
    assert one.setting.kind == "process"
    assert one.memory > 0
    assert one.spending.cpu > 0


def test_a_loader_is_left_as_it_was() -> None:
    state = random.getstate()
    with DataLoader(Squares(), batch_size=4, shuffle=True, drop_last=True, seed=3) as loader:
        found = tune(loader, **QUICK)
        assert loader.epoch == 0
        assert loader.stats().total.batches == 0
    assert "batch_size=4, shuffle=True, drop_last=True, seed=3" in found.code.replace("\n", " ")
    assert random.getstate() == state
    for name, value in {"batch_size": 8, "shuffle": False}.items():
        with pytest.raises(OptionError, match=f"{name} is for a dataset"):
            tune(loader, **{name: value})


def first_of(samples: list[Any]) -> Any:
    return samples[0]


def prepare(worker: int) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "setting", "code"),
    [
        ({}, Setting(0), "dataset, num_workers=0"),
        ({"batch_size": None}, Setting(0), "dataset, batch_size=None, num_workers=0"),
        (
            {"on_error": "skip", "max_errors": 0, "max_deaths": 1},
            Setting(0),
            "dataset, on_error='skip', max_errors=0, max_deaths=1, num_workers=0",
        ),
        (
            {"stall_warning": 5, "on_stall": "restart", "error_log": "/tmp/bad.jsonl", "on_epoch_end": print},
            Setting(0),
            "dataset, on_epoch_end=print, stall_warning=5.0, on_stall='restart', error_log='/tmp/bad.jsonl', "
            "num_workers=0",
        ),
        (
            {"num_workers": 1, "timeout": 9},
            Setting(2),
            "dataset, num_workers=2, persistent_workers=True, timeout=9.0",
        ),
        (
            {"num_workers": 1, "timeout": 9},
            Setting(0),  # which would be refused with it
            "dataset, num_workers=0",
        ),
        (
            {"num_workers": 1, "multiprocessing_context": multiprocessing.get_context("spawn")},
            Setting(1),
            "dataset, num_workers=1, persistent_workers=True, multiprocessing_context='spawn'",
        ),
        ({"batch_size": 4}, Setting(2), "dataset, batch_size=4, num_workers=2, persistent_workers=True"),
        (
            {"batch_size": 4, "collate_fn": first_of},
            Setting(3, kind="thread", prefetch=4),
            'dataset, batch_size=4, collate_fn=first_of, num_workers=3, workers="thread", prefetch_factor=4, '
            "persistent_workers=True",
        ),
        (
            {"batch_sampler": [[1, 2], [3]], "num_workers": 1, "multiprocessing_context": "spawn"},
            Setting(1),
            "dataset, batch_sampler=batch_sampler, num_workers=1, persistent_workers=True, "
            "multiprocessing_context='spawn'",
        ),
        (
            {"worker_init_fn": prepare, "on_error": "skip", "sampler": np.arange(3), "collate": pad(0)},
            Setting(1, threads=2),
            "dataset, sampler=sampler, collate_fn=collate_fn, on_error='skip', num_workers=1, persistent_workers=True, "
            "worker_init_fn=feedline.threads_per_worker(2, then=prepare)",
        ),
        (
            {"worker_init_fn": prepare},
            Setting(1),
            "dataset, num_workers=1, persistent_workers=True, worker_init_fn=prepare",
        ),
    ],
)
def test_the_call_has_what_the_users_loader_had(options: dict[str, Any], setting: Setting, code: str) -> None:
    subject = subject_of(DataLoader(Squares(), **options), None, None)
    said = subject.code(setting)
    assert said.splitlines()[-1] == f"loader = DataLoader({code})"
    assert ("import feedline\n" in said) == (setting.threads > 1)
    with subject.loader(setting, seed=1, timeout=LONG) as loader:
        assert loader.num_workers == setting.workers
        assert loader.persistent_workers == (setting.workers > 0)
        assert loader.batch_sampler is options.get("batch_sampler")
        init = loader.worker_init_fn.then if setting.threads > 1 else loader.worker_init_fn
        assert init is options.get("worker_init_fn")


def test_ranks_that_share_a_stream_still_do() -> None:
    loader = DataLoader(iter([1, 2]), ranks="shard")
    subject = subject_of(loader, None, None)
    assert "DataLoader(dataset, ranks='shard', uneven='pad', num_workers=0)" in subject.code(Setting(0))
    assert subject.loader(Setting(0), seed=1, timeout=LONG).ranks == "shard"


def test_the_users_threads_per_worker_do_not_overrule_what_is_tried() -> None:
    loader = DataLoader(Squares(), num_workers=1, worker_init_fn=threads_per_worker(4, then=prepare))
    subject = subject_of(loader, None, None)
    assert subject.init is prepare
    assert "worker_init_fn=prepare)" in subject.code(Setting(1))
    assert "worker_init_fn=feedline.threads_per_worker(2, then=prepare))" in subject.code(Setting(1, threads=2))


def test_a_dataset_is_shuffled_unless_told_otherwise() -> None:
    assert "batch_size=32, shuffle=True" in subject_of(Squares(), None, None).code(Setting(0))
    assert "shuffle" not in subject_of(Squares(), 8, False).code(Setting(0))


# What goes wrong


class Truncated(Squares):
    def __getitem__(self, index: int) -> Any:
        raise OSError("truncated")


class Stuck(Squares):
    def __init__(self) -> None:
        self.released = threading.Event()

    def __getitem__(self, index: int) -> Any:
        self.released.wait(1000)


def test_a_sample_that_fails_is_named() -> None:
    with pytest.raises(
        FeedlineError, match=r"reading failed: OSError: truncated \(raised by dataset\[\d+\]; in worker"
    ):
        tune(Truncated(), **QUICK)


def test_a_sample_that_hangs_is_named() -> None:
    stuck = Stuck()
    runner = Runner(subject_of(stuck, 4, False), 0.0, False, clock() + 1.5)
    try:
        with pytest.raises(FeedlineError, match=r"(?s)no batch came within .* dataset\[0\]"):
            runner.measure(Setting(1, kind="thread"), 1.0)
    finally:
        stuck.released.set()


def test_without_workers_a_signal_ends_what_hangs() -> None:
    runner = Runner(subject_of(Stuck(), 4, False), 0.0, False, clock() + 0.3)
    with pytest.raises(FeedlineError, match="no batch came within"):
        runner.measure(Setting(0), 1.0)


def test_the_end_of_the_time_is_no_hang() -> None:
    runner = Runner(subject_of(Squares(), 4, False), 0.0, False, clock() + LONG)
    assert not runner.measure(Setting(0), 0.1).failed
    late = Runner(subject_of(Stuck(), 4, False), 0.0, False, clock() + 0.3)
    late._longest = 1.0
    assert late.measure(Setting(0), 1.0).failed == "the time was up before its first batch"


def test_the_alarm_is_for_a_batch_and_not_for_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PATIENCE", 1.0)
    runner = Runner(subject_of(Squares(), 4, False), 1.1, False, clock() + LONG)
    runner._longest = 1e-3
    assert runner.measure(Setting(0), 0.1).windows  # three steps, each longer than a batch is waited for


class StuckLater(Squares):
    def __getitem__(self, index: int) -> Any:
        if index >= 4:
            threading.Event().wait(20)
        return super().__getitem__(index)


def test_the_alarm_is_wound_up_for_every_batch() -> None:
    runner = Runner(subject_of(StuckLater(), 4, False), 0.0, False, clock() + 0.5)
    with pytest.raises(FeedlineError, match="no batch came within"):
        runner.measure(Setting(0), 0.1)


class OfOneThread(Squares):
    """As a connection of SQLite's."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def __getitem__(self, index: int) -> Any:
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in another thread")
        return super().__getitem__(index)


def test_a_kind_of_workers_that_cannot_read_it_leaves_the_other() -> None:
    runner = Runner(subject_of(OfOneThread(), 4, False), 0.0, False, clock() + LONG)
    with pytest.raises(FeedlineError, match="reading failed: RuntimeError: made in another thread"):
        runner.measure(Setting(1, kind="thread"), 0.1)
    assert not runner.measure(Setting(0), 0.1).failed
    told = runner.measure(Setting(2, kind="thread"), 0.1).failed
    assert told.startswith("RuntimeError: made in another thread (raised by dataset[")


class Once(feedline.IterableDataset):
    def __init__(self) -> None:
        self.numbers = iter(range(8))

    def __iter__(self) -> Iterator[Any]:
        return self.numbers


def test_a_stream_that_can_be_read_only_once_is_called_so() -> None:
    with pytest.raises(FeedlineError, match="only once, and then an empty epoch"):
        tune(Once(), **QUICK)


class Lengthless(Squares):
    def __len__(self) -> int:
        raise RuntimeError("no connection")


def test_a_length_that_fails_is_a_sentence() -> None:
    with pytest.raises(FeedlineError, match="no loader could be made of it: RuntimeError: no connection"):
        tune(Lengthless(), **QUICK)


def test_a_factory_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "LEAST", 0.1)
    with pytest.raises(FeedlineError, match=r"could not be made: not done after "):
        tune(lambda: threading.Event().wait(1000), seconds=0.01)


def test_one_window_says_nothing_of_noise() -> None:
    def notes(*windows: Window) -> str:
        trial = Trial(Setting(1), 0.0, windows)
        return " ".join(tuner._notes(search.Search(lambda *_: trial, lambda: 1.0, Bounds(2), 0.0), trial))

    assert "only once" in notes(window(3, 1.0))
    assert "differ by" not in notes(window(3, 1.0))
    assert "differ by 50 %" in notes(window(3, 1.0), window(9, 1.0))


class Locked(Squares):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_what_cannot_travel_is_read_by_threads() -> None:
    loader = DataLoader(Locked(), batch_size=8, num_workers=1, multiprocessing_context="spawn")
    found = tune(loader, seconds=60, max_workers=1)
    (process,) = [trial for trial in found.trials if trial.setting == Setting(1)]
    assert process.failed.startswith("ShippingError: ")
    assert "lock" in process.failed
    assert process.failed in str(found)
    with pytest.raises(FeedlineError, match=r"nothing could be measured \(1 process: ShippingError"):
        tune(loader, seconds=60, max_workers=1, kinds=["process"])


def test_a_dataset_without_samples() -> None:
    with pytest.raises(FeedlineError, match="gives no batches"):
        tune(np.zeros((0, 3)), **QUICK, shuffle=False)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"step_ms": 0}, OptionError, "step_ms must be more than 0"),
        ({"step_ms": "20"}, OptionTypeError, "step_ms must be a number"),
        ({"step_ms": float("nan")}, OptionError, "step_ms"),
        ({"seconds": 0}, OptionError, "seconds must be more than 0"),
        ({"seconds": -1}, OptionError, "seconds"),
        ({"batch_size": 0}, OptionError, "batch_size"),
        ({"max_workers": 0}, OptionError, "max_workers must be at least 1"),
        ({"kinds": "thread"}, OptionTypeError, "kinds must be a list"),
        ({"kinds": []}, OptionError, "kinds must name at least one"),
        ({"kinds": ["ray"]}, OptionError, "kinds must be one of 'process', 'thread'; got 'ray'"),
        ({"busy_step": 1}, OptionTypeError, "busy_step"),
        ({"shuffle": "yes"}, OptionTypeError, "shuffle"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tune(Squares(), **options)


def test_what_is_no_dataset() -> None:
    with pytest.raises(OptionTypeError, match="neither"):
        tune(3)


# Measuring


def test_a_step_that_computes_is_not_counted_as_loading() -> None:
    usage = running._UsageSince(Stats())
    burned = compute_for(0.05)
    assert usage.until_now(0.0)["cpu"] >= burned > 0
    assert usage.until_now(1e9)["cpu"] == 0
    runner = Runner(subject_of(Squares(), 8, False), 0.02, True, clock() + LONG)
    assert runner.measure(Setting(0), 0.1).windows


def test_the_systems_books(tmp_path: Path) -> None:
    for thread, line in {"7": "1500000000 500000000 3", "8": "500000000 0 1"}.items():
        (tmp_path / "7" / "task" / thread).mkdir(parents=True)
        (tmp_path / "7" / "task" / thread / "schedstat").write_text(line)
    (tmp_path / "7" / "io").write_text("rchar: 9\nread_bytes: 4096\n")
    assert usage_of([7, 8], str(tmp_path)) == Usage(2.0, 0.5, 4096)
    (tmp_path / "9").mkdir()
    tick = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 10, str(3 * tick), str(tick), *["0"] * 9]
    (tmp_path / "9" / "stat").write_text(f"9 (a (b) c) {' '.join(fields)}")
    assert usage_of([9], str(tmp_path)).cpu == 4.0
    assert Usage(1.0, 2.0, 3).minus(Usage(2.0, 1.0, 3)) == Usage(0.0, 1.0, 0)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Screen(), io.StringIO()])
def test_how_far_it_is_stands_where_somebody_watches_and_leaves_nothing(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with pytest.raises(FeedlineError, match="truncated"):
        tune(Truncated(), **QUICK)
    text = stream.getvalue()
    assert ("0 of 60 s: " in text) == stream.isatty()
    assert text.endswith("\r\x1b[K") == stream.isatty()
    assert bool(text) == stream.isatty()


class Told:
    """What a worker's libraries have been told."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[int, str]:
        from openblas import Blas

        return Blas()[0], os.environ["OMP_NUM_THREADS"] + os.environ.get("PREPARED", "")


def note(worker: int) -> None:
    os.environ["PREPARED"] = f" and {worker}"


def test_threads_per_worker_reach_the_libraries() -> None:
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1, "multiprocessing_context": "fork"}
    with DataLoader(Told(), worker_init_fn=threads_per_worker(2, then=note), **options) as loader:
        blas, said = next(iter(loader))
    assert said == "2 and 0"
    assert blas == 2 or not any("openblas" in line for line in Path("/proc/self/maps").read_text().splitlines())
    before = {name: os.environ.get(name) for name in VARIABLES}
    options = {"batch_size": None, "num_workers": 1, "workers": "thread"}
    with DataLoader(Squares(), worker_init_fn=threads_per_worker(7, then=note), **options) as loader:
        next(iter(loader))
    assert os.environ.pop("PREPARED") == " and 0"
    assert {name: os.environ.get(name) for name in VARIABLES} == before, "threads are the main process's"
    assert repr(threads_per_worker(2, then=note)) == "threads_per_worker(2, then=note)"
    with pytest.raises(OptionError, match="count must be at least 1"):
        threads_per_worker(0)
    with pytest.raises(OptionTypeError, match="then must be a function"):
        threads_per_worker(1, then=3)  # type: ignore[arg-type]


# The verdict


def judged(best: Trial, *others: Trial, cpu_share: float = 1.0) -> tuple[str, str]:
    found = bottleneck([best, *others], best, TrialFacts(cpu_share=cpu_share), cpus=2)
    return found.name, found.words


TWO = Setting(2)


def made(setting: Setting = TWO, step: float = 0.01, waited: float = 1.0, **spent: Any) -> Trial:
    given = {"seconds": 2.0, "batches": 100, "fetching": 4.0, "cpu": 4.0, **spent}
    return Trial(setting, step, (window(100, waited, step),), Spending(**given))


def test_the_bottleneck_in_words() -> None:
    assert judged(made(waited=0.02)) == (
        "step",
        "The step itself. Batches are ready when the step wants them: it waits 2 % of the time.",
    )
    assert judged(made(transferring=0.6))[0] == "transfer"
    assert "unpacking" in judged(made(delivering=0.6))[1]
    assert "packing batches" in judged(made(fetching=1.0, sending=2.0))[1]
    assert judged(made(fetching=1.0, collating=2.0))[0] == "collate"
    assert judged(made(fetching=0.5))[0] == "handing over"
    name, words = judged(made())
    assert (name, words) == ("cpu", "The CPU: reading a sample computes 100 % of its time; loading uses 2.0 of 2.")
    assert judged(made(Setting(0), fetching=2.0), made(Setting(1), waited=2.0))[0] == "cpu"


def test_one_worker_that_waits_says_nothing_of_several() -> None:
    none, one, two = made(Setting(0), fetching=1.0), made(Setting(1)), made(Setting(2))
    assert judged(none, one, cpu_share=0.1)[0] == "disk"
    assert judged(none, one, two, cpu_share=0.1)[0] == "cpu"
    assert "The main process" in judged(none, one, cpu_share=0.9)[1]


def test_threads_that_gain_nothing_mean_python() -> None:
    none = made(Setting(0, kind="thread"), step=0.0, waited=2.0, fetching=2.0)
    slow = made(Setting(2, kind="thread"), step=0.0, waited=2.0)
    fast = made(Setting(2, kind="thread"), step=0.0, waited=1.0)
    best = made(step=0.0)
    assert judged(best, none, slow)[0] == "python"
    assert "(1 times the speed of none), and the 2 CPUs are in use" in judged(best, none, slow)[1]
    assert judged(best, none, fast)[0] == "cpu"
    assert judged(best, none)[0] == judged(best, slow)[0] == "cpu"
    starved = made(Setting(2, kind="thread"), step=0.0, waited=2.0, queued_for_cpu=2.0)
    assert judged(best, none, starved)[0] == "cpu", "that others had the CPUs is no sign of the lock"


def test_waiting_is_for_a_disk_if_much_comes_from_storage() -> None:
    assert "20 MB/s come from storage" in judged(made(read=40_000_000), cpu_share=0.2)[1]
    assert "hardly for storage" in judged(made(read=4_000), cpu_share=0.2)[1]
    assert judged(made(), cpu_share=0.2)[0] == "disk"


def test_why_says_by_how_much_it_falls_short() -> None:
    best, faster = made(step=0.01, waited=1.0), made(Setting(4), step=0.01, waited=0.98)
    assert "is too slow by 50 %" in why(best, [best], 0.01)
    slow = made(step=0.01, waited=3.0)
    assert "is too slow by 75 %" in why(slow, [slow], 0.01)
    assert "50 batches a second where the step could take 100" in why(best, [best], 0.01)
    assert "The smallest within 5 % of the fastest" in why(best, [best, faster], 0.01)
    assert why(made(step=0.0), [made(step=0.0)], 0.0) == "The fastest: 100 batches a second."
    assert why(made(waited=0.0), [best], 0.01).startswith("The smallest setting that keeps a step of 10 ms busy")


def test_it_is_imported_only_when_asked_for() -> None:
    assert "feedline.diagnose.tune.tuner" in sys.modules
    assert feedline.tune is tune
