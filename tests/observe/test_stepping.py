"""`with loader.step():` by the host's clock: what counts as a step, and what is refused."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from traced import events_in, spans_in

from feedline import DataLoader, EpochStats
from feedline.engine import loop, session
from feedline.observe import epoch_bar, meter, recording, stepping
from feedline.observe.epoch_stats import BETWEEN, DEVICE, STEPS


class Clock:
    """Goes on only if told to."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now

    def go_on(self, milliseconds: int) -> None:
        self.now += milliseconds * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (loop, session, meter, recording, stepping, epoch_bar):
        monkeypatch.setattr(module, "clock", made)
    return made


class Slow:
    def __init__(self, clock: Clock, length: int = 6) -> None:
        self.clock, self.length = clock, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        self.clock.go_on(3)
        return index


def times(flow: EpochStats) -> tuple[int, float, float, float, float]:
    """Steps, and milliseconds: step, waiting, other, and all of them."""
    return flow.steps, *(round(1e3 * each, 3) for each in (flow.step, flow.waiting, flow.other, flow.seconds))


def test_step_wait_and_other_are_all_of_the_time(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    for _ in loader:
        clock.go_on(5)
        with loader.step():
            clock.go_on(20)
        clock.go_on(1)
    flow = loader.stats().epoch
    assert times(flow) == (3, 60, 18, 18, 96)
    assert flow.basis == STEPS
    assert (flow.starved_share, flow.step_share, flow.other_share) == pytest.approx((18 / 96, 60 / 96, 18 / 96))
    assert "step 62 % of the time, waiting 19 %, other 19 % (loader.step())" in str(loader.stats())


def test_half_way_the_step_after_the_latest_batch_does_not_count_yet(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    for number, _ in enumerate(loader):
        with loader.step():
            clock.go_on(20)
        flow = loader.stats().epoch
        assert times(flow) == (number + 1, 20 * number, 6 * (number + 1), 0, 20 * number + 6 * (number + 1))


def test_without_step_it_is_the_time_between_batches(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    for _ in loader:
        clock.go_on(20)
    flow = loader.stats().epoch
    assert (times(flow), flow.basis) == ((0, 60, 18, 0, 78), BETWEEN)
    assert "loader.step()" not in str(loader.stats()), "what the user has not asked about is not in his way"


def test_gradient_accumulation_several_batches_for_a_step(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=1)
    batches = iter(loader)
    for _ in range(3):
        with loader.step():
            for _ in islice(batches, 2):
                clock.go_on(10)
    assert next(batches, None) is None
    assert times(loader.stats().epoch) == (3, 60, 18, 0, 78)


def test_gradient_accumulation_of_batches_that_do_not_divide(clock: Clock) -> None:
    """The last step asks for a batch that is not there any more: what it did before that is a step all the same."""
    loader = DataLoader(Slow(clock), batch_size=1)
    batches, given, sizes = iter(loader), 0, list[int]()
    while given < 6:
        with loader.step():
            for _ in islice(batches, 4):
                clock.go_on(10)
                given += 1
            if given == 6:
                assert next(batches, None) is None
        sizes.append(given)
    assert sizes == [4, 6]
    assert times(loader.stats().epoch) == (2, 60, 18, 0, 78)


def test_half_way_in_an_accumulating_step_only_what_is_after_the_latest_batch_is_missing(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=1)
    batches = iter(loader)
    with loader.step():
        for _ in islice(batches, 3):
            clock.go_on(10)
    assert times(loader.stats().epoch) == (1, 20, 9, 0, 29)


def test_what_a_step_does_before_the_first_batch_is_not_in_the_epoch(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=1)
    batches = iter(loader)
    with loader.step():  # a warm-up
        clock.go_on(1000)
    with loader.step():
        clock.go_on(100)
        next(batches)
        clock.go_on(10)
    next(batches)
    flow = loader.stats().epoch
    assert times(flow) == (2, 10, 6, 0, 16)
    assert flow.step_share + flow.starved_share + flow.other_share == pytest.approx(1)


def test_the_start_of_workers_is_not_taken_off_a_step_that_asks_for_the_first_batch(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=1)
    batches: Any = iter(loader)
    batches.started(500_000_000)
    clock.go_on(500)
    with loader.step():
        next(batches)
        clock.go_on(10)
    next(batches)
    assert times(loader.stats().epoch) == (1, 10, 506, 0, 516)


def test_a_step_may_begin_the_iteration_or_the_next_pass(clock: Clock) -> None:
    loader = DataLoader(Slow(clock, 3), batch_size=1)
    batches = iter(endless := loader.forever(9))
    for _ in range(3):
        with endless.step():
            for _ in islice(batches, 4):
                clock.go_on(10)
    assert [times(flow) for flow in loader.stats().epochs] == [
        (1, 30, 9, 0, 39),
        (1, 30, 9, 0, 39),
        (1, 20, 9, 0, 29),
    ]
    assert loader.stats().total.basis == STEPS


def test_a_pass_over_the_same_loader_in_the_midst_takes_no_steps_from_the_loop(clock: Clock) -> None:
    loader = DataLoader(Slow(clock, 4), batch_size=1)
    for number, _ in enumerate(loader):
        with loader.step():
            clock.go_on(10)
        if number == 1:
            assert len(list(loader)) == 4
    outer, inner = loader.stats().epochs
    assert (outer.steps, outer.stepping, inner.steps) == (4, pytest.approx(0.04), 0)


def test_a_step_is_not_counted_for_an_epoch_that_is_over_and_still_held(clock: Clock) -> None:
    loader = DataLoader(Slow(clock, 2), batch_size=1)
    held = []
    for _ in range(3):
        held.append(batches := iter(loader))
        with loader.step():
            assert len(list(batches)) == 2
    assert [flow.steps for flow in loader.stats().epochs] == [1, 1, 1]


def test_a_subclass_may_have_a_step_of_its_own(clock: Clock) -> None:
    class Counting(DataLoader[Any]):
        step: Any = 0

    loader = Counting(Slow(clock), batch_size=2)
    for _ in loader.progress():
        loader.step += 1
    assert loader.step == 3
    for _ in (endless := loader.forever(3)):
        with endless.step():
            clock.go_on(10)
    assert loader.stats().epoch.steps == 3


def test_ctrl_c_while_a_step_is_entered_does_not_leave_it_open(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    batches = iter(loader)
    next(batches)

    def interrupted() -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stepping, "clock", interrupted)
        with pytest.raises(KeyboardInterrupt), loader.step():
            pass
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patched, loader.step():  # and while it is left
        patched.setattr(stepping, "clock", interrupted)
    for _ in batches:
        with loader.step():
            clock.go_on(10)
    assert loader.stats().epoch.steps == 2


def test_epochs_of_long_ago_keep_the_sum_from_claiming_more_than_it_knows(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "KEPT", 2)
    loader = DataLoader(Slow(clock), batch_size=2)
    for epoch in range(4):
        for _ in loader:
            if epoch:
                with loader.step():
                    clock.go_on(10)
            else:
                clock.go_on(10)
    assert loader.stats().total.basis == BETWEEN
    assert times(loader.stats().total)[1:] == (120, 72, 0, 192)


def test_several_steps_for_a_batch(clock: Clock) -> None:
    loader = DataLoader(Slow(clock, 2), batch_size=1)
    for _ in loader:
        for _ in range(2):
            with loader.step():
                clock.go_on(10)
    assert times(loader.stats().epoch) == (4, 40, 6, 0, 46)


def test_a_framework_that_takes_one_batch_ahead_can_take_its_last_step(clock: Clock) -> None:
    """Lightning asks for the next batch first, so that the loop is over before the last step."""
    loader = DataLoader(Slow(clock, 3), batch_size=1)
    batches = iter(loader)
    latest = next(batches, None)
    while latest is not None:
        following = next(batches, None)
        with loader.step():
            clock.go_on(10)
        latest = following
    assert times(loader.stats().epoch) == (3, 20, 9, 0, 29), "the last one is after the end of the epoch"


def test_an_exception_in_the_step_goes_on_to_the_user_and_the_step_is_over(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=1)
    for number, _ in enumerate(loader):
        try:
            with loader.step():
                clock.go_on(10)
                if number == 1:
                    raise KeyError("the user's")
        except KeyError:
            clock.go_on(7)
    assert times(loader.stats().epoch) == (6, 60, 18, 7, 85)


def test_break_in_a_step_and_then_another_epoch(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=1)
    for _ in loader:
        with loader.step():
            clock.go_on(10)
            break
    for _ in loader:
        with loader.step():
            clock.go_on(10)
    first, second = loader.stats().epochs
    assert times(first)[:2] in [(1, 0), (1, 10)]
    assert times(second) == (6, 60, 18, 0, 78)


def test_the_sum_of_epochs_with_and_without_step_claims_no_more_than_it_knows(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    for _ in loader:
        clock.go_on(10)
    for _ in loader:
        with loader.step():
            clock.go_on(10)
        clock.go_on(2)
    stats = loader.stats()
    assert [flow.basis for flow in stats.epochs] == [BETWEEN, STEPS]
    assert (stats.total.basis, round(1e3 * stats.total.step), stats.total.other) == (BETWEEN, 66, 0)
    assert EpochStats().plus(stats.epoch).basis == STEPS
    device = EpochStats(batches=1, device_stepping=1, basis=DEVICE)
    assert device.plus(stats.epoch).basis == stats.epoch.plus(device).basis == STEPS


def test_endless_loading_has_step_too(clock: Clock) -> None:
    endless = DataLoader(Slow(clock, 2), batch_size=1).forever(batches_per_epoch=3)
    for _ in range(2):
        for _ in endless:
            with endless.step():
                clock.go_on(10)
    assert [flow.steps for flow in endless.loader.stats().epochs] == [2, 2, 2]


def test_a_step_belongs_to_the_iteration_that_gave_the_latest_batch(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=1)
    first, second = iter(loader), iter(loader)
    for batches, several in ((first, 1), (second, 2), (first, 1)):
        next(batches)
        for _ in range(several):
            with loader.step():
                clock.go_on(10)
    assert [flow.steps for flow in loader.stats().epochs] == [2, 2]


# What is refused


def test_outside_of_an_iteration() -> None:
    loader = DataLoader(range(3))
    with pytest.raises(RuntimeError, match=r"outside of an iteration.*inside `for batch in loader:`"), loader.step():
        pass


def test_a_step_in_a_step(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    for number, _ in enumerate(loader):
        with loader.step():
            clock.go_on(10)
            if number == 0:
                with pytest.raises(RuntimeError, match=r"inside another step\(\) of the same loader"), loader.step():
                    pass
    assert times(loader.stats().epoch) == (3, 30, 18, 0, 48), "the outer one is measured as ever"


def test_a_step_that_was_never_left_is_told_of_and_the_next_epoch_begins_anew(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    batches = iter(loader)
    next(batches)
    loader.step().__enter__()
    next(batches)
    with pytest.raises(RuntimeError, match="one before it was never left"), loader.step():
        pass
    for _ in loader:
        with loader.step():
            clock.go_on(10)
    assert loader.stats().epoch.steps == 3


def test_two_threads_in_a_step_of_one_loader() -> None:
    loader = DataLoader(range(6), batch_size=2)
    batches = iter(loader)
    next(batches)
    found: list[BaseException] = []

    def other() -> None:
        try:
            with loader.step():
                pass
        except RuntimeError as error:
            found.append(error)

    with loader.step():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "open in another thread" in str(found[0])
    other()  # one after the other is fine
    assert len(found) == 1


def test_step_takes_no_arguments() -> None:
    loader: Any = DataLoader(range(3))
    with pytest.raises(TypeError, match="step"):
        loader.step("train")


def test_one_object_can_be_used_again(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)
    step = loader.step()
    for _ in range(2):
        for _ in loader:
            with step:
                clock.go_on(10)
    assert [times(flow)[:2] for flow in loader.stats().epochs] == [(3, 30), (3, 30)]


def test_a_generator_may_hand_out_batches_from_inside_a_step(clock: Clock) -> None:
    loader = DataLoader(Slow(clock), batch_size=2)

    def batches() -> Iterator[Any]:
        for batch in loader:
            with loader.step():
                yield batch

    for _ in batches():
        clock.go_on(10)
    assert times(loader.stats().epoch) == (3, 30, 18, 0, 48)


def test_steps_keep_no_loader_alive() -> None:
    gc.collect()
    gc.disable()
    try:
        loader = DataLoader(range(4))
        for _ in loader:
            with loader.step():
                pass
        there = weakref.ref(loader._session)
        del loader
        assert there() is None
    finally:
        gc.enable()


# Where it is shown


def test_report_trace_bar_and_numbers_show_steps(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = DataLoader(Slow(clock, 20), batch_size=2)
    with loader.report(tmp_path / "run.html"), loader.trace(tmp_path / "run.json"):
        for _ in loader.progress("train"):
            with loader.step():
                clock.go_on(13)
            clock.go_on(1)
    page = (tmp_path / "run.html").read_text()
    assert "This is based on loader.step() and the host&#x27;s clock" in page
    assert "<td>in steps</td>" in page
    assert "waiting for batches" in page
    steps = spans_in(tmp_path / "run.json", "step")
    assert [span["dur"] for span in steps] == [13_000] * 10
    named = {
        event["tid"]: event["args"]["name"]
        for event in events_in(tmp_path / "run.json")
        if event["name"] == "thread_name"
    }
    assert {named[span["tid"]] for span in steps} == {"loader.step()"}
    assert "train: 10 of 10 batches" in (line := capsys.readouterr().err)
    assert ", step 65 %, waited" in line
    stats = loader.stats()
    assert stats.scalars()["loader/step_share"] == pytest.approx(0.65)
    assert stats.scalars()["loader/other_share"] == pytest.approx(0.05)
    assert "feedline_step_seconds_total 0.13" in stats.prometheus()
    assert "device" not in stats.prometheus()


def test_who_uses_no_step_sees_nothing_of_it_but_what_the_verdict_is_based_on(clock: Clock, tmp_path: Path) -> None:
    loader = DataLoader(Slow(clock, 20), batch_size=2)
    with loader.report(tmp_path / "run.html"):
        for _ in loader:
            clock.go_on(13)
    page = (tmp_path / "run.html").read_text()
    assert "This is based on the time between calls of next()" in page
    assert "<td>in steps</td>" not in page
