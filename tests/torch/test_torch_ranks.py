"""Under torch.distributed with two gloo processes: every rank different, together everything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import two_ranks
from training_host import run_ranks
from warm_host import host

SCRIPT = Path(__file__).parent / "two_ranks.py"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two ranks reports."""
    meeting = f"file://{tmp_path_factory.mktemp('ranks') / 'meeting'}"
    commands = [[str(SCRIPT), str(rank), meeting] for rank in range(2)]
    ranks = run_ranks(host("feedline.torch"), commands, [dict(os.environ)] * 2)
    return [json.loads(done.stdout.splitlines()[-1]) for done in ranks]


def elements(epoch: list[list[int]]) -> list[int]:
    return [value for batch in epoch for value in batch]


def test_every_rank_gets_what_torchs_loader_gives_it(ranks: list[dict[str, Any]]) -> None:
    for report in ranks:
        assert report["ours"] == report["torch"]
        assert report["ours with workers"] == report["torch"]


def test_ranks_differ_and_are_together_everything(ranks: list[dict[str, Any]]) -> None:
    for one, two in zip(ranks[0]["ours"], ranks[1]["ours"], strict=True):
        assert len(elements(one)) == len(elements(two)) == 11
        both = sorted(elements(one) + elements(two))
        assert set(both) == set(range(21))
        assert len(set(elements(one)) & set(elements(two))) <= 1  # 21 is odd: torch repeats one


def test_set_epoch_changes_the_order_and_nothing_else_does(ranks: list[dict[str, Any]]) -> None:
    for report in ranks:
        first, second, again = report["ours with workers"]
        assert first != second == again


def test_a_stream_that_shards_itself_over_ranks_and_workers_gives_each_element_once(
    ranks: list[dict[str, Any]],
) -> None:
    assert sorted(ranks[0]["stream"] + ranks[1]["stream"]) == list(range(21))


def test_collective_operations_between_batches_work(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["summed"] == ranks[1]["summed"] == [2 * 21, 2 * 70, 2 * 119]


def test_weighted_gradients_are_those_of_one_process(ranks: list[dict[str, Any]]) -> None:
    for steps, *averaged in zip((1, 2), ranks[0]["gradients"], ranks[1]["gradients"], strict=True):
        assert averaged[0] == averaged[1]
        np.testing.assert_allclose(averaged[0], two_ranks.gradients(steps), rtol=1e-5)


def test_a_stream_that_knows_no_ranks_is_shared_out_and_they_stay_in_step(ranks: list[dict[str, Any]]) -> None:
    padded, dropped = ([report[name] for report in ranks] for name in ("padded", "dropped"))
    assert sorted(padded[0][0] + padded[1][0]) == sorted([*range(21), 20])  # the last step's only batch is given twice
    assert sorted(dropped[0][0] + dropped[1][0]) == list(range(20))
    assert [len(padded[0][1]), len(dropped[0][1])] == [6, 5]
    assert padded[0][1] == padded[1][1]
    assert dropped[0][1] == dropped[1][1]


def test_one_that_every_rank_reads_is_warned_of_unless_it_asks_for_its_rank(ranks: list[dict[str, Any]]) -> None:
    for report in ranks:
        assert [len(messages) for messages in report["told"]] == [1, 1]
        assert report["told of one that asks"] == [[], []]
