"""`feedline bench` before anything is measured, its picture in a browser, and its page in the docs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from browser import browser
from figures import check_places, texts
from PIL import Image
from test_bench_numbers import some
from warm_host import host

from feedline.cli import main
from feedline.diagnose.bench.bench_page import picture
from feedline.diagnose.bench.comparison import Comparison, Contest, Measured
from feedline.diagnose.bench.workloads import WORKLOADS
from feedline.diagnose.plotting import encoded

DOCS = Path(__file__).parents[2] / "docs" / "benchmarking.md"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["in-menory"], "there is no workload 'in-menory'; there are in-memory, large-samples,"),
        (["in-memory", "--batch-size", "8"], "batch_size: the workload in-memory has its own"),
        (["in-memory", "--shuffle"], "shuffle: the workload in-memory has its own"),
        (["a:b", "--batch-size", "0"], "batch_size must be at least 1"),
        (["a:b", "--num-workers", "0,-1"], "num_workers must be at least 0"),
        (["a:b", "--num-workers", "two"], "not whole numbers with commas between: 'two'"),
        (["a:b", "--repeats", "0"], "repeats must be at least 1"),
        (["a:b", "--seconds", "0"], "seconds must be more than 0"),
        (["a:b", "--timeout", "nan"], "timeout must be a positive number of seconds, 2,000,000 at most; got nan"),
        (["a:b", "--plot", "bars.jpg"], "--plot: bars.jpg must end in .png or .svg"),
        (["a:b", "--plot", "nowhere/bars.png"], "--plot must be a file that can be written to, but there is no folder"),
        (["a:b", "--plot", "folder.png"], "folder.png is a folder"),
    ],
)
def test_bad_usage_is_said_before_anything_is_started(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    try:
        code = main(["bench", *arguments])
    except SystemExit as left:  # argparse's way
        code = left.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert words in said.err
    assert "Traceback" not in said.err


def test_without_torch_there_is_one_sentence():
    code = "import sys; sys.modules['torch'] = None; from feedline.cli import main; sys.exit(main(['bench']))"
    done = host("feedline").run(["-c", code])
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert "torch is not installed; pip install 'feedline[torch]'" in sentence


def test_without_pillow_there_is_no_jpeg():
    code = "import sys; sys.modules['PIL'] = None; from feedline.cli import main; sys.exit(main(['bench', 'jpeg']))"
    done = host("feedline").run(["-c", code])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "feedline bench: the workload jpeg needs Pillow; pip install 'feedline[images]'\n"


@pytest.mark.parametrize("command", ["bench", "tune"])
def test_without_matplotlib_it_is_said_beforehand_what_to_install(capsys, monkeypatch, tmp_path, command):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "data.py").write_text("raise SystemExit('the dataset is not looked at')")
    assert main([command, f"{tmp_path}/data.py:data", "--plot", str(tmp_path / "bars.svg")]) == 2
    said = capsys.readouterr()
    words = "a picture needs matplotlib, which is not installed; pip install 'feedline[plot]' brings it"
    assert (said.out, said.err) == ("", f"feedline {command}: {words}\n")


def test_matplotlib_is_imported_when_something_is_drawn_and_its_settings_stay():
    code = """if True:
        import sys
        from feedline.cli import main
        from feedline.diagnose.plotting import check_plot, encoded, figure, looks
        import feedline.diagnose.bench.bench_command, feedline.diagnose.tune.tune_command
        check_plot("bars.svg")
        print("matplotlib" in sys.modules)
        import matplotlib
        matplotlib.rcParams["svg.fonttype"] = "path"
        before = dict(matplotlib.rcParams)
        with looks():
            encoded(figure("Nothing", 100, 50))
        print(dict(matplotlib.rcParams) == before)
    """
    assert host("feedline").run(["-c", code]).stdout == "False\nTrue\n"


def test_our_workloads_are_listed(capsys):
    assert main(["bench", "--list"]) == 0
    text = capsys.readouterr().out
    assert main(["bench", "--list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in document["workloads"]] == [each.name for each in WORKLOADS]
    for each in WORKLOADS:
        assert f"  {each.name} " in text
        assert each.summary.split(",")[0].split(" ")[0] in text


def test_the_picture_says_what_the_page_says_and_is_drawn_by_a_browser(tmp_path):
    (tmp_path / "bars.svg").write_bytes(encoded(picture(some())))
    written = texts((tmp_path / "bars.svg").read_bytes())
    for words in (
        "train.py:data, 0 workers",
        "12 samples/s",
        "could not be measured",
        "torch 2.13.0",
        "jpeg, 1 worker",
    ):
        assert words in written
    assert "no clear difference (feedline 1? times as fast, 0.5–2)" in written
    with browser() as page:
        page.size(800, 600)
        page.open(tmp_path / "bars.svg")
        page.settle()
        shown = page.js("[...document.querySelectorAll('text')].map(each => each.getBoundingClientRect().width > 0)")
        assert shown == [bool(text) for text in written]
        bars = (
            "[...document.querySelectorAll('path[style*=\"#0072b2\"]')].map(each => each.getBoundingClientRect().width)"
        )
        assert len(page.js(bars)) == 1 + 4  # the legend's
        assert page.complaints() == []


def test_one_workload_has_one_scale_whatever_the_number_of_workers():
    sides = {workers: Measured((10.0 * workers, 30.0 * workers)) for workers in (1, 2)}
    contests = [Contest("mine", workers, "samples/s", side, side) for workers, side in sides.items()]
    drawn = picture(Comparison((*contests, Contest("other", 1, "samples/s", sides[1], sides[1]))))
    few, twice, other = [each.patches[0].get_width() / each.get_xlim()[1] for each in drawn.axes]
    assert (twice, other) == pytest.approx((2 * few, 2 * few))
    assert {each.get_xlim()[0] for each in drawn.axes} == {0}
    spreads = [line[:, 0].tolist() for each in drawn.axes for line in each.collections[0].get_segments()]
    assert spreads == [[10, 30], [10, 30], [20, 60], [20, 60], [10, 30], [10, 30]]


@pytest.mark.parametrize("name", ["a/long/path/" * 20 + "train.py:data", "price in $, and $", "<b>&"])
def test_whatever_the_contest_is_called_it_can_be_read(name):
    side = Measured((123_456.0, 1_234_567.0))
    svg = encoded(
        picture(Comparison((Contest(name, 1, "samples/s", side, side), Contest("b", 1, "samples/s", side, side))))
    )
    assert name in "".join(texts(svg))
    check_places(svg)


def test_the_picture_as_png():
    with Image.open(io.BytesIO(encoded(picture(some()), "bars.png"))) as image:
        assert image.size[0] == 2 * 760
        assert len(image.convert("RGB").getcolors(1 << 24)) > 20


def test_the_docs_name_every_workload_and_every_option(capsys):
    text = DOCS.read_text()
    for each in WORKLOADS:
        assert f"| `{each.name}` |" in text
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    options = {word.strip(",[]") for word in capsys.readouterr().out.split() if word.lstrip("[").startswith("--")}
    assert "--timeout" in options
    assert {option for option in options if f"`{option}" not in text} <= {"--help"}
