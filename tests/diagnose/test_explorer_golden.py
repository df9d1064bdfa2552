"""What the explorer's page computes is what the library computes: golden vectors, made by the library itself here.

All cases go through one page in one browser. They are made by a generator with a fixed seed, so a case that fails once
fails always; `make test-all` makes ten times as many.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page
from kinds import few

import feedline
from feedline import BucketBatchSampler, DistributedSampler, StratifiedBatchSampler, WeightedRandomSampler
from feedline.collate import pad
from feedline.collate.packing_rows import place
from feedline.diagnose.explorer.bundle import page_with
from feedline.diagnose.explorer.costs import Costs, sample_costs
from feedline.diagnose.simulation import Work, Workers, simulate
from feedline.order.index_shuffle import COMPUTED_FROM, shuffled
from feedline.order.permutation import Draws, Permutation, random_words
from feedline.order.sampler import Sampler, each_batch
from feedline.order.weighted_draws import WeightedDraws, WeightTable
from feedline.randomness.rng import mix

MANY = few(1000)
"""Cases of each function that is cheap."""


@pytest.fixture
def page(explorer: Page) -> Page:
    return explorer


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.node.originalname)


def told(page: Page, expression: str, cases: Sequence[Any]) -> list[Any]:
    """What the page computes of each case, `c`."""
    script = f"JSON.stringify({json.dumps(cases)}.map(c => {expression}))"
    return json.loads(page.js(script))


def seed_and_epoch(chance: random.Random) -> dict[str, int]:
    return {
        "seed": chance.choice([0, 7, chance.getrandbits(53)]),
        "epoch": chance.choice([0, 1, chance.randrange(500)]),
    }


def lengths(chance: random.Random, most: int = 400) -> int:
    return chance.choice([0, 1, 2, 3, chance.randrange(1, 40), chance.randrange(1, most)])


def test_mixing_and_words(page, chance):
    cases = [
        [str(chance.getrandbits(chance.choice([3, 32, 64]))) for _ in range(chance.randrange(4))] for _ in range(MANY)
    ]
    found = told(page, "String(feedline.words.mix(...c))", cases)
    assert found == [str(mix(*map(int, parts))) for parts in cases]
    keys = [str(chance.getrandbits(64)) for _ in range(MANY)]
    found = told(page, "feedline.words.randomWords(BigInt(c), 5, 9).map(String)", keys)
    assert found == [list(map(str, random_words(int(key), 5, 9).tolist())) for key in keys]


def test_stored_shuffles(page, chance):
    cases = [[lengths(chance), str(chance.getrandbits(chance.choice([8, 32, 33, 64])))] for _ in range(2 * MANY)]
    cases.append([COMPUTED_FROM - 1, str(chance.getrandbits(64))])
    found = told(page, "feedline.orders.shuffled(c[0], BigInt(c[1])).slice(0, c[0])", cases)
    for (length, key), order in zip(cases, found, strict=True):
        assert order == shuffled(length, int(key))[:].tolist()


def test_computed_permutations(page, chance):
    cases = [[n, str(chance.getrandbits(64))] for n in (1, 2, 3, 5, 7, 16, 100, 4095, 4096, 5000)]
    cases += [[chance.randrange(1, 3000), str(chance.getrandbits(64))] for _ in range(MANY)]
    found = told(page, "feedline.orders.permutation(c[0], BigInt(c[1])).slice(0, c[0])", cases)
    for (length, key), order in zip(cases, found, strict=True):
        assert order == Permutation(length, int(key))[:].tolist()
    large = [[n, str(chance.getrandbits(64))] for n in (100_000, 123_456, 1_000_000, 16_000_000)]
    found = told(page, "feedline.orders.shuffled(c[0], BigInt(c[1])).slice(99000, 99500)", large)
    for (length, key), order in zip(large, found, strict=True):
        assert order == shuffled(length, int(key))[99000:99500].tolist()


def test_draws_and_weighted_draws(page, chance):
    cases = [[chance.choice([1, 7, 1000, 2**40]), lengths(chance), str(chance.getrandbits(64))] for _ in range(MANY)]
    found = told(page, "feedline.orders.draws(c[0], c[1], BigInt(c[2])).slice(0, c[1])", cases)
    assert found == [Draws(many, length, int(key))[:].tolist() for many, length, key in cases]
    weighted = []
    for _ in range(MANY):
        sizes = [chance.randrange(1, 30) for _ in range(chance.randrange(1, 6))]
        weights = feedline.weights_from_labels(np.repeat(range(len(sizes)), sizes)).tolist()
        weighted.append([weights, chance.randrange(1, 60), str(chance.getrandbits(64))])
    found = told(page, "feedline.orders.weightedDraws(c[0], c[1], BigInt(c[2])).slice(0, c[1])", weighted)
    assert found == [WeightedDraws(WeightTable(np.array(w)), n, int(key))[:].tolist() for w, n, key in weighted]


def test_batches_of_a_loader(page, chance):
    cases = []
    for _ in range(MANY):
        given = {"n": max(1, lengths(chance)), "b": chance.randrange(1, 50), "shuffle": chance.random() < 0.7}
        cases.append({**given, "drop_last": chance.random() < 0.5, **seed_and_epoch(chance)})
    cut = "feedline.orders.batchesOf(feedline.batching.orderOf(c).slice(0, c.n), c.b, c.drop_last)"
    batches, numbers = told(page, cut, cases), told(page, "feedline.batching.batching.model(c)", cases)
    for case, own, said in zip(cases, batches, numbers, strict=True):
        loader = feedline.DataLoader(
            np.arange(case["n"]), case["b"], shuffle=case["shuffle"], drop_last=case["drop_last"], seed=case["seed"]
        )
        loader.set_epoch(case["epoch"])
        real = [batch.tolist() for batch in loader]
        assert own == real
        assert said["batches"] == len(loader) == len(real)
        assert said["last"] == (len(real[-1]) if real else 0)
        assert said["lost"] == case["n"] - sum(map(len, real))


def real_batches(case: dict[str, Any], labels: np.ndarray, rank: int) -> list[list[int]]:
    """What the library's samplers give to a rank."""
    seed, epoch, b = case["seed"], case["epoch"], case["b"]
    sampler: Sampler = {
        "sequential": lambda: feedline.SequentialSampler(len(labels)),
        "random": lambda: feedline.RandomSampler(len(labels), seed=seed),
        "replacement": lambda: feedline.RandomSampler(len(labels), replacement=True, seed=seed),
        "weighted": lambda: WeightedRandomSampler(feedline.weights_from_labels(labels), len(labels), seed=seed),
        "stratified": lambda: StratifiedBatchSampler(labels, b, share=case["share"], seed=seed),
    }[case["sampler"]]()
    share = DistributedSampler(sampler, case["ranks"], rank, uneven=case["uneven"])
    if case["sampler"] == "stratified":
        return list(each_batch(share.batches(seed, epoch)))
    order = share.order(seed, epoch)[:].tolist()
    return [order[at : at + b] for at in range(0, len(order), b)]


