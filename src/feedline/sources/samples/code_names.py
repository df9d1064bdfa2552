"""What a function's code names: global variables, modules that it imports when it runs; and whose code a module is.

Takes: code objects, names of packages. Gives: names, files, versions.
Promises: nothing is imported.
Not its job: what the names stand for (identity).
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions, packages_distributions, version
from importlib.util import find_spec, resolve_name
from types import CodeType

_STANDARD = sysconfig.get_path("stdlib")
_versions: dict[str, str | None] = {}


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of those within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from inner_codes(each)


def globals_in(code: CodeType) -> set[str]:
    """The global variables that it reads.

    >>> sorted(globals_in((lambda x: [len(y) + x.name for y in x]).__code__))
    ['len']
    """
    found = (each for inner in inner_codes(code) for each in dis.get_instructions(inner))
    return {each.argval for each in found if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")}


def names_in(code: CodeType) -> set[str]:
    """All names of globals and attributes."""
    return {name for inner in inner_codes(code) for name in inner.co_names}


def files_imported_in(code: CodeType, package: str) -> dict[str, str]:
    """The modules of the user's own that it imports when it runs, and their files."""
    found = {}
    for inner in inner_codes(code):
        level = 0
        for each in dis.get_instructions(inner):
            if each.opname == "IMPORT_NAME":
                name = _full_name(each.argval, level, package)
                if name and (file := _own_file(name)):
                    found[name] = file
            level = each.argval if type(each.argval) is int and each.opname.startswith("LOAD_") else level
    return found


def _full_name(name: str, level: int, package: str) -> str:
    try:
        return resolve_name("." * level + name, package) if level else name
    except ImportError:
        return ""


def _own_file(name: str) -> str:
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:  # finding it would import the package: the package itself has to do
        name = name.partition(".")[0]
    try:
        spec = find_spec(name)
    except Exception:  # of a module that is made by hand
        return ""
    origin = (spec.origin if spec is not None and spec.has_location else None) or ""
    return "" if _is_installed(origin) or origin.startswith(_STANDARD) else origin


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


def _distributions(package: str) -> list[str]:
    """The names of what has been installed with files of that package; a namespace has several."""
    if names := packages_distributions().get(package):
        return sorted(set(names))
    # Python 3.10 knows only those that say which packages they have; most do not.
    found = (
        each for each in distributions() if any(file.parts[0].split(".")[0] == package for file in each.files or ())
    )
    return sorted({each.metadata["Name"] for each in found})


def version_of(package: str) -> str | None:
    """The version of an installed library or of Python; None if it is the user's own code."""
    if package == "__main__":  # the user's script, whatever has started it
        return None
    file = str(getattr(sys.modules.get(package), "__file__", None) or "")
    if package in sys.stdlib_module_names and (not file or file.startswith(_STANDARD)):
        return "{}.{}".format(*sys.version_info[:2])
    if package not in sys.modules:
        return None
    if package not in _versions:
        found = None
        if _is_installed(file) or package == "feedline":
            nameless = "0" if package == "feedline" else None  # a file that was copied there has no version
            found = " ".join(f"{name} {version(name)}" for name in _distributions(package)) or nameless
        _versions[package] = found
    return _versions[package]
