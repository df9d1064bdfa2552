"""Tuning what torch's users have."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.utils.data as torchs

import feedline.torch as ours
from feedline import tune
from feedline.diagnose.tune import running, search
from feedline.diagnose.tune.tune_subject import for_gpu, subject_of
from feedline.observe.window import Setting
from feedline.workers.one_thread import threads_per_worker

QUICK: dict[str, Any] = {"seconds": 60, "kinds": ["thread"], "max_workers": 1}


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SHORTEST": 0.1, "SHARE": 0.001, "NOISY_ROUNDS": 0}.items():
        monkeypatch.setattr(search, name, value)
    monkeypatch.setattr(running, "WINDOW", 0.02)


class Numbers(torchs.Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.full((8,), index), index


class Stream(torchs.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(20))


def first_of(samples: list[Any]) -> Any:
    return samples[0]


@pytest.mark.parametrize(
    ("loader", "code"),
    [
        (torchs.DataLoader(Numbers(), batch_size=4, shuffle=True), "batch_size=4, shuffle=True"),
        (torchs.DataLoader(Numbers(), batch_size=4, drop_last=True), "batch_size=4, drop_last=True"),
        (torchs.DataLoader(Numbers(), batch_size=None), "batch_size=None"),
        (torchs.DataLoader(Stream(), batch_size=4, collate_fn=first_of), "collate_fn=first_of, batch_size=4"),
        (torchs.DataLoader(Numbers(), batch_sampler=[[1, 2], [3]]), "batch_sampler=batch_sampler"),
        (
            torchs.DataLoader(
                Numbers(), batch_sampler=torchs.BatchSampler(torchs.SequentialSampler(Numbers()), 4, False)
            ),
            "batch_sampler=batch_sampler",
        ),
        (torchs.DataLoader(Numbers(), sampler=torchs.SubsetRandomSampler([1, 2])), "sampler=sampler"),
        (
            ours.DataLoader(Numbers(), batch_size=4, on_error="skip", in_order=False),
            "in_order=False, on_error='skip', batch_size=4",
        ),
        (
            ours.DataLoader(Numbers(), num_workers=1, timeout=9, stall_warning=5, on_epoch_end=print),
            "on_epoch_end=print, stall_warning=5.0",
        ),
        (
            ours.StatefulDataLoader(Stream(), ranks="shard", uneven="drop", snapshot_every_n_steps=3),
            "snapshot_every_n_steps=3, ranks='shard', uneven='drop'",
        ),
        (type("Loader", (ours.DataLoader,), {"device": "mine"})(Numbers(), max_deaths=3), "max_deaths=3"),
        (Numbers(), "batch_size=32, shuffle=True"),
        (Stream(), "batch_size=32"),
    ],
)
def test_the_call_has_what_the_users_loader_had(loader: Any, code: str) -> None:
    subject = subject_of(loader, None, None)
    assert subject.code(Setting(0)).splitlines() == [
        "from feedline.torch import DataLoader",
        "",
        f"loader = DataLoader({', '.join(filter(None, ('dataset', code, 'num_workers=0')))})",
    ]
    with subject.loader(Setting(1, kind="thread"), seed=1, timeout=60) as made:
        theirs = loader if isinstance(loader, torchs.DataLoader) else made
        assert (made.batch_size, made.drop_last, made.collate_fn) == (
            *(theirs.batch_size, theirs.drop_last, theirs.collate_fn),
        )
        assert isinstance(made, ours.DataLoader)


def test_nothing_is_drawn_from_the_users_generators() -> None:
    generator = torch.Generator()
    generator.manual_seed(3)
    loader = torchs.DataLoader(Numbers(), batch_size=4, shuffle=True, generator=generator)
    before = torch.get_rng_state().tolist(), generator.get_state().tolist()
    found = tune(loader, **QUICK)
    assert found.best in found.trials
    assert (torch.get_rng_state().tolist(), generator.get_state().tolist()) == before


def test_each_seed_has_an_order_of_its_own() -> None:
    subject = subject_of(Numbers(), 40, None)

    def order(seed: int) -> Any:
        with subject.loader(Setting(0), seed, timeout=60) as loader:
            return next(iter(loader))[1].tolist()

    assert order(1) == order(1) != order(2)


class Threads(Numbers):
    def __getitem__(self, index: int) -> int:
        return torch.get_num_threads()


def test_threads_per_worker_reach_torch() -> None:
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1, "worker_init_fn": threads_per_worker(2)}
    with ours.DataLoader(Threads(), **options) as loader:
        assert next(iter(loader)) == 2


def test_the_generator_of_a_users_sampler_is_left_alone() -> None:
    generator = torch.Generator().manual_seed(5)
    state = generator.get_state()
    sampler = torchs.WeightedRandomSampler([1.0] * 40, 40, generator=generator)
    found = tune(torchs.DataLoader(Numbers(), batch_size=4, sampler=sampler), **QUICK)
    assert "sampler=sampler" in found.code
    assert torch.equal(generator.get_state(), state)


# Where there is a GPU


def gpus_there(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """A stand-in: torch says that there is a GPU, and copies and waits are taken down."""
    calls: list[tuple[str, bool]] = []
    pinned: set[int] = set()

    def pin(tensor: torch.Tensor, *device: Any) -> torch.Tensor:
        there = tensor.clone()
        pinned.add(there.data_ptr())
        return there

    def to(tensor: torch.Tensor, device: str, non_blocking: bool) -> torch.Tensor:
        assert (device, non_blocking) == ("cuda", True)
        calls.append(("copied", tensor.data_ptr() in pinned))
        return tensor

    stream = SimpleNamespace(synchronize=lambda: calls.append(("waited", False)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *device: stream)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *args: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    return calls


@pytest.mark.parametrize("pin_memory", [False, True])
def test_with_a_gpu_batches_are_copied_there_pinned_and_not(monkeypatch: pytest.MonkeyPatch, pin_memory: bool) -> None:
    calls = gpus_there(monkeypatch)
    loader = torchs.DataLoader(Numbers(), batch_size=4, pin_memory=pin_memory)
    found = tune(loader, **QUICK)
    assert {trial.setting.pinned for trial in found.trials} == {False, True}
    assert ("pin_memory=True" in found.code) == found.best.setting.pinned, "as measured, and not as it was"
    assert {pinned for call, pinned in calls if call == "copied"} == {False, True}
    names = "".join(call[0] for call, _ in calls)
    assert set(names.split("w")) == {"cc", ""}, "both tensors are copied, and then waited for"
    assert any("copied to the GPU" in note for note in found.notes)
    assert {trial["pin_memory"] for trial in found.to_json()["trials"]} == {False, True}


def test_a_loader_that_puts_its_batches_onto_a_device_keeps_doing_so() -> None:
    subject = for_gpu(subject_of(ours.DataLoader(Numbers(), device="cpu", pin_memory=True), None, None))
    assert not subject.pins
    assert "pin_memory=True" in subject.code(Setting(0))


def test_without_a_gpu_nothing_is_copied_and_pin_memory_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = tune(ours.DataLoader(Numbers(), batch_size=4), **QUICK)
    assert not any(trial.setting.pinned for trial in found.trials)
    assert not any("GPU" in note for note in found.notes)


def test_unbatched_loaders_and_devices_are_written_down() -> None:
    unbatched = subject_of(torchs.DataLoader(Numbers(), batch_size=None), None, None)
    assert "DataLoader(dataset, batch_size=None, num_workers=0)" in unbatched.code(Setting(0))
    moved = subject_of(ours.DataLoader(Numbers(), device="cpu"), None, None)
    assert "DataLoader(dataset, device='cpu', num_workers=0)" in moved.code(Setting(0))
