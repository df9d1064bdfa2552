"""The learning rate for another batch size, and the warm-up to it.

Takes: a rate that is known to work, and its batch size. Gives: `scale_learning_rate` and `warmup`.
Promises: plain numbers; the result of `warmup` can be pickled, and fits torch's LambdaLR.
Not its job: schedules after the warm-up (torch and others have them; `then` takes any).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from feedline.errors import OptionError
from feedline.errors.checks import check_choice, check_function, check_number, check_whole

RULES = ("linear", "sqrt")


def scale_learning_rate(rate: float, batch_size: int, base_batch_size: int, rule: str = "linear") -> float:
    """The learning rate for `batch_size` when `rate` works for `base_batch_size`.

    "linear" for SGD (twice the batch, twice the rate; Goyal et al. 2017), "sqrt" for Adam and similar optimizers
    (Malladi et al. 2022). Either holds up to about the gradient noise scale, see `gradient_noise`; beyond it larger
    steps do not help.

    >>> scale_learning_rate(0.1, batch_size=1024, base_batch_size=256)
    0.4
    >>> scale_learning_rate(3e-4, batch_size=1024, base_batch_size=256, rule="sqrt")
    0.0006
    """
    ratio = check_whole("batch_size", batch_size, least=1) / check_whole("base_batch_size", base_batch_size, least=1)
    rate = check_number("rate", rate)
    if not 0 < rate < math.inf:
        raise OptionError(f"rate must be above 0; got {rate}")
    return rate * (ratio if check_choice("rule", rule, RULES) == "linear" else math.sqrt(ratio))


@dataclass(frozen=True)
class Warmup:
    """Maps the number of a step to the factor of its learning rate; see `warmup`."""

    steps: int
    start: float
    then: Callable[[int], float] | None = None

    def __call__(self, step: int) -> float:
        """The factor for that step of the optimizer; the first step is 0."""
        if step >= self.steps:
            return 1.0 if self.then is None else self.then(step - self.steps)
        return self.start + (1 - self.start) * step / self.steps


def warmup(steps: int, start: float | None = None, then: Callable[[int], float] | None = None) -> Warmup:
    """A function from step to factor that rises linearly and is 1 from step `steps` on.

    It begins at `start`, by default at the height of one of its equal steps. After scaling the rate by k, `start=1 / k`
    begins at the rate that is known to work. `then` takes over after the warm-up, counting from 0.

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup(500))

    >>> factor = warmup(4)
    >>> [factor(step) for step in range(6)]
    [0.2, 0.4, 0.6000000000000001, 0.8, 1.0, 1.0]
    >>> halving = warmup(2, start=0.5, then=lambda step: 0.5**step)
    >>> [halving(step) for step in range(5)]
    [0.5, 0.75, 1.0, 0.5, 0.25]
    """
    steps = check_whole("steps", steps, least=0)
    first = 1 / (steps + 1) if start is None else check_number("start", start)
    if not 0 <= first <= 1:
        raise OptionError(f"start is a share of the full rate, from 0 to 1; got {start}")
    return Warmup(steps, first, check_function("then", then))
