"""The report says what the recording has, judges by its rules, stays small, and nothing in the data becomes markup."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, few

from feedline import CollateStats, DataLoader, EpochStats, Stats, WorkerMemory
from feedline.collate import pad
from feedline.machine.cpus import Cpus
from feedline.messages.marks import Marks
from feedline.messages.outcome import BadSample
from feedline.messages.progress import AT_ONCE, COLLATING
from feedline.observe import recording as recordings
from feedline.observe.meter import Meter, Spent
from feedline.observe.recording import Delivered, Event, Recording, Slots
from feedline.observe.report import measured, page_of
from feedline.observe.report import report_page as page
from feedline.observe.report.measured import composition
from feedline.observe.report.report_page import embedded
from feedline.observe.report.report_verdict import BUSY, FEW, LITTLE, Waits, notes, verdict
from feedline.observe.report.timeline import timeline

MS = 1_000_000


def made(seq: int, start: int, samples: list[int], collate: int = 0, worker: int | None = 0, epoch: int = 0) -> Marks:
    """A batch whose samples took so long, in milliseconds; their indices are 100 × seq and so on."""
    times = [start * MS + sum(samples[:place]) * MS for place in range(len(samples))]
    turn = (start + sum(samples)) * MS
    indices = tuple(range(100 * seq, 100 * seq + len(samples)))
    places = (*range(len(samples)), COLLATING)
    return Marks(seq, epoch, worker, start * MS, turn + collate * MS, indices, places, (*times, turn))


def gave(seq: int, asked: int, had: int, labels: Any = None, size: int = 4, epoch: int = 0) -> Delivered:
    return Delivered(epoch, epoch, seq, size, asked * MS, had * MS, 1, Slots(), labels)


def recorded(marks: list[Marks], delivered: list[Delivered]) -> Recording:
    recording = Recording()
    recording.marks, recording.delivered = marks, delivered
    recording.began = 0
    return recording


class Page(HTMLParser):
    """What a browser would make of it: elements, texts, and the data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.texts: list[str] = []
        self.inside: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.texts.append(data)
        elif self.inside[-1] == "script":
            self.scripts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])


# ── Sums ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_waiting_and_work_over_time():
    delivered = [gave(i, 10 * i, 10 * i + 4) for i in range(100)]
    marks = [made(i, 10 * i, [5]) for i in range(100)]
    seen = measured.moments(recorded(marks, delivered), workers=1)
    assert len(seen.waiting) == 20
    assert seen.waiting[3] == pytest.approx(0.4, abs=0.02)
    assert seen.busy[3] == pytest.approx(0.5, abs=0.02)
    assert seen.samples[3] == pytest.approx(400, rel=0.05)


def test_between_epochs_there_is_neither_waiting_nor_work():
    first = [gave(i, i, i + 1, epoch=0) for i in range(50)]
    second = [gave(i, 500 + i, 501 + i, epoch=1) for i in range(50)]
    seen = measured.moments(recorded([], first + second), workers=2)
    assert seen.waiting[10] is None
    assert seen.samples[10] is None
    assert seen.waiting[0] == 1


def test_a_moment_in_which_hardly_any_of_an_epoch_lies_has_no_number():
    first = [gave(i, 2 * i, 2 * i + 2) for i in range(49)] + [gave(49, 98, 105)]
    second = [gave(i, 900 + 2 * i, 902 + 2 * i, epoch=1) for i in range(50)]
    seen = measured.moments(recorded([], first + second), workers=1)
    assert len(seen.waiting) == 20  # of 50 ms: five of the third belong to the first epoch
    assert [value is None for value in seen.samples] == [False] * 2 + [True] * 16 + [False] * 2


spans = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=12)


