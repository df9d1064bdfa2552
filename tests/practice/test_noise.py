"""gradient_noise on a made problem whose noise scale is known: linear regression with Gaussian inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import few

from feedline import OptionError, gradient_noise
from feedline.practice.noise import GradientNoise, _interval_of_ratio, _student

VARIANCES = np.linspace(0.5, 2.0, 20)
"""Of the inputs."""
NOISE = 1.0
"""Of the targets."""


def known_scale(distance: float) -> float:
    """Of the gradient x (x·δ - ε) for x ~ N(0, Λ): its mean is Λδ, its variance follows from Isserlis' theorem."""
    delta = np.full(len(VARIANCES), distance)
    gradient = VARIANCES * delta
    variance = VARIANCES.sum() * (delta @ gradient + NOISE**2) + gradient @ gradient
    return float(variance / (gradient @ gradient))


def gradients(seed: int, distance: float, rounds: int, parts: int, batch: int) -> np.ndarray:
    """Of shape (rounds, parts, parameters): the mean gradients of batches, so far from the optimum."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rounds * parts * batch, len(VARIANCES))) * np.sqrt(VARIANCES)
    errors = x @ np.full(len(VARIANCES), distance) - rng.normal(0, NOISE, len(x))
    return (x * errors[:, None]).reshape(rounds, parts, batch, -1).mean(2)


@pytest.mark.parametrize(("confidence", "least", "most"), [(0.9, 0.86, 0.94), (0.5, 0.44, 0.56)])
def test_the_interval_holds_the_known_scale_as_often_as_it_says(confidence, least, most):
    truth, tries = known_scale(0.3), 500
    held = 0
    for seed in range(tries):
        small = gradients(seed, 0.3, rounds=20, parts=4, batch=8)
        noise = gradient_noise(small, small.mean(1), 8, 32, confidence=confidence)
        held += noise.low <= truth <= noise.high
    assert least <= held / tries <= most  # three standard deviations of the count to either side, seeds fixed


def test_with_many_rounds_it_comes_close_and_suggests_the_nearest_power_of_two():
    small = gradients(0, 0.3, rounds=2000, parts=4, batch=8)
    noise = gradient_noise(small, small.mean(1), 8, 32)
    assert noise.scale == pytest.approx(known_scale(0.3), rel=0.03)  # 26.5
    assert noise.high - noise.low < 3
    assert noise.suggested == 32
    assert noise.variance / noise.gradient == pytest.approx(noise.scale)


def test_the_two_estimates_are_unbiased():
    noises = []
    for seed in range(300):
        small = gradients(seed, 0.3, rounds=5, parts=2, batch=2)
        noises.append(gradient_noise(small, small.mean(1), 2, 4))
    truth = float(np.square(VARIANCES * 0.3).sum())
    for found, true in (("gradient", truth), ("variance", truth * known_scale(0.3))):
        values = np.array([getattr(noise, found) for noise in noises])
        assert abs(values.mean() - true) < 3 * values.std() / math.sqrt(len(values))


def test_norms_say_the_same_as_gradients():
    small = gradients(1, 0.3, rounds=10, parts=4, batch=8)
    large = small.mean(1)
    norms = gradient_noise(np.linalg.norm(small, axis=-1), np.linalg.norm(large, axis=-1), 8, 32)
    assert norms == gradient_noise(small, large, 8, 32)
    one = gradient_noise(small[:, 0], large, 8, 32)  # one small batch a round
    assert one == gradient_noise(np.linalg.norm(small[:, 0], axis=-1), np.linalg.norm(large, axis=-1), 8, 32)


def test_independent_batches_will_do_as_well_as_parts():
    small = gradients(1, 0.3, rounds=1000, parts=1, batch=8)
    large = gradients(2, 0.3, rounds=1000, parts=1, batch=64)
    noise = gradient_noise(small, large[:, 0], 8, 64, confidence=0.99)
    assert noise.low < known_scale(0.3) < noise.high


def test_a_gradient_that_drowns_leaves_the_interval_open():
    small = gradients(3, 0.0, rounds=10, parts=4, batch=8)  # at the optimum: no gradient at all
    noise = gradient_noise(small, small.mean(1), 8, 32)
    assert noise.high == math.inf
    drowned = [gradient_noise(s, s.mean(1), 8, 32) for s in (gradients(i, 0.0, 10, 4, 8) for i in range(20))]
    unknown = [noise for noise in drowned if noise.suggested is None]
    assert unknown
    assert all(noise.scale == math.inf for noise in unknown)
    assert "the noise hides the gradient" in str(unknown[0])


def test_gradients_without_noise_have_scale_zero():
    small = np.ones((6, 4, 3))
    noise = gradient_noise(small, small.mean(1), 8, 32)
    assert (noise.scale, noise.low, noise.high, noise.suggested) == (0, 0, 0, 1)


@pytest.mark.parametrize(("scale", "suggested"), [(0.2, 1), (1.4, 1), (1.5, 2), (90, 64), (91, 128), (math.inf, None)])
def test_the_suggestion_is_the_nearest_power_of_two(scale, suggested):
    assert GradientNoise(scale, 0, 1, 0.9, 1, 1, 5).suggested == suggested


@settings(max_examples=few(300))
@given(
    seed=st.integers(0, 10**6),
    above=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    below=st.sampled_from([-3.0, 0.0, 0.3, 1.0, 5.0]),
)
@example(seed=1123, above=1.0, below=0.3)  # above 1,962, where ratios hardly differ
@example(seed=14, above=0.3, below=0.3)  # all ratios but those between 0.94 and 19.9: told as all
def test_the_interval_is_what_a_t_test_does_not_refuse(seed, above, below):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(above, 1, 8), rng.normal(below, 1, 8)
    low, high = _interval_of_ratio(first, second, 0.9)
    assert 0 <= low <= high

    def statistic(ratio: float) -> float:
        """Over Student's 95 % point for 7: at most 1 if the ratio is possible."""
        apart = first - ratio * second
        return abs(apart.mean()) / (1.8945786 * apart.std(ddof=1) / math.sqrt(8))

    little = 1e-5  # the statistic of large ratios hardly changes with them
    kept = [ratio for ratio in np.geomspace(1e-4, 1e4, 400) if statistic(ratio) <= 1 - little]
    assert all(low * 0.999 <= ratio <= high * 1.001 for ratio in kept)
    if low > 1e-3:
        assert statistic(low * 0.99) > 1 - little
        assert statistic(low * 1.01) <= 1 + little or high < low * 1.01
    if 0 < high < math.inf:
        assert statistic(high * 1.01) > 1 - little


