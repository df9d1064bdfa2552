"""Every example runs, and says that what it shows is true (its exit code) and the line that shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from training_host import STRICT, training_host

EXAMPLES = Path(__file__).parents[2] / "examples"
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
    "mixed_streams.py": r"10% of the first .* 40% of the rest\n.*\n.*\n.*the batches are the same: yes",
    "cached_samples.py": r"decoded 600 times .*\n.*: 0 samples, because 600 were there\neach sample was decoded once: yes",
    "distributed.py": r"both ranks have the same model",
}


@pytest.mark.parametrize("name", SHOWS)
def test_example_shows_what_it_says(name):
    done = training_host().run([*STRICT, str(EXAMPLES / name)], timeout=400, check=True)
    assert re.search(SHOWS[name], done.stdout), done.stdout
    assert not done.stderr


def test_every_example_is_run_and_short():
    files = {path.name: path for path in EXAMPLES.glob("*.py")}
    assert set(files) == {*SHOWS, "jax_training.py"}  # run by tests/jax/test_jax_docs.py
    for name in SHOWS:
        text = files[name].read_text()
        assert len(text.splitlines()) <= 120
        assert "from feedline.torch import" in text
