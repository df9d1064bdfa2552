"""Every view of the explorer, driven in a real browser: its numbers are Python's, its address reproduces it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page

import feedline
from feedline import BucketBatchSampler, DataLoader
from feedline.arena.slots import SlotPool
from feedline.collate import detection, drop_invalid, pack, pad
from feedline.diagnose.explorer.costs import Costs, sample_costs
from feedline.diagnose.explorer.transfers import transfers
from feedline.diagnose.simulation import Work, Workers, simulate
from feedline.order.permutation import random_words
from feedline.randomness.rng import mix

VIEWS = ["batching", "samplers", "collation", "timeline", "failures", "memory", "run"]
Go = Callable[..., dict[str, Any]]


@pytest.fixture
def go(explorer: Page) -> Go:
    """Open a view with a state, and return its numbers."""

    def open_view(name: str, **state: Any) -> dict[str, Any]:
        query = "&".join(f"{key}={value}" for key, value in state.items())
        explorer.js(f"feedline.main.open({json.dumps('#' + name + '?' + query)})")
        return json.loads(explorer.js("JSON.stringify(feedline.main.current.result.numbers)"))

    return open_view


def text(page: Page, selector: str = "#view") -> str:
    return page.js(f"document.querySelector({json.dumps(selector)}).textContent")


def cards(page: Page) -> dict[str, str]:
    script = (
        "[...document.querySelectorAll('.cards div')].map(e => [e.children[0].textContent, e.children[1].textContent])"
    )
    return dict(page.js(script))


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_has_three_questions_a_line_of_python_and_a_link_to_itself(explorer, go, name):
    go(name)
    assert explorer.js("document.querySelectorAll('#view details').length") == 3
    assert "DataLoader" in text(explorer, "#view .code") or name == "run"
    link = explorer.js("document.getElementById('link').getAttribute('href')")
    before = explorer.js("JSON.stringify(feedline.main.current.state)")
    explorer.js(f"feedline.main.open('#batching?n=5'); feedline.main.open({json.dumps(link)})")
    assert explorer.js("JSON.stringify(feedline.main.current.state)") == before
    assert explorer.js("document.querySelector('nav [aria-current]').textContent") in text(explorer, "#title")


@pytest.mark.parametrize("name", VIEWS)
def test_it_is_as_wide_as_the_screen_and_everything_has_a_name(explorer, go, name):
    try:
        for width in (1280, 390):
            explorer.size(width, 900, mobile=width == 390)
            go(name)
            explorer.settle()
            assert explorer.js("document.documentElement.scrollWidth") <= width
    finally:
        explorer.size(1280, 900)
    nameless = """[...document.querySelectorAll('#view input, #view select, #view button')].filter(e =>
        !e.getAttribute('aria-label') && !(e.labels && e.labels.length) && !e.textContent.trim()).length"""
    assert explorer.js(nameless) == 0


def test_a_control_changes_numbers_address_and_answers(explorer, go):
    go("batching", n=100, b=16)
    assert cards(explorer)["batches of this loader"] == "7"
    explorer.js("e = document.getElementById('c-drop_last'); e.checked = true; e.dispatchEvent(new Event('change'))")
    assert cards(explorer)["batches of this loader"] == "6"
    assert "drop_last=1" in explorer.js("location.hash")
    assert "drop_last=True" in text(explorer, "#view .code")
    assert "4 samples remain" in text(explorer)


def test_the_keyboard_reaches_a_control_and_zooms_the_chart(explorer, go):
    go("timeline", workers=2)
    explorer.js("document.querySelector('#c-workers + input').focus()")
    explorer.call(
        "Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39
    )
    explorer.call("Input.dispatchKeyEvent", type="keyUp", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    assert explorer.js("feedline.main.current.state.workers") == 3
    before = text(explorer, "output")
    explorer.js("document.querySelector('.gantt svg').focus()")
    explorer.key("+")
    assert text(explorer, "output") != before
    explorer.key("0")
    assert text(explorer, "output") == before


def test_values_that_are_not_allowed_become_the_nearest_that_are(explorer, go):
    go("batching", n=-3, b="x", seed="", shuffle="<b>")
    state = explorer.js("feedline.main.current.state")
    assert (state["n"], state["b"], state["seed"], state["shuffle"]) == (1, 16, 7, False)
    go("samplers", counts="5,<img src=x>,3", sampler="none")
    state = explorer.js("feedline.main.current.state")
    assert (state["counts"], state["sampler"]) == ("900,80,20", "random")
    explorer.js("feedline.main.open('#nowhere?<script>')")
    assert explorer.js("feedline.main.current.view.name") == "batching"


def test_code_of_samplers_runs_and_gives_the_batches_of_the_page(explorer, go):
    for sampler in ("random", "weighted", "stratified", "replacement"):
        go("samplers", counts="40,9,2", sampler=sampler, b=8, ranks=2, seed=5)
        labels = np.repeat([0, 1, 2], [40, 9, 2])
        known: dict[str, Any] = {"dataset": np.arange(51), "labels": labels, "rank": 1}
        exec(text(explorer, "#view .code"), known)
        own = explorer.js("feedline.samplers.batchesOfRanks(feedline.main.current.state)[1]")
        assert [batch.tolist() for batch in known["loader"]] == own


def uniform(key: int, count: int) -> list[float]:
    return ((random_words(key, 0, count) >> np.uint64(11)) * 2.0**-53).tolist()


def test_collation(explorer, go):
    state = {"n": 300, "longest": 70, "b": 16, "multiple": 4, "max_padding": 0.2, "row": 64, "bad": 0.2, "seed": 3}
    found = go("collation", **state)
    lengths = [1 + int(69 * u * u * u) for u in uniform(mix(3, 3), 300)]
    bad = [u < 0.2 for u in uniform(mix(3, 4), 300)]
    rows = [np.zeros(length, np.int64) for length in lengths]
    plain: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3}
    padded = DataLoader(rows, collate_fn=pad(multiple=4), **plain)
    assert len(list(padded)) == found["batches"]
    assert found["padded"] == pytest.approx(padded.stats().collate.padding)
    sampler = BucketBatchSampler(lengths, 16, max_padding=0.2, seed=3)
    bucketed = DataLoader(rows, batch_sampler=sampler, collate_fn=pad(multiple=4))
    assert list(bucketed)
    assert found["bucketed"] == pytest.approx(bucketed.stats().collate.padding)
    packed = [batch.data.size for batch in DataLoader(rows, collate_fn=pack(64, on_long="split"), **plain)]
    assert found["rows"] == sum(packed) // 64
    assert found["packed"] == pytest.approx(1 - sum(lengths) / sum(packed))
    data = [None if wrong else np.zeros(1) for wrong in bad]
    dropping = DataLoader(data, collate_fn=drop_invalid(), **plain)
    sizes = [len(batch) for batch in dropping]
    assert (found["dropped"], found["smallest"]) == (dropping.stats().collate.dropped, min(sizes))


def test_detection_and_masks_that_are_shown(explorer, go):
    state = {"n": 40, "b": 6, "seed": 3, "batch": 2}
    go("collation", what="detection", **state)
    known = uniform(mix(3, 5), 120)
    sizes = [(32 + int(65 * known[at]), 32 + int(65 * known[at + 1])) for at in range(0, 120, 3)]
    order = list(feedline.RandomSampler(40, seed=3))[12:18]
    batch = detection()([(np.zeros((3, *sizes[index]), np.uint8), {}) for index in order])
    assert f"an array of shape {batch.images.shape}" in text(explorer)
    go("collation", what="sequences", longest=40, row=48, method="pack", **state)
    lengths = [1 + int(39 * u * u * u) for u in uniform(mix(3, 3), 40)]
    packed = pack(48, on_long="split")([np.zeros(lengths[index], np.int64) for index in order])
    shown = explorer.js(
        "[...document.querySelectorAll('table.mask tr')].map(r => [...r.children].map(c => c.style.background))"
    )
    filled = [[style != "var(--rule)" for style in row] for row in shown]
    assert filled == (packed.segments > 0).tolist()


@pytest.mark.parametrize("workers", [0, 3])
def test_the_timeline(explorer, go, workers):
    found = go("timeline", workers=workers, stragglers=0.05, b=8, batches=20, collate=1.5, step=6, seed=11)
    costs = sample_costs(Costs(2000, 0.2, 0.05, 20), 160, key=mix(11, 6))
    work = Work([costs[at : at + 8] for at in range(0, 160, 8)], 1500, 6000)
    ours = simulate(work, Workers(workers, known=sum(costs) / 160 / 1e6))
    torchs = simulate(work, Workers(workers, rules="torch"))
    assert (found["end"], found["torchEnd"], found["parts"]) == (ours.end, torchs.end, len(ours.spans))
    assert found["waiting"] == pytest.approx(ours.waiting_share)
    known: dict[str, Any] = {"dataset": [1]}
    said: list[float] = []
    exec(text(explorer, "#view .code").replace("print(", "said.append("), {**known, "said": said})
    assert said == [ours.waiting_share]


def test_transfers_and_slots(explorer, go):
    found = go("memory", mb=60, pageable=5, pinned=20, step=4, batches=10)
    assert found["end"] == transfers(10, 12_000, 4000, ahead=False)[-1].stepped
    assert found["endPinned"] == transfers(10, 3000, 4000, ahead=True)[-1].stepped
    for room, keep in ((1, 1), (4, 1), (4, 3), (2, 12)):
        said = explorer.js(f"feedline.memory.slotsOf({room}, {keep}, 30)")
        assert said["made"] == real_slots(room, keep, 30), (room, keep)


def real_slots(room: int, keep: int, batches: int) -> list[int]:
    """The slots that the loader's memory gives, if the loop holds its batches as the page says."""
    pool, out, made, held = SlotPool(), list[Any](), list[Any](), list[Any]()

    def fill() -> None:
        while len(out) < room and len(made) < batches:
            out.append(pool.take())
            made.append(out[-1].id)

    for _ in range(batches):
        fill()
        slot = out.pop(0)
        slot.room(65536)
        held.append(np.frombuffer(slot.lease(0, 65536), np.uint8))
        pool.put(slot)
        fill()
        del held[:-keep]
    held.clear()
    pool.close()
    numbers = {slot: number for number, slot in enumerate(sorted(set(made)))}
    return [numbers[slot] for slot in made]


