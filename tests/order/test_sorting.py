"""Places by value: sorted, and equals in the order they had."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feedline.order.sorting import places_by


@given(st.lists(st.integers(-3, 70_000)))
def test_places_sort_and_keep_the_order_of_equals(values: list[int]) -> None:
    assert places_by(np.array(values, np.int64)).tolist() == sorted(range(len(values)), key=values.__getitem__)
