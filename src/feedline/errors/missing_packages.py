"""Optional packages: imported where they are used; if one is missing, the error says what to install.

Takes: a module's name, the extra of feedline that installs it, what it is needed for. Gives: the module.
Not its job: which of several packages to prefer.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from feedline.errors import MissingPackage


def extra(module: str, name: str, wanted_for: str) -> Any:
    """Import a module that `pip install feedline[name]` installs.

    >>> extra("math", "images", "pictures").floor(2.5)
    2
    >>> extra("no_such_package", "images", "pictures as PNG")
    Traceback (most recent call last):
        ...
    feedline.errors.MissingPackage: pictures as PNG: the package no_such_package is not installed; \
pip install 'feedline[images]' brings it
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the module is installed, but something in it fails
        raise MissingPackage(
            f"{wanted_for}: the package {package} is not installed; pip install 'feedline[{name}]' brings it",
            name=package,
        ) from None
