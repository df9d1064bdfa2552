"""Pages whose examples need torch: README.md, docs/resuming.md and docs/batch-size.md."""

from __future__ import annotations

import doctest
import os
import re
import signal
import socket
import warnings
from pathlib import Path

import numpy as np
import pytest
from pages import ROOT, printed_on, script_of, text_of
from PIL import Image
from training_host import STRICT, run_ranks, training_host

from feedline import DataLoader

RESUMING = text_of("resuming.md")
BATCH_SIZE = text_of("batch-size.md")
WHOLE = (  # each page is one script
    "across-epochs.md",
    "auto-workers.md",
    "cannot-pickle.md",
    "explorer.md",
    "first-loader.md",
    "from-other-loaders.md",
    "gpu-decoding.md",
    "gpu-idle.md",
    "in-a-notebook.md",
    "index.md",
    "loss.md",
    "randomness.md",
    "recipe-detection.md",
    "recipe-imbalanced.md",
    "recipe-language-model.md",
    "recipe-sql-and-bucket.md",
    "step.md",
    "switching-from-torch.md",
    "workers.md",
)


def run(script: Path, folder: Path, lines: int | None, number: int = signal.SIGKILL) -> list[str]:
    """What it prints; it gets the signal after so many lines, or a few more."""
    folder.mkdir(exist_ok=True)
    reading, writing = os.pipe()
    with (
        open(reading) as output,
        training_host().start([*STRICT, str(script)], writing, 2, folder) as process,
    ):
        os.close(writing)
        printed = []
        for line in output:
            printed.append(line.strip())
            if len(printed) == lines:  # it may have got further, and saved that, before the signal comes
                process.send_signal(number)
        assert process.wait() == (-signal.SIGKILL if lines and number == signal.SIGKILL else 0)
    return printed


def test_the_example_killed_and_run_again_has_the_losses_of_one_run(tmp_path):
    (text,) = re.findall(r"```python\n(# train\.py.*?)```", RESUMING, re.S)
    script = tmp_path / "train.py"
    script.write_text(text)
    whole = run(script, tmp_path / "whole", None)
    assert len(whole) == 3 * 13
    seen: dict[str, str] = {}
    for lines in (9, 16, None):  # saved every 5 steps, so steps after that are taken again
        for line in run(script, tmp_path / "parts", lines):
            step, loss = line.split()
            assert seen.setdefault(step, loss) == loss
    assert [f"{step} {loss}" for step, loss in seen.items()] == whole


def test_every_test_file_that_the_page_names_exists():
    for name in re.findall(r"tests/[\w/]+\.py", RESUMING):
        assert (ROOT / name).exists()


def test_its_examples_are_what_happens():
    code = "\n".join(re.findall(r"```python\n(.*?)```", BATCH_SIZE, re.S))
    page = doctest.DocTestParser().get_doctest(code, {}, "batch-size.md", str(ROOT / "docs" / "batch-size.md"), 0)
    assert len(page.examples) > 20
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(page, out=said.append)
    assert not said, "".join(said)


def test_what_it_quotes_is_what_is_said():
    (quoted,) = re.findall(r"```text\nUserWarning: (.*?)```", BATCH_SIZE, re.S)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iter(DataLoader(np.arange(1025), batch_size=64, shuffle=True)).close()
    assert [str(each.message) for each in caught] == [" ".join(quoted.split())]


def test_the_pictures_it_shows_are_there():
    pictures = re.findall(r"\]\((pictures/.*?)\)", BATCH_SIZE)
    assert len(pictures) >= 2
    assert all((ROOT / "docs" / name).exists() for name in pictures)


def test_the_examples_of_the_readme_run(tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, torchs, numpys, jaxs = re.findall(r"```python\n(.*?)```", readme, re.S)  # the first is the import alone
    script = tmp_path / "readme.py"
    script.write_text(f"{torchs}\n{numpys}")
    training_host().run([*STRICT, str(script)], timeout=400, check=True)
    assert "feedline.jax" in jaxs  # run by tests/jax/test_jax_docs.py
    assert len(readme.splitlines()) <= 130


@pytest.mark.parametrize("page", WHOLE)
def test_the_blocks_of_the_page_run_as_one_script_and_print_what_it_shows(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text(script_of(page))
    strict = [*STRICT, "-W", "ignore:This DataLoader will create"]  # torch's, where there are few CPUs
    done = training_host().run([*strict, str(script)], timeout=400, check=True, cwd=tmp_path)
    assert not done.stderr or "<!-- needs: " in text_of(page)  # such packages say much
    printed = done.stdout.splitlines()
    assert [line for line in printed_on(page) if line not in printed] == []


def test_the_recipe_for_several_gpus_runs_on_two_ranks(tmp_path):
    for name in ("cats", "dogs"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (250, 230), (30 * number, 90, 200)).save(tmp_path / "train" / name / f"{number}.jpg")
    script = tmp_path / "train.py"
    script.write_text(script_of("recipe-image-folder.md"))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.getsockname()[1]), "WORLD_SIZE": "2"}
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]  # what torchrun says
    code = f"import os, runpy; os.chdir({str(tmp_path)!r}); runpy.run_path('train.py', run_name='__main__')"
    commands = [[*STRICT, "-c", code]] * 2
    first, second = run_ranks(training_host(), commands, [{**os.environ, **meeting, **each} for each in own])
    assert first.stdout.splitlines() == printed_on("recipe-image-folder.md")
    assert second.stdout == ""


def test_the_recipe_for_spot_machines_goes_on_with_the_next_batch(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(script_of("recipe-spot.md"))
    whole = run(script, tmp_path / "whole", None)
    parts = run(script, tmp_path / "parts", 4, signal.SIGTERM)
    assert 4 <= len(parts) <= len(whole) == 30
    assert parts + run(script, tmp_path / "parts", None) == whole
