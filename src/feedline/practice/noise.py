"""How noisy gradients are, and so how large a batch is useful.

Takes: the norms of gradients (or the gradients) measured at two batch sizes. Gives: `gradient_noise`, the "simple noise
scale" of McCandlish et al. 2018 (An Empirical Model of Large-Batch Training) with an interval, and a batch size.
Promises: the squared length of the true gradient and the variance around it are estimated without bias. The interval
contains the true scale as often as `confidence` says (a test counts); it has no upper end if the gradient cannot be
told from noise. A measurement that is impossible for a mean loss is an error.
Not its job: computing gradients (feedline.torch.measure_gradient_noise does, for torch).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_number, check_whole

Floats = npt.NDArray[np.float64]

LEAST_ROUNDS = 5
"""With fewer rounds the quantile below is off by more than a thousandth (at 95 %; checked against tables)."""


@dataclass(frozen=True)
class GradientNoise:
    """A measured noise scale.

    >>> print(GradientNoise(230.0, low=180.0, high=310.0, confidence=0.9, gradient=2.0, variance=460.0, rounds=20))
    noise scale 230 (90 %: 180 to 310), so a batch size of about 256
    """

    scale: float
    """The batch size at which noise and gradient are equally large: variance / gradient; `inf` if all is noise."""
    low: float
    high: float
    confidence: float
    """How often an interval such as [low, high] contains the true scale."""
    gradient: float
    """The squared length of the true gradient, estimated; may be negative if there is almost only noise."""
    variance: float
    """The variance of one sample's gradient, summed over all parameters, estimated."""
    rounds: int

    @property
    def suggested(self) -> int | None:
        """The power of two nearest to the scale; None if the scale could not be distinguished from infinity.

        Well below it, doubling the batch nearly halves the steps. Well above it, doubling the batch saves almost none.
        At the scale, training takes about twice the fewest possible steps and about twice the fewest possible samples.
        """
        if not math.isfinite(self.scale):
            return None
        return 1 << max(0, round(math.log2(max(1.0, self.scale))))

    def __str__(self) -> str:
        interval = f"({self.confidence:.0%}: {_rounded(self.low)} to {_rounded(self.high)})".replace("%", " %")
        if self.suggested is None:
            return f"noise scale unknown {interval}: the noise hides the gradient; use more rounds or larger batches"
        return f"noise scale {_rounded(self.scale)} {interval}, so a batch size of about {self.suggested}"


def gradient_noise(
    small: Any, large: Any, small_batch: int, large_batch: int, *, confidence: float = 0.9
) -> GradientNoise:
    """The gradient noise scale, from gradients of a mean loss at two batch sizes and the same weights.

    `large` has one entry for each round, `small` one or several: norms, of shape (rounds,) and (rounds,) or (rounds,
    k), or gradients, with another axis for the parameters. A round's small batches may be parts of its large one, as
    in gradient accumulation. Different rounds have different samples.

    >>> rng = np.random.default_rng(1)
    >>> truth = np.array([3.0, 4.0])  # the true gradient; each sample's is off by 10 in each direction
    >>> small = truth + rng.normal(0, 10, (50, 8, 16, 2)).mean(2)  # 50 rounds of 8 batches of 16 samples
    >>> print(gradient_noise(small, small.mean(1), small_batch=16, large_batch=128))  # 2 * 10² / (3² + 4²) = 8
    noise scale 7.74 (90 %: 6.93 to 8.63), so a batch size of about 8
    """
    small_batch = check_whole("small_batch", small_batch, least=1)
    large_batch = check_whole("large_batch", large_batch, least=1)
    if large_batch <= small_batch:
        raise OptionError(f"large_batch must be more than small_batch={small_batch}; got {large_batch}")
    confidence = check_number("confidence", confidence)
    if not 0 < confidence < 1:
        raise OptionError(f"confidence must be between 0 and 1, such as 0.9; got {confidence}")
    squared_small, squared_large = _squared_norms(small, large)
    # E|g(B)|² = |G|² + variance / B, once for each batch size: two equations in two unknowns, round by round.
    gradients = (large_batch * squared_large - small_batch * squared_small) / (large_batch - small_batch)
    variances = (squared_small - squared_large) / (1 / small_batch - 1 / large_batch)
    _check_sense(squared_small, squared_large, variances, confidence)
    gradient, variance = float(gradients.mean()), float(variances.mean())
    low, high = _interval_of_ratio(variances, gradients, confidence)
    scale = max(0.0, variance) / gradient if gradient > 0 else math.inf
    return GradientNoise(scale, low, high, confidence, gradient, variance, len(gradients))


