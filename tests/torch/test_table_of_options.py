"""The table of options, the signatures, the docstrings, the attributes and docs/options.md say the same."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch.utils.data as torchs

import feedline
import feedline.torch
from feedline.options import Options
from feedline.options.option import rows
from feedline.options.table import CoreOptions
from feedline.torch.options import OwnTorchOptions, TorchLoadersOptions
from feedline.workers.job import Job

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(feedline.__file__).parent
TORCH = {**rows(TorchLoadersOptions), **rows(OwnTorchOptions)}
LOADERS = {
    feedline.DataLoader: rows(CoreOptions),
    feedline.torch.DataLoader: TORCH,
    feedline.torch.StatefulDataLoader: TORCH,
}
each_loader = pytest.mark.parametrize("loader", LOADERS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")


@pytest.fixture(scope="module")
def make_options() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "docs"))
    yield importlib.import_module("make_options")
    sys.path.remove(str(ROOT / "docs"))


@each_loader
def test_a_signature_has_the_tables_names_types_and_defaults(loader: Any) -> None:
    taken = {name: (each.annotation, each.default) for name, each in inspect.signature(loader).parameters.items()}
    expected = {name: (row.takes, row.default) for name, row in LOADERS[loader].items()}
    batch = "B" if loader is feedline.DataLoader else "T"  # what collate_fn returns is what batches are
    assert taken == expected | {"collate_fn": (f"Callable[[Any], {batch}] | None", None)}


@each_loader
def test_a_docstring_lists_every_option(make_options: ModuleType, loader: Any) -> None:
    listed = re.findall(r"^        (\w+): (.*)$", loader.__doc__.expandtabs(), re.MULTILINE)
    assert dict(listed) == {name: row.doc for name, row in LOADERS[loader].items()}, "run docs/make_options.py"
    assert [name for name, _ in listed] == list(inspect.signature(loader).parameters)
    text = make_options.source(loader).read_text(encoding="utf-8")
    assert make_options.documented(text, loader) == text, "run docs/make_options.py"


def test_the_page_is_made_from_the_table(make_options: ModuleType) -> None:
    assert make_options.page() == make_options.PAGE.read_text(encoding="utf-8"), "run docs/make_options.py"
    assert "docs/options.md" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", {**rows(CoreOptions), **TORCH}.values(), ids=lambda row: row.name)
def test_an_option_has_one_sentence_and_names_pages_that_there_are(row: Any) -> None:
    assert re.fullmatch(r'["A-Z].*[.]', row.doc)
    assert all((ROOT / page).exists() for page in re.findall(r"docs/\S+\.md", row.doc))


@each_loader
def test_a_loader_has_its_options_as_attributes(loader: Any) -> None:
    made = loader([1, 2, 3], batch_size=2, timeout=7, on_error="skip", max_errors=4, workers="thread")
    without = {"collate"} if loader is feedline.DataLoader else {"collate", "shuffle"}
    for again in (made, copy.copy(made), pickle.loads(pickle.dumps(made))):
        values = {name: getattr(again, name) for name in LOADERS[loader].keys() - without}
        assert [name for name, value in values.items() if value is LOADERS[loader][name]] == []
        chosen = ("batch_size", "timeout", "on_error", "max_errors", "workers", "max_deaths")
        assert [values[name] for name in chosen] == [2, 7, "skip", 4, "thread", 2]
    for name in ("collate", "no_such_option"):  # the first has become the collate_fn
        with pytest.raises(AttributeError, match=name):
            getattr(made, name)


@each_loader
def test_a_loader_can_be_made_anew_from_its_attributes(loader: Any) -> None:
    """As Lightning does it."""
    given = {"batch_size": 2, "drop_last": True, "on_stall": "restart", "max_deaths": 5, "prefetch_next_epoch": False}
    first = loader([1, 2, 3], **given)
    names = LOADERS[loader].keys() - {"collate", "shuffle", "prefetch_factor", "batch_sampler", "sampler"}
    again = loader(**{name: getattr(first, name) for name in names})
    assert {name: getattr(again, name) for name in names} == {name: getattr(first, name) for name in names}


def test_editors_know_every_attribute() -> None:
    """None is found by asking at run time, and each stands in a class that the loader derives from, with its type."""
    for loader, table in ((feedline.DataLoader, CoreOptions), (feedline.torch.DataLoader, OwnTorchOptions)):
        assert not hasattr(loader, "__getattr__")
        annotated = {name for each in loader.__mro__ for name in vars(each).get("__annotations__", {})}
        assert rows(table).keys() <= annotated
        assert rows(loader) == rows(table)


def test_checked_options_stay_what_they_are() -> None:
    loader = feedline.DataLoader([1, 2, 3], batch_size=2)
    with pytest.raises(AttributeError, match="batch_size cannot be changed"):
        loader.options.batch_size = 3
    assert "batch_size=2" in repr(loader.options)


def test_the_engine_is_given_only_what_it_reads() -> None:
    """No field that nobody asks for, for which a front would have to make up a value."""
    reading = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    engine = "\n".join(
        text for text in reading if re.search(r"import .*\bOptions\b", text) and "options: Options" in text
    )
    assert {each.name for each in fields(Options)} == set(re.findall(r"\b_?options\.(\w+)", engine)) - {
        "needed",
        "option",
        "worker_count",
    }
    jobs = "\n".join(text for text in reading if "Job" in text)
    assert {each.name for each in fields(Job)} <= set(re.findall(r"\b_?job\.(\w+)", jobs))


def test_torchs_are_all_there_and_the_others_are_no_torch_names() -> None:
    torchs_names = inspect.signature(torchs.DataLoader).parameters.keys()
    assert rows(TorchLoadersOptions).keys() == torchs_names
    assert not rows(OwnTorchOptions).keys() & torchs_names
