"""Tuning a loader of JAX's front: the lines to paste make such a loader."""

from __future__ import annotations

from jax_processes import in_jax

import feedline
from feedline.diagnose.tune.tune_subject import subject_of
from feedline.observe.window import Setting


@in_jax(devices=2)
def test_the_lines_to_paste_are_of_this_front() -> None:
    import jax
    import numpy as np

    from feedline.jax import DataLoader

    data = feedline.ArrayDataset(np.arange(64.0))
    sharding = jax.devices()[0]
    loader = DataLoader(data, global_batch_size=8, shuffle=True, seed=3, sharding=sharding, drop_last=False)
    code = subject_of(loader, None, None).code(Setting(2))
    assert code.startswith("from feedline.jax import DataLoader\n")
    assert "multiprocessing_context" not in code
    names = {"dataset": data, "sharding": sharding}
    exec(code, names)
    made = names["loader"]
    assert isinstance(made, DataLoader)
    assert (made.global_batch_size, made.options.drop_last, made.options.num_workers) == (8, False, 2)
    assert [batch[0].tolist() for batch in made] == [batch[0].tolist() for batch in loader]
    made.close()