@given(spans, st.integers(1, 40))
@settings(max_examples=few(60))
def test_no_time_is_lost_or_made_up_when_it_is_cut_into_moments(pairs, count):
    marks, start = [], 0
    for seq, (idle, busy) in enumerate(pairs):
        marks.append(made(seq, start + idle, [busy], collate=busy // 2))
        start += idle + busy + busy // 2
    span = measured.whole(recorded(marks, []))
    edges = np.linspace(span.start, span.end, count + 1).astype(np.int64)
    ((fetching, collating),) = measured.occupancy(marks, edges).values()
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in (*fetching, *collating))
    steps = np.maximum(1, np.diff(edges))
    assert (np.array(fetching) * steps).sum() == pytest.approx(sum(busy for _, busy in pairs) * MS)
    assert (np.array(collating) * steps).sum() == pytest.approx(sum(busy // 2 for _, busy in pairs) * MS)


def test_the_slowest_samples_are_found_with_their_indices():
    marks = [made(0, 0, [1, 2, 9]), made(1, 20, [30, 1, 1], worker=1, epoch=2)]
    found = measured.samples(marks)
    slowest = [(one.index, one.nanoseconds // MS, one.worker, one.epoch, one.seq, one.place) for one in found.slowest]
    assert slowest[:3] == [(100, 30, 1, 2, 1, 0), (2, 9, 0, 0, 0, 2), (1, 2, 0, 0, 0, 1)]
    assert (found.number, found.median, found.total) == (6, 1.5 * MS, 44 * MS)
    assert found.in_slow == 30 * MS
    assert len(measured.samples([made(i, 0, [1] * 9) for i in range(9)]).slowest) == measured.SLOWEST


def test_samples_read_at_once_have_no_times():
    at_once = made(0, 0, [5])._replace(places=(AT_ONCE, COLLATING))
    assert measured.samples([at_once]) == measured.samples([]) == measured.SampleTimes()


def test_workers_are_added_up():
    marks = [made(0, 0, [3], 1), made(1, 5, [2], 0), made(2, 0, [8], 2, worker=1)]
    found = measured.workers(recorded(marks, [gave(0, 0, 10), gave(1, 15, 20)]))
    assert found == [measured.Worker(0, 2, 0.005, 0.001, 0.3), measured.Worker(1, 1, 0.008, 0.002, 0.5)]


def test_labels_are_counted_batch_by_batch():
    delivered = [gave(0, 0, 1, ((0, 2), (7, 2))), gave(1, 2, 3, ((7, 4),)), gave(2, 4, 5, None)]
    found = measured.composition(delivered)
    assert found is not None
    assert (found.labels, found.counts, found.batches_with) == (("0", "7"), (2, 6), (1, 2))
    assert found.columns == ((0.5, 0.5), (0.0, 1.0))
    assert (found.batches, found.different, found.single, found.per_column) == (2, 2, 1, 1)
    assert measured.composition(delivered[2:]) is None
    alone = measured.composition([gave(0, 0, 1, ((3, 1),), size=1)])
    assert alone is not None
    assert alone.single == 0  # of one sample it means nothing


@given(st.lists(st.dictionaries(st.integers(0, 30), st.integers(1, 9), min_size=1), min_size=1, max_size=300))
@settings(max_examples=few(30))
def test_many_labels_and_batches_are_drawn_in_few_columns_that_add_up(batches):
    found = measured.composition([gave(i, i, i, tuple(one.items())) for i, one in enumerate(batches)])
    assert found is not None
    assert len(found.labels) <= measured.LABELS
    assert len(found.columns) <= measured.COLUMNS
    assert sum(found.counts) == sum(sum(one.values()) for one in batches)
    assert all(sum(column) == pytest.approx(1) for column in found.columns)
    assert found.different == len(set().union(*batches))


# ── The verdict ───────────────────────────────────────────────────────────────────────────────────────────


def flow(**given: Any) -> EpochStats:
    return EpochStats(**{"seconds": 100.0, "batches": 1000, "samples": 32000, "num_workers": 2, **given})


EVEN = measured.Waits(first=0.01, longest=0.1)
CASES = [
    ("few", flow(batches=FEW - 1), EVEN, "too few to judge", ""),
    ("keeps up", flow(waiting=100 * LITTLE, fetching=150), EVEN, "The loader keeps up", "loop itself"),
    ("too many workers", flow(waiting=1, fetching=20, num_workers=8), EVEN, "keeps up", "num_workers=1"),
    ("no workers", flow(waiting=41, fetching=41, num_workers=0), EVEN, "bottleneck", "num_workers=4"),
    ("a slow step", flow(waiting=7, fetching=7, num_workers=0), EVEN, "would take 7 % less time", "num_workers=4"),
    ("busy", flow(waiting=41, fetching=190), EVEN, "waited 41 % of the time; the workers were busy 95 %", "workers=4"),
    ("busy, no CPUs left", flow(waiting=41, fetching=780, num_workers=8), EVEN, "bottleneck", "not if they compute"),
    ("collate", flow(waiting=41, fetching=50, collating=140), EVEN, "bottleneck", "cheaper collate_fn: 74 %"),
    ("fetch", flow(waiting=41, fetching=140, collating=50), EVEN, "bottleneck", "faster __getitem__: 74 %"),
    ("send", flow(waiting=41, fetching=30, sending=150), EVEN, "bottleneck", "packing batches"),
    ("transfer", flow(waiting=41, fetching=20, transferring=30), EVEN, "bottleneck", "on their way to the device"),
    ("deliver", flow(waiting=41, fetching=20, delivering=30), EVEN, "bottleneck", "unpacking"),
    ("start", flow(waiting=41, fetching=20), measured.Waits(0.7, 0.1), "bottleneck", "persistent_workers=True"),
    ("uneven", flow(waiting=41, fetching=20), measured.Waits(0.1, 0.7), "bottleneck", "prefetch_factor"),
    ("handing over", flow(waiting=41, fetching=20), EVEN, "bottleneck", "had time, and yet the loop waited"),
    ("just busy", flow(waiting=41, fetching=200 * BUSY), EVEN, "bottleneck", "hardly a break"),
]


@pytest.mark.parametrize(("given", "spread", "head", "says"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_each_rule_of_the_verdict(given, spread, head, says):
    judged = verdict(given, spread, cpus=4)
    assert head in judged.headline
    assert says in " ".join((judged.why, *judged.advice))
    level = "unknown" if "few" in head else "good" if "keeps up" in head else "slow"
    assert judged.level == level


ON_DEVICE = {"basis": "device events", "device_stepping": 90, "steps": 100}
BASES = [
    ("host waits, device does not", flow(waiting=60, device_waiting=1, **ON_DEVICE), "good", "loop itself waited 60 %"),
    ("device waits", flow(waiting=60, fetching=190, device_waiting=60, **ON_DEVICE), "slow", "loader.step()"),
    ("copies", flow(waiting=1, device_waiting=40, **ON_DEVICE), "slow", "device waited for their copies"),
    ("no step", flow(waiting=1, device_waiting=1, **ON_DEVICE | {"steps": 0}), "good", "device, between batches"),
    ("host", flow(waiting=60, fetching=190, steps=9, stepping=20, basis="loader.step()"), "slow", "the host's clock"),
    ("elsewhere", flow(waiting=1, steps=9, stepping=20, basis="loader.step()"), "good", "79 % of the time is neither"),
    ("neither", flow(waiting=60, fetching=190), "slow", "asynchronously are not seen. Put `with loader.step():`"),
]


@pytest.mark.parametrize(("given", "level", "says"), [case[1:] for case in BASES], ids=[case[0] for case in BASES])
def test_a_verdict_says_what_it_is_based_on(given, level, says):
    judged = verdict(given, EVEN, cpus=4)
    assert judged.level == level
    assert says in " ".join((judged.why, *judged.advice, judged.basis))
    assert judged.basis.startswith("This is based on ")
    assert ("The device waited" in judged.headline) == (given.basis == "device events")


@given(*(st.floats(0, 1e4) for _ in range(6)), st.integers(0, 64), st.integers(0, 50), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=few(100))
def test_there_is_a_verdict_for_any_run(seconds, waiting, fetching, collating, delivering, moving, workers, n, a, b):
    given = EpochStats(
        seconds=seconds, waiting=min(waiting, seconds), batches=n, num_workers=workers, fetching=fetching,
        collating=collating, delivering=delivering, transferring=moving,
    )  # fmt: skip
    judged = verdict(given, measured.Waits(a, b), cpus=2)
    assert judged.headline.endswith(".")
    assert (judged.level == "slow") == (n >= FEW and given.waiting_share > LITTLE)


def test_what_else_is_worth_a_look_is_said():
    quiet = measured.composition([gave(0, 0, 1, ((0, 2), (1, 2)))])
    assert notes(Stats(), 0, measured.SampleTimes(), quiet) == []
    sorted_data = measured.composition([gave(i, i, i, ((i, 4),)) for i in range(4)])
    slow = measured.SampleTimes(number=100, total=100.0, in_slow=30.0)
    said = notes(Stats(errors=1, collate=CollateStats(padding=0.5)), 2, slow, sorted_data)
    for words in (
        "30 % of the reading",
        "50 % of the padded",
        "100 % of the batches",
        "1 sample failed",
        "2 workers died",
    ):
        assert sum(words in line for line in said) == 1
    same_label = measured.composition([gave(i, i, i, ((3, 4),)) for i in range(4)])
    assert notes(Stats(), 0, measured.SampleTimes(), same_label) == []  # it has no other


@pytest.mark.parametrize("flow", [EpochStats(seconds=1.0, waiting=2.12, batches=100, num_workers=2, transferring=4.0)])
def test_a_share_is_at_most_all(flow: EpochStats) -> None:
    assert flow.waiting_share == 1.0
    judgement = verdict(flow, Waits(), 2)
    assert judgement.headline.startswith("Your loop waited 100 % of the time")
    assert judgement.why.startswith("100 % of the waiting")


# ── The page ──────────────────────────────────────────────────────────────────────────────────────────────


class Sentences:
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 7:
            raise ValueError("</script><script>alert(1)</script>")
        return {"tokens": np.ones(1 + index % 9, np.float32), "label": index % 3}

    def describe(self, index: int) -> str:
        return f'photos/"{index}" & <b>.jpg'


def report_of_a_real_run(path: Path, **options: Any) -> Page:
    with DataLoader(Sentences(), batch_size=4, on_error="skip", collate={"tokens": pad(0)}, **options) as loader:
        with loader.report(path):
            for _ in range(2):
                for _ in loader:
                    pass
    return Page(path.read_text(encoding="utf-8"))


def test_a_real_run_is_all_there(tmp_path):
    # In turn: on a busy machine one worker may make all of so few batches.
    page = report_of_a_real_run(tmp_path / "run.html", shuffle=True, seed=2, assignment="in_turn", **FORK)
    for words in (
        "2 epochs, 24 batches, 94 samples, 2 workers",
        "Your loop waited",
        "worker 0",
        "worker 1",
        "MB in all",
        "Slowest samples",
        "Of 96 samples, the median took",
        "of 24 batches have a single label",
        "of the padded arrays is padding",
        "ValueError: </script><script>alert(1)</script>",
        'photos/"7" & <b>.jpg',
        "left out",
    ):
        assert words in page.text, words
    data = page.data
    assert data["rows"] == ["training loop", "worker 0", "worker 1"]
    assert len(data["given"]["seq"]) == len(data["made"]["seq"]) == 24
    assert sum(data["given"]["size"]) == 94
    assert sorted(chain(*data["made"]["indices"])) == sorted([*range(48)] * 2)
    ends = [sum(data["made"]["start"][: i + 1]) + data["made"]["fetch"][i] for i in range(24)]
    assert max(ends) <= data["length"]
    assert all(step >= 0 for step in data["made"]["start"])


def test_labels_that_are_texts_are_in_the_report(tmp_path: Path) -> None:
    data = [{"x": 1.0, "label": "<dog>" if number % 3 else "cat"} for number in range(12)]
    loader = DataLoader(data, batch_size=4)
    with loader.report(tmp_path / "run.html"):
        list(loader)
    text = (tmp_path / "run.html").read_text()
    assert "&lt;dog&gt;" in text
    assert "<dog>" not in text
    mixed = [recordings.labels_in((None, labels), 2) for labels in (["b", "a"], np.array([3, 3]))]
    assert mixed == [(("a", 1), ("b", 1)), ((3, 2),)]
    given = [recordings.Delivered(0, 0, seq, 2, 0, 1, 0, Slots(), labels) for seq, labels in enumerate(mixed)]
    assert composition(given).labels == ("3", "a", "b")  # type: ignore[union-attr]


def test_the_verdict_counts_the_cpus_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "look", lambda: Cpus(host=64, allowed=64, quota=3.0, version=2))
    loader = DataLoader(range(40), batch_size=2)
    with loader.report(tmp_path / "run.html"):
        list(loader)
    assert "num_workers=3 (3 CPUs here)" in (tmp_path / "run.html").read_text()


def test_it_says_who_is_slow_as_it_really_is(tmp_path):
    class Waiting(Sentences):
        def __getitem__(self, index: int) -> int:
            time.sleep(0.002)
            return index

    with DataLoader(Waiting(), batch_size=4) as loader, loader.report(tmp_path / "slow.html"):
        for _ in loader:
            pass
    assert "The loader is the bottleneck" in Page((tmp_path / "slow.html").read_text()).text
    with DataLoader(Waiting(), batch_size=4, num_workers=2, workers="thread") as loader:
        with loader.report(tmp_path / "good.html"):
            batches = iter(loader)
            for _ in range(len(loader)):
                while not batches.is_ready():  # something else to do
                    time.sleep(0.01)
                next(batches)
                time.sleep(0.1)  # a step, beside which it does not count that others want the CPU during `next()`
    assert "The loader keeps up" in Page((tmp_path / "good.html").read_text()).text


def test_before_the_first_batch_there_is_a_page_too(tmp_path):
    loader = DataLoader(range(4))
    recorder = loader.report(tmp_path / "run.html")
    page = Page((tmp_path / "run.html").read_text())
    assert "0 batches are too few to judge" in page.text
    assert "canvas" not in page.elements
    recorder.stop()


def test_what_the_data_says_cannot_become_markup():
    wild = "</script><script>alert('x')</script><img src=x onerror=alert(1)> \" ' & \u2028 \udc80 {}"
    marks = made(0, 0, [1, 2])._replace(indices=(wild, (wild, 2)))
    recording = recorded([marks], [gave(0, 0, 4, ((1, 2),))])
    recording.events = [Event(1, wild)]
    recording.meters = [Meter(0, 0, Spent())]
    bad = [BadSample(wild, 0, wild, wild, replacement=wild)]
    text = page_of(recording, Stats(errors=1), bad)
    text.encode("utf-8")
    page, calm = Page(text), Page(page_of(recorded([marks._replace(indices=(1, 2))], recording.delivered), Stats(), []))
    assert page.elements.count("script") == calm.elements.count("script") == 2
    assert "img" not in page.elements
    assert page.data["made"]["indices"] == [[wild[:60], str((wild, 2))[:60]]]
    assert page.data["events"][0][1].startswith("</script><script>")
    assert page.text.count("</script><script>alert('x')</script>") >= 5


@given(st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.integers()))
@settings(max_examples=few(100))
def test_any_json_survives_being_embedded(data):
    text = embedded(data)
    assert json.loads(text) == data
    assert not set("<>&\u2028\u2029") & set(text)


def test_an_index_whose_text_fails_is_named_by_its_kind():
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    marks = made(0, 0, [1])._replace(indices=(Odd(),))
    assert "Odd" in Page(page_of(recorded([marks], [gave(0, 0, 4)]), Stats(), [])).text


def test_no_address_is_asked_for():
    text = page_of(recorded([made(0, 0, [1])], [gave(0, 0, 4)]), Stats(), [])
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|@import|url\(", text)


def test_a_large_run_stays_small():
    """20,000 batches of 64, the most that is recorded."""
    recording = Recording()
    recording.began = 0
    places = (*range(64), COLLATING)
    for seq in range(20_000):
        start = seq * 7_654_321
        times = tuple(range(start, start + 65 * 543_210, 543_210))
        marks = Marks(
            seq, 0, seq % 8, start, times[-1] + 1_234_567, tuple(range(64 * seq, 64 * seq + 64)), places, times
        )
        recording.marks.append(marks)
        recording.delivered.append(Delivered(0, 0, seq, 64, start, start + 987_654, 2, Slots(), ((seq % 100, 64),)))
    recording.events = [Event(1, "x" * 100_000)] * 1000
    text = page_of(recording, Stats(workers=(WorkerMemory(0, 1, 1, 1, 1),) * 64), [])
    assert len(text) < 3_000_000
    data = Page(text).data
    assert "samples" not in data["made"]
    assert {len(indices) for indices in data["made"]["indices"]} == {3}
    assert set(data["made"]["size"]) == {64}


def test_few_samples_are_drawn_one_by_one():
    recording = recorded([made(3, 5, [1, 2], 1)], [])
    drawn = timeline(recording, measured.whole(recording))["made"]
    assert drawn["samples"] == [[0, 0, 1, 1000, COLLATING, 3000]]
    assert (drawn["start"], drawn["fetch"], drawn["collate"], drawn["indices"]) == ([0], [3000], [1000], [[300, 301]])


# ── Colours ───────────────────────────────────────────────────────────────────────────────────────────────


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_everything_can_be_told_from_its_ground():
    css = (Path(measured.__file__).parent / "page.css").read_text()
    roots = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)]
    assert len(roots) == 3  # light, dark, paper
    assert all(root.keys() == roots[0].keys() for root in roots)
    for root in roots:
        for ground in (root["ground"], root["card"]):
            assert min(contrast(root[name], ground) for name in ("ink", "faint")) >= 4.5
            marks = [name for name in root if name not in ("ground", "card", "ink", "faint", "rule")]
            assert min(contrast(root[name], ground) for name in marks) >= 3
        assert contrast(root["fetch"], root["card"]) >= 4.5  # a batch's number stands on it
