"""`loader.progress()`: the same batches, errors and end as without it, and a bar wherever one can be shown."""

from __future__ import annotations

import io
import sys
import threading
import types

import numpy as np
import pytest
from kinds import quick_kinds
from traced import Numbers

from feedline import DataLoader, IterableDataset
from feedline.observe import bars, epoch_bar
from feedline.observe.bars import Counts


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=["tqdm", "rich", "plain"])
def terminal(request, monkeypatch):
    """A terminal in which only this can draw; every batch is drawn."""
    for module in {"tqdm": ["rich.progress"], "rich": ["tqdm.std"], "plain": ["tqdm.std", "rich.progress"]}[
        request.param
    ]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(epoch_bar, "EVERY", 0)
    return Terminal()


class Stream(IterableDataset):
    def __init__(self, says: int | None = None) -> None:
        self.says = says

    def __iter__(self):
        return iter(range(7))

    def __len__(self) -> int:
        if self.says is None:
            raise TypeError("a stream without a length")
        return self.says


class Failing(Numbers):
    def __getitem__(self, index):
        if index == 4:
            raise ValueError("sample 4")
        return super().__getitem__(index)


@quick_kinds
def test_batches_are_those_of_the_loader_and_a_log_has_one_line_for_each_epoch(kind, capfd):
    with DataLoader(Numbers(), batch_size=6, shuffle=True, seed=3, **kind) as loader:
        shown = loader.progress()
        got = [[batch.tolist() for batch in shown] for _ in range(2)]
        assert len(shown) == 7
    with DataLoader(Numbers(), batch_size=6, shuffle=True, seed=3) as plain:
        assert got == [[batch.tolist() for batch in plain] for _ in range(2)]
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(" batches, ")[0] for line in lines] == ["epoch 0: 7 of 7", "epoch 1: 7 of 7"]
    assert all("samples/s, waited" in line and "\x1b" not in line for line in lines)


def test_a_bar_counts_samples_and_waiting_as_the_loader_does(capsys):
    with DataLoader(Numbers(), batch_size=6) as loader:
        batches = iter(loader.progress("train\n epoch"))
        for _ in batches:
            pass
        assert batches._counts.samples == loader.stats().epoch.samples == 40
        assert 0 < batches._counts.waited <= batches._counts.seconds
    assert capsys.readouterr().err.startswith("train epoch: 7 of 7")


def test_a_resumed_epoch_begins_at_its_place(capsys):
    with DataLoader(Numbers(), batch_size=6) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    again = DataLoader(Numbers(), batch_size=4)  # 12 samples are 3 batches of 4
    again.load_state_dict(state)
    batches = iter(again.progress())
    next(batches)
    assert batches._counts.place == 4
    assert sum(1 for _ in batches) == 6
    assert capsys.readouterr().err.startswith("epoch 0: 10 of 10 batches")
    assert [len(list(again.progress())), capsys.readouterr().err[:17]] == [10, "epoch 1: 10 of 10"]


def test_a_resumed_stream_begins_at_its_place(capsys):
    first = DataLoader(Stream(7), batch_size=2)
    batches = iter(first)
    next(batches), next(batches), next(batches)
    again = DataLoader(Stream(7), batch_size=2)
    again.load_state_dict(first.state_dict())
    with pytest.warns(UserWarning, match="are read again"):  # the stream has no state of its own
        assert len(list(again.progress())) == 1
    assert capsys.readouterr().err.startswith("epoch 0: 4 of 4 batches")


def test_endless_loading_has_bars_for_virtual_epochs(capsys):
    endless = DataLoader(Numbers(), batch_size=6).forever(5)
    next(iter(endless))
    state = endless.state_dict()
    again = DataLoader(Numbers(), batch_size=6).forever(5)
    again.load_state_dict(state)
    assert len(list(again.progress())) == 4
    assert len(list(again.progress("next"))) == 5
    assert [line[:16] for line in capsys.readouterr().err.splitlines()] == ["batches: 5 of 5 ", "next: 5 of 5 bat"]


def test_a_stream_of_any_length(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)  # here: pytest sets it before each test
    assert len(list(DataLoader(Stream(), batch_size=2).progress("unknown"))) == 4
    with pytest.warns(UserWarning, match="length|elements|longer"):
        assert len(list(DataLoader(Stream(3), batch_size=2).progress("longer"))) == 4
    assert "unknown" in terminal.getvalue()
    assert "4/2" not in terminal.getvalue()


def test_terminals_show_the_end_and_nothing_starts_a_thread(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)  # here: pytest sets it before each test
    for _ in DataLoader(Numbers(), batch_size=6).progress("[bold]{train}"):
        assert not {type(thread).__module__.partition(".")[0] for thread in threading.enumerate()} & {"tqdm", "rich"}
    said = terminal.getvalue()
    assert "[bold]{train}" in said
    assert "7/7" in said or "7 of 7" in said
    assert "samples/s, waited" in said
    assert said.removesuffix("\x1b[?25h").endswith("\n")  # rich shows the cursor last
    assert bars._RichBar._shared is None


