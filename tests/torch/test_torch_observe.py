"""What is seen of a loader, in torch's front: the same as in ours."""

from __future__ import annotations

import json

import pytest

from feedline import OptionTypeError, Stats
from feedline.torch import DataLoader, with_feedline


def test_torchs_front_has_callback_trace_and_report(tmp_path):
    told: list[Stats] = []
    loader = DataLoader(range(10), batch_size=4, on_epoch_end=told.append)
    with loader.trace(tmp_path / "run.json"), loader.report(tmp_path / "run.html"):
        assert len(list(loader)) == 3
    assert [stats.epoch.samples for stats in told] == [10]
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert sum(event["name"] == "fetch" for event in events) == 3
    assert "10 samples, no workers" in (tmp_path / "run.html").read_text()
    assert with_feedline(loader, timeout=0).on_epoch_end == told.append
    with pytest.raises(OptionTypeError, match="on_epoch_end"):
        DataLoader(range(3), on_epoch_end=3)


def test_scalars_go_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    loader = DataLoader(range(10), batch_size=4)
    assert len(list(loader)) == 3
    scalars = loader.stats().scalars()
    with SummaryWriter(tmp_path) as writer:
        for name, value in scalars.items():
            writer.add_scalar(name, value, 3)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert {name: read.Scalars(name)[0].value for name in read.Tags()["scalars"]} == pytest.approx(scalars, rel=1e-6)
