"""The public surface: names that users may import. Who changes the list changes things for users: see the CHANGELOG."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

LISTED = Path(__file__).with_name("public_names.txt")
MODULES = ("feedline", "feedline.collate", "feedline.errors", "feedline.sources")


def names_of(module: str) -> list[str]:
    found = import_module(module)
    given = getattr(found, "__all__", None)
    if given is None:  # errors: all classes of the tree
        classes = {name: value for name, value in vars(found).items() if isinstance(value, type)}
        given = [name for name, value in classes.items() if value.__module__ == module and not name.startswith("_")]
    return [f"{module}.{name}" for name in sorted(given)]


def listed(module: str) -> list[str]:
    lines = LISTED.read_text(encoding="utf-8").split()
    return [line for line in lines if line.rpartition(".")[0] == module]


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_those_that_are_listed(module: str) -> None:
    assert names_of(module) == listed(module)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_there_says_what_it_is_and_has_an_example(module: str) -> None:
    for name in listed(module):
        value = getattr(import_module(module), name.rpartition(".")[2])
        assert value.__doc__, name
        if isinstance(value, type | FunctionType):
            said = [value.__doc__, *(getattr(each, "__doc__", None) for each in vars(value).values())]
            assert any(">>> " in (each or "") for each in said), f"{name} has no example"
