"""The gradient noise scale of a torch model, measured.

Takes: a loss, the parameters and a loader. Gives: feedline's `GradientNoise`.
Promises: weights and `.grad` do not change. Only groups of equal batches count.
Not its job: the estimate (practice.noise). The loss runs the model as it is: batch norm updates its averages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_function, check_whole
from feedline.practice import noise
from feedline.practice.micro_batches import accumulate
from feedline.practice.noise import LEAST_ROUNDS, GradientNoise


def gradient_noise(
    loss: Callable[[Any], torch.Tensor],
    parameters: Iterable[torch.Tensor],
    loader: Iterable[Any],
    steps: int = 8,
    rounds: int = 32,
    *,
    confidence: float = 0.9,
    count: Callable[[Any], float] | None = None,
) -> GradientNoise:
    """The noise scale at the model's current weights, from up to `rounds` groups of `steps` batches of the loader.

    `loss(batch)` returns the mean loss of a batch. The loader should shuffle. Noise grows during training: measure more
    than once. `count` is that of `accumulate`.

    >>> from feedline.torch import DataLoader, TensorDataset
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(4096, 10)
    >>> data = TensorDataset(x, x.sum(1, keepdim=True) + torch.randn(4096, 1))
    >>> model = torch.nn.Linear(10, 1)
    >>> def loss(batch):
    ...     return torch.nn.functional.mse_loss(model(batch[0]), batch[1])
    >>> noise = gradient_noise(loss, model.parameters(), DataLoader(data, batch_size=8, shuffle=True))
    >>> noise.low < noise.scale < noise.high, noise.suggested
    (True, 16)
    """
    check_function("loss", loss)
    steps, rounds = check_whole("steps", steps, least=2), check_whole("rounds", rounds, least=LEAST_ROUNDS)
    weights = _weights(parameters)
    small: list[list[float]] = []
    large: list[float] = []
    size, norms, gradient = 0, list[float](), Sum()
    for micro in accumulate(loader, steps, count):
        size = size or int(micro.count)
        if micro.count == size and micro.total == size * steps:
            gradients = _gradients(loss(micro.batch), weights)
            norms.append(norm_of(gradients))
            gradient.add(gradients)
        if micro.is_last:
            if len(norms) == steps:
                small.append(norms)
                large.append(norm_of(gradient.parts) / steps)
            norms, gradient = [], Sum()
        if len(large) == rounds:
            break
    if len(large) < LEAST_ROUNDS:
        raise OptionError(
            f"the loader had enough batches for {len(large)} rounds of {steps} batches of {size} samples, and at least "
            f"{LEAST_ROUNDS} are needed: lower steps or the loader's batch_size"
        )
    return noise.gradient_noise(small, large, size, size * steps, confidence=confidence)


def _weights(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    if isinstance(parameters, torch.nn.Module):
        raise OptionTypeError(f"parameters is a model ({type(parameters).__name__}): pass model.parameters()")
    if not isinstance(parameters, Iterable):
        raise OptionTypeError(
            f"parameters must be tensors, such as model.parameters(); got {type(parameters).__name__}"
        )
    weights = [each for each in parameters if each.requires_grad]
    if not weights:
        raise OptionError("parameters has no tensor that requires a gradient")
    return weights


def _gradients(loss: Any, weights: list[torch.Tensor]) -> Sequence[torch.Tensor | None]:
    if not isinstance(loss, torch.Tensor):
        raise OptionTypeError(
            f"loss(batch) must be a tensor, so do not call .item() or float() on it; got {type(loss).__name__}"
        )
    if loss.numel() != 1:
        raise OptionError(f"loss(batch) must be a single number, the batch's mean; got shape {tuple(loss.shape)}")
    if not loss.requires_grad:
        raise OptionError("loss(batch) has no gradient: was it computed under torch.no_grad(), or detached?")
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    if all(each is None for each in gradients):
        raise OptionError(
            "loss(batch) depends on none of the parameters: are they the parameters of the model that it runs?"
        )
    return gradients


class Sum:
    """The sum of several batches' gradients."""

    def __init__(self) -> None:
        self.parts: list[torch.Tensor | None] = []

    def add(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Add the gradients of one more batch; a parameter that the loss does not depend on has None."""
        if not self.parts:
            self.parts = list(gradients)  # nobody else holds these tensors
            return
        for place, (part, more) in enumerate(zip(self.parts, gradients, strict=True)):
            self.parts[place] = more if part is None else part if more is None else part.add_(more)


def norm_of(gradients: Sequence[torch.Tensor | None]) -> float:
    """The norm over all parameters together."""
    squares = [each.detach().double().square().sum() for each in gradients if each is not None]
    return float(torch.stack(squares).sum().sqrt())