ROUNDING = 1.01
"""Squared norms that differ by less may be equal: float16 rounds a norm to a part in a thousand."""


def _check_sense(squared_small: Floats, squared_large: Floats, variances: Floats, confidence: float) -> None:
    """Refuse a variance that is negative beyond chance: the noise of a mean never grows with the batch."""
    error = float(variances.std(ddof=1)) / math.sqrt(len(variances))
    small, large = float(squared_small.mean()), float(squared_large.mean())
    is_chance = variances.mean() + _student(0.5 + confidence / 2, len(variances) - 1) * error >= 0
    if large > ROUNDING * small and not is_chance:
        raise OptionError(
            f"the gradients of large batches are longer than those of small ones (mean squared norm {large:.3g} "
            f"against {small:.3g}), which gradients of a mean loss cannot be. Is the loss a sum over the batch? Then "
            "divide it by the batch's size. Or are small and large swapped?"
        )


def _squared_norms(small: Any, large: Any) -> tuple[Floats, Floats]:
    """One number per round for each batch size: the mean of the squared norms."""
    below, above = _floats("small", small), _floats("large", large)
    rounds = len(above)
    if rounds < LEAST_ROUNDS:
        raise OptionError(f"large has {rounds} rounds; the interval needs at least {LEAST_ROUNDS}")
    if len(below) != rounds:
        raise OptionError(
            f"small and large must have one entry for each round, but have {len(below)} and {rounds}: "
            "several small batches of a round go into one row of small"
        )
    if above.ndim == 2 and above.shape[1:] != below.shape[-1:]:
        raise OptionError(
            f"large holds gradients of {above.shape[1]} parameters, and small has shape {below.shape}: its last axis "
            "must be the same parameters"
        )
    if above.ndim == 2:  # gradients
        below, above = np.linalg.norm(below, axis=-1), np.linalg.norm(above, axis=-1)
    if above.ndim != 1 or below.ndim not in (1, 2):
        raise OptionError(
            "norms have the shapes (rounds,) or (rounds, k) for small and (rounds,) for large, gradients one axis "
            f"more; got {np.shape(small)} and {np.shape(large)}"
        )
    return np.square(below).reshape(rounds, -1).mean(1), np.square(above)


def _floats(name: str, values: Any) -> Floats:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise OptionTypeError(f"{name} must be an array of norms or of gradients: {error}") from error
    if not array.ndim or not array.size:
        raise OptionError(f"{name} must have an entry for each round; got {values!r}")
    if not np.isfinite(array).all():
        raise OptionError(f"{name} has values that are not finite: leave out the rounds whose loss overflowed")
    return array


def _interval_of_ratio(above: Floats, below: Floats, confidence: float) -> tuple[float, float]:
    """Fieller's interval for mean(above) / mean(below): all ratios r for which above - r * below could have mean 0.

    Unlike a bootstrap of the ratio, it stays right if mean(below) is close to 0: then it has no upper end.
    """
    freedom = len(above) - 1
    quantile = _student(0.5 + confidence / 2, freedom)
    (of_above, both), (_, of_below) = (np.cov(above, below) * quantile**2 / len(above)).tolist()
    mean_above, mean_below = float(above.mean()), float(below.mean())
    # The ratios r with a r² - 2 b r + c <= 0
    a, b, c = mean_below**2 - of_below, mean_above * mean_below - both, mean_above**2 - of_above
    if mean_below <= 0 and a > 0:
        return 0.0, math.inf  # no ratio of squares is negative: the measurement says nothing
    root = math.sqrt(max(0.0, b * b - a * c))
    if a > 0:
        return max(0.0, (b - root) / a), max(0.0, (b + root) / a)
    # Everything outside two roots; if the lower root is negative, the ratios below it are impossible.
    left, right = sorted(((b - root) / a, (b + root) / a)) if a < 0 and root > 0 else (0.0, 0.0)
    return (max(0.0, right), math.inf) if left < 0 else (0.0, math.inf)


def _student(probability: float, freedom: int) -> float:
    """Student's quantile, by the expansion 26.7.5 of Abramowitz and Stegun."""
    x = NormalDist().inv_cdf(probability)
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def _rounded(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