def test_a_gradient_that_comes_out_negative_says_nothing():
    noise = gradient_noise([10, 11, 10, 12, 11], [0.1, 0.2, 0.1, 0.2, 0.1], 8, 16)
    assert noise.gradient < 0
    assert (noise.scale, noise.low, noise.high) == (math.inf, 0, math.inf)


@pytest.mark.parametrize("rounds", [5, 50])
def test_a_measurement_that_contradicts_itself_is_refused(rounds):
    small = gradients(1, 0.3, rounds, parts=4, batch=8)
    large = small.mean(1)
    with pytest.raises(OptionError, match="Is the loss a sum over the batch"):
        gradient_noise(small * 8, large * 32, 8, 32)
    with pytest.raises(OptionError, match="small and large swapped"):
        gradient_noise(large * 1.5, small[:, 0] * 1.5, 8, 32)


def test_no_noise_but_rounding_is_no_contradiction():
    large = np.float16(np.linspace(1, 2, 20))
    for seed in range(20):
        off = np.random.default_rng(seed).uniform(-1e-3, 0, (20, 4))
        assert gradient_noise(large[:, None] * (1 + off), large, 8, 32).scale == 0
    # Nor is chance: the large batches came out longer, but might as well not have.
    assert gradient_noise([1, 2, 3, 4, 5], [3, 1, 5, 4, 4], 8, 32).scale == 0


@pytest.mark.parametrize(
    ("probability", "freedom", "table"),
    [(0.95, 4, 2.1318), (0.975, 4, 2.7764), (0.95, 9, 1.8331), (0.975, 19, 2.0930), (0.995, 30, 2.7500)],
)
def test_students_quantile_is_the_tables(probability, freedom, table):
    assert _student(probability, freedom) == pytest.approx(table, rel=1e-3)


RIGHT = {"small": np.ones((5, 2)), "large": np.ones(5), "small_batch": 2, "large_batch": 4}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"large_batch": 2}, "large_batch must be more than small_batch=2"),
        ({"small_batch": 0}, "small_batch"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": "high"}, "confidence"),
        ({"small": np.ones((4, 2)), "large": np.ones(4)}, "at least 5"),
        ({"small": np.ones(10)}, "10 and 5"),
        ({"small": np.ones((5, 2, 3)), "large": np.ones((5, 4))}, "4 parameters"),
        ({"small": np.ones((5, 2, 3))}, "shapes"),
        ({"small": np.ones((5, 2, 3, 4)), "large": np.ones((5, 4))}, "shapes"),
        ({"large": np.array([1, 1, 1, 1, math.nan])}, "large has values that are not finite"),
        ({"small": ["a"] * 5}, "small must be an array"),
        ({"large": 3.0}, "large must have an entry"),
    ],
)
def test_wrong_arguments_are_named(wrong, says):
    with pytest.raises(OptionError, match=says):
        gradient_noise(**{**RIGHT, **wrong})
