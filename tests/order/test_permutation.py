"""Permutation and the other computed orders: bijections, good shuffles, small memory, sliced anywhere.

Statistics use fixed keys, so they cannot flake; the limits are four or more standard deviations out, and were
seen to break with fewer rounds (see the comment on `_ROUNDS`).
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import few, thorough

from feedline.order import weighted_draws
from feedline.order.permutation import (
    BLOCK,
    LARGEST,
    NARROW_UP_TO,
    Counting,
    Draws,
    Order,
    Permutation,
    Picked,
    Repeated,
    bounds,
    random_words,
)
from feedline.order.weighted_draws import WeightedDraws, WeightTable

BILLION = 1_000_000_000


def deviations(observed: npt.NDArray[np.float64], expected: npt.NDArray[np.float64], freedom: int) -> float:
    """How many standard deviations a chi-square lies above what chance gives (Wilson and Hilferty)."""
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return float(((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def dependence(x: npt.NDArray[np.int64], y: npt.NDArray[np.int64], bins: int = 32) -> float:
    """Deviations from independence of two sequences, by a contingency table."""
    table, _, _ = np.histogram2d(x, y, bins=bins)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    return deviations(table, expected, (bins - 1) ** 2)


# --- it is a bijection ---


@pytest.mark.parametrize("key", [0, pytest.param(1, marks=thorough), 2**64 - 1])
def test_every_small_length_is_a_bijection(key: int) -> None:
    for n in range(301):
        assert sorted(Permutation(n, key)[:].tolist()) == list(range(n))


@given(n=st.integers(0, 60_000), key=st.integers(0, 2**64 - 1))
def test_any_length_and_key_is_a_bijection(n: int, key: int) -> None:
    seen = np.bincount(Permutation(n, key)[:], minlength=n)
    assert seen.size == n
    assert (seen == 1).all()


@pytest.mark.parametrize("n", [100_000, NARROW_UP_TO])
def test_the_longest_shuffles_of_narrow_words_are_bijections(n: int) -> None:
    """Where a product of a hash and a size just fits into 32 bits."""
    seen = np.zeros(n, np.bool_)
    seen[Permutation(n, 2**64 - 1)[:]] = True
    assert seen.all()


@given(
    n=st.sampled_from([10**7, BILLION, 2**31 + 11, 2**32, 2**53 + 1, 2**62, LARGEST]) | st.integers(10**6, LARGEST),
    key=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_slices_of_huge_shuffles_are_distinct_and_in_range(n: int, key: int, data: st.DataObject) -> None:
    shuffle = Permutation(n, key)
    starts = data.draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=4))
    spans = [(start, min(start + 5000, n)) for start in starts] + [(0, 5000), (n - 5000, n)]
    found = {place: int(i) for a, b in spans for place, i in enumerate(shuffle[a:b].tolist(), start=a)}
    assert len(found) >= 5000
    assert len(set(found.values())) == len(found)
    assert min(found.values()) >= 0
    assert max(found.values()) < n


# --- it is a good shuffle ---


@pytest.mark.parametrize(("n", "keys"), [(2, 200), pytest.param(3, 600, marks=thorough), (4, 1200)])
def test_all_orders_of_a_few_items_come_equally_often(n: int, keys: int) -> None:
    seen = Counter(tuple(Permutation(n, key)[:].tolist()) for key in range(keys))
    orders = list(itertools.permutations(range(n)))
    observed = np.array([seen[order] for order in orders], np.float64)
    assert deviations(observed, np.full(len(orders), keys / len(orders)), len(orders) - 1) < 4


@pytest.mark.parametrize("n", [pytest.param(4, marks=thorough), 5, pytest.param(6, marks=thorough)])
def test_all_orders_come_equally_often_over_very_many_keys(n: int) -> None:
    """As above, with all keys computed at once: one key after the other could not show a small unevenness."""
    keys = 150_000
    shuffle = Permutation(n, 0)
    dtype = shuffle._arithmetic.dtype
    words = np.random.SFC64(1).random_raw((len(shuffle._keys), keys, 1)) & np.uint64(np.iinfo(dtype).max)
    shuffle._keys = list(words.astype(dtype))
    orders = shuffle._shuffle(np.tile(np.arange(n, dtype=dtype), (keys, 1)))
    while (orders >= n).any():
        orders = np.where(orders >= n, shuffle._shuffle(orders), orders)
    numbers = orders.astype(np.int64) @ n ** np.arange(n)
    counts = np.unique(numbers, return_counts=True)[1].astype(np.float64)
    assert counts.size == math.factorial(n)
    assert deviations(counts, np.full(counts.size, keys / counts.size), counts.size - 1) < 4


def test_both_parities_come_when_the_length_is_an_odd_square() -> None:
    """A 3 x 3 grid would only reach even permutations."""

    def is_odd(order: list[int]) -> bool:
        return bool(sum(a > b for a, b in itertools.combinations(order, 2)) % 2)

    odd = sum(is_odd(Permutation(9, key)[:].tolist()) for key in range(400))
    assert 140 < odd < 260


def test_every_element_is_equally_likely_at_every_place() -> None:
    n, keys = 17, 500
    table = np.zeros((n, n))
    for key in range(keys):
        table[np.arange(n), Permutation(n, key)[:]] += 1
    assert deviations(table, np.full((n, n), keys / n), (n - 1) ** 2) < 4


@pytest.mark.parametrize("n", [5_000, 100_000, pytest.param(300_007, marks=thorough)])
def test_place_and_neighbours_say_nothing_about_an_element(n: int) -> None:
    columns = int(Permutation(n, 0)._columns)  # where a weak network would show its grid
    worst: dict[str, list[float]] = {}
    for key in range(5):
        order = Permutation(n, key)[:]
        places = np.arange(n)
        scores = {
            "place": dependence(places, order),
            "column of place and element": dependence(places % columns, order % columns),
            "row of place, column of element": dependence(places // columns, order % columns),
            "column of place, row of element": dependence(places % columns, order // columns),
        }
        for lag in (1, 2, columns):
            scores[f"lag {lag}"] = dependence(order[:-lag], order[lag:])
            steps = np.histogram((order[lag:] - order[:-lag]) % n, 256, (0, n))[0].astype(np.float64)
            scores[f"steps of lag {lag}"] = deviations(steps, np.full(256, (n - lag) / 256), 255)
            ring = np.bincount((order[lag:] - order[:-lag]) % columns % 8, minlength=8).astype(np.float64)
            share = np.bincount(np.arange(columns) % 8, minlength=8) / columns
            scores[f"columns of lag {lag}"] = deviations(ring, (n - lag) * share, 7)
        for name, score in scores.items():
            worst.setdefault(name, []).append(score)
    combined = {name: sum(scores) / math.sqrt(len(scores)) for name, scores in worst.items()}
    assert {name: score for name, score in combined.items() if score > 5} == {}


def test_serial_correlation_and_fixed_points_are_those_of_chance() -> None:
    n, keys = 20_000, 40
    fixed = 0
    for key in range(keys):
        order = Permutation(n, key)[:]
        fixed += int((order == np.arange(n)).sum())
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 5 / math.sqrt(n)
        assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 5 / math.sqrt(n)
    assert abs(fixed - keys) < 5 * math.sqrt(keys)  # one per shuffle on average


def test_neighbouring_keys_give_unrelated_shuffles() -> None:
    n = 50_000
    assert abs(dependence(Permutation(n, 1)[:], Permutation(n, 2)[:])) < 5
    assert (Permutation(n, 1)[:] == Permutation(n, 2)[:]).sum() < 10


# --- it stays what it is, and small ---


def test_values_never_change() -> None:
    """A saved run continues with another feedline or NumPy only if these stay."""
    assert Permutation(10, 3)[:].tolist() == [0, 4, 7, 8, 3, 9, 6, 5, 1, 2]
    assert Permutation(NARROW_UP_TO, 3)[NARROW_UP_TO - 3 :].tolist() == [270933, 13109846, 13481031]
    assert Permutation(BILLION, 3)[BILLION - 3 :].tolist() == [184596230, 92793858, 67844026]
    assert Permutation(2**62, 3)[:2].tolist() == [1764778273573698498, 2232384848285889896]
    assert Draws(BILLION, 10, 3)[:3].tolist() == [984003507, 466966310, 34331040]
    assert WeightedDraws(WeightTable(np.ones(1000)), 10, 3)[:5].tolist() == [984, 466, 34, 45, 563]


def peak_of_first_index(n: int) -> int:
    tracemalloc.start()
    try:
        Permutation(n, key=7)[:1]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_first_index_of_a_billion_takes_the_same_number_of_words_as_of_ten_million() -> None:
    small, large = peak_of_first_index(NARROW_UP_TO), peak_of_first_index(BILLION)
    assert large < 2.5 * small  # its words are twice as wide
    assert large < 1_000_000


def test_a_long_slice_takes_little_more_than_itself() -> None:
    shuffle = Permutation(BILLION, key=7)
    tracemalloc.start()
    try:
        part = shuffle[1000:1_001_000]
        assert tracemalloc.get_traced_memory()[1] < part.nbytes + 1_000_000
    finally:
        tracemalloc.stop()


def test_consecutive_batches_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[tuple[int, int]] = []
    compute = Permutation._compute

    def counted(self: Permutation, start: int, stop: int) -> npt.NDArray[np.int64]:
        computed.append((start, stop))
        return compute(self, start, stop)

    monkeypatch.setattr(Permutation, "_compute", counted)
    shuffle = Permutation(2 * BLOCK, key=1)
    for start in range(0, 2 * BLOCK, 256):
        shuffle[start : start + 256]
    assert computed == [(0, BLOCK), (BLOCK, 2 * BLOCK)]


# --- orders are sliced like lists ---


def each_order(n: int) -> list[Order]:
    return [
        Counting(n),
        Permutation(n, 5),
        Draws(77, n, 5),
        WeightedDraws(WeightTable(np.array([1.0, 0.0, 2.0])), n, 5),
        Picked(np.arange(n) * 3, Permutation(n, 5)),
        Repeated(lambda number: Permutation(1000, number), 1000, n),
    ]


@pytest.mark.parametrize("which", range(6))
@settings(max_examples=few(20))
@given(n=st.integers(0, 3 * BLOCK), start=st.integers(0, 3 * BLOCK), size=st.integers(0, 2 * BLOCK))
def test_any_slice_is_what_a_list_would_give(which: int, n: int, start: int, size: int) -> None:
    whole = each_order(n)[which][:].tolist()
    part = each_order(n)[which][start : start + size]
    assert len(each_order(n)[which]) == len(whole) == n
    assert part.dtype == np.int64
    assert part.tolist() == whole[start : start + size]


@pytest.mark.parametrize("which", range(6))
def test_a_slice_may_be_changed_without_changing_the_order(which: int) -> None:
    order = each_order(5000)[which]
    before = order[:10].tolist()
    order[:10][:] = -1
    assert order[:10].tolist() == before


@pytest.mark.parametrize("which", range(6))
def test_other_steps_and_single_places_are_refused(which: int) -> None:
    order = each_order(100)[which]
    with pytest.raises(ValueError, match="steps of 1"):
        order[0:10:2]
    with pytest.raises(TypeError, match="order\\[start:stop\\]"):
        order[3]  # type: ignore[index]


def test_bounds_of_an_empty_or_reversed_slice_are_empty() -> None:
    assert bounds(slice(7, 3), 10) == (7, 7)
    assert bounds(slice(0, 5), 0) == (0, 0)


def test_lengths_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="length must be between 0 and"):
        Permutation(-1, 0)
    with pytest.raises(ValueError, match="length must be between 0 and"):
        Permutation(LARGEST + 1, 0)
    with pytest.raises(ValueError, match="population must be between 1 and"):
        Draws(0, 5, 0)
    with pytest.raises(ValueError, match="turn must be a positive integer"):
        Repeated(Counting, 0, 5)


# --- draws ---


@pytest.mark.parametrize("population", [1, 2, 10, 1000])
def test_draws_are_uniform_and_independent(population: int) -> None:
    draws = Draws(population, 200_000, key=3)[:]
    counts = np.bincount(draws, minlength=population).astype(np.float64)
    assert counts.size == population
    if population > 1:
        assert deviations(counts, np.full(population, 200_000 / population), population - 1) < 4
        assert dependence(draws[:-1], draws[1:], min(population, 16)) < 4


@given(population=st.integers(1, LARGEST), start=st.integers(0, 2**40), key=st.integers(0, 2**64 - 1))
def test_draws_are_exact_products_for_any_population(population: int, start: int, key: int) -> None:
    """What Python's integers say of the same words; a rounding mistake would favour some index."""
    drawn = Draws(population, LARGEST, key)[start : start + 3].tolist()
    assert drawn == [word * population >> 64 for word in random_words(key, start, start + 3).tolist()]


