"""Outcomes come in any order and leave in the right one.

Takes: the numbers of the tasks sent out, and their outcomes as they come. Gives: outcomes in task order, or as they
come. Promises: each task's outcome exactly once, whatever was run twice.
Not its job: waiting (workers), unpacking (arena).
"""

from __future__ import annotations

from collections import deque

from feedline.messages import Outcome


class Delivery:
    """What is out, what is back, and what may leave next.

    >>> delivery = Delivery(in_order=True)
    >>> delivery.expect(0); delivery.expect(1)
    >>> delivery.put(Outcome(1)); delivery.pop() is None
    True
    >>> delivery.put(Outcome(0)); delivery.pop().seq, delivery.pop().seq
    (0, 1)
    """

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._expected: deque[int] = deque()
        self._waited_for: set[int] = set()
        self._back: dict[int, Outcome] = {}

    def __len__(self) -> int:
        """Tasks sent out whose outcome has not left yet."""
        return len(self._waited_for) + len(self._back)

    def expect(self, seq: int) -> None:
        """Task `seq` has been sent out."""
        self._waited_for.add(seq)
        if self._in_order:
            self._expected.append(seq)

    def put(self, outcome: Outcome) -> None:
        """An outcome has come; one that is not waited for (any more) is dropped."""
        if outcome.seq in self._waited_for:
            self._waited_for.discard(outcome.seq)
            self._back[outcome.seq] = outcome

    @property
    def back(self) -> int:
        """Outcomes that have come and not left."""
        return len(self._back)

    @property
    def ready(self) -> bool:
        """Would `pop` give an outcome with something in it?"""
        if not self._back:
            return False
        following = self._back.get(self._expected[0]) if self._in_order else next(iter(self._back.values()))
        return following is not None and (following.size > 0 or following.failure is not None)

    @property
    def following(self) -> int | None:
        """The task whose outcome is to leave next, if that is known."""
        return self._expected[0] if self._expected else None

    def pop(self) -> Outcome | None:
        """The outcome that is next to leave, if it is back."""
        if not self._back:
            return None
        if not self._in_order:
            return self._back.pop(next(iter(self._back)))
        outcome = self._back.pop(self._expected[0], None)
        if outcome is not None:
            self._expected.popleft()
        return outcome
