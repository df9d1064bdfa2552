"""A second machine of the emulated cluster, on which packages can be hidden, or be there in another version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

HIDER = """
import importlib.abc, importlib.machinery, os, sys

class Other(importlib.abc.Loader):
    def __init__(self, version):
        self.version = version
    def exec_module(self, module):
        module.__version__ = self.version

class Hider:
    def find_spec(self, name, path=None, target=None):
        hidden = dict(line.split("=") for line in open(os.environ["HIDDEN"]).read().split())
        if hidden.get(name) == "":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importlib.machinery.ModuleSpec(name, Other(hidden[name])) if name in hidden else None

sys.meta_path.insert(0, Hider())
"""


class HidingNode:
    def __init__(self, cluster: Any, folder: Path, **node: Any) -> None:
        (folder / "sitecustomize.py").write_text(HIDER)
        self._hidden = folder / "hidden"
        self._cluster = cluster
        self.show_all()
        path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        self._node = cluster.add_node(env_vars={"PYTHONPATH": path, "HIDDEN": str(self._hidden)}, **node)

    def hide(self, name: str, version: str = "") -> None:
        """From now on processes do not find it, or find another version, unless they have imported it before."""
        self._hidden.write_text(f"{name}={version}")

    def show_all(self) -> None:
        self._hidden.write_text("")

    def remove(self) -> None:
        self._cluster.remove_node(self._node)