def test_samplers_and_ranks(page, chance):
    cases = []
    for number in range(2 * MANY):
        sizes = [chance.randrange(1, chance.choice([5, 60])) for _ in range(chance.randrange(1, 6))]
        sampler = ["sequential", "random", "replacement", "weighted", "stratified", "stratified", "stratified"][
            number % 7
        ]
        case = {"counts": ",".join(map(str, sizes)), "sampler": sampler, "b": chance.randrange(8, 40)}
        case |= {
            "share": chance.choice(["proportional", "at_least_one", "equal"]),
            "ranks": chance.choice([1, 1, 2, 3, 5]),
        }
        cases.append({**case, "uneven": chance.choice(["pad", "drop", "exact"]), **seed_and_epoch(chance)})
    found, numbers = (
        told(page, "feedline.samplers.batchesOfRanks(c)", cases),
        told(page, "feedline.samplers.model(c)", cases),
    )
    for case, ranks, said in zip(cases, found, numbers, strict=True):
        sizes = list(map(int, case["counts"].split(",")))
        labels = np.repeat(range(len(sizes)), sizes)
        real = [real_batches(case, labels, rank) for rank in range(case["ranks"])]
        assert ranks == real, case
        every = [index for batches in real for batch in batches for index in batch]
        times = np.bincount(every, minlength=len(labels))
        rare = int(np.argmin(sizes))
        each = [int((labels[batch] == rare).sum()) for batches in real for batch in batches]
        assert said["rareMean"] == pytest.approx(np.mean(each) if each else 0)
        assert said["without"] == pytest.approx(np.mean([not one for one in each]) if each else 0)
        assert (said["twice"], said["never"]) == (int((times > 1).sum()), int((times == 0).sum()))


@pytest.mark.parametrize("drop_last", [False, True])
def test_stratified_batches_that_drop_the_last(page, chance, drop_last):
    cases = []
    for _ in range(MANY):
        sizes = [chance.randrange(1, 50) for _ in range(chance.randrange(1, 6))]
        case = {"sizes": sizes, "b": chance.randrange(len(sizes), 30), "drop": drop_last, **seed_and_epoch(chance)}
        cases.append({**case, "share": chance.choice(["proportional", "at_least_one", "equal"])})
    labels = "c.sizes.flatMap((n, code) => Array(n).fill(code))"
    script = f"feedline.stratified.stratifiedBatches({labels}, c.sizes.length, c.b, c.share, c.drop, c.seed, c.epoch)"
    for case, found in zip(cases, told(page, script, cases), strict=True):
        codes = np.repeat(range(len(case["sizes"])), case["sizes"])
        sampler = StratifiedBatchSampler(codes, case["b"], share=case["share"], drop_last=drop_last)
        assert found == list(each_batch(sampler.batches(case["seed"], case["epoch"]))), case


