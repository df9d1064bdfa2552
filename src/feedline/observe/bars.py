"""Progress bars: tqdm's, rich's, a notebook's, and a plain line where there is nothing else.

Takes: the counts of an epoch. Gives: `bar_for`, which chooses what can be shown where this program runs.
Promises: no thread is started, so workers can be forked while a bar is shown. Texts are shown as they are: nothing in
them is markup. A log gets one line when the bar is closed, and no control codes.
Not its job: counting, when to draw, and errors of a bar (epoch_bar).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

from feedline.errors.foreign import ask
from feedline.observe.epoch_stats import BETWEEN, DEVICE, EpochStats
from feedline.observe.terminal import show_line, takes_escapes


@dataclass
class Counts:
    """How far an epoch is.

    >>> print(Counts("epoch 0", before=2, done=3, total=8, samples=96, seconds=2.0, waited=0.5))
    epoch 0: 5 of 8 batches, 48 samples/s, waited 25 % of 2.0 s
    """

    name: str
    before: int
    """Batches delivered before the run was resumed."""
    total: int | None
    """Batches of the whole epoch, if that is known."""
    done: int = 0
    """Batches delivered since then."""
    samples: int | None = 0
    """None if the loader does not know how many samples its batches have."""
    seconds: float = 0.0
    waited: float = 0.0
    known: Callable[[], EpochStats | None] = lambda: None
    """What the loader has measured, if it tells the step from the rest."""

    @property
    def place(self) -> int:
        """Batches from the beginning of the epoch."""
        return self.before + self.done

    @property
    def known_total(self) -> int | None:
        """A stream may turn out to be longer than it said."""
        return self.total if self.total is not None and self.place <= self.total else None

    @property
    def speed(self) -> str:
        """Samples per second, and the share of the time that the loop waited."""
        counted, unit = (self.done, "batches") if self.samples is None else (self.samples, "samples")
        rate = counted / self.seconds if self.seconds else 0.0
        share = min(1.0, self.waited / self.seconds) if self.seconds else 0.0
        return f"{rate:,.0f} {unit}/s{self._steps()}, waited {share:.0%}".replace("%", " %")

    def _steps(self) -> str:
        if (flow := self.known()) is None or flow.basis == BETWEEN:
            return ""
        if flow.basis == DEVICE:
            return f", device: step {flow.step_share:.0%}, waiting {flow.starved_share:.0%}"
        return f", step {min(1.0, flow.step / self.seconds) if self.seconds else 0.0:.0%}"

    def __str__(self) -> str:
        many = f"{self.place:,}" if self.known_total is None else f"{self.place:,} of {self.known_total:,}"
        return f"{self.name}: {many} batches, {self.speed} of {self.seconds:.1f} s"


class Bar(Protocol):
    """Something that shows how far an epoch is."""

    def show(self, counts: Counts) -> None:
        """Draw it."""

    def close(self, counts: Counts) -> None:
        """Draw it for the last time."""


def bar_for(counts: Counts) -> Bar:
    """The best bar that can be shown here."""
    if (shell := _notebook()) is not None:
        return _HtmlBar(counts, shell)
    if not takes_escapes(sys.stderr):
        return _LogLine()
    for bar in (_TqdmBar, _RichBar):
        try:
            return bar(counts)
        except Exception:  # it is not installed, or of a version that we do not know
            continue
    return _PlainBar()


def _notebook() -> Any:
    """IPython's display module, if this is a notebook."""
    if (ipython := sys.modules.get("IPython")) is None:
        return None
    shell = ask(ipython, "get_ipython", lambda: None)()
    if ask(shell, "kernel") is None:
        return None
    try:
        return importlib.import_module("IPython.display")
    except Exception:
        return None


class _TqdmBar:
    """Nested bars, also the user's own of tqdm, each have a line."""

    def __init__(self, counts: Counts) -> None:
        tqdm: Any = importlib.import_module("tqdm.std").tqdm
        # tqdm starts a thread that watches its bars; 0 for this class alone means none.
        kind = type("feedline_tqdm", (tqdm,), {"monitor_interval": 0})
        ends = "{n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
        shape = "{l_bar}{bar}| " + ends if counts.known_total is not None else "{desc}: {n_fmt} [{elapsed}{postfix}]"
        self._bar = kind(
            desc=counts.name,
            total=counts.known_total,
            initial=counts.place,
            bar_format=shape,
            file=sys.stderr,
            dynamic_ncols=True,
        )

    def show(self, counts: Counts) -> None:
        if counts.known_total is None and self._bar.total is not None:
            self._bar.total, self._bar.bar_format = None, "{desc}: {n_fmt} [{elapsed}{postfix}]"
        self._bar.n = counts.place
        self._bar.set_postfix_str(counts.speed, refresh=False)
        self._bar.refresh()

    def close(self, counts: Counts) -> None:
        self.show(counts)
        self._bar.close()


class _RichBar:
    """All bars of this process that are open are shown by one display, or rich would refuse the second."""

    _shared: Any = None

    def __init__(self, counts: Counts) -> None:
        rich: Any = importlib.import_module("rich.progress")
        console: Any = importlib.import_module("rich.console")
        display = _RichBar._shared
        if display is None:
            display = rich.Progress(
                rich.TextColumn("{task.description}", markup=False),
                rich.BarColumn(),
                rich.TextColumn("{task.fields[place]}", markup=False),
                rich.TimeElapsedColumn(),
                rich.TimeRemainingColumn(),
                rich.TextColumn("{task.fields[speed]}", markup=False),
                console=console.Console(stderr=True),
                auto_refresh=False,  # that would be a thread
                redirect_stdout=False,
                redirect_stderr=False,
            )
            display.start()
            display.console.show_cursor(True)  # nobody would show it again after a traceback
            _RichBar._shared = display
        self._display = display
        self._task = display.add_task(counts.name, total=counts.known_total, place="", speed="")

    def show(self, counts: Counts) -> None:
        place = f"{counts.place}" if counts.known_total is None else f"{counts.place}/{counts.known_total}"
        self._display.update(self._task, completed=counts.place, place=place, speed=counts.speed, refresh=True)

    def close(self, counts: Counts) -> None:
        self.show(counts)
        self._display.stop_task(self._task)
        open_tasks = [task for task in self._display.tasks if task.stop_time is None]
        if not open_tasks:
            _RichBar._shared = None
            self._display.stop()


class _HtmlBar:
    """In a notebook: HTML, which needs no widgets, and is still there when the notebook is rendered elsewhere."""

    def __init__(self, counts: Counts, display: Any) -> None:
        self._handle = display.display(self._data(counts), raw=True, display_id=True)

    def _data(self, counts: Counts) -> dict[str, str]:
        total = counts.known_total
        place = "" if total is None else f'<progress value="{counts.place}" max="{total}"></progress> '
        return {"text/html": f"<div>{place}{escape(str(counts))}</div>", "text/plain": str(counts)}

    def show(self, counts: Counts) -> None:
        self._handle.update(self._data(counts), raw=True)

    close = show


class _PlainBar:
    """A terminal without tqdm and rich: a line that replaces itself. Of nested ones the latest is seen."""

    def show(self, counts: Counts) -> None:
        show_line(str(counts))

    def close(self, counts: Counts) -> None:
        show_line(f"{counts}\n")


class _LogLine:
    """No terminal: nobody watches, so one line tells what was done."""

    def show(self, counts: Counts) -> None:
        pass

    def close(self, counts: Counts) -> None:
        print(counts, file=sys.stderr, flush=True)
