"""The report in a real browser: it draws, zooms and tells, asks nobody for anything, and fits screens and paper."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser
from test_report import Sentences

from feedline import DataLoader
from feedline.collate import pad

WIDTH = 1100
GUTTER = 96
"""Where the timeline's names are."""


class Slow(Sentences):
    def __getitem__(self, index: int) -> dict[str, Any]:
        sum(range(20_000))
        return super().__getitem__(index)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "run.html"
    options: dict[str, Any] = {"num_workers": 2, "workers": "thread", "on_error": "skip"}
    with DataLoader(Slow(), batch_size=4, collate={"tokens": pad(0)}, **options) as loader, loader.report(path):
        for _ in range(3):
            began = time.monotonic()
            for number, _ in enumerate(loader):
                sum(range(20_000))
                if number == 3:  # wide enough to be seen, however slow the machine is
                    threading.Event().wait((time.monotonic() - began) / 4)
    return path


@pytest.fixture(scope="module")
def started() -> Iterator[Page]:
    with browser() as page:
        yield page


@pytest.fixture
def page(started: Page, report: Path) -> Page:
    started.size(WIDTH, 900)
    started.media()
    started.open(report)
    started.js("document.getElementById('canvas').scrollIntoView({block: 'center'})")
    started.settle()
    return started


def canvas(page: Page) -> tuple[float, float, float, float]:
    found = page.js(
        "(b => [b.left, b.top, b.width, b.height])(document.getElementById('canvas').getBoundingClientRect())"
    )
    return tuple(found)


def shown(page: Page) -> tuple[float, float]:
    """From when to when, in microseconds."""
    units = {"": 1, "µs": 1, "ms": 1e3, "s": 1e6}
    text = page.js("document.getElementById('range').textContent")
    start, end = (re.fullmatch(r"([\d.]+) ?(\S*)", part) for part in text.split(" – "))
    return float(start[1]) * units[start[2]], float(end[1]) * units[end[2]]


def colours(page: Page) -> set[str]:
    """Those on the canvas, but for what is smoothed."""
    script = """(() => { const c = document.getElementById('canvas'), found = {};
        const d = c.getContext('2d').getImageData(100, 24, c.width - 101, c.height - 24).data;
        for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255)
            found['#' + [d[i], d[i + 1], d[i + 2]].map(v => v.toString(16).padStart(2, '0')).join('')] = 1;
        return Object.keys(found); })()"""
    return set(page.js(script))


def test_it_draws_and_nobody_is_asked_for_anything(page, report):
    assert page.requests() == [report.as_uri()]
    assert page.complaints() == []
    assert page.js("document.querySelectorAll('svg').length") >= 6
    assert page.js("getComputedStyle(document.querySelector('.overview')).display") == "none"
    assert {"#c0481a", "#2b8560", "#2f6fb0"} <= colours(page), "waiting, computing, reading"


def test_the_wheel_zooms_to_the_pointer_and_the_page_scrolls_on_when_all_is_shown(page):
    left, top, width, height = canvas(page)
    before = shown(page)
    at = left + GUTTER + (width - GUTTER) / 4
    for _ in range(3):
        page.mouse("mouseWheel", at, top + height / 2, deltaX=0, deltaY=-300)
    start, end = shown(page)
    assert end - start < (before[1] - before[0]) / 2
    assert start < before[1] / 4 < end, "what was under the pointer still is"
    for _ in range(6):
        page.mouse("mouseWheel", at, top + height / 2, deltaX=0, deltaY=300)
    assert shown(page) == before
    page.mouse("mouseMoved", at, top + height / 2)
    assert page.complaints() == []


def test_dragging_buttons_and_keys_move_and_zoom(page):
    whole = shown(page)
    page.js("document.querySelector('[data-do=in]').click()")
    page.settle()
    half = shown(page)
    assert half[1] - half[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.02)
    left, top, width, height = canvas(page)
    middle = left + width / 2, top + height / 2
    page.mouse("mousePressed", *middle, button="left", clickCount=1)
    page.mouse("mouseMoved", middle[0] + 100, middle[1], button="left", buttons=1)
    page.mouse("mouseReleased", middle[0] + 100, middle[1], button="left", clickCount=1)
    dragged = shown(page)
    assert dragged[0] < half[0]
    assert dragged[1] - dragged[0] == pytest.approx(half[1] - half[0], rel=0.02)
    page.js("document.getElementById('canvas').focus()")
    page.key("+")
    assert shown(page)[1] - shown(page)[0] < dragged[1] - dragged[0]
    page.key("ArrowRight")
    page.key("0")
    assert shown(page) == whole


