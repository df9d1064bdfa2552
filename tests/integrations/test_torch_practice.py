"""Batch-size practice with real torch: gradients, schedulers, noise, allocators."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.utils.data

import feedline
from feedline import OptionError, accumulate, largest_batch, warmup
from feedline.practice.largest import is_out_of_memory
from feedline.torch import DataLoader, TensorDataset, gradient_noise


def made_data(samples: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 5, generator=generator, dtype=torch.float64)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


def made_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()


def gradients(model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor, float]]) -> list[torch.Tensor]:
    model.zero_grad()
    for x, y, divisor in batches:
        (torch.nn.functional.mse_loss(model(x), y) / divisor).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


LOADERS = {
    "feedline.torch": lambda data: DataLoader(data, batch_size=4),
    "torch": lambda data: torch.utils.data.DataLoader(data, batch_size=4),
    "list": lambda data: [{"x": x, "y": y} for x, y in torch.utils.data.DataLoader(data, batch_size=4)],
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("samples", [32, 29, 24, 17, 16, 3])  # whole groups of 16; short groups; short last batches
def test_accumulated_gradients_are_those_of_the_large_batch(kind, samples):
    data, model = made_data(samples), made_model()
    large = torch.utils.data.DataLoader(data, batch_size=16)
    expected = [gradients(model, [(x, y, 1.0)]) for x, y in large]
    found, group = [], []
    for micro in accumulate(LOADERS[kind](data), steps=4):
        batch = micro.batch.values() if kind == "list" else micro.batch
        group.append((*batch, micro.divisor))
        if micro.is_last:
            found.append(gradients(model, group))
            group = []
    assert len(found) == len(expected) == accumulate(LOADERS[kind](data), steps=4).updates
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_counted_tokens_give_the_gradient_of_the_mean_over_all_tokens():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    x, mask = torch.randn(8, 6, 3, dtype=torch.float64), torch.rand(8, 6) < 0.5
    mean_loss = lambda x, mask: model(x).square()[mask].mean()
    mean_loss(x, mask).backward()
    expected = model.weight.grad.clone()
    model.zero_grad()
    batches = list(zip(x.split(3), mask.split(3), strict=True))
    for micro in accumulate(batches, steps=4, count=lambda batch: batch[1].sum()):
        (mean_loss(*micro.batch) / micro.divisor).backward()
    torch.testing.assert_close(model.weight.grad, expected)


def test_a_warmup_drives_lambda_lr_and_is_saved_with_it():
    def scheduled(factor):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    def rates(optimizer, scheduler, steps):
        for _ in range(steps):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()

    optimizer, scheduler = scheduled(warmup(4, start=0.5))
    assert list(rates(optimizer, scheduler, 3)) == [1.0, 1.25, 1.5]
    state = copy.deepcopy(scheduler.state_dict())
    optimizer, scheduler = scheduled(warmup(9))  # the saved one counts
    scheduler.load_state_dict(state)
    scheduler.step()
    assert list(rates(optimizer, scheduler, 2)) == [2.0, 2.0]


class Seen:
    """A mean loss that remembers which batches it saw."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.batches: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, batch):
        self.batches.append(batch)
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])


