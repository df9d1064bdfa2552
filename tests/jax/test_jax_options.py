"""The table of options of this front, its signature, its docstring and its attributes say the same."""

from __future__ import annotations

import inspect
import re

import numpy as np
from jax_processes import in_jax
from test_jax_loader import jax_loader


@in_jax()
def test_signature_docstring_and_attributes_are_the_tables() -> None:
    from feedline.jax import DataLoader
    from feedline.jax.options import TABLE

    taken = {name: (each.annotation, each.default) for name, each in inspect.signature(DataLoader).parameters.items()}
    expected = {name: (row.takes, row.default) for name, row in TABLE.items()}
    assert taken == expected | {"collate_fn": ("Callable[[Any], Any] | None", None)}
    listed = re.findall(r"^        (\w+): (.*)$", DataLoader.__doc__ or "", re.MULTILINE)
    assert listed == [(name, TABLE[name].doc) for name in taken], "run docs/make_options.py"
    loader = jax_loader(np.arange(8), 4, pad_last=True, timeout=7)
    values = {name: getattr(loader, name) for name in TABLE.keys() - {"collate"}}
    assert [name for name, value in values.items() if value is TABLE[name]] == []
    assert (values["global_batch_size"], values["pad_last"], values["timeout"]) == (4, True, 7)
    assert not hasattr(loader, "no_such_option")