def test_draws_reach_both_ends_of_a_large_population() -> None:
    draws = Draws(2**62, 100_000, key=1)[:].astype(np.float64) / 2**62
    assert draws.min() < 0.001
    assert draws.max() > 0.999


def test_weighted_draws_follow_the_weights() -> None:
    weights = np.array([0.0, 1.0, 0.0, 5.0, 0.5, 3.5, 0.0])
    draws = WeightedDraws(WeightTable(weights), 100_000, key=3)[:]
    counts = np.bincount(draws, minlength=7).astype(np.float64)
    possible = weights > 0
    assert counts[~possible].sum() == 0
    assert deviations(counts[possible], 100_000 * weights[possible] / weights.sum(), 3) < 4


@pytest.mark.parametrize(("word", "place"), [(0, 1), (2**64 - 1, 3)])
def test_the_outermost_draws_avoid_weights_of_zero(monkeypatch: pytest.MonkeyPatch, word: int, place: int) -> None:
    def same_words(key: int, start: int, stop: int) -> npt.NDArray[np.uint64]:
        return np.full(stop - start, word, np.uint64)

    monkeypatch.setattr(weighted_draws, "random_words", same_words)
    assert WeightedDraws(WeightTable(np.array([0.0, 0.3, 0.1, 0.7, 0.0])), 2, key=3)[:].tolist() == [place, place]


@settings(max_examples=few(100))
@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 0.3, 1.0, 7.0]), min_size=1, max_size=200),
    st.lists(st.floats(0, 1, exclude_max=True) | st.integers(0, 15).map(lambda part: part / 16), max_size=50),
)
@example([1.0, 1.0, 1.0, 1.0], [0.25, 0.5, 0.75])  # exactly at the end of a weight: the next one's
@example([1.0, 0.0, 0.0, 1.0, 0.0], [0.5])
def test_the_guide_finds_what_a_plain_search_finds(weights: list[float], shares: list[float]) -> None:
    if not any(weights):
        return
    sums = np.cumsum(np.array(weights) / max(weights))
    uniform = np.array([*shares, 0.0, 1 - 2.0**-53])
    expected = np.searchsorted(sums, uniform * sums[-1], side="right")
    assert WeightTable(np.array(weights)).find(uniform).tolist() == expected.tolist()
