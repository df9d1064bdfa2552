"""What is counted is named in the form that fits."""

from __future__ import annotations

from feedline import DataLoader
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import Evidence, LoaderSetting, Reading, Run
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.report.report_verdict import Waits, verdict
from feedline.observe.stats import AutoWorkers
from feedline.observe.window import Setting
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
    assert "1 element of the IterableDataset list is read again and skipped (those of the 1 batch before)" in said
    assert verdict(EpochStats(batches=1, seconds=1), Waits(), 2).headline.startswith("1 batch is too few to judge")
    seen = Evidence(LoaderSetting(length=1), (Reading(0),), run=Run(batches=1))
    assert judged(seen)[-1].title.startswith("Examined: 1 of 1 sample read, 1 batch run with workers")
    assert str(Setting(1)) == "1 process"