def test_bars_within_bars(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)  # here: pytest sets it before each test
    for _ in DataLoader(range(2)).progress("outer"):
        for _ in DataLoader(range(3)).progress("inner"):
            pass
    said = terminal.getvalue()
    assert "2/2" in said or "2 of 2" in said
    assert said.count("3/3") >= 2 or said.count("3 of 3") >= 2
    assert bars._RichBar._shared is None


def test_left_early(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)  # here: pytest sets it before each test
    for number, _ in enumerate(DataLoader(Numbers(), batch_size=6).progress("left")):
        if number == 2:
            break
    said = terminal.getvalue()
    assert "3/7" in said or "3 of 7" in said
    assert said.removesuffix("\x1b[?25h").endswith("\n")  # rich shows the cursor last
    assert bars._RichBar._shared is None


def test_close_ends_the_epoch_and_its_bar(capsys):
    batches = iter(DataLoader(Numbers(), batch_size=6).progress("closed"))
    next(batches)
    batches.close()
    assert capsys.readouterr().err.startswith("closed: 1 of 7")
    with pytest.raises(RuntimeError, match="closed before its end"):
        next(batches)


@quick_kinds
def test_after_an_error_the_loop_can_go_on(kind, capfd):
    with DataLoader(Failing(), batch_size=4, **kind) as loader:
        batches, got = iter(loader.progress()), 0
        while True:
            try:
                next(batches)
                got += 1
            except ValueError:
                continue
            except StopIteration:
                break
        assert got == 9
        assert list(batches) == []
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("epoch")]
    assert [line[:15] for line in lines] == ["epoch 0: 1 of 1", "epoch 0: 9 of 1"]


@pytest.mark.parametrize("wrong", ["write", "flush", "isatty"])
def test_a_terminal_that_fails_does_not_end_the_training(terminal, wrong, monkeypatch):
    def fail(*_: object) -> int:
        raise OSError("gone")

    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(terminal, wrong, fail)
    assert len(list(DataLoader(Numbers(), batch_size=6).progress())) == 7


def test_ctrl_c_while_the_bar_is_drawn_loses_no_batch(monkeypatch):
    class Interrupting:
        def show(self, counts: Counts) -> None:
            if counts.done == 2:
                monkeypatch.setattr(epoch_bar, "bar_for", lambda _: bars._LogLine())
                epoch_bar_seen.append(counts.done)
                raise KeyboardInterrupt

        def close(self, counts: Counts) -> None:
            pass

    epoch_bar_seen: list[int] = []
    monkeypatch.setattr(epoch_bar, "EVERY", 0)
    monkeypatch.setattr(epoch_bar, "bar_for", lambda _: Interrupting())
    batches, got = iter(DataLoader(range(4)).progress()), []
    while len(got) < 4:
        try:
            got.append(next(batches).item())
        except KeyboardInterrupt:
            monkeypatch.setattr(Interrupting, "show", lambda self, counts: None)
    assert got == [0, 1, 2, 3]
    assert epoch_bar_seen == [2]


def test_a_notebook_gets_html_in_which_no_name_is_markup(monkeypatch):
    shown: list[dict[str, str]] = []

    def update(data: dict[str, str], raw: bool) -> None:
        shown.append(data)

    def display(data: dict[str, str], raw: bool, display_id: bool) -> object:
        shown.append(data)
        return types.SimpleNamespace(update=update)

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel="one")  # type: ignore[attr-defined]
    module = types.ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    assert len(list(DataLoader(Numbers(), batch_size=6).progress("<script>"))) == 7
    assert 'value="7" max="7"' in shown[-1]["text/html"]
    assert all("<script>" not in data["text/html"] for data in shown)
    assert shown[-1]["text/plain"].startswith("<script>: 7 of 7")


def test_what_is_no_name_is_refused():
    with pytest.raises(TypeError, match="must be a text; got 3"):
        DataLoader(range(3)).progress(3)  # type: ignore[arg-type]


def test_tables_of_a_notebook_contain_no_markup_of_the_users():
    evil = type("<img src=x>", (Numbers,), {})
    loader = type("<b>", (DataLoader,), {})(evil(), batch_size=6)
    assert len(list(loader)) == 7
    page = loader._repr_html_() + loader.stats()._repr_html_()
    assert "&lt;img src=x&gt; of 40 samples" in page
    assert "<img" not in page
    assert '<b>"' not in page
    assert "&lt;b&gt;" in page
    assert "7 batches, 40 samples" in page
    assert np.array_equal(next(iter(loader)), np.arange(6))
