"""A worker dies or is stuck at its piece of a batch: told and treated as if it had had all of it."""

from __future__ import annotations

from typing import Any

import pytest
from injected import BAD
from scripts import BATCHES, FRONTS, run

FOUR: dict[str, Any] = {"num_workers": 4, "multiprocessing_context": "fork"}
"""Pieces of one sample: the first batches are divided, and the bad sample is the second of its batch."""
SAMPLE = f"dataset[{BAD}] (photos/{BAD}.jpg) for batch 3 of epoch 0, sample 2 of 4"


@pytest.mark.parametrize("front", FRONTS)
def test_a_worker_dies_once_at_its_piece(front: str, tmp_path: Any) -> None:
    seen = run({"kind": "Injected", "how": "kill", "once": str(tmp_path / "once")}, FOUR, front)
    assert (seen.batches, seen.errors, seen.left) == (BATCHES, [], {})
    (warning,) = [warning for warning in seen.warnings if "no batch is lost" in warning]
    assert SAMPLE in warning


def test_a_sample_that_kills_again_is_named() -> None:
    seen = run({"kind": "Injected", "how": "leave"}, {**FOUR, "persistent_workers": True}, epochs=2)
    assert seen.batches == 2 * [batch for batch in BATCHES if BAD not in batch]
    assert [name for name, _ in seen.errors] == ["WorkerDied", "WorkerDied"]
    for _, text in seen.errors:
        assert text.startswith(f"dataset[{BAD}] (photos/{BAD}.jpg) has killed 2 workers")


def test_a_piece_that_is_stuck_is_named_and_its_batch_made_anew(tmp_path: Any) -> None:
    once = {"kind": "Injected", "how": "sleep", "once": str(tmp_path / "once")}
    seen = run(once, {**FOUR, "timeout": 0.3, "on_stall": "restart"})
    assert (seen.batches, seen.errors, seen.left) == (BATCHES, [], {})
    assert any(SAMPLE in warning for warning in seen.warnings)
