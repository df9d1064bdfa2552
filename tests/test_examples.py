"""Every example runs, and says that what it shows is true (its exit code) and the line that shows it."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SHOWS = {
    "image_classification.py": r"the same batches with 0 and 2 workers: yes",
    "variable_length_text.py": r"padding: \d+% of the places in a batch; the model's answers depend on it: no",
    "imbalanced_classes.py": r"about a third, and in every batch: yes\n.*any two batches alike: yes",
    "detection.py": r"200 images, (\d+) boxes, \1 of them around an object of their own image",
    "language_model_packing.py": r"filled: 9[789]\.\d% .* \d+% of padded ones\na document's .* neighbours: no",
    "image_folder.py": r"left out: stripes/017\.jpg\nthe same batches with 0 and 2 workers: yes",
    "object_storage.py": r"the last four epochs needed no server: yes",
    "kafka_stream.py": r"learned: y = 3\.00·x₀ -2\.00·x₁ \+1\.00\nrecords: 2,000; each once: yes",
    "sql.py": r"480 samples by one query.*\naccuracy .* 0.9: yes\nstreamed: 600 rows, each once: yes",
    "tar_shards.py": r"each sample once over 2 ranks of 2 workers: yes",
    "parquet.py": r"each row is in one of the two: yes",
    "distributed.py": r"both ranks have the same model",
}


@pytest.fixture(scope="module")
def ready() -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # two cores are enough; and a process of one thread may fork
    command = [sys.executable, "-W", "error", str(Path(__file__).parent / "ready.py")]
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True) as process:
        yield process
        process.kill()  # it may be waiting for an example that hangs


@pytest.mark.parametrize("name", SHOWS)
def test_example_shows_what_it_says(name, ready, tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    ready.stdin.write(json.dumps({"script": str(EXAMPLES / name), "out": str(out), "err": str(err)}) + "\n")
    ready.stdin.flush()
    answered, _, _ = select.select([ready.stdout], [], [], 110)
    code = ready.stdout.readline().strip() if answered else "none within 110 s"
    printed, complaints = out.read_text(), err.read_text()
    assert code == "0", printed + complaints
    assert re.search(SHOWS[name], printed), printed
    assert not complaints, complaints


def test_every_example_is_run_and_short():
    files = {path.name: path for path in EXAMPLES.glob("*.py")}
    assert set(files) == set(SHOWS)
    for name in SHOWS:
        text = files[name].read_text()
        assert len(text.splitlines()) <= 120
        assert "from feedline.torch import" in text
