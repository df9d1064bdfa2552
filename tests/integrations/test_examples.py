"""Every example runs, and says that what it shows is true (its exit code) and the line that shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kinds import thorough
from training import run_as_torchrun
from training_host import STRICT, training_host

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWS = {
    "image_classification.py": r"steps, \d+% waiting for batches\n(.*\n)*the same batches with 0 and 2 workers: yes",
    "variable_length_text.py": r"padding: \d+% of the places in a batch; the model's answers depend on it: no",
    "imbalanced_classes.py": r"about a third, and in every batch: yes\n.*any two batches alike: yes",
    "detection.py": r"200 images, (\d+) boxes, \1 of them around an object of their own image",
    "language_model_packing.py": r"filled: 9[789]\.\d% .* \d+% of padded ones\na document's .* neighbours: no",
    "image_folder.py": r"left out: stripes/017\.jpg\nthe same batches with 0 and 2 workers: yes",
    "object_storage.py": r"the last four epochs needed no server: yes",
    "kafka_stream.py": r"learned: y = 3\.00·x₀ -2\.00·x₁ \+1\.00\nrecords: 2,000; each once: yes",
    "sql.py": r"240 samples by one query.*\naccuracy .* 0.9: yes\nstopped .*: yes\nstreamed: 300 rows, each once: yes",
    "tar_shards.py": r"each sample once over 2 ranks of 2 workers: yes",
    "parquet.py": r"each row is in one of the two: yes",
    "sound.py": r"left out: hum-05\.flac\nthe same windows with 0 and 2 workers: yes\nlearned: yes",
    "mixed_streams.py": r"10% of the first .* 40% of the rest\n.*\n.*\n.*the batches are the same: yes",
    "cached_samples.py": r"decoded 600 times .*\n.*because 600 were there\neach sample was decoded once: yes",
    "hugging_face.py": r"streamed; each row is in one of the two: yes",
    "distributed.py": r"both ranks have the same model",
    "hf_trainer.py": r"the same losses as with Trainer's own loader: yes",
    "lightning_trainer.py": r"that were missing: yes\nthe weights of the run that was not stopped: yes",
}
ADVICE = ("`isinstance(treespec", "Be aware that when using `ckpt_path`", "The 'train_dataloader' does not have many")
LIGHTNINGS = [each for advice in ADVICE for each in ("-W", f"ignore:{advice}")]
"""Its use of torch's pytree, and its advice: on a callback that is not needed again, and on the number of workers."""
ALLOWED = {"lightning_trainer.py": LIGHTNINGS}


@pytest.mark.parametrize("name", SHOWS)
def test_example_shows_what_it_says(name):
    done = training_host().run([*STRICT, *ALLOWED.get(name, []), str(EXAMPLES / name)], timeout=400, check=True)
    assert re.search(SHOWS[name], done.stdout), done.stdout
    assert not done.stderr


def ranks_of_torchrun(folder: Path, stop: int) -> list[list[int]]:
    run_as_torchrun([*STRICT, str(EXAMPLES / "torchrun_ddp.py"), str(folder), str(stop)])
    return json.loads((folder / f"seen-until-{stop or None}.json").read_text())


def test_ranks_of_torchrun_go_on_where_they_were_stopped(tmp_path):
    before, after = ranks_of_torchrun(tmp_path, 5), ranks_of_torchrun(tmp_path, 0)
    assert [len(rank) for rank in (*before, *after)] == [30, 30, 18, 18]
    assert sorted(index for rank in before + after for index in rank) == list(range(96))


@thorough
def test_torchrun_itself():
    done = training_host().run([str(EXAMPLES / "torchrun_ddp.py")], timeout=400, check=True)
    assert "each of 96 samples once: yes" in done.stdout


def test_every_example_is_run_and_short():
    files = {path.name: path for path in EXAMPLES.glob("*.py")}
    # Two are run by tests/jax/test_jax_docs.py and tests/ray/test_ray_docs.py.
    assert set(files) == {*SHOWS, "torchrun_ddp.py", "jax_training.py", "ray_workers.py"}
    for name in SHOWS:
        text = files[name].read_text()
        assert len(text.splitlines()) <= 120
        assert "from feedline.torch import" in text