def flat(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([each.flatten() for each in gradients(model, [(x, y, 1.0)])])


def test_measured_noise_is_that_of_the_gradients_themselves():
    model, data = made_model(), made_data(4 * 4 * 6 + 7)
    before = copy.deepcopy(model.state_dict())
    seen = Seen(model)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    found = gradient_noise(seen, model.parameters(), loader, steps=4, rounds=32)
    assert found.rounds == 6  # whole groups only
    assert len(seen.batches) == 24  # and no work for others
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    rounds = [seen.batches[start : start + 4] for start in range(0, 24, 4)]
    small = torch.stack([torch.stack([flat(model, *batch) for batch in each]) for each in rounds])
    large = torch.stack([flat(model, *(torch.cat(parts) for parts in zip(*each, strict=True))) for each in rounds])
    expected = feedline.gradient_noise(small.numpy(), large.numpy(), 4, 16)
    assert (found.scale, found.low, found.high) == pytest.approx((expected.scale, expected.low, expected.high))


def test_measuring_stops_after_its_rounds_and_leaves_unused_parameters_out():
    model = made_model()
    unused = torch.nn.Parameter(torch.ones(3))
    seen = Seen(model)
    loader = torch.utils.data.DataLoader(made_data(400), batch_size=4)
    found = gradient_noise(seen, [*model.parameters(), unused], loader, steps=2, rounds=5)
    assert (found.rounds, len(seen.batches)) == (5, 10)


def test_too_few_batches_to_measure_with_are_refused():
    model = made_model()
    loader = DataLoader(made_data(4 * 4 * 4 + 15), batch_size=4)  # the last group has a short batch
    with pytest.raises(OptionError, match="for 4 rounds of 4 batches of 4 samples"):
        gradient_noise(Seen(model), model.parameters(), loader, steps=4)
    with pytest.raises(OptionError, match="requires a gradient"):
        gradient_noise(Seen(model), [torch.zeros(1)], loader)


def test_the_noise_of_batches_that_cannot_be_counted_is_measured_by_a_count():
    model = made_model()
    batches = list(torch.utils.data.DataLoader(made_data(4 * 2 * 5), batch_size=4))
    with pytest.raises(OptionError, match="Pass count="):
        gradient_noise(Seen(model), model.parameters(), batches, steps=2)
    of_list = gradient_noise(Seen(model), model.parameters(), batches, steps=2, count=lambda b: len(b[0]))
    assert of_list == gradient_noise(
        Seen(model), model.parameters(), DataLoader(made_data(4 * 2 * 5), batch_size=4), steps=2
    )


SCENES = [(torch.ones(3, 4, 4), {"boxes": torch.ones(n, 4)}) for n in (3, 3, 0, 3, 3, 2, 3)]


def as_pairs(samples):
    return tuple(zip(*samples, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 2, "collate_fn": list},
        {"batch_size": 2, "collate_fn": as_pairs},
        {"batch_size": 2, "collate": feedline.collate.keep},
        {"batch_size": 2, "collate": feedline.torch.collate.detection()},
        {"batch_sampler": [[0, 1], [2, 3], [4, 5], [6]], "collate_fn": list},
        {"batch_size": 2, "collate_fn": list, "num_workers": 1},
    ],
)
@pytest.mark.parametrize("forever", [False, True])
def test_the_loader_knows_how_many_samples_are_in_its_lists(options, forever):
    with DataLoader(SCENES, **options) as loader:
        batches = loader.forever(4) if forever else loader
        assert [micro.count for micro in accumulate(batches, steps=2)] == [2, 2, 2, 1]


def test_torchs_loader_is_known_to_stack_and_its_lists_of_samples_are_asked_about():
    views = [(torch.ones(3, 2), torch.ones(3, 2))] * 5
    stacked = torch.utils.data.DataLoader(views, batch_size=4)
    assert [micro.count for micro in accumulate(stacked, steps=2)] == [4, 1]
    for collate_fn in (list, as_pairs):
        loader = torch.utils.data.DataLoader(SCENES, batch_size=2, collate_fn=collate_fn)
        with pytest.raises(OptionError, match="count=len for a list of samples"):
            next(iter(accumulate(loader, steps=2)))


def vector(model, batch):
    return (model(batch[0]) - batch[1]).square()


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda model, batch: vector(model, batch).mean().item(), "must be a tensor, so do not call .item"),
        (vector, r"must be a single number, the batch's mean; got shape \(4, 1\)"),
        (lambda model, batch: vector(model, batch).mean().detach(), "has no gradient: was it computed"),
        (lambda model, batch: vector(made_model(), batch).mean(), "depends on none of the parameters"),
    ],
)
def test_a_loss_without_a_gradient_to_measure_is_refused(loss, says):
    model, loader = made_model(), DataLoader(made_data(80), batch_size=4)
    with pytest.raises(OptionError, match=says):
        gradient_noise(lambda batch: loss(model, batch), model.parameters(), loader, steps=2)


def test_a_model_is_not_its_parameters():
    model, loader = made_model(), DataLoader(made_data(80), batch_size=4)
    with pytest.raises(OptionError, match=r"parameters is a model \(Sequential\): pass model.parameters"):
        gradient_noise(Seen(model), model, loader)
    with pytest.raises(OptionError, match="parameters must be tensors"):
        gradient_noise(Seen(model), 3, loader)


def test_torchs_own_errors_are_known():
    assert is_out_of_memory(torch.cuda.OutOfMemoryError("tried to allocate"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_a_loader_whose_batches_do_not_fit_is_found_out_too():
    def step(batch_size):
        if batch_size > 6:
            raise feedline.MemoryShortage("no memory for a batch")

    assert largest_batch(step) == 6
