"""The public surface of `feedline.torch`, as it is listed."""

from __future__ import annotations

from pathlib import Path

import feedline.torch

LISTED = Path(__file__).parent.parent / "loader" / "public_names.txt"


def test_public_names_are_those_that_are_listed() -> None:
    lines = [line.rpartition(".") for line in LISTED.read_text(encoding="utf-8").split()]
    assert sorted(feedline.torch.__all__) == [name for module, _, name in lines if module == "feedline.torch"]
    for name in feedline.torch.__all__:
        assert getattr(feedline.torch, name) is not None
