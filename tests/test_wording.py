"""What is counted is named in the form that fits, and a share of the time is no more than all of it."""

from __future__ import annotations

import pytest

from feedline import DataLoader
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import Evidence, LoaderSetting, Reading, Run
from feedline.diagnose.tune.trial import LoaderSetting as Tried
from feedline.observe.report.report_verdict import Waits, verdict
from feedline.observe.stats import AutoWorkers, EpochStats
from feedline.resume.checkpoint import read_again
from feedline.resume.state import Place


def test_one_batch_is_one_batch() -> None:
    loader = DataLoader([1.0, 2.0], batch_size=2)
    list(loader)
    assert str(loader.stats()).splitlines()[0].startswith("epoch 0: 1 batch, 2 samples in ")
    assert str(AutoWorkers(1, 1, "why")).startswith("1 worker, 1 batch ahead each")
    place = Place(batches=1, shards=1, streams={"0": {"read": 1}})
    said = read_again(place, [])
    assert said is not None
    assert "1 element of the IterableDataset list is read again and passed over (those of the 1 batch before)" in said
    assert verdict(EpochStats(batches=1, seconds=1), Waits(), 2).headline.startswith("1 batch is too few to judge")
    seen = Evidence(LoaderSetting(length=1), (Reading(0),), run=Run(batches=1))
    assert judged(seen)[-1].title.startswith("Examined: 1 of 1 sample read, 1 batch run with workers")
    assert str(Tried(1)) == "1 process"


@pytest.mark.parametrize("flow", [EpochStats(seconds=1.0, waiting=2.12, batches=100, num_workers=2, transferring=4.0)])
def test_a_share_is_at_most_all(flow: EpochStats) -> None:
    assert flow.waiting_share == 1.0
    judgement = verdict(flow, Waits(), 2)
    assert judgement.headline.startswith("Your loop waited 100 % of the time")
    assert judgement.why.startswith("100 % of the waiting")
