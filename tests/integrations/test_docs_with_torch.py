"""Pages whose examples need torch: README.md, docs/resuming.md and docs/batch-size.md."""

from __future__ import annotations

import doctest
import os
import re
import signal
import warnings
from pathlib import Path

import numpy as np
from pages import ROOT, text_of
from training_host import STRICT, training_host

from feedline import DataLoader

RESUMING = text_of("resuming.md")
BATCH_SIZE = text_of("batch-size.md")


def run(script: Path, folder: Path, lines: int | None) -> list[str]:
    """What it prints; killed after so many lines, or a few more."""
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
                process.send_signal(signal.SIGKILL)
        assert process.wait() == (0 if lines is None else -signal.SIGKILL)
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