def test_two_fingers_zoom(page):
    page.size(375, 800, mobile=True)
    page.js("document.getElementById('canvas').scrollIntoView({block: 'center'})")
    page.settle()
    before = shown(page)
    left, top, width, height = canvas(page)

    def touch(kind: str, *places: float) -> None:
        points = [{"x": left + width * place, "y": top + height / 2, "id": i} for i, place in enumerate(places)]
        page.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        page.settle()

    touch("touchStart", 0.5, 0.6)
    for apart in (0.05, 0.1, 0.15):
        touch("touchMove", 0.5 - apart, 0.6 + apart)
    touch("touchEnd")
    assert shown(page)[1] - shown(page)[0] < 0.6 * (before[1] - before[0])
    touch("touchStart", 0.5)
    touch("touchEnd")
    assert page.js("document.getElementById('tip').hidden") is False


def test_hovering_tells_of_the_batch_and_its_indices(page):
    left, top, width, _ = canvas(page)
    data = page.js("JSON.parse(document.getElementById('data').textContent)")
    made, given = data["made"], data["given"]

    def told(row: int, micros: float) -> str:
        at = left + GUTTER + micros / data["length"] * (width - GUTTER)
        page.mouse("mouseMoved", at, top + 24 + 30 * row + 15)
        return page.js("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")

    # The middle of the longest sample: on a busy machine a worker may stand still before its first one, too.
    _, longest, middle = max(
        (end - start, number, (start + end) / 2)
        for number, flat in enumerate(made["samples"])
        for place, start, end in zip(flat[::2], flat[1::2], [*flat[3::2], made["fetch"][number]], strict=True)
        if place >= 0
    )
    text = told(made["row"][longest], sum(made["start"][: longest + 1]) + middle)
    name, batch, *more = text.split("\n")
    assert name.startswith(f"worker {made['row'][longest] - 1}: reads samples, ")
    assert batch.startswith(f"batch {made['seq'][longest]} of epoch {made['epoch'][longest]}, at ")
    assert more[-1] == "indices " + ", ".join(map(str, made["indices"][longest]))
    assert more[0].startswith("here sample ")
    longest = max(range(len(given["seq"])), key=given["waited"].__getitem__)
    text = told(0, sum(given["asked"][: longest + 1]) + given["waited"][longest] / 2)
    assert text.startswith("training loop: the loop waits, ")
    assert f"batch {given['seq'][longest]} of epoch {given['epoch'][longest]}" in text
    page.mouse("mouseMoved", 2, 2)
    assert page.js("document.getElementById('tip').hidden") is True


def test_a_slow_sample_is_shown_in_the_timeline(page):
    page.js("document.querySelector('#slowest button').click()")
    page.settle()
    start, length = page.js("(d => [+d.start, +d.length])(document.querySelector('#slowest button').dataset)")
    low, high = shown(page)
    assert low <= start + 1e3
    assert high >= (start + length) * 0.99
    assert high - low <= max(21, 6 * length)


def test_dark_mode_is_dark_and_follows_at_once(page):
    def ground() -> str:
        return page.js("getComputedStyle(document.body).backgroundColor")

    assert ground() == "rgb(251, 250, 247)"
    page.media(dark=True)
    assert ground() == "rgb(21, 24, 28)"
    assert "#6aa9ea" in colours(page)
    assert "#2f6fb0" not in colours(page)


@pytest.mark.parametrize("width", [320, 375, 1100])
def test_nothing_sticks_out_of_the_screen(page, width):
    page.size(width, 800, mobile=width < 500)
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("document.querySelector('meta[name=viewport]') !== null")
    outside = "e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1"
    named = "e => e.outerHTML.slice(0, 80)"
    assert page.js(f"[...document.querySelectorAll('main *')].filter({outside}).map({named})") == []
    assert page.js("parseFloat(getComputedStyle(document.querySelector('td')).fontSize)") >= 12


def test_paper_has_the_drawing_that_needs_no_script(page):
    page.media("print", dark=True)
    assert page.js("getComputedStyle(document.querySelector('.overview')).display") == "grid"
    assert page.js("getComputedStyle(document.getElementById('canvas').closest('.live')).display") == "none"
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.media()
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type ?/Page\b", pdf)) >= 2


def test_without_scripts_everything_essential_is_there(page, report):
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(report)
        root = page.call("DOM.getDocument", depth=-1)["root"]
        found = page.call("DOM.querySelector", nodeId=root["nodeId"], selector=".overview svg path.fetch")
        assert found["nodeId"]
        box = page.call("DOM.getBoxModel", nodeId=found["nodeId"])["model"]
        assert box["width"] > 100
        canvas = page.call("DOM.querySelector", nodeId=root["nodeId"], selector="canvas")
        with pytest.raises(AssertionError, match="box model"):
            page.call("DOM.getBoxModel", nodeId=canvas["nodeId"])
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
