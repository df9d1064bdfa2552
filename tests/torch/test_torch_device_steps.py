"""Step, wait and the rest on a made-up GPU that runs kernels later than they are launched: numbers are exact."""

from __future__ import annotations

import gc
import json
import os
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kinds import thorough
from made_up_cuda import Gpu, Machine

import feedline
import feedline.torch as ours
from feedline.machine.loaded_torch import CudaTiming
from feedline.observe import stepping
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.meter import Meter, Spent
from feedline.observe.stepping import DeviceClock

CORE = feedline.DataLoader


class Slow:
    """Each sample takes the host some milliseconds."""

    def __init__(self, gpu: Gpu, *milliseconds: float) -> None:
        self.gpu, self.milliseconds = gpu, milliseconds

    def __len__(self) -> int:
        return len(self.milliseconds)

    def __getitem__(self, index: int) -> Any:
        self.gpu.host(self.milliseconds[index])
        return np.full(2, index + 1)


def ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


def device_times(flow: EpochStats) -> tuple[float, float, float]:
    return ms(flow.device_stepping), ms(flow.device_waiting), ms(flow.device_other)


def test_a_device_that_is_behind_does_not_wait_for_what_the_loop_waits_for(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, *[6] * 10), batch_size=1)
    for _ in loader:
        with loader.step():
            gpu.launch(10)  # and nobody waits for it
    gpu.synchronise()
    flow = loader.stats().epoch
    assert (ms(flow.waiting), ms(flow.step), flow.basis) == (60, 0, "device events")
    assert flow.waiting_share == 1, "the loop did nothing but wait"
    assert device_times(flow) == (100, 0, 0)
    assert (flow.starved_share, flow.step_share, flow.other_share) == (0, 1, 0)


def test_a_device_that_is_not_behind_waits_as_long_as_the_loop_less_what_it_had_to_do(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, *[10] * 10), batch_size=1)
    for _ in loader:
        with loader.step():
            gpu.launch(4)
    gpu.synchronise()
    flow = loader.stats().epoch
    assert device_times(flow) == (40, 9 * 6, 0)
    assert flow.starved_share == pytest.approx(54 / 94)


def test_where_the_host_synchronises_changes_nothing(gpu: Gpu, front: Any) -> None:
    """The host's clock calls the same time a step, or waiting, or neither."""
    flows = []
    for where in ("in the step", "after it", "nowhere"):
        loader = front(Slow(gpu, *[3] * 5), batch_size=1)
        for _ in loader:
            with loader.step():
                gpu.launch(10)
                if where == "in the step":
                    gpu.synchronise()
            if where == "after it":
                gpu.synchronise()
        gpu.synchronise()
        flows.append(loader.stats().epoch)
    assert [(ms(flow.step), ms(flow.other)) for flow in flows] == [(50, 0), (0, 50), (0, 0)]
    assert [ms(flow.device_stepping) for flow in flows] == [50, 50, 50]
    assert [ms(flow.device_waiting) for flow in flows] == [4 * 3, 4 * 3, 0]


def test_work_between_steps_is_neither_a_step_nor_waiting(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, *[2] * 4), batch_size=1)
    for _ in loader:
        with loader.step():
            gpu.launch(5)
            gpu.synchronise()
        gpu.launch(7)  # validation
        gpu.host(8)  # and writing a checkpoint
    flow = loader.stats().epoch
    assert device_times(flow) == (20, 3 * 2, 3 * 8)


def test_a_batch_asked_for_inside_a_step_is_waited_for(gpu: Gpu, front: Any) -> None:
    """Gradient accumulation: one step over several batches."""
    loader = front(Slow(gpu, *[3] * 6), batch_size=1)
    batches = iter(loader)
    for _ in range(3):
        with loader.step():
            for _ in range(2):
                next(batches)
                gpu.launch(10)
                gpu.synchronise()
    assert next(batches, None) is None
    flow = loader.stats().epoch
    assert (flow.steps, ms(flow.step), ms(flow.waiting)) == (3, 60, 18)
    assert device_times(flow) == (60, 18 - 3, 0) or device_times(flow) == (60, 18, 0)


