"""Within so many seconds: the alarm rings until it is heard, and leaves no trace."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Any

import pytest

from feedline.diagnose import deadline
from feedline.diagnose.deadline import TooLong, within


def test_the_alarm_rings_again_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "AGAIN", 0.01)

    def deaf() -> None:
        for _ in range(2):
            with contextlib.suppress(BaseException):
                time.sleep(60)
        time.sleep(60)

    with pytest.raises(TooLong), within(0.01):
        deaf()
    with pytest.raises(TooLong), within(0.01), within(100):  # the one around it is let be
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_an_alarm_that_rings_while_it_is_stopped_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised there, it would go on ringing, and in whatever is done next."""
    wind = signal.setitimer

    def late(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return wind(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "setitimer", late)
        with within(1000):
            pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