def test_the_words_of_failures_are_shown_as_they_were_printed(explorer, go):
    words = explorer.js("JSON.parse(document.getElementById('data').textContent).words")
    for fault, sides in words.items():
        go("failures", fault=fault)
        shown = explorer.js("[...document.querySelectorAll('pre.said')].map(e => e.textContent)")
        runs = [*sides["torch"], *sides["feedline"]]
        assert shown == ["\n".join(run["lines"]) or "(nothing is printed)" for run in runs]
        assert Counter(run["batches"] == 8 for run in sides["torch"])[True] == 0


class Named:
    """Samples with names that would be markup."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> int:
        return index


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    paths = {"trace": folder / "run.json", "report": folder / "run.html"}
    loader = DataLoader(Named(), 4)
    with loader.trace(paths["trace"]), loader.report(paths["report"]):
        for _ in loader:
            pass
    return paths


def drop(page: Page, name: str, content: str) -> None:
    """Drop a file on the page, as a hand does, and wait until it has been read."""
    page.js(
        f"""new Promise(done => {{
        const data = new DataTransfer(), before = feedline.run.reads();
        data.items.add(new File([{json.dumps(content)}], {json.dumps(name)}));
        document.getElementById('drop').dispatchEvent(new DragEvent('drop', {{dataTransfer: data, cancelable: true}}));
        const look = () => feedline.run.reads() > before ? done() : setTimeout(look, 5);
        look(); }})"""
    )


def test_a_trace_and_a_report_of_one_run_show_the_same(explorer, go, files):
    found = {}
    for kind, path in files.items():
        go("run", workers=2)
        drop(explorer, path.name, path.read_text(encoding="utf-8"))
        found[kind] = json.loads(explorer.js("JSON.stringify(feedline.main.current.result.numbers)"))
    events = json.loads(files["trace"].read_text())["traceEvents"]
    waits = [event["dur"] for event in events if event["name"] == "wait"]
    for numbers in found.values():
        assert numbers["batches"] == len(waits) == 8
        assert len(numbers["slowest"]) == 10
    waited, steps = sum(waits), sum(event["dur"] for event in events if event["name"] == "compute")
    assert found["trace"]["waiting"] == pytest.approx(waited / (waited + steps), abs=0.01)
    slowest = max((event["dur"], event["args"]["index"]) for event in events if event["name"] == "sample")
    assert found["trace"]["slowest"][0]["index"] == slowest[1]
    fit = explorer.js(
        "JSON.stringify(feedline.runs.fitted(feedline.runs.parse(c)))".replace(
            "(c)", f"({json.dumps(files['trace'].read_text())})"
        )
    )
    work = json.loads(fit)
    samples = [one for batch in work["batches"] for one in batch]
    epoch = simulate(
        Work(work["batches"], work["collate"], work["step"]), Workers(2, known=sum(samples) / len(samples) / 1e6)
    )
    assert found["trace"]["whatIf"] == pytest.approx(epoch.waiting_share)


def recorded(fetches: list[tuple[int, int, int]], given: list[int]) -> str:
    """A trace: (worker, batch, samples) of each fetch, 9 µs a sample, and the batches that the loop was given."""
    events: list[dict[str, Any]] = []
    for worker, batch, samples in fetches:
        args = {"batch": batch, "epoch": 0}
        events.append({"name": "fetch", "ph": "X", "tid": worker, "ts": 0, "dur": 9 * samples, "args": args})
        for number in range(samples):
            one = {"name": "sample", "ph": "X", "tid": worker, "ts": 0, "dur": 9, "args": {"index": str(number)}}
            events.append(one)
        events.append({"name": "collate", "ph": "X", "tid": worker, "ts": 0, "dur": 2, "args": args})
    for batch in given:
        args = {"batch": batch, "epoch": 0}
        events.append({"name": "wait", "ph": "X", "tid": 0, "ts": 50 * batch, "dur": 30, "args": args})
    return json.dumps({"traceEvents": events})


def test_a_divided_batch_is_one_batch_and_only_what_was_delivered_is_simulated(explorer, go):
    content = recorded([(1, 0, 2), (2, 0, 3), (1, 1, 5), (2, 2, 5)], given=[0, 1])
    go("run")
    drop(explorer, "run.json", content)
    assert cards(explorer)["batches"] == "2"
    fit = explorer.js(f"feedline.runs.fitted(feedline.runs.parse({json.dumps(content)}))")
    assert (fit["batches"], fit["collate"]) == ([[9] * 5, [9] * 5], 3)
    drop(explorer, "run.json", recorded([(1, 3, 2)], given=[0]))
    assert "nothing was recorded" in text(explorer, "[role=alert]")
    drop(explorer, "run.json", content.replace('"dur": 9,', '"dur": 1e308,'))
    assert "is not a number" in text(explorer, "[role=alert]"), "and the page does not compute for ever"


def test_answers_at_the_edges_are_true(explorer, go):
    def answer(number: int) -> str:
        return explorer.js(f"document.querySelectorAll('#view details p')[{number}].textContent")

    go("batching", n=100, b=1)
    assert "each has a single sample" in answer(1)
    go("batching", n=10, b=16)
    assert answer(2).startswith("Yes: all 10 samples")
    go("batching", n=10, b=16, drop_last=1)
    assert answer(2).startswith("There is no batch")
    go("samplers", counts="98,2", b=64)
    assert f"none with a probability of {36 * 35 / (100 * 99):.0%}".replace("%", " %") in answer(0)
    go("samplers", counts="3,2", b=1024)
    assert "a random batch of 5 has 2 of it" in answer(0)
    go("timeline", mean=24, spread=0, batches=100)
    assert "Not even 16 workers bring that to 5 %; with 32 it waits" in answer(0)


def test_what_a_file_says_cannot_become_markup(explorer, go):
    evil = '<img src=x onerror="window.hurt = 1"></script><script>window.hurt = 1</script>'
    args = {"batch": 0, "epoch": 0}
    events = [{"name": "thread_name", "ph": "M", "tid": row, "args": {"name": evil}} for row in (0, 1)]
    events += [
        {"name": "fetch", "ph": "X", "tid": 1, "ts": 0, "dur": 9, "args": args},
        {"name": "sample", "ph": "X", "tid": 1, "ts": 0, "dur": 9, "args": {"index": evil}},
        {"name": "wait", "ph": "X", "tid": 0, "ts": 0, "dur": 9, "args": args},
    ]
    go("run")
    drop(explorer, evil, json.dumps({"traceEvents": events}))
    assert "onerror" in text(explorer), "it is there, as text"
    assert explorer.js("document.querySelectorAll('#view img, #view script').length") == 0
    assert explorer.js("window.hurt === undefined")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "neither a trace"),
        ("Hello", "neither a trace"),
        ("{}", "neither a trace"),
        ("null", "neither a trace"),
        ('{"traceEvents": []}', "nothing was recorded"),
        ('{"traceEvents": [{"name": "fetch", ', "breaks off"),
        ('{"traceEvents": [null]}', "an event is not an object"),
        ('{"traceEvents": [{"name": "wait", "ph": "X", "tid": 0, "ts": "soon", "dur": 1}]}', "a time is not a number"),
        ('<script type="application/json" id="data">{"rows": ["a"], "made": {}, "given": {}}</script>', "damaged"),
        (
            '<script type="application/json" id="data">{"rows": 3, "made": {"start": [1]}, "given": {}}</script>',
            "damaged",
        ),
    ],
)
def test_a_damaged_file_gets_a_sentence(explorer, go, content, words):
    go("run")
    drop(explorer, "run.json", content)
    said = text(explorer, "[role=alert]")
    assert words in said
    assert said.startswith("run.json: ")


def test_dark_mode_and_reduced_motion_are_respected(explorer, go):
    go("batching")
    ground, motion = (
        "getComputedStyle(document.body).backgroundColor",
        "getComputedStyle(document.querySelector('.batch'))",
    )
    light, moves = explorer.js(ground), explorer.js(f"{motion}.animationName")
    features = [
        {"name": "prefers-color-scheme", "value": "dark"},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    explorer.call("Emulation.setEmulatedMedia", media="", features=features)
    try:
        assert explorer.js(ground) != light
        assert (moves, explorer.js(f"{motion}.animationName")) == ("come", "none")
    finally:
        explorer.media()
