"""What stats() says is what happened, for every kind of worker; and it can be written down for others."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few, quick_kinds
from traced import Failing, Killing, Numbers

from feedline import DataLoader, EpochStats, OptionError, OptionTypeError, Stats, TooManyErrors
from feedline.collate import pad
from feedline.observe.exposition import Metric, exposition


def check(flow: EpochStats) -> None:
    """What holds for any numbers."""
    assert 0 <= flow.waiting <= flow.seconds
    assert 0 <= flow.waiting_share <= 1
    assert 0 <= flow.utilisation <= 1
    stages = flow.fetching, flow.collating, flow.sending, flow.transferring, flow.delivering
    assert all(stage >= 0 for stage in stages)
    assert flow.transferring + flow.delivering <= flow.waiting
    assert flow.queued >= 0


# ── stats ─────────────────────────────────────────────────────────────────────────────────────────────────


@quick_kinds
def test_an_epochs_numbers_fit_together(kind):
    with DataLoader(Numbers(), batch_size=6, **kind) as loader:
        for _ in range(2):
            assert sum(len(batch) for batch in loader) == 40
        stats = loader.stats()
    for flow in (stats.epoch, *stats.epochs, stats.total):
        check(flow)
    assert [(flow.number, flow.batches, flow.samples) for flow in stats.epochs] == [(0, 7, 40), (1, 7, 40)]
    assert stats.epoch == stats.epochs[-1]
    assert (stats.total.batches, stats.total.samples) == (14, 80)
    assert stats.total.seconds == pytest.approx(sum(flow.seconds for flow in stats.epochs))
    assert stats.total.fetching == pytest.approx(sum(flow.fetching for flow in stats.epochs))
    assert stats.epoch.num_workers == kind.get("num_workers", 0)
    assert stats.epoch.fetching > 0
    assert stats.epoch.collating > 0
    assert stats.epoch.bytes == 40 * 8
    assert stats.epoch.restarts == stats.errors == 0
    assert "epoch 1: 7 batches, 40 samples" in str(stats)


@given(length=st.integers(1, 60), size=st.integers(1, 9), taken=st.integers(1, 9), drop=st.booleans())
@settings(max_examples=few(40))
@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_what_was_delivered_is_counted_exactly_also_half_way(kind, length, size, taken, drop):
    with DataLoader(Numbers(length), batch_size=size, drop_last=drop, **kind) as loader:
        got = [len(batch) for batch, _ in zip(loader, range(taken), strict=False)]
        gc.collect()  # the iterator
        flow = loader.stats().epoch
        check(flow)
        more = min(taken + 1, len(loader))  # zip takes one more from the loader before it finds the range at its end
        sizes = [min(size, length - start) for start in range(0, length, size)][:more]
        assert flow.batches == len(sizes)
        assert flow.samples == sum(sizes)
        assert got == sizes[:taken]


def test_time_spent_waiting_for_an_error_is_waiting():
    loader = DataLoader(Failing(), batch_size=4)
    batches = iter(loader)
    next(batches)
    before = loader.stats().epoch.waiting
    with pytest.raises(ValueError, match="damaged"):
        next(batches)
    check(loader.stats().epoch)
    assert loader.stats().epoch.waiting > before
    assert len(list(batches)) == 8
    check(loader.stats().epoch)
    assert loader.stats().epoch.batches == 9


def test_an_epoch_that_gave_nothing_has_no_time():
    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            raise ValueError

    loader = DataLoader(Broken(4), batch_size=4)
    assert loader.stats() == Stats()
    with pytest.raises(ValueError):
        next(iter(loader))
    flow = loader.stats().epoch
    check(flow)
    assert (flow.batches, flow.samples, flow.samples_per_second) == (0, 0, 0)


def test_whoever_asks_while_the_first_batch_is_being_made_gets_no_nonsense():
    class Asking(Numbers):
        def __getitem__(self, index: int) -> int:
            seen.append(self.loader.stats().epoch)
            return index

    seen: list[EpochStats] = []
    dataset = Asking(4)
    loader = dataset.loader = DataLoader(dataset)
    assert len(list(loader)) == 4
    assert [flow.batches for flow in seen] == [0, 1, 2, 3]
    for flow in seen:
        check(flow)


def test_killed_workers_are_counted(tmp_path):
    with DataLoader(Killing(tmp_path / "killed"), batch_size=4, **FORK) as loader:
        with pytest.warns(UserWarning, match="SIGKILL"):
            assert sum(len(batch) for batch in loader) == 40
        assert loader.stats().epoch.restarts == 1
        assert sum(len(batch) for batch in loader) == 40
        assert [flow.restarts for flow in loader.stats().epochs] == [1, 0]
        assert loader.stats().total.restarts == 1
        check(loader.stats().total)


def test_a_loop_that_is_left_lets_its_workers_go_at_once_and_is_counted():
    loader = DataLoader(Numbers(), batch_size=4, **FORK)
    gc.collect()
    gc.disable()
    try:
        for _ in loader:
            pids = [pid for _, pid in loader._session._latest().processes()]
            break
        assert len(pids) == 2
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        gc.enable()
    flow = loader.stats().epoch
    assert flow.batches == 1
    assert flow.fetching > 0


def test_only_the_last_epochs_are_kept_one_by_one_and_all_are_counted():
    loader = DataLoader(range(2))
    for _ in range(103):
        assert len(list(loader)) == 2
    stats = loader.stats()
    assert [flow.number for flow in stats.epochs] == list(range(3, 103))
    assert (stats.total.batches, stats.total.number) == (206, 102)


def test_after_a_hundred_epochs_the_last_line_does_not_count_them_wrongly() -> None:
    loader = DataLoader(range(2))
    for _ in range(101):
        list(loader)
    assert str(loader.stats()).splitlines()[-1].startswith("all epochs: ")


# ── on_epoch_end, scalars, prometheus ─────────────────────────────────────────────────────────────────────


@quick_kinds
def test_the_callback_is_told_at_each_epochs_end(kind):
    told: list[Stats] = []
    loader = DataLoader(Numbers(), batch_size=8, on_epoch_end=told.append, **kind)
    for epoch in range(2):
        for _ in loader:
            assert len(told) == epoch
    for _ in loader:
        break  # whose end has not been met
    assert [(stats.epoch.number, stats.epoch.samples) for stats in told] == [(0, 40), (1, 40)]
    loader.close()
    for _ in DataLoader(Numbers(8), on_epoch_end=told.append):  # nobody else holds this loader
        pass
    assert told[-1].epoch.samples == 8


def test_what_the_callback_raises_is_raised():
    def refuse(stats: Stats) -> None:
        raise TooManyErrors("enough")

    with pytest.raises(TooManyErrors, match="enough"):
        list(DataLoader(range(3), on_epoch_end=refuse))
    with pytest.raises(OptionTypeError, match="on_epoch_end"):
        DataLoader(range(3), on_epoch_end="print")


def some_stats() -> Stats:
    samples = [np.ones(size, np.float32) for size in (1, 4, 2, 2)]
    with DataLoader(samples, batch_size=2, collate=pad(0), **FORK) as loader:
        for _ in loader:
            pass
        return loader.stats()


def test_scalars_are_named_numbers():
    stats = some_stats()
    scalars = stats.scalars()
    assert all(type(value) is float for value in scalars.values())
    assert scalars["loader/samples_per_second"] == stats.epoch.samples_per_second
    assert scalars["loader/waiting_share"] == stats.epoch.waiting_share
    assert scalars["loader/memory_bytes"] == sum(worker.total for worker in stats.workers) > 0
    assert scalars["loader/padding"] == stats.collate.padding == pytest.approx(3 / 12)
    assert "loader/padding" not in Stats().scalars()


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parser = pytest.importorskip("prometheus_client.parser")
    families = list(parser.text_string_to_metric_families(text))
    assert all(family.documentation and family.type in ("counter", "gauge") for family in families)
    return {(one.name, tuple(one.labels.items())): one.value for family in families for one in family.samples}


def test_prometheus_reads_what_is_written_for_it():
    stats = some_stats()
    found = parsed(stats.prometheus(loader='tr"a\\in\n'))
    label = ("loader", 'tr"a\\in\n')
    assert found["feedline_samples_total", (label,)] == 4
    assert found["feedline_waiting_seconds_total", (label,)] == stats.total.waiting
    assert found["feedline_stage_seconds_total", (label, ("stage", "fetching"))] == stats.total.fetching
    assert found["feedline_worker_memory_bytes", (label, ("worker", "1"))] == stats.workers[1].total
    assert found["feedline_padding_ratio", (label,)] == stats.collate.padding
    assert parsed(Stats().prometheus())["feedline_batches_total", ()] == 0
    for name in ("a-b", "1a", "__a", ""):
        with pytest.raises(OptionError, match="label"):
            stats.prometheus(**{name: "x"})


@given(st.text(), st.floats(allow_nan=False))
@settings(max_examples=few(30))
def test_any_label_and_number_come_back_from_prometheus(text, value):
    metric = Metric("size", "gauge", "A size.", ((value, {"of": text}),))
    assert parsed(exposition([metric], {})) == {("feedline_size", (("of", text),)): value}
