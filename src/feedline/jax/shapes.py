"""What this front counts: the shapes of batches, each of which is a compilation, and copies that came late.

Takes: the shapes of each batch; whether it had arrived when the user got it. Gives: `JaxStats`; a warning.
Promises: it warns once, at the third shape: one is usual, and two are a last batch that is short.
Not its job: what the loop counts (observe.meter).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from feedline.errors import CollateError
from feedline.errors.counting import counted
from feedline.observe.stats import Stats

TOO_MANY = 3
Shapes = tuple[tuple[str, tuple[int, ...], str], ...]
"""Of each leaf: its name, its global shape and its dtype."""


@dataclass(frozen=True)
class JaxStats(Stats):
    """What `loader.stats()` returns. `print` it.

    >>> print(JaxStats(shapes=((("batch", (8, 2), "float32"),),)))
    epoch 0: 0 batches, 0 samples in 0 s
      0 samples/s, 0 batches/s, 0 MB/s; the loop waited 0 % of the time
    <BLANKLINE>
      1 shape of batches; 0 copies were under way when their batch was asked for
    """

    shapes: tuple[Shapes, ...] = ()
    """The different shapes of batches so far: a compiled function is compiled again for each."""
    late_copies: int = 0
    """Batches whose copy to the devices had not ended when the loop got them: the step waits for it. The time that the
    loop itself waited for copies is `epoch.transferring`; for data, `epoch.waiting` without that."""

    def __str__(self) -> str:
        late = "was" if self.late_copies == 1 else "were"
        copies = counted(self.late_copies, "copy")
        shapes = counted(len(self.shapes), "shape")
        return f"{super().__str__()}\n  {shapes} of batches; {copies} {late} under way when their batch was asked for"

    def scalars(self) -> dict[str, float]:
        """The latest epoch's numbers by name, for any logger."""
        own = {"loader/shapes": float(len(self.shapes)), "loader/late_copies": float(self.late_copies)}
        return super().scalars() | own


class Counted:
    """The counters of one loader."""

    def __init__(self) -> None:
        self._shapes: dict[Shapes, None] = {}
        self.late = 0

    def check_the_same(self, shapes: Shapes) -> None:
        """Several processes make one global array: none of them knows the shapes of the others' rows, so that leaves,
        types and shapes must never change, but for the number of rows."""
        for first in self._shapes:
            if [leaf[0] for leaf in first] != [leaf[0] for leaf in shapes]:
                names, before = (", ".join(leaf[0] for leaf in each) or "nothing" for each in (shapes, first))
                raise CollateError(
                    f"the batch has the leaves {names}, and had {before} before: processes that have other rows may "
                    "have other leaves, too, and would wait for one another. Let collate_fn give every batch the same"
                )
            for (name, was, kind), (_, now, dtype) in zip(first, shapes, strict=True):
                if was[1:] != now[1:]:
                    raise CollateError(
                        f"{name} has the shape {now}, and had {was} before: each process pads its own rows, and rows "
                        "of other processes may have yet another shape. Give all batches one shape: pad(…, length=512)"
                    )
                if kind != dtype:
                    raise CollateError(
                        f"{name} has the dtype {dtype}, and had {kind} before: rows of other processes may still have "
                        f"that, and one array cannot have both. Let the dataset always give one type: np.{kind}(…)"
                    )
            return

    def take(self, shapes: Shapes) -> str | None:
        """Count the shapes of a batch; the warning to give, if any."""
        if shapes in self._shapes:
            return None
        self._shapes[shapes] = None
        if len(self._shapes) != TOO_MANY:
            return None
        before, now = list(self._shapes)[-2:]
        differing = next((pair for pair in zip(before, now, strict=False) if pair[0] != pair[1]), (before, now))
        (name, was, kind), (_, shape, dtype) = differing if len(before) == len(now) else (before[0], now[0])
        return (
            f"this is the {TOO_MANY}rd different shape of batches: {name} is {dtype}{list(shape)}, and was "
            f"{kind}{list(was)}. jax.jit compiles again for each shape, which may take longer than the step: pad to "
            "few lengths (pad(…, multiple=128), BucketBatchSampler), and leave drop_last=True or pad_last=True. "
            "loader.stats().shapes lists them"
        )

    def added_to(self, stats: Stats) -> JaxStats:
        """The core's statistics, with these."""
        return JaxStats(**vars(stats), shapes=tuple(self._shapes), late_copies=self.late)


def told(function: Callable[[Stats], object], counters: Counted, stats: Stats) -> object:
    """`on_epoch_end` gets what `loader.stats()` would return."""
    return function(counters.added_to(stats))


def have_arrived(batch: list[Any]) -> bool:
    """Have the copies of all arrays ended?"""
    return all(array.is_ready() for array in batch)
