"""Pictures of a coming epoch: they show what the loader then does, and change nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline import DataLoader, Mixture, MixtureSampler, StratifiedBatchSampler
from feedline.cli import main
from feedline.diagnose.drawing.coming_epoch import coming
from feedline.errors import OptionError

pytest.importorskip("matplotlib")

LABELS = np.repeat([0, 1, 2], [80, 15, 5])


class Pictures:
    """Images that are augmented by global generators; counts its reads."""

    labels = LABELS

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return len(LABELS)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        self.reads += 1
        noise = np.random.rand(3, 12, 12) * random.random()
        return (noise + index).astype(np.float32), int(LABELS[index])


LOADERS: dict[str, Any] = {
    "in order": {"batch_size": 8},
    "shuffled": {"batch_size": 8, "shuffle": True, "drop_last": True},
    "stratified": {"batch_sampler": StratifiedBatchSampler(LABELS, 10)},
    "a rank's share": {"batch_size": 4, "sampler": feedline.DistributedSampler(range(100), 3, 1)},
    "unbatched": {"batch_size": None},
    "workers": {"batch_size": 8, "shuffle": True, "num_workers": 2, "workers": "thread"},
}


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_drawn_is_what_comes(name):
    loader = DataLoader(np.arange(100), **LOADERS[name])
    for _ in range(2):
        found = coming(loader)
        assert [batch.tolist() for batch in found.batches] == [np.atleast_1d(batch).tolist() for batch in loader]
        assert found.epoch == loader.epoch - 1


def test_nothing_is_read_and_nothing_changes(tmp_path):
    data = Pictures()
    loader = DataLoader(data, 8, shuffle=True, seed=3)
    state = loader.state_dict()
    for kind in ("classes", "order"):
        loader.draw(tmp_path / f"{kind}.svg", kind)
        loader.draw(tmp_path / f"{kind}.png", kind, epoch=4)
    loader.draw(tmp_path / "padding.svg", "padding", lengths=np.arange(100))
    assert data.reads == 0
    assert loader.state_dict() == state
    assert not [path for path in tmp_path.iterdir() if not path.stat().st_size]


def test_a_batch_is_read_and_the_users_generators_are_left_alone(tmp_path):
    data = Pictures()
    loader = DataLoader(data, 8, shuffle=True, seed=3)
    before = random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
    assert loader.draw(tmp_path / "batch.svg", "batch") == "batch"
    assert (random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]) == before
    assert data.reads == 8
    svg = (tmp_path / "batch.svg").read_text()
    for index in coming(loader).batches[0].tolist():
        assert f">{index}: {LABELS[index]}<" in svg
    assert svg.count("<image") == 8


class Texts(Pictures):
    """Texts of which an augmentation with global generators leaves a part."""

    def __getitem__(self, index: int) -> np.ndarray:
        self.reads += 1
        return np.zeros(1 + random.randrange(9) + np.random.randint(9))


def test_lengths_are_read_once_and_the_users_generators_are_left_alone(tmp_path):
    data = Texts()
    before = random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
    assert DataLoader(data, 8).draw(tmp_path / "padding.svg", "padding") == "padding"
    assert (random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]) == before
    assert data.reads == 100


def test_the_kind_follows_from_the_data(tmp_path):
    path = tmp_path / "picture.svg"
    assert DataLoader(Pictures(), 8).draw(path) == "classes"
    assert "13 of 13 lack one" in path.read_text()
    mixture = Mixture({"web": range(300), "code <b>": range(30)})
    assert DataLoader(mixture, 32, sampler=MixtureSampler(mixture, {"web": 3, "code <b>": 1})).draw(path) == "sources"
    assert "web (300)" in path.read_text()
    assert "code &lt;b&gt; (30)" in path.read_text()
    rows = [np.zeros(length) for length in (1, 3, 5, 5)]
    assert DataLoader(rows, 2).draw(path) == "order"
    assert DataLoader(rows, 2).draw(path, "padding") == "padding"
    assert f"{1 - 14 / 16:.0%} padding" in path.read_text()
    assert DataLoader(range(3), 2).draw(path, labels=["a", "b", "a"]) == "classes"


class Drawn(feedline.RandomSampler):
    """A user's sampler that draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__(20, seed=1)
        self.generator = np.random.default_rng(3)

    def order(self, seed: int, epoch: int) -> np.ndarray:
        return self.generator.permutation(20)


@pytest.mark.parametrize("shared", [False, True])
def test_a_users_sampler_of_our_class_is_not_asked(tmp_path, shared):
    own = Drawn()
    before = own.generator.bit_generator.state
    loader = DataLoader(np.arange(20), 4, sampler=feedline.DistributedSampler(own, 2, 1) if shared else own)
    with pytest.raises(OptionError, match="not known before it begins"):
        loader.draw(tmp_path / "picture.svg")
    assert own.generator.bit_generator.state == before


def test_an_epoch_that_the_sampler_was_told(tmp_path):
    sampler = feedline.DistributedSampler(feedline.RandomSampler(20, seed=1), 2, 1)
    loader = DataLoader(np.arange(20), 4, sampler=sampler)
    for epoch in (7, 8):
        sampler.set_epoch(epoch)
        found = coming(loader)
        assert (found.epoch, found.order.tolist()) == (epoch, np.concatenate(list(loader)).tolist())


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (lambda: DataLoader(range(4)), {"path": "x.pdf"}, "ends in .png or .svg"),
        (lambda: DataLoader(range(4)), {"kind": "mood"}, "kind"),
        (lambda: DataLoader(range(4)), {"kind": "classes"}, "give labels="),
        (lambda: DataLoader(range(4)), {"labels": [1]}, "one value for each of the 4 samples; got 1"),
        (lambda: DataLoader(range(4)), {"kind": "sources"}, "no Mixture but a range"),
        (lambda: DataLoader(range(4)), {"kind": "batch"}, "has no image"),
        (lambda: DataLoader(range(4)), {"kind": "padding", "lengths": [0.5] * 4}, "whole numbers"),
        (lambda: DataLoader(range(4)), {"kind": "padding", "lengths": [-1] * 4}, "whole numbers"),
        (lambda: DataLoader(iter([1, 2])), {}, "stream"),
        (lambda: DataLoader(range(4), sampler=[3, 1]), {}, "not known before it begins"),
        (lambda: DataLoader(range(4), 8, drop_last=True), {}, "no batch"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(tmp_path, make, given, words):
    with pytest.raises((OptionError, TypeError, ValueError), match=words):
        make().draw(**{"path": tmp_path / "picture.svg", **given})
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text(
        "import numpy as np\nimport feedline\nlabels = np.arange(60) % 2\n"
        "loader = feedline.DataLoader(np.arange(60), 8, shuffle=True)\ndata = [1, 2]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "train.py:loader", "--labels", "train.py:labels", "--out", "a.svg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "classes"
    assert "<svg" in Path("a.svg").read_text()
    assert main(["draw", "train.py:data"]) == 2
    assert "name a loader" in capsys.readouterr().err
    assert main(["draw", "train.py:loader", "--out", "a.pdf"]) == 2