def test_buckets(page, chance):
    cases = []
    for _ in range(2 * MANY):
        own = [chance.randrange(1, chance.choice([5, 40, 300])) for _ in range(chance.randrange(1, 120))]
        size, tokens = chance.choice(
            [(8, None), (chance.randrange(1, 20), None), (None, 2 * max(own)), (8, 3 * max(own))]
        )
        case = {"lengths": own, "b": size, "tokens": tokens, "padding": chance.choice([0, 0.15, 0.3, 0.5])}
        cases.append({**case, "drop": chance.random() < 0.3, **seed_and_epoch(chance)})
    script = "feedline.buckets.bucketBatches(c.lengths, c.b, c.tokens, c.padding, c.drop, c.seed, c.epoch)"
    for case, found in zip(cases, told(page, script, cases), strict=True):
        given = {"max_padding": case["padding"], "drop_last": case["drop"]}
        sampler = BucketBatchSampler(case["lengths"], case["b"], case["tokens"], **given)
        assert found == list(each_batch(sampler.batches(case["seed"], case["epoch"]))), case


def test_packing_and_padding(page, chance):
    cases = [
        [[chance.randrange(1, 40) for _ in range(chance.randrange(1, 30))], chance.randrange(1, 50)]
        for _ in range(2 * MANY)
    ]
    found = told(page, "feedline.collating.pack(c[0], c[1])", cases)
    for (sizes, length), said in zip(cases, found, strict=True):
        pieces, rows = place(sizes, length)
        assert said["rows"] == rows
        assert [tuple(piece.values()) for piece in said["pieces"]] == [tuple(piece) for piece in pieces]
    for (sizes, multiple), goal in zip(
        cases, told(page, "feedline.collating.paddedTo(c[0], c[1])", cases), strict=True
    ):
        assert goal == pad(multiple=multiple)([np.zeros(size, np.int8) for size in sizes]).data.shape[1]


def made_costs(chance: random.Random) -> Costs:
    return Costs(
        chance.choice([1, 700, 4000.5]),
        chance.choice([0, 0.3, 0.95]),
        chance.choice([0, 0.02, 0.2]),
        chance.choice([1, 10, 50.5]),
    )


def test_costs(page, chance):
    cases = [[vars(made_costs(chance)), chance.randrange(100), str(chance.getrandbits(64))] for _ in range(MANY)]
    found = told(page, "feedline.engine.sampleCosts(c[0], c[1], BigInt(c[2]))", cases)
    assert found == [sample_costs(Costs(**costs), count, int(key)) for costs, count, key in cases]


def test_the_simulated_epoch_to_the_microsecond(page, chance):
    cases = []
    for _ in range(4 * MANY):
        size, costs = chance.randrange(1, 33), sample_costs(made_costs(chance), 400, chance.getrandbits(60))
        batches = [costs[at : at + size] for at in range(0, chance.randrange(1, 400), size)]
        work = {"batches": batches, "collate": chance.choice([0, 0, 777]), "step": chance.choice([0, 5000, 20_000])}
        workers = {"count": chance.randrange(6), "prefetch": chance.randrange(1, 4), "inOrder": chance.random() < 0.7}
        workers |= {"splits": chance.random() < 0.8, "rules": chance.choice(["feedline", "feedline", "torch"])}
        cases.append(
            [work, {**workers, "known": chance.choice([None, 0.004, 1e-5]), "handing": chance.choice([0, 150])}]
        )
    found = told(page, "feedline.engine.simulate(c[0], c[1])", cases)
    for (work, given), said in zip(cases, found, strict=True):
        workers = Workers(
            *(given[name] for name in ("count", "prefetch", "inOrder", "splits", "rules", "known", "handing"))
        )
        epoch = simulate(Work(**work), workers)
        assert said["end"] == epoch.end, (work, given)
        assert [tuple(span.values()) for span in said["spans"]] == [tuple(span) for span in epoch.spans]
        assert [tuple(one.values()) for one in said["given"]] == [tuple(one) for one in epoch.given]
        assert said["waitingShare"] == pytest.approx(epoch.waiting_share)
        assert said["busyShare"] == pytest.approx(epoch.busy_share)


def test_the_page_is_small(tmp_path: Path) -> None:
    assert len(page_with().encode()) <= 300_000
