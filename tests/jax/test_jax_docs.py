"""docs/jax.md and examples/jax_training.py: they run, and print what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jax_processes import in_jax, jax_host
from pages import ROOT, check_examples, check_links, text_of

STRICT = ["-W", "error"]


@in_jax(devices=2)
def test_the_examples_of_the_page_give_what_they_say() -> None:
    check_examples("jax.md", 25)


def test_the_training_loop_of_the_page(tmp_path: Any) -> None:
    text = text_of("jax.md")
    (script,) = re.findall(r"```python\n(# train\.py.*?)```", text, re.S)
    (tmp_path / "train.py").write_text(script)
    done = jax_host().run([*STRICT, str(tmp_path / "train.py")], timeout=400, check=True)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.S)
    assert (done.stdout, done.stderr) == (printed, "")


@in_jax(devices=2)
def test_the_example_of_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(import jax.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    exec(code, {})


def test_the_page_is_linked_and_names_tests_that_there_are() -> None:
    check_links("jax.md", ("docs/zensical.toml", "docs/design.md", "docs/options.md"))
    for name in re.findall(r"(?:tests|examples|benchmarks)/[\w/]+\.py", text_of("jax.md")):
        assert (ROOT / name).exists()


def test_the_example_shows_what_it_says() -> None:
    example = Path(ROOT, "examples", "jax_training.py")
    done = jax_host().run([*STRICT, str(example)], timeout=400, check=True)
    assert re.search(r"loss 0\.\d+ -> .*\n.*the same losses: yes", done.stdout), done.stdout
    assert not done.stderr
    assert len(example.read_text().splitlines()) <= 120
