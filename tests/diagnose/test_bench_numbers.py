"""The arithmetic of a benchmark, its words, and its processes: all that needs no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.diagnose.bench import side
from feedline.diagnose.bench.bench_page import listed, page, verdict
from feedline.diagnose.bench.bench_subject import BenchSubject
from feedline.diagnose.bench.comparison import SAME, Comparison, Contest, Measured, compared, noise_of
from feedline.diagnose.bench.machine import BUSY
from feedline.diagnose.bench.turns import SideFailed, SideProcess, order
from feedline.diagnose.bench.workloads import SHORT, WORKLOADS, workload
from feedline.diagnose.rendering import plain
from feedline.observe.window import Window

speeds = st.floats(0.1, 1e6)


def contest(ours: tuple[float, ...], theirs: tuple[float, ...], noise: float | None = 0.0) -> Contest:
    sides = [Measured(values, (noise,) * len(values)) for values in (ours, theirs)]
    return Contest("mine", 2, "samples/s", *sides)


# Ratio and spread


@given(st.lists(st.tuples(speeds, speeds), min_size=1, max_size=7).filter(lambda pairs: len(pairs) % 2))
def test_the_ratio_lies_within_its_spread_and_the_other_way_round_is_its_inverse(pairs):
    ours, theirs = zip(*pairs, strict=True)
    found, back, less = compared(ours, theirs), compared(theirs, ours), compared(theirs, ours, more=False)
    assert found.lowest * (1 - 1e-9) <= found.ratio <= found.highest * (1 + 1e-9)
    assert 1 / back.ratio == pytest.approx(found.ratio)
    assert (1 / back.highest, 1 / back.lowest) == pytest.approx((found.lowest, found.highest))
    assert (less.ratio, less.lowest, less.highest) == pytest.approx((found.ratio, found.lowest, found.highest))


def test_pairs_are_those_taken_one_after_the_other_and_what_is_missing_has_none():
    slowing_down = compared([100, 10, 1], [50, 5, 0.5])
    assert (slowing_down.ratio, slowing_down.lowest, slowing_down.highest) == (2, 2, 2)
    one_turn_less = compared([100, 10, 1], [50, 5])
    assert (one_turn_less.lowest, one_turn_less.highest, one_turn_less.theirs) == (2, 2, 27.5)
    assert compared([], [1.0]).ratio is compared([1.0], []).lowest is None


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True), st.integers(1, 9))
def test_everyone_has_a_turn_and_is_as_often_before_as_after(sides, half):
    turns = [order(sides, turn) for turn in range(2 * half)]
    assert all(sorted(turn) == sorted(sides) for turn in turns)
    if len(sides) > 1:
        assert sum(turn.index(sides[0]) < turn.index(sides[1]) for turn in turns) == half


# Words


@pytest.mark.parametrize(
    ("ours", "theirs", "faster", "words"),
    [
        ((300.0, 310.0), (100.0, 100.0), "feedline", "feedline is 3.05 times as fast (3–3.1)"),
        ((100.0, 100.0), (300.0, 310.0), "torch", "torch is 3.05 times as fast (3–3.1)"),
        ((90.0, 300.0), (100.0, 100.0), None, "no clear difference (feedline 1.95 times as fast, 0.9–3)"),
        ((101.0,), (100.0,), None, "no clear difference (feedline 1.01 times as fast, 1.01–1.01)"),
        ((99.0,), (100.0,), None, "no clear difference (feedline 0.99 times as fast, 0.99–0.99)"),
        ((100.0,), (), None, "nothing to compare"),
    ],
)
def test_who_is_faster_in_the_same_words_for_both(ours, theirs, faster, words):
    assert (contest(ours, theirs).faster, verdict(contest(ours, theirs))) == (faster, words)


@given(st.lists(st.tuples(speeds, speeds), min_size=1, max_size=5))
def test_neither_side_is_favoured(pairs):
    ours, theirs = zip(*pairs, strict=True)
    names = {"feedline": "torch", "torch": "feedline", None: None}
    one, other = contest(ours, theirs), contest(theirs, ours)
    near = abs(one.compared.ratio - 1) < 2 * SAME  # 1.02 and 1 / 1.02 are not equally far from 1
    assert near or other.faster == names[one.faster]


def test_noise_is_that_of_the_noisier_side_and_marks_the_ratio():
    assert noise_of([0.1, 0.2, 0.9], [0.0, 0.0]) == 0.2
    assert noise_of([], [None]) is None
    assert "3? times" in verdict(contest((3.0,), (1.0,), BUSY + 0.01))
    assert "1.5? times" in verdict(contest((2.0,), (3.0,), BUSY + 0.01))
    assert "1? times" in verdict(contest((1.0,), (1.0,), BUSY + 0.01))
    for quiet in (BUSY, 0.0, None):
        assert "?" not in verdict(contest((3.0,), (1.0,), quiet))


def some() -> Comparison:
    failed = Contest(
        "train.py:data", 0, "samples/s", Measured((12.0,), (0.5,)), Measured(failure="OSError: truncated"), "Photos"
    )
    late = Contest("jpeg", 1, "batches/s", Measured((5.0,), (0.0,), "no answer in 60 s"), Measured((9.0, 8.0)))
    unknown = Contest("x:y", None, "", Measured(failure="exit code 3"), Measured(failure="exit code 3"))
    same = contest((1.0, 2.0), (2.0, 1.0), 0.5)
    return Comparison(
        (failed, late, unknown, same),
        {"torch": "2.13.0", "feedline": "0.1.0"},
        {"cores": 2},
        "2026-11-16T05:00:00",
        1,
        2,
    )


@pytest.mark.parametrize("width", [40, 80, 100])
def test_the_page_names_what_failed_and_fits(width):
    text = plain(page(some(), width))
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert "train.py:data, 0 workers: Photos" in words
    assert "torch could not be measured: OSError: truncated" in words
    assert "12 samples/s" in words
    assert "could not be measured after some turns: no answer in 60 s" in words
    assert "jpeg, 1 worker feedline" in words
    assert "feedline 0.1.0" in words
    assert "?: something else used over 10%" in words
    assert max(map(len, plain(listed(width)).splitlines()[1:])) <= width


def test_bars_are_as_long_as_speeds():
    lines = plain(page(Comparison((contest((10.0,), (40.0,)),)), 80)).splitlines()
    ours, theirs = (next(line for line in lines if line.startswith(f"  {side} ")) for side in ("feedline", "torch"))
    assert ours.count("█") * 4 == theirs.count("█") > 40


def test_a_comparison_is_json_with_what_follows_from_it():
    data = json.loads(json.dumps(some().to_json(), allow_nan=False))
    first, second, _, last = data["contests"]
    assert (first["torch"]["failure"], first["ratio"], first["faster"]) == ("OSError: truncated", None, None)
    assert (second["theirs"], second["noisy"]) == (8.5, False)
    assert (last["ratio"], last["lowest"], last["highest"], last["noisy"]) == (1.0, 0.5, 2.0, True)
    assert [each.failed for each in some().contests] == [True, True, True, False]
    assert some().failed
    assert not Comparison((contest((1.0,), (1.0,)),)).failed
    assert hash(some().contests[0]) == hash(some().contests[0])


# Which workloads there are


def test_our_workloads_have_different_names_and_the_short_selection_is_of_them():
    names = [each.name for each in WORKLOADS]
    assert len(set(names)) == len(names)
    assert set(SHORT) < set(names)
    assert not any(workload(name).package for name in SHORT)


# A side's windows


@given(samples=st.integers(1, 60), size=st.integers(1, 20))
def test_the_batches_of_an_epoch_have_all_its_samples(samples, size):
    count = -(-samples // size)
    made = BenchSubject([None] * count, 0, size, samples, "")
    assert sum(made.samples_in(place) for place in range(count)) == samples
    assert BenchSubject([None], 0, None, None, "").samples_in(0) == 0


class Measured25:
    """Whatever is asked: 7 batches with 25 samples in 2 seconds."""

    epoch_batches = 7
    warm_up = staticmethod(lambda seconds, round_of: True)
    epochs = staticmethod(lambda seconds: Window(7, 2.0, 2.0, 25))
    window = staticmethod(lambda seconds, round_of: Window(7, 2.0, 2.0, 25))


@pytest.mark.parametrize("word", [side.EPOCHS, side.WINDOW])
def test_a_side_counts_samples_where_they_are_known_and_batches_otherwise(word):
    assert side._measured(BenchSubject([], 2, 4, 25, ""), Measured25(), word, 1.0) == {"value": 12.5}
    assert side._measured(BenchSubject([], 2, None, None, ""), Measured25(), word, 1.0) == {"value": 3.5}
    warm = side._measured(BenchSubject([], 2, 4, 25, ""), Measured25(), side.WARM_UP, 1.0)
    assert warm == {"whole": True, "batches": 7}


# Processes

ECHO = "import sys, json\nfor line in sys.stdin: print(json.dumps({'said': line.strip()}), flush=True)"


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_a_process_answers_each_word_and_is_gone_afterwards():
    side = SideProcess(python(ECHO), 600)
    assert side.measure("one")["said"] == "one"
    side.tell("two")
    answer = side.answer()
    assert answer == {"said": "two"}
    assert side.measure()["noise"] is None or 0 <= side.measure()["noise"] <= 1
    side.close()
    assert side._process.returncode == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print('first', file=sys.stderr); sys.exit('no such thing')", r"no such thing \(exit code 1\)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    ],
)
def test_a_process_that_ends_has_last_words(code, words):
    side = SideProcess(python(code), 600)
    with pytest.raises(SideFailed, match=f"^{words}$"):
        side.measure()
    side.close()


def test_a_silent_one_is_given_up_and_takes_what_it_started_with_it(tmp_path: Path):
    """The pipe has no writer any more when the last of them is gone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    forks = f"import os, time; kept = open({str(pipe)!r}, 'w'); os.fork(); kept.write('here'); kept.flush()"
    side = SideProcess(python(f"{forks}; time.sleep(10000)"), 0.1)
    with open(pipe) as reader:
        assert reader.read(8) == "herehere"
        with pytest.raises(SideFailed, match=r"^no answer in 0\.1 s$"):
            side.measure()
        side.close()
        assert reader.read() == ""


def test_a_side_in_an_endless_loop_ends_with_whoever_asked_it(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    endless = f"""
from feedline.diagnose.bench import side
side._end_with_parent()
kept = open({str(pipe)!r}, "w")
kept.write("here")
kept.flush()
while True:
    pass
"""
    command = [sys.executable, "-c", endless]
    asks = f"from feedline.diagnose.bench import turns; turns.SideProcess({command!r}, 600).measure()"
    asking = subprocess.Popen([sys.executable, "-c", asks])
    with open(pipe) as reader:
        assert reader.read(4) == "here"
        asking.kill()
        assert reader.read() == ""
    asking.wait()


def test_what_a_side_prints_is_no_answer():
    prints = """
from feedline.diagnose.bench import side
answers = side._own_output()
print("importing", flush=True)
side._write(answers, {"value": 1})
"""
    process = SideProcess([sys.executable, "-c", prints], 600)
    try:
        assert process.answer() == {"value": 1}
    finally:
        process.close()