def test_several_steps_for_one_batch_are_added_up(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, *[1] * 3), batch_size=1)
    for _ in loader:
        for _ in range(2):  # a generator and a discriminator
            with loader.step():
                gpu.launch(5)
                gpu.synchronise()
    flow = loader.stats().epoch
    assert (flow.steps, ms(flow.step), device_times(flow)) == (6, 30, (30, 2, 0))


# Without step()


@pytest.fixture
def copying(gpu: Gpu, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Batches are copied to the GPU: its stream waits for each copy for two milliseconds."""
    gpu.device, gpu.current = 1, 0
    there = machine.users.wait_event
    monkeypatch.setattr(machine.users, "wait_event", lambda event: (there(event), gpu.launch(2)))
    return gpu


def test_with_device_it_is_measured_without_step(copying: Gpu) -> None:
    loader = ours.DataLoader(Slow(copying, *[3] * 5), batch_size=1, device="cuda:1")
    for _ in loader:
        copying.launch(10)
    copying.synchronise()
    flow = loader.stats().epoch
    assert (flow.basis, flow.steps) == ("device events", 0)
    # The first batch was waited for, and each copy; the other batches were made while the device was behind.
    assert device_times(flow) == (50, 3 + 5 * 2, 0)


def test_the_device_of_the_loader_is_measured_also_where_step_comes_first(copying: Gpu) -> None:
    """`Gpu` refuses to record on a stream of another device than its own, which is 1; the current one is 0."""
    loader = ours.DataLoader(Slow(copying, 1, 1, 1), batch_size=1, device="cuda:1")
    batches = iter(loader)
    for _ in range(3):
        with loader.step():
            next(batches)
            copying.launch(5)
            copying.synchronise()
    assert next(batches, None) is None
    assert loader.stats().epoch.basis == "device events"
    assert "device waited" in loader.stats()._repr_html_()


def test_step_says_what_of_the_time_between_batches_is_the_step(copying: Gpu) -> None:
    loader = ours.DataLoader(Slow(copying, *[3] * 5), batch_size=1, device="cuda:1")
    for _ in loader:
        copying.launch(1)
        with loader.step():
            copying.launch(10)
        copying.launch(3)
    copying.synchronise()
    assert device_times(loader.stats().epoch) == (50, 3 + 5 * 2, 5 * 1 + 5 * 3)


def test_without_step_and_device_it_says_that_it_sees_only_the_time_between_batches(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, *[3] * 5), batch_size=1)
    for _ in loader:
        gpu.launch(10)
        gpu.synchronise()
    flow = loader.stats().epoch
    assert (flow.basis, ms(flow.step), flow.steps) == ("time between batches", 50, 0)
    assert gpu.made == 0, "nobody asked for it"


# What it must not do


def test_no_event_is_recorded_where_the_process_uses_no_gpu(gpu: Gpu, front: Any) -> None:
    gpu.initialised = False  # otherwise torch would make a context, which takes memory of the GPU
    loader = front(Slow(gpu, 1, 1, 1), batch_size=1)
    for _ in loader:
        with loader.step():
            gpu.host(4)
    assert gpu.made == 0
    flow = loader.stats().epoch
    assert (flow.basis, ms(flow.step), ms(flow.waiting)) == ("loader.step()", 12, 3)


def test_a_loop_far_ahead_of_the_device_keeps_few_events(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, *[0] * 500), batch_size=1)
    for _ in loader:
        with loader.step():
            gpu.launch(1)
    assert gpu.made <= stepping.MOST_OPEN + 2
    gpu.synchronise()
    for _ in loader:
        with loader.step():
            gpu.launch(1)
            gpu.synchronise()
    assert gpu.made <= stepping.MOST_OPEN + 4, "events that were reached are recorded again"
    first, second = loader.stats().epochs
    assert device_times(first) == (stepping.MOST_OPEN / 2, 0, 0), "what was not measured is not counted"
    assert device_times(second) == (500, 0, 0)


def test_of_a_loop_that_stays_far_ahead_some_stretches_are_measured(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, *[0] * 1000), batch_size=1)
    for number, _ in enumerate(loader):
        with loader.step():
            gpu.launch(1)
        if number > 100:  # it stays a hundred batches ahead
            gpu.host(1)
    step, waiting, other = device_times(loader.stats().epoch)
    assert 100 < step < 1000
    assert (waiting, other) == (0, 0)


@pytest.mark.parametrize("call", ["record", "query", "elapsed_time"])
def test_an_event_that_fails_ends_the_measuring_and_not_the_loop(gpu: Gpu, call: str, copying: Gpu) -> None:
    loader = ours.DataLoader(Slow(gpu, *[1] * 8), batch_size=1, device="cuda:1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in loader:
            with loader.step():
                gpu.launch(5)
                gpu.synchronise()
            if batch[0, 0] == 4:
                gpu.failing = call
    (told,) = caught
    assert "the device's events failed (RuntimeError: CUDA error" in str(told.message)
    assert "by the host's clock" in str(told.message)
    flow = loader.stats().epoch
    assert (flow.batches, flow.basis) == (8, "loader.step()"), "half an epoch's events say nothing of the whole"


def test_a_warning_that_is_an_error_does_not_end_the_loop_either(gpu: Gpu) -> None:
    gpu.failing = "record"
    loader = CORE(Slow(gpu, 1, 1), batch_size=1)
    for _ in loader:
        with loader.step():
            pass
    assert loader.stats().epoch.batches == 2


def test_nothing_is_recorded_into_a_graph_that_is_captured(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, 1, 1, 1, 1), batch_size=1)
    for number, _ in enumerate(loader):
        gpu.capturing = number == 1
        gpu.failing = "query" if gpu.capturing else ""
        with loader.step():
            gpu.launch(5)
        gpu.capturing, gpu.failing = False, ""
        gpu.synchronise()
    assert device_times(loader.stats().epoch)[:2] == (15, 1), (
        "the step of the capture, and the gaps around it, are not known"
    )


def test_an_error_in_the_loop_leaves_a_gap_and_no_wrong_number(copying: Gpu) -> None:
    class Damaged(Slow):
        def __getitem__(self, index: int) -> Any:
            found = super().__getitem__(index)
            if index == 1:
                raise ValueError("damaged")
            return found

    loader = ours.DataLoader(Damaged(copying, 1, 1, 1), batch_size=1, device="cuda:1")
    batches = iter(loader)
    next(batches)
    copying.launch(10)
    with pytest.raises(ValueError, match="damaged"):
        next(batches)
    copying.host(1000)  # somebody looks at it
    next(batches)
    copying.launch(10)
    assert next(batches, None) is None
    copying.synchronise()
    assert device_times(loader.stats().epoch)[0] == 20


def test_the_time_between_two_epochs_is_no_epochs(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, 2, 2), batch_size=1)
    for _ in range(2):
        for _ in loader:
            with loader.step():
                gpu.launch(5)
                gpu.synchronise()
        gpu.host(500)  # validation
    first, second = loader.stats().epochs
    assert device_times(first) == (10, 2, 0)
    assert device_times(second) == (10, 2 + 2, 0), "its first batch was waited for, and that is counted"
    assert device_times(loader.stats().total) == (20, 6, 0)


def test_the_start_of_an_epochs_workers_is_waited_for(gpu: Gpu) -> None:
    clock = DeviceClock(CudaTiming(torch.cuda, 0), lambda message: None)
    for starting in (0, 60):
        meter = Meter(0, 1, Spent())
        meter.starting = starting * 1_000_000
        gpu.host(100)  # validation, and then workers start, which takes `starting`
        clock.asked(meter, None)
        gpu.host(5)
        clock.gave(meter, None)
        gpu.launch(10)
        gpu.synchronise()
        clock.asked(meter, None)  # the epoch is over
    clock.read()
    assert meter.device is not None
    assert (meter.device.step, meter.device.waiting, meter.device.other) == (10_000_000, 65_000_000, 0)


def test_what_is_between_the_marks_of_two_threads_is_left_out(gpu: Gpu) -> None:
    clock, meter = DeviceClock(CudaTiming(torch.cuda, 0), lambda message: None), Meter(0, 1, Spent())
    clock.asked(meter, None)
    clock.gave(meter, None)
    gpu.launch(10)
    other = threading.Thread(target=lambda: (clock.asked(meter, None), gpu.host(3), clock.gave(meter, None)))
    other.start()
    other.join()
    gpu.synchronise()
    clock.asked(meter, None)
    clock.read()
    assert meter.device is not None
    assert (meter.device.step, meter.device.other) == (0, 0)


def test_a_forked_child_does_not_touch_its_parents_events(gpu: Gpu, front: Any) -> None:
    loader = front(Slow(gpu, 1, 1, 1), batch_size=1)
    batches = iter(loader)
    next(batches)
    with loader.step():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                gpu.initialised, calls = False, gpu.calls
                with loader.step():  # in the parent one is open
                    gpu.host(3)
                next(batches)
                code = int(loader.stats().epoch.basis == "device events" or gpu.calls > calls)
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_clock_keeps_no_loader_alive(gpu: Gpu) -> None:
    gc.collect()
    gc.disable()
    try:
        loader = CORE(Slow(gpu, 1, 1), batch_size=1)
        for _ in loader:
            with loader.step():
                pass
        there = weakref.ref(loader._session)
        del loader
        assert there() is None
    finally:
        gc.enable()


@thorough
@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 1, "workers": "thread"}])
def test_with_workers_the_sums_are_the_time_that_passed(copying: Gpu, options: dict[str, Any]) -> None:
    with ours.DataLoader(range(1, 41), batch_size=4, device="cuda:1", **options) as loader:
        for _ in loader:
            with loader.step():
                copying.launch(10)
                copying.synchronise()
        flow = loader.stats().epoch
    assert device_times(flow)[0] == 100
    assert flow.basis == "device events"


# Where it is shown


def test_report_trace_bar_and_numbers_show_the_device(
    gpu: Gpu, front: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = front(Slow(gpu, *[6] * 20), batch_size=1)
    with loader.trace(tmp_path / "run.json"), loader.report(tmp_path / "run.html"):
        for _ in loader.progress():
            with loader.step():
                gpu.launch(4)
        gpu.synchronise()
    page = (tmp_path / "run.html").read_text()
    assert "The device waited for batches 32 % of its time" in page
    assert "This is based on events of the device, loader.step()" in page
    assert "device, seconds" in page
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    spans = [(event["name"], event["ts"], event["dur"]) for event in events if event["name"].startswith("device ")]
    assert [name for name, _, _ in spans] == ["device step", *["device wait", "device step"] * 19]
    assert [took for _, _, took in spans] == [4000, *[2000, 4000] * 19]
    ends = [start + took for _, start, took in spans]
    assert [start for _, start, _ in spans][1:] == pytest.approx(ends[:-1]), "one after the other"
    assert ", device: step 6" in capsys.readouterr().err
    stats = loader.stats()
    assert "step 68 % of the device's time, waiting 32 %, other 0 % (device events)" in str(stats)
    assert stats.scalars()["loader/starved_share"] == pytest.approx(38 / 118)
    lines = [line for line in stats.prometheus().splitlines() if line.startswith("feedline_device_seconds_total{")]
    assert [round(float(line.split()[1]), 6) for line in lines] == [0.08, 0.038, 0], lines
