"""A training loop as people write it: changing the import changes no loss."""

from __future__ import annotations

from typing import Any

import torch
from training import (
    EPOCHS,
    SEED,
    feedlines,
    loss_of,
    network,
    torchs,
    torchs_engine_forbidden,
    with_and_without_workers,
)


def train(make_loader: Any, **options: Any) -> tuple[list[float], list[torch.Tensor]]:
    """Two epochs with validation after each: all losses in order, and the weights at the end."""
    torch.manual_seed(SEED)
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    training = make_loader(shuffle=True, **options)
    validation = make_loader(**options)
    losses = []
    for _ in range(EPOCHS):
        model.train()
        for batch in training:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            losses += [loss_of(model, batch).item() for batch in validation]
    return losses, [weight.detach() for weight in model.parameters()]


@with_and_without_workers
def test_losses_and_weights_are_those_of_torch_to_the_bit(options):
    losses, weights = train(torchs)
    with torchs_engine_forbidden():
        our_losses, our_weights = train(feedlines, **options)
    assert len(losses) == EPOCHS * 14
    assert our_losses == losses
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(our_weights, weights, strict=True))


def test_persistent_workers_give_the_losses_of_torchs_persistent_workers():
    # torch draws its base seed once for persistent workers, so these are other losses than with num_workers=0
    persistent = {"num_workers": 2, "persistent_workers": True}
    losses, _ = train(torchs, **persistent)
    with torchs_engine_forbidden():
        assert train(feedlines, **persistent)[0] == losses
